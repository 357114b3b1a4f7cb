// All concepts in a table: how true to their words, how often shown, what they speak for.

import { first, write } from "../address.js";
import { get, latest } from "../api.js";
import {
  classLink,
  conceptLink,
  debounce,
  download,
  empty,
  fill,
  h,
  many,
  muted,
  percent,
  signed,
  spinner,
} from "../dom.js";

const COLUMNS = [
  ["name", "concept", "text"],
  ["fidelity", "fidelity", ""],
  ["share", "photos", ""],
  ["class", "strongest for", "text wider"],
  ["weight", "weight", "wider"],
  ["classes", "classes", "wider"],
];

export default function concepts(root, values, app) {
  let lines = [],
    left = [],
    sort = first(values, "sort", "share"),
    descending = first(values, "descending", "true") === "true",
    words = first(values, "words", ""),
    alive = true;
  const asking = latest();
  const head = h("div.head"),
    body = h("div");
  root.append(head, body);
  const go = (changes) =>
    app.go("concepts", { sort, descending: String(descending), words, ...changes }, { replace: true });

  async function load() {
    if (!lines.length) fill(body, spinner());
    try {
      const answer = await get("concepts", {}, asking.signal());
      lines = answer.concepts;
      left = answer.left_out;
      app.names = lines.map((one) => one.name);
      app.namesOf = answer.version;
    } catch (error) {
      if (error.name !== "AbortError") fill(body, empty(error.message));
      return;
    }
    drawHead();
    draw();
  }

  function drawHead() {
    const typed = debounce(() => {
      if (!alive) return;
      words = input.value;
      go({ words });
    }, 150);
    const input = h("input", {
      type: "search",
      value: words,
      placeholder: "Find a concept …",
      "aria-label": "Find a concept",
      oninput: typed,
    });
    fill(
      head,
      h(
        "div.grow",
        h("h1", many(lines.length, "concept")),
        muted(`A photo shows ${app.state.length.toFixed(1)} of them on average.`),
      ),
      h("div", { style: { width: "14rem" } }, input),
      download("exports/concepts.txt", "List"),
    );
  }

  function draw() {
    const key = (one) => (one[sort] === null ? -1 : one[sort]);
    const shown = lines
      .filter((one) => one.name.toLowerCase().includes(words.toLowerCase()))
      .sort(
        (a, b) =>
          (typeof key(a) === "string" ? key(a).localeCompare(key(b)) : key(a) - key(b)) * (descending ? -1 : 1) ||
          a.name.localeCompare(b.name),
      );
    const heads = COLUMNS.map(([name, label, kind]) =>
      h(
        "th",
        { class: kind, scope: "col", "aria-sort": sort === name ? (descending ? "descending" : "ascending") : null },
        h(
          "button",
          {
            onclick: () => {
              descending = sort === name ? !descending : name !== "name" && name !== "class";
              sort = name;
              go({});
            },
          },
          label,
          sort === name ? (descending ? " ↓" : " ↑") : "",
        ),
      ),
    );
    const rows = shown.map((one) =>
      h(
        "tr",
        h("td", conceptLink(one.name), one.pinned ? h("span.muted", " pinned") : null),
        h(
          "td.nowrap",
          one.fidelity === null
            ? h("span", { class: "muted", title: "Measured on the concept's page" }, "–")
            : [
                h(
                  "span",
                  { class: `meter ${one.fidelity < 0.71 ? "low" : ""}`, "aria-hidden": "true" },
                  h("i", { style: { width: `${100 * Math.max(0, one.fidelity)}%` } }),
                ),
                one.fidelity.toFixed(2),
              ],
        ),
        h("td.nowrap", `${one.photos.toLocaleString("en")} · ${percent(one.share)}`),
        h("td.text.wider", one.weight ? classLink(one.class) : "–"),
        h("td.wider", one.weight ? signed(one.weight, 1) : "–"),
        h("td.wider", one.classes),
      ),
    );
    fill(
      body,
      shown.length
        ? h(
            "div.wide",
            h(
              "table.concept-table",
              h("caption.sr", "The model's concepts"),
              h("thead", h("tr", heads)),
              h("tbody", rows),
            ),
          )
        : empty(
            "No concept is called so.",
            h("a", { href: write("bench", { words }) }, "Look for photos that show it, on the bench"),
          ),
      left.length
        ? h(
            "details",
            { style: { "margin-top": "1.2rem" } },
            h("summary.muted", `${many(left.length, "concept")} of the list that the model gave no weight`),
            h("p.small", left.join(", ")),
          )
        : null,
    );
  }

  load();
  return {
    update(next) {
      sort = first(next, "sort", sort);
      descending = first(next, "descending", String(descending)) === "true";
      words = first(next, "words", "");
      if (lines.length) draw();
      return true;
    },
    refresh: load,
    leave() {
      alive = false;
      asking.stop();
    },
  };
}
