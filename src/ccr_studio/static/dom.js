// Elements from data. Text is always a text node: names from outside can do nothing but be read.

import { write } from "./address.js";
import { file } from "./api.js";

// h("div.row.wide", { title }, …): classes stand with the tag, attributes may be left out.
export function h(kind, ...rest) {
  const [tag, ...classes] = kind.split("."),
    element = document.createElement(tag);
  if (tag === "button") element.type = "button"; // forms are sent by those that say so
  element.classList.add(...classes);
  if (rest[0] && Object.getPrototypeOf(rest[0]) === Object.prototype) set(element, rest.shift());
  return append(element, rest);
}

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name in element && ["value", "checked", "disabled", "open", "indeterminate"].includes(name))
      element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

// What is drawn anew keeps the focus: the control in the same place has it. Without opening what opens by it.
export function kept(box, redraw) {
  const controls = () => [...box.querySelectorAll("a, button, input, select")],
    at = controls().indexOf(document.activeElement);
  redraw();
  if (at < 0) return;
  box.toggleAttribute("data-quiet", true);
  controls()[at]?.focus({ preventScroll: true });
  box.toggleAttribute("data-quiet", false);
}

// A list drawn anew: what has the same key and stamp as before stays as it is, and so does what the browser knows of it.
const lists = new WeakMap();
export function keyed(box, items) {
  const before = lists.get(box) ?? new Map(),
    now = new Map();
  for (const [key, stamp, make] of items) {
    const known = before.get(key);
    now.set(key, known?.stamp === stamp && known.element.parentNode === box ? known : { stamp, element: make() });
  }
  lists.set(box, now);
  const elements = [...now.values()].map((one) => one.element),
    wanted = new Set(elements);
  for (const child of [...box.childNodes]) if (!wanted.has(child)) child.remove();
  let at = box.firstChild;
  for (const element of elements) {
    if (element === at) at = at.nextSibling;
    else box.insertBefore(element, at);
  }
  return box;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  children.flat().forEach((child) => element.append(child));
  return element;
}

const PATHS = {
  photos: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  mistakes: "M4 4h16v16H4zM4 9.3h16M4 14.6h16M9.3 4v16M14.6 4v16",
  map: "M6 17.5a1.5 1.5 0 1 0 .01 0M10 7a1.5 1.5 0 1 0 .01 0M17 10.5a1.5 1.5 0 1 0 .01 0M14.5 18a1.5 1.5 0 1 0 .01 0M18.5 4.5a1 1 0 1 0 .01 0",
  concepts: "M4 6h9M4 12h15M4 18h6M4 4v16",
  review: "M5 4h14v16H5zM8 9l1.5 1.5L12 8M8 15l1.5 1.5L12 14M14 9h3M14 15h3",
  bench: "M4 19h16M6 15l4-4 3 3 6-8M15 6h4v4",
  compare: "M9 4v16H4V4zM20 4v16h-5V4z",
  undo: "M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3",
  redo: "m15 14 5-5-5-5M20 9H10a6 6 0 0 0 0 12h3",
  check: "m5 12.5 4.5 4.5L19 7",
  cross: "M6 6l12 12M18 6 6 18",
  left: "M15 5l-7 7 7 7",
  right: "m9 5 7 7-7 7",
  sun: "M12 8a4 4 0 1 0 .01 0M12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  filter: "M4 6h16M7 12h10M10 18h4",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  home: "M4 11 12 4l8 7M6 10v10h12V10",
  hand: "M5 9l-3 3 3 3M9 5l3-3 3 3M15 19l-3 3-3-3M19 9l3 3-3 3M2 12h20M12 2v20",
  lasso: "M12 4c5 0 8 2 8 5.5S17 15 12 15s-8-2-8-5.5S7 4 12 4M8 15c-2 1-2 4 0 4s2 2 1 3",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
};

export function icon(name) {
  return svg(
    "svg",
    {
      viewBox: "0 0 24 24",
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 1.8,
      "stroke-linecap": "round",
      "stroke-linejoin": "round",
      "aria-hidden": "true",
    },
    svg("path", { d: PATHS[name] }),
  );
}

export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}%`;
export const fixed = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
export const signed = (value, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
export const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
// A name from outside, which must not turn the direction of the words around it.
export const bdi = (text) => h("bdi", text);
export const muted = (...words) => h("p.muted", words);
export const card = (title, ...parts) => h("section.card", h("h2", title), parts);
// A class leads to its page, a concept to its own, wherever they are named.
export const classLink = (text) => h("a", { href: write("class", { name: text }) }, bdi(text));
export const conceptLink = (text) => h("a", { href: write("concept", { name: text }) }, bdi(text));

export function spinner(words = "Loading") {
  return h("div", { class: "loading", role: "status" }, h("div.spinner"), h("span.sr", words));
}

export function empty(title, ...more) {
  return h(
    "div.empty",
    h("h2", title),
    more.map((one) => h("p", one)),
  );
}

export function segments(label, choices, current, choose) {
  const group = h("div", { class: "segments", role: "group", "aria-label": label });
  for (const [value, text, count] of choices) {
    group.append(
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(value === current),
          "data-value": value,
          onclick: () => choose(value),
        },
        text,
        count === undefined ? null : h("small", count.toLocaleString("en")),
      ),
    );
  }
  return group;
}

// A list to choose from: texts, or pairs of a value and a text.
export function dropdown(label, choices, current, take, style = { width: "auto" }) {
  const option = ([value, text]) => h("option", { value, selected: value === current || null }, text);
  return h(
    "select",
    { "aria-label": label, style, onchange: (event) => take(event.target.value) },
    choices.map((one) => option(Array.isArray(one) ? one : [one, one])),
  );
}

// A field for words, and the button that looks for them.
export function searchForm(input, find) {
  const onsubmit = (event) => {
    event.preventDefault();
    find();
  };
  return h("form", { class: "search", onsubmit }, input, h("button", { type: "submit" }, "Find"));
}

export const download = (path, label) =>
  h("a", { class: "button", href: file(path), download: path.split("/").at(-1) }, icon("download"), label);

export function debounce(work, wait) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), wait);
  };
}
