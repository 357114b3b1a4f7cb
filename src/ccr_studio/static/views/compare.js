// Two models on the same photos: where they differ comes first.

import { first, write } from "../address.js";
import { get, latest } from "../api.js";
import { sum } from "../bars.js";
import { bdi, classLink, dropdown, empty, fill, h, many, muted, percent, segments, spinner } from "../dom.js";
import { keepSet, picture, tile } from "../tiles.js";

export default function compare(root, values, app) {
  let other = first(values, "other"),
    scope = first(values, "scope", "shown"),
    group = first(values, "group", "differ"),
    row = first(values, "row"),
    models = [],
    found = null,
    list = [];
  const head = h("div.head"),
    left = h("div.stack"),
    right = h("div.stack");
  const asking = latest(),
    one = latest();
  root.append(head, h("div.versus", left, right));
  const go = (changes) =>
    app.go("compare", {
      other,
      scope: scope === "shown" ? null : scope,
      group: group === "differ" ? null : group,
      row,
      ...changes,
    });

  async function load() {
    fill(left, spinner());
    try {
      models = (await get("models")).models;
      const current = app.state.version,
        known = models.some((item) => item.id === other);
      if (!known) other = before(current);
      found = await get("differences", { other, scope, group, limit: 60 }, asking.signal());
      list = found.photos;
    } catch (error) {
      if (error.name !== "AbortError") fill(left, empty(error.message));
      return;
    }
    drawHead();
    const { groups } = found;
    fill(
      left,
      segments(
        "Photos to show",
        [
          ["differ", "differ", groups.differ],
          ["first", "now right", groups.first],
          ["second", "now wrong", groups.second],
          ["neither", "both wrong", groups.neither],
          ["both", "both right", groups.both],
        ],
        group,
        (value) => go({ group: value === "differ" ? null : value, row: null }),
      ),
      photos(),
    );
    await beside();
  }

  // The step before the current one; what was undone is no choice of ours. In place of one that may have been trained on
  // these photos stands, where the model now was not, the same fitted again on the training photos alone.
  function before(current) {
    const { steps, position } = app.state,
      last = steps[position - 1]?.id,
      honest = models.find((item) => item.id === "honest")?.id;
    const flattered = models.find((item) => item.id === last)?.flattered;
    return (
      (flattered && !app.state.flattered ? honest : null) ??
      last ??
      models.find((item) => item.id !== current && !steps.some((step) => step.id === item.id))?.id ??
      current
    );
  }

  function photos() {
    if (!list.length)
      return empty(
        group === "differ" ? "The two agree on every photo." : "No photo is among these.",
        other === app.state.version
          ? "You compare the model with itself: edit or refit it first, or choose another."
          : "",
      );
    const box = h("div.pair-list"),
      button = h("button", "More");
    const draw = () => {
      fill(box, list.map(pair));
      button.classList.toggle("hidden", list.length >= found.total);
    };
    button.addEventListener("click", async () => {
      try {
        list = [
          ...list,
          ...(await get("differences", { other, scope, group, offset: list.length, limit: 60 }, asking.signal()))
            .photos,
        ];
        draw();
      } catch (error) {
        app.fail(error);
      }
    });
    draw();
    return [box, button];
  }

  function pair(photo) {
    const card = tile(photo, {
      size: 320,
      onclick: (event) => {
        event.preventDefault();
        go({ row: photo.row });
      },
    });
    card.querySelector(".sub").textContent =
      photo.other === photo.predicted ? "both" : `other: ${photo.other}, ${percent(photo.other_confidence)}`;
    if (String(photo.row) === row) card.setAttribute("data-chosen", "");
    return card;
  }

  function drawHead() {
    const share = (at) =>
      `${percent(found.accuracy[at], 1)} (${percent(found.intervals[at][0])} to ${percent(found.intervals[at][1])})`;
    const words = (id) => models.find((item) => item.id === id)?.words ?? id;
    fill(
      head,
      h(
        "div.grow",
        h("h1", "Two models"),
        muted(
          found.n
            ? `The model now is right on ${share(0)}, the other on ${share(1)} of ${many(found.n, "photo")}, with 95 % intervals.`
            : "No labelled photos here.",
        ),
        doubt(),
      ),
      h(
        "label.row",
        h("span.muted", "Other"),
        dropdown(
          "Model to compare with",
          models.map(({ id, words: text }) => [id, id === app.state.version ? `${words(id)} (now)` : text]),
          other,
          (value) => go({ other: value, row: null }),
          { width: "auto", "max-width": "min(27rem, 100%)" },
        ),
      ),
      segments(
        "Photos to compare on",
        [
          ["shown", "all but test"],
          ["validation", "validation"],
        ],
        scope,
        (value) => go({ scope: value === "shown" ? null : value, row: null }),
      ),
    );
  }

  function doubt() {
    const flattered = models.find((item) => item.id === other)?.flattered;
    if (flattered !== app.state.flattered)
      return h(
        "p",
        { class: "note", id: "doubt" },
        `${flattered ? "The other model" : "The model now"} may have been trained on the validation photos, which flatters it; ${flattered ? "the model now" : "the other"} was not. The difference says little.`,
      );
    return scope === "shown"
      ? h("p", { class: "muted", id: "doubt" }, "Most of these photos were trained on: on others, both are worse.")
      : null;
  }

  async function beside() {
    const chosen = row ?? list[0]?.row;
    if (chosen === undefined) {
      fill(right);
      return;
    }
    try {
      const both = await get(`differences/${chosen}`, { other }, one.signal());
      const truth = both.photo.truth,
        verdict = (side) =>
          h(
            "p.verdict",
            classLink(side.prediction),
            `, ${percent(side.probability)} `,
            truth === null ? null : side.prediction === truth ? h("small.right", "right") : h("small.wrong", "wrong"),
          );
      const reach = (side) => {
        const values = [0, side.bias, ...side.contributions.map((term) => term.contribution)];
        return Math.max(...values) - Math.min(...values);
      };
      const shared = { top: 9, scale: Math.max(reach(both.first), reach(both.second)) }; // one scale for both
      fill(
        right,
        h(
          "section.card",
          h(
            "div",
            { class: "row", style: { "margin-bottom": ".8rem", "align-items": "flex-start" } },
            h(
              "a",
              {
                href: write("photo", { id: chosen, from: location.hash.slice(1) }),
                onclick: () =>
                  keepSet(
                    location.hash.slice(1),
                    list.map((item) => item.row),
                  ),
                class: "tile",
                style: { width: "9rem" },
              },
              picture(chosen, 320),
            ),
            h(
              "div.grow",
              h("h2", bdi(both.photo.name)),
              muted(
                truth === null ? "no label" : ["it is ", classLink(truth)],
                both.overlap === null ? "" : `; ${percent(both.overlap)} of the active concepts are shared`,
              ),
            ),
          ),
          h(
            "div.sums",
            h("div", h("h3", "The model now"), verdict(both.first), sum(both.first, shared)),
            h("div", h("h3", "The other"), verdict(both.second), sum(both.second, shared)),
          ),
        ),
      );
    } catch (error) {
      if (error.name !== "AbortError") app.fail(error);
    }
  }

  load();
  return {
    update(next) {
      const before = [other, scope, group].join();
      other = first(next, "other", other);
      scope = first(next, "scope", "shown");
      group = first(next, "group", "differ");
      row = first(next, "row");
      if (before !== [other, scope, group].join()) load();
      else {
        left.querySelectorAll(".tile").forEach((card) => card.toggleAttribute("data-chosen", card.dataset.row === row));
        beside();
      }
      return true;
    },
    refresh: load,
    leave() {
      asking.stop();
      one.stop();
    },
  };
}
