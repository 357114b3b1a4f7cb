// A concept: its photos, its fidelity, its weights; renamed, suppressed, scaled, pinned, or taught by yes and no.

import { first, write } from "../address.js";
import { get, latest, post } from "../api.js";
import { bars } from "../bars.js";
import { ask } from "../dialogs.js";
import { bdi, card, classLink, empty, fill, h, icon, kept, many, muted, percent, searchForm, spinner } from "../dom.js";
import { recalled, remember } from "../kept.js";
import { strip } from "../tiles.js";

const FLAGS = {
  fidelity: "Its scores have drifted from what its words see.",
  images: "It is seen in other photos than its words are.",
};

export default function concept(root, values, app) {
  let name = first(values, "name", ""),
    teaching = first(values, "teach") === "new",
    shown = null;
  const shows = new Set((first(values, "shows", "") || "").split(",").filter(Boolean).map(Number)),
    lacks = new Set();
  const asking = latest(),
    more = latest();
  let found = [];

  // Marks that are not taught yet are kept by the browser: looking at a photo, or a reload, loses none.
  const place = () => `ccr-marks-${app.state.pictures}-${name}`;
  const keepMarks = () => {
    const known = recalled(place(), { forGood: true });
    if (known || shows.size + lacks.size) remember(place(), [[...shows], [...lacks]], { forGood: true });
  };
  function findMarks() {
    const [yes, no] = recalled(place(), { forGood: true }) ?? [[], []];
    yes.forEach((row) => shows.add(row));
    no.forEach((row) => {
      if (!shows.has(row)) lacks.add(row);
    });
  }
  findMarks();

  async function load() {
    if (teaching && !name) {
      drawNew();
      return;
    }
    if (!shown) fill(root, spinner());
    try {
      shown = await get("concept", { name }, asking.signal());
    } catch (error) {
      if (error.name !== "AbortError")
        fill(root, h("h1", bdi(name)), empty(error.message, h("a", { href: "#concepts" }, "All concepts")));
      return;
    }
    draw();
  }

  const votes = (photo) => {
    if (app.state.read_only) return null;
    const button = (set, other, kind, label, text) =>
      h(
        "button",
        {
          class: kind,
          "aria-label": `${photo.name} ${label}`,
          "aria-pressed": String(set.has(photo.row)),
          "data-vote": kind,
          onclick: (event) => {
            if (set.has(photo.row)) set.delete(photo.row);
            else {
              set.add(photo.row);
              other.delete(photo.row);
            }
            kept(root, () =>
              root.querySelectorAll(`[data-votes="${photo.row}"]`).forEach((box) => box.replaceWith(votes(photo))),
            );
            lesson();
            event.preventDefault();
          },
        },
        text,
      );
    return h(
      "div",
      { class: "votes", "data-votes": photo.row },
      button(shows, lacks, "yes", "shows it", "yes"),
      button(lacks, shows, "no", "does not show it", "no"),
    );
  };
  const photos = (list) => strip(list, { values: { from: location.hash.slice(1) }, extra: votes });
  const section = (title, note, list, id) =>
    h(
      "section",
      { class: "card", id },
      h("h2", title),
      note ? muted(note) : null,
      list.length ? photos(list) : muted("none"),
    );

  const bar = h("div");
  function lesson() {
    keepMarks();
    fill(
      bar,
      shows.size + lacks.size
        ? h(
            "div.lesson",
            h(
              "b",
              `${many(shows.size, "photo")} show${shows.size === 1 ? "s" : ""} it, ${lacks.size} do${lacks.size === 1 ? "es" : ""} not`,
            ),
            h(
              "span.muted.grow",
              shows.size < 2 || lacks.size < 2
                ? "At least two of each, please."
                : "What the photos show, and the words, make the concept.",
            ),
            h("button", { class: "primary", disabled: shows.size < 2 || lacks.size < 2, onclick: teach }, "Teach it"),
            h(
              "button",
              {
                class: "ghost",
                onclick: () => {
                  shows.clear();
                  lacks.clear();
                  lesson();
                  if (shown) draw();
                  else drawNew();
                },
              },
              "Clear",
            ),
          )
        : null,
    );
  }

  async function teach() {
    const called =
      teaching && !name
        ? await ask({
            title: "A concept by example",
            text: "Its words draw it a little, the less the more photos there are.",
            label: "What is it called?",
            confirm: "Teach it",
          })
        : name;
    if (!called) return;
    const fresh = !shown || shown.name !== called;
    if (
      await app.change(
        "lessons",
        { name: called, shows: [...shows], lacks: [...lacks] },
        () =>
          `${fresh ? `${called} is taught; it says nothing until you refit.` : `${called} is taught anew.`} ${missed(app.state.steps[app.state.position].edit)}`,
      )
    ) {
      shows.clear();
      lacks.clear();
      keepMarks();
      teaching = false;
      app.names = null;
      app.go("concept", { name: called });
    }
  }

  // The lesson's own error: each photo left out in turn, and judged by the others.
  function missed({ shows: yes, lacks: no, error }) {
    const count = yes.length + no.length;
    if (error === null || error === undefined || !count) return "";
    return `Left out in turn, ${Math.round(error * count)} of its ${count} photos fell on the wrong side${error >= 0.4 ? ": no better than a coin. Mark more photos, or others." : "."}`;
  }

  // Answers that were given on the photos' own pages.
  function answered() {
    const { shows: yes, lacks: no } = shown.answers;
    if (!yes.length && !no.length) return null;
    const one = h(
      "section",
      { class: "card", id: "answers" },
      h("h2", `On photos: ${many(yes.length, "time")} “it is here”, ${many(no.length, "time")} “not here”`),
      muted("The next refit learns from these answers. As marks, they also teach the concept at once."),
      app.state.read_only
        ? null
        : h(
            "button",
            {
              onclick: () => {
                for (const row of yes) if (!lacks.has(row)) shows.add(row);
                for (const row of no) if (!shows.has(row)) lacks.add(row);
                lesson();
                draw();
              },
            },
            "Take them as marks",
          ),
    );
    append(one, yes, no, ["✓ it is here", "✗ not here"]);
    return one;
  }

  // The photos of these rows, each with what was said of it.
  function append(one, yes, no, words) {
    post("selections", { rows: [...yes, ...no] })
      .then((kept) => get("photos", { selection: kept.id, split: Object.keys(app.state.splits), limit: 200 }))
      .then((answer) =>
        one.append(
          strip(answer.photos, {
            values: { from: location.hash.slice(1) },
            extra: (photo) => [muted(words[yes.includes(photo.row) ? 0 : 1]), votes(photo)],
          }),
        ),
      )
      .catch(app.fail);
  }

  function past() {
    const { shows: yes, lacks: no } = shown.lesson;
    if (!yes.length && !no.length) return null;
    const one = h(
      "section",
      { class: "card", id: "lesson" },
      h(
        "h2",
        `Taught by ${many(yes.length, "photo")} that show${yes.length === 1 ? "s" : ""} it and ${no.length} that do${no.length === 1 ? "es" : ""} not`,
      ),
      h(
        "p",
        { class: shown.lesson.error >= 0.4 ? "note" : "muted" },
        missed(shown.lesson),
        " They count in the next lesson, too; a new mark on one of them overrules.",
      ),
    );
    append(one, yes, no, ["✓ shows it", "✗ does not"]);
    return one;
  }

  function drawNew() {
    const box = h("div");
    fill(
      root,
      h(
        "div.head",
        h("a", { class: "button ghost", href: "#concepts" }, icon("left"), "Concepts"),
        h("h1.grow", "A concept by example"),
      ),
      h(
        "p",
        "Mark photos that show it with yes, and photos that look alike but do not with no. Search by words for more.",
      ),
      box,
      bar,
    );
    const input = h("input", {
      type: "search",
      placeholder: "Find photos by words …",
      "aria-label": "Find photos by words",
    });
    const results = h("div");
    const search = async () => {
      const signal = more.signal();
      if (!input.value.trim()) return;
      try {
        found = (await get("search", { words: input.value, limit: 36 }, signal)).photos;
        fill(results, photos(found));
      } catch (error) {
        app.fail(error);
      }
    };
    fill(box, searchForm(input, search), results);
    box.style.marginBottom = "1rem";
    results.style.marginTop = "1rem";
    marked(results);
    lesson();
  }

  async function marked(results) {
    const rows = [...shows, ...lacks];
    if (!rows.length) return;
    try {
      const signal = more.signal(),
        one = await post("selections", { rows }, signal);
      found = (await get("photos", { selection: one.id, limit: 200 }, signal)).photos;
      fill(results, photos(found));
    } catch (error) {
      app.fail(error);
    }
  }

  function draw() {
    const edit = (action, body, words) => app.change("edits", { action, concept: name, ...body }, words);
    const actions = app.state.read_only
      ? null
      : h(
          "div.row",
          h(
            "button",
            {
              onclick: async () => {
                const to = await ask({
                  title: "Rename the concept",
                  text: "Predictions stay as they are.",
                  label: "New name",
                  value: name,
                  confirm: "Rename",
                });
                if (to && to !== name) {
                  const before = name;
                  name = to;
                  app.names = null;
                  if (await edit2(before, to)) app.go("concept", { name: to }, { replace: true });
                  else name = before;
                }
              },
            },
            "Rename",
          ),
          h(
            "button",
            {
              onclick: async () => {
                const factor = await ask({
                  title: "Scale the concept",
                  text: "All its weights are multiplied: 0.5 halves what it contributes, −1 turns it round.",
                  label: "Factor",
                  value: "0.5",
                  type: "number",
                  step: "0.05",
                  confirm: "Scale",
                });
                if (factor !== null && factor !== "")
                  edit("scale", { factor: Number(factor) }, `${name} is scaled by ${factor}.`);
              },
            },
            "Scale",
          ),
          h(
            "button",
            {
              disabled: shown.pinned,
              title: "Back to where its words put it, and kept there by refits",
              onclick: () => edit("pin", {}, `${name} is pinned to its words.`),
            },
            icon("pin"),
            shown.pinned ? "Pinned" : "Pin",
          ),
          h(
            "button",
            {
              class: "danger",
              onclick: async () => {
                if (
                  await ask({
                    title: `Suppress ${name}?`,
                    text: "No prediction uses or shows it any more. It can be undone.",
                    confirm: "Suppress",
                    danger: true,
                  })
                ) {
                  app.names = null;
                  const gone = name;
                  location.hash = "#concepts";
                  await app.change("edits", { action: "suppress", concept: gone }, `${gone} is suppressed.`);
                }
              },
            },
            "Suppress",
          ),
        );
    const drift = h("div.stack", spinner("Comparing with its words"));
    const facts = h(
      "section.card",
      h(
        "div.facts",
        fact(shown.photos.toLocaleString("en"), `photos show it, ${percent(shown.share)}`),
        fact("…", "fidelity to its words", "fidelity"),
        fact(
          String(shown.weights.length),
          shown.weights.length === 1 ? "class has a weight for it" : "classes have a weight for it",
        ),
      ),
      h("div", { id: "flags" }),
    );
    fill(
      root,
      h(
        "div.head",
        h("a", { class: "button ghost", href: "#concepts" }, icon("left"), "Concepts"),
        h("h1.grow", bdi(shown.name)),
        actions,
      ),
      h(
        "div.concept",
        h(
          "div.stack",
          section("Most", "Photos that show it most; the number says how strongly.", shown.most, "most"),
          section(
            "Borderline",
            "Photos that show it only just: say yes or no, and it learns.",
            shown.borderline,
            "borderline",
          ),
          past(),
          answered(),
          drift,
        ),
        h(
          "div.stack",
          facts,
          weights(),
          h("section", { class: "card", id: "neighbours" }, h("h2", "Neighbours")),
          h(
            "a",
            { class: "button", href: write("photos", { sort: "concept", by: shown.name, descending: "true" }) },
            "All photos, sorted by it",
          ),
        ),
      ),
      bar,
    );
    lesson();
    loadDrift(drift);
  }

  const edit2 = (before, to) =>
    app.change("edits", { action: "rename", concept: before, to }, `${before} is called ${to} now.`);
  const fact = (value, words, id) => h("div.fact", h("b", { id }, value), h("span", words));

  function weights() {
    const set = (line) => async (event) => {
      if (event.target.value.trim() === "") {
        event.target.value = line.weight.toFixed(2);
        return;
      }
      const value = Number(event.target.value);
      if (Number.isFinite(value) && value !== line.weight)
        await app.change(
          "edits",
          {
            action: value === 0 ? "zero_weight" : "set_weight",
            concept: name,
            class: line.class,
            ...(value === 0 ? {} : { value }),
          },
          value === 0
            ? `${name} is never a reason for ${line.class} now, also after a refit.`
            : `${name} weighs ${value} for ${line.class}.`,
        );
    };
    const rows = shown.weights.map((line) => ({
      name: line.class,
      class: line.class,
      value: line.carries,
      hint: `${percent(line.share)} of the class's photos show it`,
    }));
    return card(
      "The classes it carries",
      rows.length
        ? [
            muted("What it adds to each class's score, on average over the class's photos."),
            bars(rows),
            h("h3", { style: { margin: ".9rem 0 .4rem" } }, "Its weight in each"),
            h(
              "div.weights",
              shown.weights.map((line) =>
                h(
                  "div.weight",
                  classLink(line.class),
                  h("input", {
                    type: "number",
                    step: 0.1,
                    value: line.weight.toFixed(2),
                    disabled: app.state.read_only,
                    "aria-label": `Weight for ${line.class}`,
                    onchange: set(line),
                  }),
                  h("span.muted.small", percent(line.share)),
                ),
              ),
            ),
          ]
        : h("p", "None yet: refit on the bench, and classes may take it up."),
      rows.length || app.state.read_only ? null : h("a", { class: "button", href: "#bench" }, "To the bench"),
    );
  }

  async function loadDrift(box) {
    try {
      const one = await get("concept/drift", { name }, more.signal());
      const place = root.querySelector("#fidelity");
      if (place) place.textContent = one.fidelity === null ? "–" : one.fidelity.toFixed(2);
      fill(
        root.querySelector("#flags"),
        one.flags.map((flag) =>
          h("p", { class: "wrong small", style: { "margin-top": ".6rem" } }, FLAGS[flag] ?? flag),
        ),
      );
      fill(
        box,
        section(
          `Gained by refinement: ${one.gained.count}`,
          "The model sees it here; its words alone would not.",
          one.gained.photos,
          "gained",
        ),
        section(
          `Lost by refinement: ${one.lost.count}`,
          "Its words see it here; the model does not.",
          one.lost.photos,
          "lost",
        ),
      );
      fill(
        root.querySelector("#neighbours"),
        h("h2", "Neighbours"),
        muted("Concepts whose words lie nearest; 1.00 would be the same."),
        bars(
          one.neighbours.map((near) => ({
            name: near.concept,
            concept: near.concept,
            value: near.cosine,
            text: near.cosine.toFixed(2),
          })),
          { scale: 1 },
        ),
      );
    } catch (error) {
      if (error.name !== "AbortError") fill(box, muted(error.message));
    }
  }

  load();
  return {
    update(next) {
      const before = name;
      name = first(next, "name", "");
      teaching = first(next, "teach") === "new";
      if (before !== name) {
        shown = null;
        shows.clear();
        lacks.clear();
        findMarks();
      }
      load();
      return true;
    },
    refresh: () => load(),
    leave() {
      asking.stop();
      more.stop();
    },
  };
}
