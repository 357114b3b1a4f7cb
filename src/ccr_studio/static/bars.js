// Signed bars on one scale, as the report draws them; the sign is in the number and the hatching, not the colour alone.

import { write } from "./address.js";
import { fixed, h, signed } from "./dom.js";

// `extra` gives what stands beside the bar of a row.
export function bars(rows, { scale = 0, extra = null } = {}) {
  const values = rows.map((row) => row.value);
  const low = Math.min(0, ...values),
    high = Math.max(0, ...values);
  const wide = Math.max(high - low, scale) || 1;
  const zero = (100 * (low < high && high === 0 ? wide : Math.abs(low))) / wide;
  const box = h("div", { class: extra ? "terms answered" : "terms", role: "list", style: { "--zero": `${zero}%` } });
  for (const row of rows) {
    const width = (100 * Math.abs(row.value)) / wide;
    const mark = h("span", {
      class: `mark ${row.value < 0 ? "down" : "up"}`,
      style: { left: `${row.value < 0 ? zero - width : zero}%`, width: `${width}%` },
    });
    const leads = ["class", "concept"].find((kind) => row[kind]);
    const label = leads ? h("a", { href: write(leads, { name: row[leads] }) }, row.name) : row.name;
    box.append(
      h(
        "div",
        { class: "term", role: "listitem", title: row.hint },
        h("span.name", label),
        h("span", { class: "track", "aria-hidden": "true" }, mark),
        h("span.sum", row.text ?? signed(row.value)),
        extra ? h("span.answers", extra(row)) : null,
      ),
    );
  }
  return box;
}

export const shown = (term) => (term.code < 0 ? `not: ${term.concept}` : term.concept);

export const notSure = (contributions) => contributions.filter((term) => term.stated === false);

export function sumRows(bias, contributions, top = 12) {
  const rows = [{ name: "bias", value: bias, hint: "the head start of the class, the same for every photo" }];
  const unsure = notSure(contributions);
  const stated = contributions.filter((term) => !unsure.includes(term));
  for (const term of stated.slice(0, top))
    rows.push({
      name:
        typeof term.shown === "number" && term.code > 0
          ? `${shown(term)}, ${Math.round(100 * term.shown)} %`
          : shown(term),
      concept: term.concept,
      value: term.contribution,
      hint: `code ${term.code.toFixed(3)} × weight ${term.weight.toFixed(3)}`,
    });
  if (unsure.length)
    rows.push({
      name: `${unsure.length} not sure to be shown`,
      value: unsure.reduce((sum, term) => sum + term.contribution, 0),
      hint: unsure.map((term) => `${shown(term)}, ${Math.round(100 * term.shown)} %`).join("; "),
    });
  const rest = stated.slice(top);
  if (rest.length)
    rows.push({
      name: rest.length > 1 ? `${rest.length} others` : "1 other",
      value: rest.reduce((sum, term) => sum + term.contribution, 0),
      hint: "summed",
    });
  return rows;
}

export function sum(explained, options = {}) {
  const count = explained.contributions.length;
  return h(
    "div",
    bars(sumRows(explained.bias, explained.contributions, options.top), options),
    h(
      "div.total.muted",
      h(
        "span",
        count
          ? `bias and ${count} concept${count === 1 ? "" : "s"} add up to`
          : "shows none of the concepts that this model may use: the bias alone,",
      ),
      h("b.number", fixed(explained.logit)),
    ),
  );
}
