const main = document.querySelector("main"),
  digest = main.dataset.sheet,
  place = `ccr-judge-${digest}`;
const photos = [...main.querySelectorAll("section")];
const claims = photos.map((photo) => [...photo.querySelectorAll("li")]);
const order = claims.flatMap((list, at) => list.map((_, number) => [at, number]));
const who = document.querySelector("#judge"),
  said = document.querySelector("#progress");
let verdicts = claims.map((list) => list.map(() => "")),
  here = 0;
try {
  const kept = JSON.parse(localStorage.getItem(place));
  if (kept && kept.verdicts.length === verdicts.length) {
    verdicts = verdicts.map((list, at) =>
      list.map((_, number) => {
        const verdict = kept.verdicts[at][number];
        return ["true", "half", "false"].includes(verdict) ? verdict : "";
      }),
    );
    who.value = kept.judge || who.value;
  }
} catch {
  /* a browser that keeps nothing: save before the page is closed */
}
const open = () => order.findIndex(([at, number]) => !verdicts[at][number]);
const result = () => JSON.stringify({ sheet: digest, judge: who.value.trim(), verdicts }, null, 1);
const keep = () => {
  try {
    localStorage.setItem(place, result());
  } catch {
    /* as above */
  }
};
function draw() {
  const [at, number] = order[here];
  photos.forEach((photo, other) => {
    photo.hidden = other !== at;
  });
  claims.forEach((list, photo) =>
    list.forEach((line, claim) => {
      line.classList.toggle("here", photo === at && claim === number);
      line.querySelectorAll("button").forEach((button) => {
        button.setAttribute("aria-pressed", String(verdicts[photo][claim] === button.dataset.verdict));
      });
    }),
  );
  const done = verdicts.flat().filter(Boolean).length;
  said.textContent =
    `photo ${at + 1} of ${photos.length}, ${done} of ${order.length} claims judged` +
    (done === order.length ? ": all done, save the verdicts" : "");
  claims[at][number].scrollIntoView({ block: "nearest" });
}
function go(to) {
  here = Math.min(Math.max(to, 0), order.length - 1);
  draw();
}
function judge(verdict) {
  const [at, number] = order[here];
  verdicts[at][number] = verdict;
  keep();
  const later = order.findIndex(([photo, claim], place) => place > here && !verdicts[photo][claim]);
  go(later >= 0 ? later : open() >= 0 ? open() : here);
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === who) return;
  const verdict = { t: "true", h: "half", f: "false" }[event.key.toLowerCase()];
  if (verdict) judge(verdict);
  else if (["b", "arrowup", "arrowleft"].includes(event.key.toLowerCase())) go(here - 1);
  else if (["arrowdown", "arrowright"].includes(event.key.toLowerCase())) go(here + 1);
  else return;
  event.preventDefault();
});
claims.forEach((list, at) =>
  list.forEach((line, number) =>
    line.addEventListener("click", (event) => {
      here = order.findIndex(([photo, claim]) => photo === at && claim === number);
      const verdict = event.target.dataset.verdict;
      if (verdict) {
        judge(verdict);
      } else {
        draw();
      }
    }),
  ),
);
who.addEventListener("input", keep);
document.querySelector("#back").addEventListener("click", () => go(here - 1));
document.querySelector("#save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([result()], { type: "application/json" }));
  link.download = `verdicts-${digest}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
});
go(Math.max(open(), 0));
