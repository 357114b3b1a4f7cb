// The bench: find photos by words, add and remove concepts, refit with a live curve, see what it brought, save.

import { first } from "../address.js";
import { followRefit, get, latest, post, remove } from "../api.js";
import { combobox } from "../combobox.js";
import { curve } from "../curve.js";
import { toast } from "../dialogs.js";
import {
  bdi,
  card,
  classLink,
  conceptLink,
  debounce,
  download,
  dropdown,
  fill,
  h,
  icon,
  kept,
  many,
  muted,
  percent,
  searchForm,
  signed,
  spinner,
} from "../dom.js";
import { recalled, remember } from "../kept.js";
import { keepSet, tile } from "../tiles.js";

const MOST = 13; // weights per class on the slider: as many stand for all

export default function bench(root, values, app) {
  const wished = `ccr-wishes-${app.state.store}`; // a reload keeps the sliders
  app.wishes ??= recalled(wished) ?? {};
  const keepWishes = () => remember(wished, app.wishes);
  let words = first(values, "words", ""),
    job = app.state.job,
    following = 0,
    against = "base",
    alive = true;
  const searching = latest(),
    measuring = latest();
  const results = h("div"),
    progress = h("div", { "aria-live": "polite" }),
    effect = h("div"),
    steps = h("section.card"),
    settings = h("section.card");
  const input = h("input", {
    type: "search",
    value: words,
    placeholder: "such as: red skin, wooden crate, leaf on the stem",
    "aria-label": "Words to look for",
    maxlength: 200,
  });
  const locked = app.state.read_only,
    removal = h("div");

  fill(
    root,
    h(
      "div.head",
      h("div.grow", h("h1", "Bench"), muted("Say what the model should look at, refit, and watch what it brings.")),
    ),
    h(
      "div.bench",
      card("Find a concept by words", searchForm(input, find), results, removal),
      h("div.stack", locked ? null : settings, steps),
      h("div.stack", h("section.card", effect), card(locked ? "Export" : "Save and export", exports())),
    ),
  );
  input.addEventListener(
    "input",
    debounce(() => find(), 350),
  );

  async function find() {
    if (!alive) return; // typed just before the page was left
    const signal = searching.signal();
    words = input.value.trim();
    history.replaceState(history.state, "", words ? `#bench?words=${encodeURIComponent(words)}` : "#bench");
    if (!words) {
      fill(results, hint());
      return;
    }
    if (!results.querySelector(".results")) fill(results, spinner("Searching"));
    try {
      drawFound(await get("search", { words, limit: 18 }, signal));
    } catch (error) {
      if (error.name !== "AbortError")
        fill(results, h("p", { class: "muted", style: { "margin-top": ".8rem" } }, error.message));
    }
  }

  function drawFound(answer) {
    const { problems, left_out: left } = answer,
      plus = (name, label, first) =>
        h("button", { class: first ? "primary" : "", onclick: () => add(name) }, icon("plus"), label);
    fill(
      results,
      problems.length
        ? h(
            "p",
            { class: "note", id: "doubtful-words", style: { "margin-top": ".8rem" } },
            problems.map((one) => `As a concept this will hardly do: ${one.reason}; ${one.remedy}. `),
            "The photos are the nearest there are, whatever the words.",
          )
        : null,
      h(
        "div",
        { class: "row", style: { margin: ".8rem 0 .3rem" } },
        answer.known
          ? h(
              "a",
              { class: "button", href: `#concept?name=${encodeURIComponent(answer.words)}` },
              "The model has it: open it",
            )
          : locked
            ? null
            : [
                left.map((name) => plus(name, ["Take in ", bdi(name), ", which the list has"], true)),
                left.includes(answer.words)
                  ? null
                  : plus(
                      answer.words,
                      problems.length ? "Add it all the same" : "Add as a concept",
                      !problems.length && !left.length,
                    ),
              ],
        h(
          "span.muted",
          "near it: ",
          answer.nearest
            .filter((one) => one.concept !== answer.words)
            .slice(0, 3)
            .map((one, at) => [at ? ", " : "", conceptLink(one.concept)]),
        ),
      ),
      answer.grounded ? muted("Found by the words together with what is known of them: which classes show it.") : null,
      h(
        "div.results",
        answer.photos.map((photo) =>
          tile(photo, {
            values: { from: location.hash.slice(1) },
            onclick: () =>
              keepSet(
                location.hash.slice(1),
                answer.photos.map((one) => one.row),
              ),
          }),
        ),
      ),
    );
  }
  const hint = () =>
    h(
      "div",
      { class: "drop-hint", style: { "margin-top": ".8rem" } },
      app.state.encoder === "loading"
        ? "The encoder is being loaded …"
        : "Type, and the photos that show it appear at once. Then add it as a concept.",
    );

  async function add(name) {
    if (await app.change("concepts", { name }, null)) {
      toast(`${name} is a concept now. It says nothing until you refit.`, { action: ["Refit", () => refit("head")] });
      find();
    }
  }

  function drawRemoval() {
    if (!locked)
      fill(
        removal,
        h(
          "div",
          { style: { "margin-top": "1rem" } },
          combobox({
            label: "Remove a concept",
            placeholder: "Which one? It can be undone.",
            names: () => app.names ?? [],
            careful: true,
            take: (name) => app.change("edits", { action: "suppress", concept: name }, `${name} is suppressed.`),
          }),
        ),
      );
  }

  // A setting that was moved is a wish for the next refit; what was not moved stays as it is, also what no slider reaches.
  function slider(name, label, [from, to, step], held, heldWords, note, words, wish = (value) => value) {
    const output = h("output", { for: name, class: "number strong" }),
      reset = h(
        "button",
        {
          class: "link small",
          "aria-label": `${label}: as it is`,
          onclick: () => {
            delete app.wishes[name];
            draw();
            range.focus();
          },
        },
        "reset",
      );
    const range = h("input", {
      type: "range",
      id: name,
      min: from,
      max: to,
      step,
      oninput: () => {
        app.wishes[name] = wish(Number(range.value));
        draw();
      },
    });
    const draw = () => {
      const wished = app.wishes[name],
        moved = wished !== undefined;
      keepWishes();
      range.value = moved ? (wished === "all" ? to : wished) : held;
      range.style.setProperty("--filled", `${(100 * (range.value - from)) / (to - from)}%`);
      output.textContent = moved ? (wished === "all" ? "all" : words(wished)) : heldWords;
      range.setAttribute("aria-valuetext", output.textContent);
      reset.classList.toggle("hidden", !moved);
    };
    draw();
    return h(
      "div.setting",
      h("div.line", h("label", { for: name }, label), h("span.row", reset, output)),
      range,
      muted(note),
    );
  }

  function drawSettings() {
    if (job?.state === "done" && job.id === app.wished) {
      app.wishes = {};
      app.wished = null;
      keepWishes();
    }
    kept(settings, fillSettings);
  }

  function fillSettings() {
    const now = app.state.settings,
      held = now.weights_per_class;
    const fidelity = slider(
      "fidelity",
      "Fidelity to the words",
      [0.7, 1, 0.005],
      now.fidelity ?? 0.875,
      now.fidelity === null ? `radius ${now.radius}` : now.fidelity.toFixed(3),
      "How true concepts stay to what their words see. 1 leaves them as they are.",
      (value) => value.toFixed(3),
    );
    const length = slider(
      "length",
      "Concepts per photo",
      [3, 30, 1],
      now.length ?? app.state.length,
      now.length === null ? (now.threshold === null ? "as it is" : `threshold ${now.threshold}`) : String(now.length),
      "About so many are shown in a photo.",
      String,
    );
    const weights = slider(
      "weights_per_class",
      "Weights per class",
      [1, MOST, 1],
      typeof held === "number" ? held : MOST,
      String(held ?? "all"),
      "How many concepts may speak for or against a class.",
      String,
      (value) => (value >= MOST ? "all" : value),
    );
    const busy = job?.state === "running";
    fill(
      settings,
      h("h2", "Refit"),
      h(
        "div",
        { class: "stack", style: { gap: ".7rem" } },
        fidelity,
        length,
        weights,
        h(
          "div.row",
          busy
            ? h("button", { class: "danger", onclick: cancel }, "Stop")
            : h(
                "button",
                { class: "primary", id: "refit", onclick: () => refit("full", { kind: "full", ...app.wishes }) },
                "Refit",
              ),
          h(
            "button",
            {
              id: "refit-head",
              disabled: busy,
              title: "The concepts stay where they are; weights that were set stay",
              onclick: () => refit("head"),
            },
            "Weights only",
          ),
        ),
        muted(
          `Trained on ${many(app.state.training, "photo")}. Refit fits concepts and weights anew; weights alone take less.`,
        ),
        progress,
      ),
    );
    drawJob();
  }

  async function refit(kind, body = { kind: "head" }) {
    try {
      job = await post("refit", kind === "head" ? { kind: "head" } : body);
      app.wished = kind === "full" ? job.id : null;
      app.state.job = job;
      drawSettings();
      follow();
    } catch (error) {
      app.fail(error);
    }
  }
  async function cancel() {
    try {
      job = await remove("refit");
      drawSettings();
    } catch (error) {
      app.fail(error);
    }
  }

  async function follow() {
    const mine = (following += 1);
    const ended = await followRefit(
      () => alive && mine === following,
      (now) => {
        job = now;
        drawJob();
      },
    );
    if (!ended) return;
    if (job.state === "done") {
      await app.changed();
      toast(`Refitted in ${job.seconds.toFixed(1)} s${job.message ? `; ${job.message}` : ""}`, app.undoing());
    } else if (job.state === "failed") toast(job.message, { bad: true });
    drawSettings();
  }

  function drawJob() {
    if (!job) {
      fill(progress);
      return;
    }
    const state = {
      running: "Refitting …",
      done: `Refitted in ${job.seconds.toFixed(1)} s`,
      failed: `It failed: ${job.message}`,
      cancelled: "Stopped; the model is as it was",
    }[job.state];
    fill(
      progress,
      h(
        "p",
        { class: "strong small", role: "status" },
        job.state === "running" ? h("span.spinner.inline") : null,
        ` ${state}`,
      ),
      job.kind === "full" && job.curve.length ? curve(job) : null,
    );
  }

  async function measure(scope = "validation") {
    if (!effect.firstChild) fill(effect, spinner());
    try {
      const signal = measuring.signal();
      const one =
        scope === "test"
          ? await post(`effect/test?against=${encodeURIComponent(against)}`, {}, signal)
          : await get("effect", { against }, signal);
      drawEffect(one);
    } catch (error) {
      if (error.name !== "AbortError") app.fail(error);
    }
  }

  function drawEffect(one) {
    app.honest ||= one.before_version === "honest";
    const doubt =
      one.scope !== "validation"
        ? ""
        : one.before_flattered && !one.flattered
          ? "The model before may have been trained on these photos, so its accuracy is flattered; the model now was not. The difference says little."
          : one.flattered
            ? "The model may have been trained on these photos, so its accuracy here is flattered: refit to learn what it is worth."
            : one.before_version === "honest"
              ? "Before: the model with the settings it was opened with, fitted on the training photos alone, as the model now was."
              : "";
    const refitted = one.before_version === "honest" || (against !== "base" && app.honest),
      choices = [
        ["base", refitted ? "opened, refitted as it was" : "as it was opened"],
        ...(app.honest ? [["opened", "as it was opened"]] : []),
        ["previous", "one step before"],
      ];
    const choose = dropdown("Compare with", choices, against, (value) => {
      against = value;
      measure();
    });
    const line = (name, n, before, after, low, high, all = false) =>
      h(
        "div",
        { class: `ba ${all ? "all" : ""}` },
        h("span", all ? name : [classLink(name), h("span.muted", ` ${n}`)]),
        h(
          "span",
          {
            class: "rulers",
            role: "img",
            "aria-label": `before ${percent(before, 1)}, after ${percent(after, 1)}, 95 % interval ${percent(high[0])} to ${percent(high[1])}`,
          },
          span("before", before, low),
          span("after", after, high),
        ),
        h(
          "span",
          { class: `delta ${after > before ? "right" : after < before ? "wrong" : "muted"}` },
          after === before ? "same" : signed(100 * (after - before), 1),
        ),
      );
    const changed = one.classes.filter((item) => item.after !== item.before),
      same = one.classes.filter((item) => item.after === item.before);
    const lines = (items) =>
      items.map((item) => line(item.name, item.n, item.before, item.after, item.before_interval, item.after_interval));
    fill(
      effect,
      h(
        "div",
        { class: "row", style: { "margin-bottom": ".5rem" } },
        h("h2.grow", one.scope === "test" ? "On the test photos" : "Before and after"),
        choose,
      ),
      one.n
        ? [
            h(
              "p",
              h("span.big-number", percent(one.after, 1)),
              h(
                "span.muted",
                ` of ${many(one.n, `${one.scope} photo`)}; 95 % interval ${percent(one.after_interval[0])} to ${percent(one.after_interval[1])}. Before: ${percent(one.before, 1)}; ${many(one.changed, "prediction")} changed.`,
              ),
            ),
            doubt
              ? h("p", { class: one.before_flattered || one.flattered ? "note" : "muted", id: "doubt" }, doubt)
              : null,
            h(
              "p",
              { class: "muted small", "aria-hidden": "true" },
              "● before   ■ after, with 95 % intervals, from 0 to 100 %",
            ),
            h(
              "div.before-after",
              line("all classes", one.n, one.before, one.after, one.before_interval, one.after_interval, true),
              lines(changed),
            ),
            same.length
              ? h(
                  "details",
                  { style: { "margin-top": ".6rem" }, open: !changed.length && same.length <= 6 },
                  h("summary.small", `${many(same.length, "class", "classes")} as before`),
                  h("div", { class: "before-after", style: { "margin-top": ".5rem" } }, lines(same)),
                )
              : null,
          ]
        : muted("There are no labelled photos to measure on."),
      app.state.test && !locked
        ? h(
            "div",
            { class: "row", style: { "margin-top": ".8rem" } },
            one.scope === "test"
              ? h("button", { onclick: () => measure() }, "Back to validation")
              : h("button", { onclick: () => measure("test") }, "Measure on test photos"),
            h("span.muted", one.looks ? `looked at ${many(one.looks, "time")}` : "not looked at yet"),
          )
        : null,
    );
  }
  const span = (kind, at, [low, high]) => [
    h("i", { class: `span ${kind}`, style: { left: `${100 * low}%`, width: `${100 * (high - low)}%` } }),
    h("i", { class: `dot ${kind}`, style: { left: `${100 * at}%` } }),
  ];

  function drawSteps() {
    const { state } = app;
    const act = (name, label, enabled, path, done) =>
      h(
        "button",
        { disabled: !enabled, onclick: () => app.change(path, { version: app.state.version }, done) },
        icon(name),
        label,
      );
    fill(
      steps,
      h(
        "div",
        { class: "row", style: { "margin-bottom": ".5rem" } },
        h("h2.grow", "Steps"),
        locked
          ? null
          : [
              act("undo", "Undo", state.can_undo, "undo", "Undone"),
              act("redo", "Redo", state.can_redo, "redo", "Done again"),
            ],
      ),
      h(
        "ol.steps",
        state.steps.map((step, at) =>
          h(
            "li",
            {
              "data-number": at,
              class: at === state.position ? "now" : at > state.position ? "undone" : "",
              "aria-current": at === state.position ? "step" : null,
            },
            step.words,
          ),
        ),
      ),
      locked ? null : h("p", { class: "muted", style: { "margin-top": ".5rem" } }, "Every step is on disk at once."),
    );
    steps.querySelector(".now")?.scrollIntoView({ block: "nearest" });
  }

  function exports() {
    return h(
      "div.row",
      locked ? null : h("button", { class: "primary", id: "save", onclick: app.save }, "Save as a model"),
      download("exports/report.html", "Report"),
      download("exports/concepts.txt", "Concept list"),
      download("exports/edits.json", "Edit log"),
      download("photos.csv", "Photos as CSV"),
      download("exports/corrections.csv", "Corrections"),
    );
  }
  drawSettings();
  drawSteps();
  drawRemoval();
  measure();
  find();
  app.named().catch(app.fail);
  if (job?.state === "running") follow();
  return {
    update(next) {
      const asked = first(next, "words", "");
      if (asked !== words) {
        input.value = asked;
        find();
      }
      return true;
    },
    refresh() {
      job = app.state.job;
      app.named().catch(app.fail);
      drawSettings();
      drawSteps();
      measure();
      if (words) find();
    },
    leave() {
      alive = false;
      searching.stop();
      measuring.stop();
    },
  };
}
