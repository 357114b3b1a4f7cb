// Photos: a wall with filters that combine; the whole state is in the address.

import { all, first } from "../address.js";
import { file, get, latest, post } from "../api.js";
import { combobox } from "../combobox.js";
import { classLink, conceptLink, dropdown, empty, fill, h, icon, kept, many, muted, percent, spinner } from "../dom.js";
import { chips, rail } from "../filters.js";
import { wall } from "../wall.js";

const number = (text) => (text === "" || text === undefined ? null : Number(text));

export function wishOf(values) {
  return {
    classes: all(values, "classes"),
    predicted: all(values, "predicted"),
    split: all(values, "split"),
    right: first(values, "right", null),
    low: Number(first(values, "low", 0)) || 0,
    high: Number(first(values, "high", 1)),
    selection: first(values, "selection", null),
    concepts: all(values, "concept").map((concept, at) => ({
      concept,
      above: number(all(values, "above")[at]),
      below: number(all(values, "below")[at]),
    })),
    sort: first(values, "sort", "row"),
    by: first(values, "by", null),
    descending: first(values, "descending") === "true",
    held: first(values, "held") !== "false",
  };
}

// What the API is asked: by default the predictions of refits that have not seen the photo, where there are any.
export const wanted = (wish) => ({ ...asked(wish), held: wish.held });

export function asked(wish) {
  return {
    classes: wish.classes,
    predicted: wish.predicted,
    split: wish.split,
    right: wish.right,
    low: wish.low || null,
    high: wish.high === 1 ? null : wish.high,
    concept: wish.concepts.map((one) => one.concept),
    above: wish.concepts.map((one) => one.above ?? ""),
    below: wish.concepts.map((one) => one.below ?? ""),
    selection: wish.selection,
    sort: wish.sort === "row" ? null : wish.sort,
    by: wish.sort === "concept" ? wish.by : null,
    descending: wish.descending || null,
    held: wish.held ? null : "false",
  };
}

const SORTS = [
  ["row", "store order"],
  ["confidence-", "surest first"],
  ["confidence", "least sure first"],
  ["class", "true class"],
  ["predicted", "predicted class"],
  ["concept", "a concept …"],
];

export default function photos(root, values, app) {
  let wish = wishOf(values),
    lastPicked = null;
  const picked = new Set(),
    asking = latest(),
    apart = latest();
  const head = h("div.head"),
    side = h("aside", { class: "rail", "aria-label": "Filters" }),
    active = h("div.chips"),
    selected = h("div");
  const grid = wall({ picked, pick, values: () => ({ from: location.hash.slice(1) }), fail: app.fail });
  root.append(head, selected, active, h("div.with-rail", side, h("div", grid.root)));
  active.style.marginBottom = ".8rem";
  grid.root.addEventListener("stale", () => app.changed());

  const change = (changes) => {
    wish = { ...wish, ...changes };
    app.go("photos", asked(wish));
  };

  async function pick(row, on, range) {
    const from = range && lastPicked !== null ? grid.at(lastPicked) : -1; // -1: not on this wall
    lastPicked = row;
    let rows = [row];
    if (from >= 0)
      try {
        rows = await grid.rowsBetween(from, grid.at(row));
      } catch (error) {
        app.fail(error);
      }
    rows.forEach((one) => (on ? picked.add(one) : picked.delete(one)));
    grid.root.classList.toggle("picking", picked.size > 0);
    if (range) grid.redraw();
    drawSelected();
  }

  async function keep() {
    try {
      const { id } = await post("selections", { rows: [...picked] });
      picked.clear();
      app.go("photos", { selection: id });
    } catch (error) {
      app.fail(error);
    }
  }

  function drawSelected() {
    apart.stop();
    fill(
      selected,
      picked.size
        ? h(
            "div.selection",
            h("b", `${many(picked.size, "photo")} picked`),
            h("button", { class: "primary", onclick: keep }, "Show as a selection"),
            h(
              "button",
              { onclick: () => app.go("concept", { name: "", teach: "new", shows: [...picked].join(",") }) },
              "Teach a concept by them",
            ),
            h(
              "button",
              {
                class: "ghost",
                onclick: () => {
                  picked.clear();
                  grid.root.classList.remove("picking");
                  grid.redraw();
                  drawSelected();
                },
              },
              "Clear",
            ),
          )
        : null,
    );
  }

  async function drawApart() {
    if (!wish.selection) return;
    try {
      const one = await get(`selections/${encodeURIComponent(wish.selection)}`, { held: wish.held }, apart.signal());
      fill(
        selected,
        h(
          "section",
          { class: "card", style: { "margin-bottom": "1rem" } },
          h(
            "div",
            { class: "row", style: { "margin-bottom": ".6rem" } },
            h("h2", `A selection of ${many(one.n, "photo")}`),
            h(
              "span.muted",
              one.labelled ? `${percent(one.right / one.labelled)} right; ` : "",
              one.classes.slice(0, 4).map((item, at) => [at ? ", " : "", classLink(item.name), ` ${item.count}`]),
            ),
          ),
          h("h3", "Concepts that set it apart"),
          muted("Share of its photos that show the concept (blue, above) and of all others (grey, below)."),
          h(
            "div.apart",
            one.concepts.map((line) =>
              h(
                "div.apart-line",
                conceptLink(line.concept),
                h(
                  "span",
                  { class: "pair", "aria-hidden": "true" },
                  h("i", { class: "in", style: { width: `${100 * line.inside}%` } }),
                  h("i", { class: "out", style: { width: `${100 * line.outside}%` } }),
                ),
                h("span.number.nowrap.small", `${percent(line.inside)} / ${percent(line.outside)}`),
              ),
            ),
          ),
        ),
      );
    } catch (error) {
      app.fail(error);
    }
  }

  function drawHead(total) {
    const current = wish.sort === "confidence" && wish.descending ? "confidence-" : wish.sort;
    fill(
      head,
      h(
        "div.grow",
        h("h1", many(total, "photo")),
        muted(
          wish.split.includes("test")
            ? "Test photos among them: this look is counted."
            : app.state.test
              ? `${many(app.state.test, "test photo")} set aside; ask for them under Split.`
              : `of ${many(app.state.photos, "photo")}`,
          wish.held && ["possible", "computing"].includes(app.state.folds)
            ? " The model's own predictions, until five refits that leave photos out are made."
            : "",
        ),
      ),
      h(
        "button",
        {
          class: "rail-open",
          onclick: () => {
            side.classList.add("open");
            side.querySelector("input")?.focus();
          },
        },
        icon("filter"),
        "Filters",
      ),
      h("label.row.sort", h("span.muted", "Sort by"), dropdown("Sort by", SORTS, current, sort)),
      app.state.folds === "none"
        ? null
        : h(
            "label",
            {
              class: "row sort",
              title:
                "Out of fold: each photo is predicted by refits that have not seen it; … while they are being made",
            },
            h("span.muted", "Predicted by"),
            dropdown(
              "Predicted by",
              [
                ["held", app.state.folds === "ready" ? "out of fold" : "out of fold …"],
                ["own", "the model itself"],
              ],
              wish.held ? "held" : "own",
              (value) => change({ held: value === "held" }),
            ),
          ),
      wish.sort === "concept"
        ? h(
            "div.row",
            h(
              "div",
              { style: { width: "13rem" } },
              combobox({
                label: "Concept to sort by",
                hideLabel: true,
                placeholder: "Which concept?",
                value: wish.by ?? "",
                names: () => app.names ?? [],
                take: (name) => change({ by: name, descending: true }),
              }),
            ),
            h(
              "button",
              { onclick: () => change({ descending: !wish.descending }) },
              wish.descending ? "most first" : "least first",
            ),
          )
        : null,
      h(
        "a",
        {
          class: "button",
          href: file("photos.csv", wanted(wish)),
          download: "photos.csv",
          "aria-label": "CSV of these photos",
          title: "CSV of these photos",
        },
        icon("download"),
        h("span.label", "CSV"),
      ),
    );
  }

  function sort(value) {
    if (value === "concept")
      change({ sort: "concept", by: wish.by ?? wish.concepts[0]?.concept ?? app.names?.[0], descending: true });
    else change({ sort: value.replace("-", ""), descending: value.endsWith("-"), by: null });
  }

  async function load() {
    const mine = asking.signal();
    apart.stop();
    try {
      await app.named();
      const answer = await get("photos", { ...wanted(wish), limit: 0, counts: true }, mine);
      const scrolled = side.scrollTop,
        inner = [...side.querySelectorAll(".scroll")].map((one) => one.scrollTop);
      kept(head, () => drawHead(answer.total));
      kept(side, () =>
        fill(
          side,
          h(
            "div.row.rail-close",
            h("h2.grow", "Filters"),
            h(
              "button",
              { class: "primary", onclick: () => side.classList.remove("open") },
              `Show ${many(answer.total, "photo")}`,
            ),
          ),
          rail(app, wish, answer.counts, change),
        ),
      );
      side.scrollTop = scrolled;
      side.querySelectorAll(".scroll").forEach((one, at) => {
        one.scrollTop = inner[at] ?? 0;
      });
      const found = chips(wish, change);
      fill(
        active,
        found,
        found.length > 1 ? h("button", { class: "link small", onclick: () => app.go("photos") }, "clear all") : null,
      );
      grid.set(wanted(wish), answer);
      if (wish.selection) drawApart();
      else drawSelected();
    } catch (error) {
      if (error.name !== "AbortError") {
        fill(side);
        fill(active);
        grid.clear();
        fill(head, h("h1", "Photos"));
        fill(selected, empty(error.message, h("a", { href: "#photos" }, "Show all photos")));
      }
    }
  }

  fill(side, spinner());
  load();
  return {
    update(next) {
      wish = wishOf(next);
      load();
      return true;
    },
    refresh: load,
    leave() {
      asking.stop();
      apart.stop();
      grid.leave();
    },
  };
}
