const holder = document.getElementById("data");
const data = JSON.parse(holder.textContent);
const asked = data.questions.map(([label, concept, photo, picture]) => ({ label, concept, photo, picture }));
const key = `ccr-questions-${holder.dataset.digest}`;
const find = (id) => document.getElementById(id);
const WORDS = { y: "yes", n: "no", u: "unknown" };
let at = 0;
const kept = { answers: {}, by: data.by };
try {
  const before = JSON.parse(localStorage.getItem(key) || "{}");
  if (typeof before.by === "string") kept.by = before.by;
  for (const [number, told] of Object.entries(before.answers || {})) {
    const fits = Array.isArray(told) && Object.values(WORDS).includes(told[0]) && !Number.isNaN(Date.parse(told[1]));
    if (fits && Number(number) < asked.length) kept.answers[Number(number)] = told;
  }
} catch (_error) {
  /* what an older page or somebody else left there is no answer */
}

function keep() {
  try {
    localStorage.setItem(key, JSON.stringify(kept));
  } catch (_error) {
    find("lost").hidden = false;
  }
}

function open_ones() {
  return asked.map((_, number) => number).filter((number) => !(number in kept.answers));
}

function show() {
  const question = asked[at],
    same = asked.filter((other) => other.concept === question.concept);
  const done = asked.length - open_ones().length,
    place = `photo ${same.indexOf(question) + 1} of ${same.length}`;
  find("bar").max = asked.length;
  find("bar").value = done;
  find("count").textContent = `${done} of ${asked.length} answered; ${place} for this concept`;
  find("concept").textContent = question.concept;
  find("photo").src = data.pictures[question.picture];
  find("label").textContent = question.label ? `${question.label}, ` : "";
  find("path").textContent = question.photo;
  for (const button of document.querySelectorAll("[data-answer]")) {
    button.setAttribute("aria-pressed", String((kept.answers[at] || [])[0] === button.dataset.answer));
  }
  find("back").disabled = at === 0;
  find("on").disabled = at === asked.length - 1;
  find("done").hidden = done < asked.length;
}

function move(step) {
  at = Math.min(asked.length - 1, Math.max(0, at + step));
  show();
}

function answer(word) {
  kept.answers[at] = [word, `${new Date().toISOString().slice(0, 19)}+00:00`];
  keep();
  const left = open_ones();
  at = left.find((number) => number > at) ?? left[0] ?? at;
  show();
}

// As the library writes them: what a spreadsheet would compute gets an apostrophe before it.
function cell(text) {
  const safe = /^'*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function download() {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a name may be pasted with them, and a table takes none
  const by = kept.by.replace(/[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, " ").trim();
  const lines = [data.columns];
  asked.forEach((question, number) => {
    if (!(number in kept.answers)) return;
    const [word, when] = kept.answers[number];
    lines.push([question.label, question.concept, word, "person", by, when, question.photo]);
  });
  const text = lines.map((line) => `${line.map(cell).join(",")}\n`).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "answers.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === find("by")) return;
  const word = WORDS[event.key.toLowerCase()];
  if (word && !event.repeat) answer(word);
  else if (event.key === "ArrowLeft") move(-1);
  else if (event.key === "ArrowRight") move(1);
  else return;
  event.preventDefault();
});
for (const button of document.querySelectorAll("[data-answer]")) {
  button.addEventListener("click", () => answer(button.dataset.answer));
}
find("back").addEventListener("click", () => move(-1));
find("on").addEventListener("click", () => move(1));
find("download").addEventListener("click", download);
find("by").value = kept.by;
find("by").addEventListener("input", (event) => {
  kept.by = event.target.value;
  keep();
});
if (asked.length) {
  at = open_ones()[0] ?? 0;
  find("form").hidden = false;
  show();
}
