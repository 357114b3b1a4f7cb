// The shell: navigation, the session's state, undo and redo, and which view is shown.

import { read, write } from "./address.js";
import { get, post, Refused, showing, upload } from "./api.js";
import { ask, toast } from "./dialogs.js";
import { bdi, empty, fill, h, icon, many, percent, spinner } from "./dom.js";
import { recall, recalled, remember } from "./kept.js";
import bench from "./views/bench.js";
import classPage from "./views/class.js";
import compare from "./views/compare.js";
import concept from "./views/concept.js";
import concepts from "./views/concepts.js";
import map from "./views/map.js";
import mistakes from "./views/mistakes.js";
import photo from "./views/photo.js";
import photos from "./views/photos.js";
import review from "./views/review.js";
import signature from "./views/signature.js";

const VIEWS = { photos, photo, mistakes, map, concepts, concept, bench, compare, review, class: classPage, signature };
const TABS = [
  ["photos", "Photos"],
  ["mistakes", "Mistakes"],
  ["map", "Map"],
  ["concepts", "Concepts"],
  ["review", "Review"],
  ["bench", "Bench"],
  ["compare", "Compare"],
];
const PART_OF = { photo: "photos", concept: "concepts", class: "review", signature: "review" };

const app = {
  state: null,
  current: null,
  view: null,
  go(view, values = {}, { replace = false } = {}) {
    const address = write(view, values);
    if (replace) {
      history.replaceState(history.state, "", address);
      show();
    } else if (location.hash === address) show();
    else location.hash = address;
  },
  // The name under which answers are kept; asked for once.
  reviewer: () => recall("ccr-reviewer", { forGood: true }) ?? "",
  // Who looks at claims: somebody without a name, who may answer them, is as blind as one who has not answered yet.
  viewer: () => app.reviewer() || (app.state.decides ? " " : ""),
  async whoAmI(again = false) {
    if (app.reviewer() && !again) return app.reviewer();
    const name = await ask({
      title: "Who are you?",
      text: "Your answers are kept under this name.",
      label: "Name",
      value: app.reviewer(),
      confirm: "Go on",
    });
    if (name) remember("ccr-reviewer", name, { forGood: true });
    return name;
  },
  // The names of the model's concepts, asked for once for each step.
  async named() {
    if (app.names && app.namesOf === app.state.version) return;
    const { concepts: lines, version } = await get("concepts");
    app.names = lines.map((one) => one.name);
    app.namesOf = version;
  },
  // What was said of a photo is shown already; numbers in the header may be others now.
  async noted() {
    take(await get("state"));
    draw();
  },
  // Another model answers now: what is shown is asked for again.
  async changed(state) {
    const before = app.state;
    take(state ?? (await get("state")));
    draw();
    const same = ["version", "pictures", "corrections"].every((name) => before[name] === app.state[name]);
    if (!same || (before.folds !== app.state.folds && app.state.folds === "ready")) app.current?.refresh?.();
  },
  async change(path, body, words) {
    try {
      await app.changed(await post(path, body));
      if (words) toast(typeof words === "function" ? words() : words, app.undoing());
      return true;
    } catch (error) {
      app.fail(error);
      return false;
    }
  },
  // Undo takes back this step and no other: somebody else may have taken one meanwhile.
  undoing() {
    const { version, can_undo: can } = app.state;
    return can ? { action: ["Undo", () => app.change("undo", { version }, "Undone")] } : {};
  },
  fail(error) {
    if (error.name === "AbortError") return;
    toast(error instanceof Refused ? error.message : `Something went wrong: ${error.message}`, { bad: true });
    if (!(error instanceof Refused)) console.error(error);
  },
  async save() {
    const name = await ask({
      title: "Save as a new model",
      text: "With its edit log, beside the model that was opened, which stays as it is.",
      label: "Name",
      value: `${app.state.title}-step-${app.state.position}`.replace(/[^\w .-]/g, "-"),
      confirm: "Save",
    });
    if (!name) return;
    try {
      toast(`Saved in ${(await post("save", { name })).path}`, { seconds: 10 });
    } catch (error) {
      app.fail(error);
    }
  },
  async open(file) {
    toast(`Embedding ${file.name} …`, { seconds: 3 });
    try {
      app.go("photo", { id: (await upload(file)).id });
    } catch (error) {
      app.fail(error);
    }
  },
};

function take(state) {
  app.state = state;
  showing(state.pictures);
}

const main = h("main", { id: "main", tabindex: "-1" });
const top = h("header.top");
const banner = h("div");
document.getElementById("app").append(top, banner, main);

function draw() {
  const { state } = app;
  const focused = [...top.querySelectorAll("a, button")].indexOf(document.activeElement);
  const here = PART_OF[app.view] ?? app.view;
  const tool = (name, label, enabled, path, words) =>
    h(
      "button",
      {
        class: "ghost icon",
        title: label,
        "aria-label": label,
        disabled: !enabled,
        onclick: () => app.change(path, { version: app.state.version }, words),
      },
      icon(name),
    );
  fill(
    top,
    h(
      "a",
      { class: "brand", href: "#photos" },
      h("img", { src: "static/icon.svg", alt: "" }),
      h(
        "span",
        h("b", bdi(state.title)),
        h("small", `${many(state.photos, "photo")}, ${many(state.concepts, "concept")}`),
      ),
    ),
    h(
      "nav",
      { class: "tabs", "aria-label": "Views" },
      TABS.map(([view, label]) =>
        h("a", { href: `#${view}`, "aria-current": view === here ? "page" : null }, icon(view), h("span", label)),
      ),
    ),
    h(
      "div.tools",
      state.flattered && state.held_accuracy !== null
        ? h(
            "a",
            {
              class: "score",
              href: "#mistakes",
              title: `${percent(state.held_accuracy, 1)} of ${many(state.held_photos, "photo")} right by refits that had not seen them; the model itself may have been trained on all of them`,
            },
            h("small", "out of fold"),
            h("b", percent(state.held_accuracy, 1)),
          )
        : state.accuracy === null
          ? null
          : state.flattered && ["possible", "computing"].includes(state.folds)
            ? h(
                "a",
                {
                  class: "score",
                  href: "#mistakes",
                  title: "Mistakes by refits that leave photos out, once they are made",
                },
                h("small", "out of fold"),
                h("b", "…"),
              )
            : h(
                "a",
                {
                  class: "score",
                  href: "#bench",
                  title: `${percent(state.accuracy, 1)} of ${state.validation} validation photos right; 95 % interval ${percent(state.interval[0], 1)} to ${percent(state.interval[1], 1)}`,
                },
                h("small", "validation"),
                h("b", percent(state.accuracy, 1)),
                state.flattered
                  ? h("small.wrong", "seen in training?")
                  : h("small", `${percent(state.interval[0])} – ${percent(state.interval[1])}`),
              ),
      state.read_only
        ? null
        : [
            tool("undo", "Undo", state.can_undo, "undo", "Undone"),
            tool("redo", "Redo", state.can_redo, "redo", "Done again"),
          ],
      h(
        "button",
        { class: "ghost icon", title: "Light or dark", "aria-label": "Switch between light and dark", onclick: turn },
        icon("sun"),
      ),
    ),
  );
  if (focused >= 0) top.querySelectorAll("a, button")[focused]?.focus();
  fill(
    banner,
    state.read_only
      ? h(
          "div.banner",
          state.decides
            ? "For review: your answers are kept; nothing else changes the model."
            : "Read-only: look around; nothing you do changes the model.",
        )
      : null,
  );
}

function turn() {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  remember("ccr-theme", document.documentElement.dataset.theme, { forGood: true });
  app.current?.themed?.();
}

function show() {
  const { view, values } = read(),
    first = app.view === null;
  if (!VIEWS[view]) {
    location.hash = "#photos";
    return;
  }
  if (app.view === view && app.current?.update?.(values)) {
    if (history.state?.key) comeBack();
    else history.replaceState({ key: `${Date.now()}-${Math.random()}` }, "");
    return;
  }
  app.current?.leave?.();
  app.view = view;
  document.title = `${TABS.find(([name]) => name === (PART_OF[view] ?? view))?.[1] ?? "Studio"} · ${app.state.title} · ccr studio`;
  draw();
  fill(main, spinner());
  const root = h("div");
  app.current = VIEWS[view](root, values, app);
  fill(main, root);
  if (!first) main.focus({ preventScroll: true }); // whoever reads with the ears is told of the new view, and Tab goes on in it
  comeBack();
}

// Every entry of the history has a number, under which the place on its page is kept: Back and a reload find it again.
history.scrollRestoration = "manual";
let restoring = 0;
function comeBack() {
  cancelAnimationFrame(restoring);
  const known = history.state?.key;
  if (!known) {
    history.replaceState({ ...history.state, key: `${Date.now()}-${Math.random()}` }, "");
    window.scrollTo(0, 0);
    return;
  }
  const wanted = recalled(`ccr-scroll-${known}`) ?? 0,
    until = performance.now() + 4000;
  const step = () => {
    if (history.state?.key !== known) return;
    window.scrollTo(0, wanted); // as far as the page is there already
    if (Math.abs(window.scrollY - wanted) > 2 && performance.now() < until) restoring = requestAnimationFrame(step);
    else restoring = 0;
  };
  step();
}
for (const kind of ["wheel", "pointerdown", "keydown"])
  window.addEventListener(
    kind,
    () => {
      cancelAnimationFrame(restoring);
      restoring = 0;
    },
    { passive: true },
  );
window.addEventListener(
  "scroll",
  () => {
    if (!restoring && history.state?.key) remember(`ccr-scroll-${history.state.key}`, window.scrollY);
  },
  { passive: true },
);

async function start() {
  fill(main, spinner());
  try {
    take(await get("state"));
  } catch (error) {
    fill(main, empty("The studio does not answer.", error.message));
    return;
  }
  show();
  window.addEventListener("hashchange", show);
  watch();
}

// Somebody else, or a script, may change the model; and the encoder becomes ready.
function watch() {
  setInterval(async () => {
    if (document.hidden || app.watching) return;
    try {
      const before = app.state,
        state = await get("state");
      if (app.state !== before) return; // something newer came meanwhile
      if (
        state.pictures !== before.pictures ||
        state.version !== app.state.version ||
        state.encoder !== app.state.encoder ||
        state.job?.state !== app.state.job?.state ||
        state.corrections !== app.state.corrections ||
        state.folds !== app.state.folds
      )
        await app.changed(state);
    } catch {
      /* shown when something is asked for */
    }
  }, 5000);
}

document.addEventListener("dragover", (event) => {
  if (event.dataTransfer?.types.includes("Files")) {
    event.preventDefault();
    document.body.classList.add("dropping");
  }
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
});
document.addEventListener("drop", (event) => {
  document.body.classList.remove("dropping");
  const file = event.dataTransfer?.files[0];
  if (file) {
    event.preventDefault();
    app.open(file);
  }
});
document.addEventListener("keydown", (event) => {
  if (
    event.target.closest("input:not([type=checkbox], [type=range], [type=file]), textarea, dialog") ||
    !(event.ctrlKey || event.metaKey) ||
    event.key.toLowerCase() !== "z" ||
    app.state?.read_only
  )
    return;
  event.preventDefault();
  if (event.shiftKey ? app.state.can_redo : app.state.can_undo)
    app.change(
      event.shiftKey ? "redo" : "undo",
      { version: app.state.version },
      event.shiftKey ? "Done again" : "Undone",
    );
});
// To what a view is about, past its filters.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  (main.querySelector("[data-content]") ?? main).focus();
});

start();
