// The rail of filters: each with how many photos it would leave, the others applied.

import { combobox } from "./combobox.js";
import { bdi, h, percent } from "./dom.js";

export function rail(app, wish, counts, change) {
  const option = (label, count, checked, toggle) =>
    h(
      "label",
      { class: `option ${count ? "" : "zero"}` },
      h("input", { type: "checkbox", checked, onchange: (event) => toggle(event.target.checked) }),
      h("span", { title: label }, bdi(label)),
      h("small", (count ?? 0).toLocaleString("en")),
    );
  const box = (key, value, label, count) =>
    option(label, count, wish[key].includes(value), (on) =>
      change({ [key]: on ? [...wish[key], value] : wish[key].filter((one) => one !== value) }),
    );
  const facet = (title, ...children) => h("fieldset.facet", h("legend", title), children);
  const named = (key, numbers) =>
    h(
      "div.scroll",
      Object.entries(numbers).map(([name, count]) => box(key, name, name, count)),
    );
  const result = ["right", "wrong"].map((value) =>
    option(value, counts.right[value], wish.right === value, (on) => change({ right: on ? value : null })),
  );
  return [
    facet("Prediction is", result),
    Object.keys(counts.splits).length > 1
      ? facet(
          "Split",
          Object.entries(counts.splits).map(([name, count]) =>
            box("split", name, name === "test" ? "test (a look is counted)" : name, count),
          ),
        )
      : null,
    facet("True class", named("classes", counts.classes)),
    facet("Predicted class", named("predicted", counts.predicted)),
    facet("Confidence", confidence(wish, counts, change)),
    facet("Concept", concepts(app, wish, counts, change)),
  ];
}

function confidence(wish, counts, change) {
  const most = Math.max(...counts.confidence, 1);
  const drawn = h(
    "div",
    { class: "histogram", "aria-hidden": "true" },
    counts.confidence.map((count, at) =>
      h("i", {
        class: (at + 0.5) / 10 >= wish.low && (at + 0.5) / 10 <= wish.high ? "in" : "",
        style: { height: `${(100 * count) / most}%` },
        title: `${at * 10} to ${at * 10 + 10} %: ${count}`,
      }),
    ),
  );
  const end = (key, label) =>
    h(
      "label.field",
      h("span", label),
      h("input", {
        type: "number",
        min: 0,
        max: 100,
        step: 5,
        value: Math.round(wish[key] * 100),
        onchange: (event) => {
          const value = Math.min(1, Math.max(0, Number(event.target.value) / 100));
          change(key === "low" ? { low: Math.min(value, wish.high) } : { high: Math.max(value, wish.low) });
        },
      }),
    );
  return [drawn, h("div.two", end("low", "from, %"), end("high", "to, %"))];
}

function concepts(app, wish, counts, change) {
  const parts = wish.concepts.map((wanted, at) => {
    const put = (key) => (event) =>
      change({
        concepts: wish.concepts.map((one, number) =>
          number === at ? { ...one, [key]: event.target.value === "" ? null : Number(event.target.value) } : one,
        ),
      });
    const field = (key, label) =>
      h(
        "label.field",
        h("span", label),
        h("input", { type: "number", step: 0.01, value: wanted[key] ?? "", onchange: put(key) }),
      );
    return h(
      "div",
      { class: "stack", style: { gap: ".35rem" } },
      h(
        "div.row",
        h(
          "a",
          { class: "small strong", href: `#concept?name=${encodeURIComponent(wanted.concept)}` },
          bdi(wanted.concept),
        ),
        h(
          "button",
          {
            class: "link small",
            onclick: () => change({ concepts: wish.concepts.filter((_, number) => number !== at) }),
          },
          "remove",
        ),
      ),
      counts.values?.concept === wanted.concept ? histogram(counts.values, wanted) : null,
      h("div.two", field("above", "at least"), field("below", "at most")),
    );
  });
  return [
    ...parts,
    combobox({
      label: "Add a filter by concept",
      hideLabel: true,
      placeholder: "Filter by a concept …",
      names: () => app.names ?? [],
      take: (name) =>
        change({
          concepts: [
            ...wish.concepts.filter((one) => one.concept !== name),
            {
              concept: name,
              above: app.state.threshold === null ? null : Number(app.state.threshold.toFixed(3)),
              below: null,
            },
          ],
        }),
    }),
  ];
}

function histogram(values, wanted = {}) {
  const most = Math.max(...values.counts, 1),
    step = (values.high - values.low) / values.counts.length;
  const inside = (value) => value >= (wanted.above ?? -Infinity) && value <= (wanted.below ?? Infinity);
  const drawn = h(
    "div",
    { class: "histogram", "aria-hidden": "true", title: `from ${values.low.toFixed(2)} to ${values.high.toFixed(2)}` },
    values.counts.map((count, at) =>
      h("i", {
        class: inside(values.low + (at + 0.5) * step) ? "in" : "",
        style: { height: `${(100 * Math.sqrt(count)) / Math.sqrt(most)}%` },
      }),
    ),
  );
  if (values.threshold !== null && values.threshold > values.low && values.threshold < values.high)
    drawn.append(
      h("span", {
        class: "limit",
        title: "from here on a photo shows it",
        style: { left: `${(100 * (values.threshold - values.low)) / (values.high - values.low)}%` },
      }),
    );
  return drawn;
}

export function chips(wish, change) {
  const one = (words, changes) =>
    h(
      "button",
      { class: "chip", "aria-label": `Remove the filter ${words}`, onclick: () => change(changes) },
      bdi(words),
      " ×",
    );
  return [
    ...wish.classes.map((name) => one(`class ${name}`, { classes: wish.classes.filter((other) => other !== name) })),
    ...wish.predicted.map((name) =>
      one(`predicted ${name}`, { predicted: wish.predicted.filter((other) => other !== name) }),
    ),
    ...wish.split.map((name) => one(`split ${name}`, { split: wish.split.filter((other) => other !== name) })),
    wish.right ? one(wish.right, { right: null }) : null,
    wish.low > 0 || wish.high < 1
      ? one(`confidence ${percent(wish.low)} to ${percent(wish.high)}`, { low: 0, high: 1 })
      : null,
    ...wish.concepts.map((wanted) =>
      one(
        `${wanted.concept}${wanted.above === null ? "" : ` ≥ ${wanted.above}`}${wanted.below === null ? "" : ` ≤ ${wanted.below}`}`,
        { concepts: wish.concepts.filter((other) => other !== wanted) },
      ),
    ),
    wish.selection ? one("selection", { selection: null }) : null,
  ].filter(Boolean);
}
