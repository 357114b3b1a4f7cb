// Mistakes: the confusion matrix; a cell gives its photos and what spoke for and against.

import { first, write } from "../address.js";
import { get, latest } from "../api.js";
import { bars } from "../bars.js";
import { bdi, card, classLink, empty, fill, fixed, h, kept, many, muted, percent, segments, spinner } from "../dom.js";
import { strip } from "../tiles.js";

const SCOPES = [
  ["held", "out of fold"],
  ["validation", "validation"],
  ["shown", "all but test"],
  ["train", "training"],
  ["test", "test (counted)"],
];

export default function mistakes(root, values, app) {
  const usual = () => (app.state.folds === "none" ? "validation" : "held");
  const asked = () => (scope === "held" ? { scope: "shown", held: true } : { scope });
  let scope = first(values, "scope", usual()),
    truth = first(values, "truth"),
    predicted = first(values, "predicted"),
    shown = null;
  const head = h("div.head"),
    left = h("div.stack"),
    right = h("div.stack");
  const asking = latest(),
    cells = latest();
  root.append(head, h("div.split", left, right));

  const isHeld = () => scope === "held" && app.state.folds === "ready";
  const go = (changes) => app.go("mistakes", { scope: scope === usual() ? null : scope, truth, predicted, ...changes });

  async function load() {
    fill(left, spinner());
    try {
      shown = await get("mistakes", asked(), asking.signal());
    } catch (error) {
      if (error.name !== "AbortError") fill(left, empty(error.message));
      return;
    }
    drawHead();
    fill(left, table());
    await cell();
  }

  const table = () =>
    shown.n
      ? [matrix(), shown.left_out ? muted(`${shown.left_out} classes with fewer errors are not shown.`) : null]
      : empty("No labelled photos here.");

  function drawHead() {
    const scopes = SCOPES.filter(([name]) =>
      name === "test" ? app.state.test : name !== "held" || app.state.folds !== "none",
    );
    const ready = isHeld();
    kept(head, () =>
      fill(
        head,
        h(
          "div.grow",
          h("h1", shown.n ? `${many(shown.n - shown.right, "mistake")} in ${many(shown.n, "photo")}` : "Mistakes"),
          shown.accuracy === null
            ? null
            : muted(
                `${percent(shown.accuracy, 1)} right; 95 % interval ${percent(shown.interval[0], 1)} to ${percent(shown.interval[1], 1)}`,
              ),
          ready
            ? h(
                "p",
                { class: "muted", id: "held" },
                "Out of fold: each photo is predicted by one of five refits, which has not seen it. Where photos resemble each other, others are still harder.",
              )
            : null,
          scope === "held" && !ready
            ? h(
                "p",
                { class: "note", role: "status" },
                "Five refits that leave photos out are being made; until then, these are the model's own predictions.",
              )
            : null,
          ["train", "shown"].includes(scope) || (scope === "validation" && app.state.flattered)
            ? h(
                "p.note",
                `The model ${app.state.flattered ? "may have been" : "was"} trained on ${scope === "shown" && !app.state.flattered ? "most of " : ""}these photos: expect more mistakes on others.`,
              )
            : null,
        ),
        segments("Photos to count", scopes, scope, (value) =>
          go({ scope: value === usual() ? null : value, truth: null, predicted: null }),
        ),
      ),
    );
  }

  function matrix() {
    const most = shown.counts.map((row) =>
      Math.max(
        1,
        row.reduce((sum, count) => sum + count, 0),
      ),
    );
    const body = shown.counts.map((row, t) =>
      h(
        "tr",
        h("th", { scope: "row", title: shown.classes[t] }, classLink(shown.classes[t])),
        row.map((count, p) => {
          const share = count / most[t],
            heat = count ? (t === p ? 14 + 56 * share : 32 + 50 * Math.min(1, share * 2)) : 0;
          const here = shown.classes[t] === truth && shown.classes[p] === predicted;
          return h(
            "td",
            h(
              "button",
              {
                class: `cell ${t === p ? "diagonal" : count ? "error" : ""} ${count ? "" : "zero"}`,
                style: { "--heat": heat },
                "aria-pressed": String(here),
                disabled: !count,
                "aria-label": `${many(count, "photo")} of ${shown.classes[t]} predicted ${shown.classes[p]}`,
                title: `${shown.classes[t]} → ${shown.classes[p]}: ${count}`,
                onclick: () => go({ truth: shown.classes[t], predicted: shown.classes[p] }),
              },
              count,
            ),
          );
        }),
      ),
    );
    return h(
      "div",
      { class: "matrix", tabindex: "0", role: "region", "aria-label": "Confusion matrix" },
      h(
        "table",
        h("caption.sr", "True classes in rows, predicted classes in columns"),
        h(
          "thead",
          h(
            "tr",
            h("th.text.corner", h("small.muted", "true ↓ predicted →")),
            shown.classes.map((one) => h("th", { scope: "col", title: one }, h("span", one))),
          ),
        ),
        h("tbody", body),
      ),
    );
  }

  function confused() {
    if (!shown.confused.length)
      return empty(
        "No mistakes here.",
        scope === "validation"
          ? "Look at all photos, or refit on the bench: a model that was trained on these photos flatters itself."
          : "",
      );
    return card(
      "Most confused",
      h(
        "table",
        h("caption.sr", "Pairs of classes with most mistakes"),
        h("thead", h("tr", h("th", "true"), h("th.text", "taken for"), h("th", "photos"))),
        h(
          "tbody",
          shown.confused.map((pair) =>
            h(
              "tr",
              h(
                "td",
                h(
                  "button",
                  { class: "link", onclick: () => go({ truth: pair.truth, predicted: pair.predicted }) },
                  bdi(pair.truth),
                ),
              ),
              h("td.text", classLink(pair.predicted)),
              h("td", `${pair.errors} of ${pair.of}`),
            ),
          ),
        ),
      ),
    );
  }

  async function cell() {
    const signal = cells.signal();
    if (!truth || !predicted) {
      fill(right, confused());
      return;
    }
    if (right.contains(document.activeElement)) left.querySelector("[aria-pressed=true]")?.focus(); // what was pressed goes
    fill(right, spinner());
    try {
      const one = await get("mistakes/cell", { ...asked(), truth, predicted }, signal);
      const terms = (list) =>
        bars(
          list.map((term) => ({
            name: term.concept,
            concept: term.concept,
            value: term.contribution,
            hint: `${percent(term.share)} of these photos show it`,
          })),
          {
            scale: Math.max(
              ...[...one.spoke_for, ...one.spoke_against].map((term) => Math.abs(term.contribution)),
              0.01,
            ),
          },
        );
      const same = truth === predicted;
      fill(
        right,
        card(
          [
            many(one.n, "photo"),
            " of ",
            classLink(truth),
            same ? ", and predicted so" : [" taken for ", classLink(predicted)],
          ],
          muted(
            same
              ? "What spoke for and against it, on average."
              : "On average, of the difference between the two classes:",
          ),
          isHeld()
            ? muted(
                "These sums are of the model itself, not of the refits that had not seen the photos: it may say otherwise.",
              )
            : null,
          h("h3", "spoke for ", classLink(predicted)),
          one.spoke_for.length ? terms(one.spoke_for) : muted("nothing but the bias"),
          one.spoke_against.length
            ? [
                h(
                  "h3",
                  { style: { "margin-top": ".7rem" } },
                  same ? "spoke against" : ["spoke for ", classLink(truth)],
                ),
                terms(one.spoke_against),
              ]
            : null,
          one.difference === null
            ? null
            : h(
                "div.total.muted",
                h("span", `with a bias (head start) of ${fixed(one.bias)}, ${same ? "in all" : "ahead by"}`),
                h("b.number", fixed(one.difference)),
              ),
        ),
        h(
          "section.card",
          h(
            "div",
            { class: "row", style: { "margin-bottom": ".6rem" } },
            h("h2.grow", "The photos"),
            h(
              "a",
              {
                class: "small",
                href: write("photos", {
                  classes: truth,
                  predicted,
                  split: scope === "validation" && !app.state.held_out ? "val" : scope === "test" ? "test" : null,
                  held: scope === "held" ? null : "false",
                }),
              },
              "on the wall",
            ),
          ),
          strip(one.photos, { values: { from: location.hash.slice(1) } }),
        ),
      );
    } catch (error) {
      if (error.name !== "AbortError") fill(right, empty(error.message));
    }
  }

  load();
  return {
    update(next) {
      const before = scope;
      scope = first(next, "scope", usual());
      truth = first(next, "truth");
      predicted = first(next, "predicted");
      if (before !== scope || !shown) load();
      else {
        kept(left, () => fill(left, table()));
        cell();
      }
      return true;
    },
    refresh: load,
    leave() {
      asking.stop();
      cells.stop();
    },
  };
}
