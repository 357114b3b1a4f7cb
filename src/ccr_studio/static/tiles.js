// A photo as a tile: picture, what was predicted, and whether it is right.

import { write } from "./address.js";
import { thumbnail } from "./api.js";
import { fixed, h, icon, percent } from "./dom.js";

export function picture(key, size, alt = "") {
  const image = h("img", { src: thumbnail(key, size), alt, loading: "lazy", decoding: "async" });
  const box = h("span", { class: "pic" }, image);
  box.style.display = "block";
  image.addEventListener("error", () => box.classList.add("none"));
  return box;
}

// `words`: what stands below the picture in place of what was predicted; a function of the photo, or a text.
export function tile(photo, { values = {}, size = 160, extra = null, words = null, onclick } = {}) {
  const state =
    photo.right === null
      ? null
      : h("span", { class: `badge ${photo.right ? "" : "bad"}` }, icon(photo.right ? "check" : "cross"));
  const verdict = photo.right === null ? "" : photo.right ? ", right" : `, wrong, it is ${photo.truth}`;
  const box = picture(photo.row, size);
  if (state && words === null) box.append(state);
  const number = photo.value === null || photo.value === undefined ? percent(photo.confidence) : fixed(photo.value);
  const link = h(
    "a",
    {
      href: write("photo", { id: photo.row, ...values }),
      "aria-label": `${photo.name}: ${photo.predicted}, ${percent(photo.confidence)}${verdict}`,
      onclick,
    },
    box,
    words === null
      ? [
          h(
            "span",
            { class: "cap" },
            h("span", { title: photo.predicted }, h("bdi", {}, photo.predicted)),
            h("span", { class: "number" }, number),
          ),
          photo.right === false
            ? h("span", { class: "sub" }, "it is ", h("bdi", {}, photo.truth))
            : h("span", { class: "sub" }, photo.split ?? ""),
        ]
      : h("span", { class: "sub" }, h("bdi", {}, typeof words === "function" ? words(photo) : words)),
  );
  link.querySelectorAll(".cap").forEach((one) => {
    one.style.display = "flex";
  });
  link.querySelectorAll(".sub").forEach((one) => {
    one.style.display = "block";
  });
  return h("figure", { class: "tile", "data-row": photo.row }, link, extra);
}

// The photos among which Next and Previous turn, by the address of the page that showed them.
const setOf = (from) => `ccr-set-${from}`;
export const keepSet = (from, rows) => {
  try {
    sessionStorage.setItem(setOf(from), JSON.stringify(rows));
  } catch {
    /* full: the photo stands alone, then */
  }
};
export const keptSet = (from) => {
  try {
    return JSON.parse(sessionStorage.getItem(setOf(from)));
  } catch {
    return null;
  }
};

export function strip(photos, options = {}) {
  const from = options.values?.from;
  if (from && !options.onclick && !options.apart)
    options = {
      ...options,
      onclick: () =>
        keepSet(
          from,
          photos.map((photo) => photo.row),
        ),
    };
  return h(
    "div",
    { class: "strip" },
    photos.map((photo) => tile(photo, { ...options, extra: options.extra?.(photo) ?? null })),
  );
}
