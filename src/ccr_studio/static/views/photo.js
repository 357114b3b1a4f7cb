// One photo: the exact sum, what speaks for another class, what would change it, and sliders that move the code.

import { first, parse } from "../address.js";
import { get, latest, post, thumbnail } from "../api.js";
import { bars, notSure, sum, sumRows } from "../bars.js";
import { combobox } from "../combobox.js";
import { toast } from "../dialogs.js";
import {
  bdi,
  card,
  classLink,
  conceptLink,
  debounce,
  dropdown,
  empty,
  fill,
  h,
  icon,
  kept,
  many,
  muted,
  percent,
  spinner,
} from "../dom.js";
import { keptSet, strip } from "../tiles.js";
import { overlay } from "../where.js";
import { wanted, wishOf } from "./photos.js";

export default function photo(root, values, app) {
  let id = first(values, "id", "0"),
    from = first(values, "from", "photos"),
    moved = {},
    shown = null;
  const asking = latest(),
    moving = latest(),
    contrasting = latest();
  const rest = () => {
    moving.stop();
    contrasting.stop();
  };

  async function load() {
    rest();
    fill(root, spinner());
    try {
      shown = await get(`photos/${encodeURIComponent(id)}`, {}, asking.signal());
    } catch (error) {
      if (error.name !== "AbortError")
        fill(root, h("h1", "Photo"), empty(error.message, h("a", { href: `#${from}` }, "Back to the photos")));
      return;
    }
    moved = {};
    draw();
  }

  let wereOpen = [];
  function draw() {
    wereOpen = ["mend", "unsure"].filter((name) => root.querySelector(`details.${name}`)?.open);
    const place = h("div.picture", h("img", { src: thumbnail(id, 1024), alt: `The photo ${shown.name}` }));
    place.firstChild.addEventListener("error", () => fill(place, h("p.empty", "The picture cannot be read.")));
    const verdict =
      shown.truth === null
        ? null
        : shown.truth === shown.prediction
          ? h("small.right", icon("check"), " right")
          : h("small.wrong", icon("cross"), " wrong, it is ", classLink(shown.truth));
    const said = h("p.verdict", classLink(shown.prediction), `, ${percent(shown.probability)} `, verdict);
    const why = h(
      "section",
      { class: "card", "aria-label": "Why" },
      h("h2", "The whole sum"),
      sum(shown, { top: 14, extra: shown.corrects && app.state.decides ? (row) => answers(row.concept) : null }),
      unsure(),
    );
    fill(
      root,
      h(
        "div.head",
        h("a", { class: "button ghost", href: `#${from}` }, icon("left"), "Back"),
        h("div.grow", h("h1", bdi(shown.name)), said, held()),
        turning(),
        choose(),
      ),
      h(
        "div.photo",
        h(
          "div.stack",
          place,
          app.state.where ? overlay(place, id, shown, app) : null,
          probabilities(shown),
          mend(),
          muted(
            [
              shown.split ? `split ${shown.split}` : /^\d+$/.test(id) ? "of no split" : "not of the store",
              `${many(shown.active.length, "concept")} shown, ${shown.in_play} of them with a weight for ${shown.prediction}`,
            ].join("; "),
          ),
        ),
        h("div.stack", why, sliders(), counterfactual(), missing()),
        h(
          "div.stack",
          contrast(),
          card(
            "Training photos most like it",
            muted("1.00 would be the same photo."),
            strip(shown.nearest, { values: { from }, apart: true }),
          ),
        ),
      ),
    );
  }

  // What a refit says that has not seen the photo: the model itself may know it by heart.
  function held() {
    if (!shown.held) return null;
    const { prediction, probability } = shown.held,
      differs = prediction !== shown.prediction;
    return h(
      "p",
      { class: differs ? "note" : "muted", id: "held" },
      differs
        ? "The model was trained on this photo. Refits that had not seen it say "
        : "Refits that had not seen it agree: ",
      classLink(prediction),
      `, ${percent(probability)}.`,
    );
  }

  // The next refit learns from what is said here; what was said before is taken back by the same button.
  async function say(kind, answer, concept, words) {
    const by = await app.whoAmI();
    if (!by) return;
    try {
      const before = shown.answers[concept] ?? "";
      shown = await post(`photos/${encodeURIComponent(id)}/correct`, { kind, answer, concept, by });
      kept(root, draw);
      await app.noted();
      const taken = kind === "concept" ? before : "";
      toast(words, answer ? { action: ["Undo", () => say(kind, taken, concept, "Taken back.")] } : {});
    } catch (error) {
      app.fail(error);
    }
  }

  function answers(concept) {
    if (!concept) return null;
    const button = (answer, words, name) => {
      const pressed = shown.answers[concept] === answer;
      return h(
        "button",
        {
          class: `answer ${answer}`,
          "aria-pressed": String(pressed),
          "aria-label": `${concept}: ${words}`,
          title: words,
          onclick: () =>
            say("concept", pressed ? "" : answer, concept, `${concept}: ${pressed ? "taken back" : words}.`),
        },
        icon(name),
      );
    };
    return [button("yes", "it is here", "check"), button("no", "not here", "cross")];
  }

  // Concepts of which nobody can be sure by their probability: an answer says most about these.
  function unsure() {
    const terms = notSure(shown.contributions);
    if (!terms.length || !shown.corrects || !app.state.decides) return null;
    return h(
      "details",
      { class: "unsure", open: wereOpen.includes("unsure") },
      h("summary.small", `${terms.length} not sure to be shown: is it here?`),
      bars(
        terms.map((term) => ({
          name: `${term.concept}, ${Math.round(100 * term.shown)} %`,
          concept: term.concept,
          value: term.contribution,
        })),
        { extra: (row) => answers(row.concept) },
      ),
    );
  }

  function mend() {
    if (!shown.corrects && shown.split === "test")
      return muted("A test photo: nothing can be learned from it, so that models can be tested on it.");
    if (!shown.corrects || app.state.read_only) return null;
    const said = shown.corrected !== null || shown.left_out;
    return h(
      "details",
      { class: "mend", open: said || wereOpen.includes("mend") },
      h("summary.small", "Label wrong, or leave this photo out?"),
      shown.left_out
        ? h(
            "p.note",
            "Left out: nothing is trained or measured on it. ",
            h("button", { onclick: () => say("leave out", "", "", "It counts again.") }, "Let it count again"),
          )
        : h(
            "div.row",
            h(
              "label.field.grow",
              h("span", shown.corrected === null ? "It is in truth" : "Corrected to"),
              dropdown(
                "The right class",
                [["", "choose a class"], ...app.state.classes],
                shown.truth,
                (value) => value && say("label", value, "", `Labelled ${value}; the store stays as it is.`),
                {},
              ),
            ),
            shown.corrected === null
              ? h(
                  "button",
                  { onclick: () => say("leave out", "yes", "", "Left out, from the next refit on.") },
                  "Leave this photo out",
                )
              : h("button", { onclick: () => say("label", "", "", "The store's label again.") }, "Take back"),
          ),
    );
  }

  function turning() {
    if (!/^\d+$/.test(id)) return null;
    const button = (name, label, key, step) =>
      h(
        "button",
        {
          class: "icon",
          disabled: true,
          "aria-label": `${label} photo`,
          title: `${label} (${key})`,
          "data-turn": step,
        },
        icon(name),
      );
    const both = [button("left", "Previous", "←", -1), button("right", "Next", "→", 1)];
    beside()
      .then((near) =>
        both.forEach((one, at) => {
          if (near[at] === undefined) return;
          one.disabled = false;
          one.addEventListener("click", () => app.go("photo", { id: near[at], from }));
          if (one.dataset.early) one.click();
        }),
      )
      .catch(app.fail);
    return h("div.row", both);
  }

  // The photos before and after this one among those that it was opened from; none where it is not among them.
  async function beside() {
    const before = parse(from),
      rows = before.view === "photos" || before.view === "map" ? null : (keptSet(from) ?? []);
    const near =
      rows ??
      (
        await get("photos", {
          ...(before.view === "photos" ? wanted(wishOf(before.values)) : {}),
          around: id,
          limit: 3,
        })
      ).photos.map((one) => one.row);
    const at = near.findIndex((row) => String(row) === id);
    return at < 0 ? [] : [near[at - 1], near[at + 1]];
  }

  function choose() {
    const input = h("input", {
      type: "file",
      accept: "image/*",
      class: "sr",
      tabindex: "-1",
      "aria-hidden": "true",
      onchange: () => input.files[0] && app.open(input.files[0]),
    });
    return [
      input,
      h("button", { onclick: () => input.click(), title: "Or drop one anywhere on the page" }, "Try a photo of yours"),
    ];
  }

  function probabilities(explained) {
    return h(
      "div.probabilities",
      explained.probabilities
        .slice(0, 5)
        .map((one, at) => [
          h("span", classLink(one.name)),
          h(
            "span",
            { class: `level ${at ? "" : "first"}`, "aria-hidden": "true" },
            h("i", { style: { width: `${100 * one.probability}%` } }),
          ),
          h("span.number", percent(one.probability, 1)),
        ]),
    );
  }

  function sliders() {
    const result = h(
        "div",
        { class: "what-if", role: "status" },
        h("span.muted", "Move a slider: the prediction follows."),
      ),
      box = h("div.sliders"),
      after = h("div");
    const reset = h(
      "button",
      {
        class: "link small hidden",
        onclick: () => {
          moved = {};
          rebuild();
        },
      },
      "reset",
    );
    const threshold = app.state.threshold ?? 0.1;
    const limit = Math.max(...shown.active.map((one) => Math.abs(one.code)), threshold) * 2;
    const least = shown.active.some((one) => one.code < 0) ? -limit : 0; // where a photo may also show the opposite
    const filled = (value) => `${(100 * (value - least)) / (limit - least)}%`;
    const starts = Object.fromEntries(shown.active.map((one) => [one.concept, one.code]));
    const order = [...shown.contributions.map((one) => one.concept)];
    const apply = debounce(async () => {
      reset.classList.toggle("hidden", !Object.keys(moved).length);
      if (!Object.keys(moved).length) {
        moving.stop();
        fill(result, h("span.muted", "Move a slider: the prediction follows."));
        result.classList.remove("changed");
        fill(after);
        return;
      }
      try {
        const answer = await post(`photos/${encodeURIComponent(id)}/intervene`, { codes: moved }, moving.signal());
        result.classList.toggle("changed", answer.changed);
        fill(
          result,
          h(
            "b",
            answer.changed ? "It becomes " : "Still ",
            classLink(answer.prediction),
            `, ${percent(answer.probability)}`,
          ),
          h("span.muted", ` (was ${shown.prediction}, ${percent(shown.probability)})`),
        );
        fill(
          after,
          h(
            "details",
            h("summary.small", "The sum as it would be"),
            bars(sumRows(answer.bias, answer.contributions, 8)),
          ),
        );
      } catch (error) {
        app.fail(error);
      }
    }, 40);
    const line = (concept) => {
      const start = starts[concept] ?? 0,
        field = `slider-${concept}`;
      const output = h("output", { for: field }, (moved[concept] ?? start).toFixed(2));
      const range = h("input", {
        type: "range",
        id: field,
        min: least,
        max: limit,
        step: limit / 200,
        value: moved[concept] ?? start,
        oninput: () => {
          const value = Number(range.value);
          if (Math.abs(value - start) < limit / 250) delete moved[concept];
          else moved[concept] = value;
          output.textContent = value.toFixed(2);
          range.style.setProperty("--filled", filled(value));
          row.classList.toggle("moved", concept in moved);
          apply();
        },
      });
      range.style.setProperty("--filled", filled(moved[concept] ?? start));
      const row = h(
        "div",
        { class: `slider ${concept in moved ? "moved" : ""}` },
        h("label", { for: field }, bdi(concept)),
        range,
        output,
      );
      return row;
    };
    const rebuild = () => {
      fill(box, [...order, ...Object.keys(moved).filter((one) => !order.includes(one))].map(line));
      apply();
    };
    rebuild();
    return h(
      "section",
      { class: "card", "aria-label": "What if" },
      h("div.row", h("h2.grow", "What if"), reset),
      result,
      box,
      h(
        "div",
        { style: { "margin-top": ".7rem" } },
        combobox({
          label: "Bring in a concept that the photo does not show",
          placeholder: "Bring in a concept …",
          names: () => [...new Set([...shown.suggested, ...(app.names ?? [])])].filter((one) => !order.includes(one)),
          take: (concept) => {
            if (!order.includes(concept)) order.push(concept);
            moved[concept] = threshold * 1.5;
            rebuild();
          },
        }),
      ),
      after,
    );
  }

  function contrast() {
    const others = app.state.classes.filter((one) => one !== shown.prediction);
    const start = shown.truth && shown.truth !== shown.prediction ? shown.truth : shown.probabilities[1]?.name;
    const result = h("div.loading"),
      likely = new Map(shown.contributions.map((one) => [one.concept, { shown: one.shown, stated: one.stated }]));
    const load = async (other) => {
      try {
        const answer = await get(`photos/${encodeURIComponent(id)}/contrast`, { other }, contrasting.signal());
        fill(
          result,
          bars(
            sumRows(
              answer.bias,
              answer.contributions.map((one) => ({ ...one, ...likely.get(one.concept) })),
              9,
            ),
          ),
          h("div.total.muted", h("span", "ahead by"), h("b.number", answer.difference.toFixed(2))),
        );
      } catch (error) {
        app.fail(error);
      }
    };
    if (!others.length) return null;
    load(start ?? others[0]);
    return card(
      [classLink(shown.prediction), " rather than"],
      dropdown("Class to contrast with", others, start, load, { "margin-bottom": ".6rem" }),
      result,
    );
  }

  function counterfactual() {
    const change = shown.counterfactual;
    if (!change)
      return card(
        "What would change it",
        h("p", "Nothing: without any of its concepts the prediction would be the same."),
      );
    return card(
      "What would change it",
      h(
        "p",
        "Without ",
        change.removed.map((term, at) => [
          at ? (at === change.removed.length - 1 ? " and " : ", ") : "",
          conceptLink(term.concept),
        ]),
        " it would be ",
        classLink(change.becomes),
        `, ${percent(change.probability)}.`,
      ),
      muted("No smaller set of its concepts would do."),
    );
  }

  function missing() {
    if (!shown.mistake) return null;
    const rows = shown.mistake.missing.map((one) => ({
      name: one.concept,
      concept: one.concept,
      value: one.contribution,
      hint: `${percent(one.share)} of the class's photos show it`,
    }));
    return card(
      ["Why not ", classLink(shown.truth), "?"],
      muted(
        `It came in number ${shown.mistake.rank}, with ${percent(shown.mistake.probability, 1)}. `,
        rows.length
          ? "Concepts that its photos usually show, and this one does not:"
          : "No concept is missing that its photos usually show.",
      ),
      rows.length
        ? bars(rows, shown.corrects && app.state.decides ? { extra: (row) => answers(row.concept) } : {})
        : null,
    );
  }

  function keys(event) {
    if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey)
      return;
    const step = { ArrowLeft: "-1", ArrowRight: "1" }[event.key];
    const turn = step && root.querySelector(`[data-turn="${step}"]`);
    if (turn?.disabled)
      turn.dataset.early = "true"; // its photo is not known yet, or there is none
    else turn?.click();
  }

  document.addEventListener("keydown", keys);
  load();
  app.named().catch(() => {});
  return {
    update(next) {
      id = first(next, "id", "0");
      from = first(next, "from", "photos");
      load();
      window.scrollTo(0, 0);
      return true;
    },
    refresh: load,
    leave() {
      asking.stop();
      rest();
      document.removeEventListener("keydown", keys);
    },
  };
}
