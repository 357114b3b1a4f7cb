// A photo as a tile: picture, what was predicted, and whether it is right.

import { write } from "./address.js";
import { thumbnail } from "./api.js";
import { bdi, fixed, h, icon, percent } from "./dom.js";
import { recalled, remember } from "./kept.js";

export function picture(key, size, alt = "") {
  const image = h("img", { src: thumbnail(key, size), alt, loading: "lazy", decoding: "async" });
  const box = h("span.pic", image);
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
          h("span.cap", h("span", { title: photo.predicted }, bdi(photo.predicted)), h("span.number", number)),
          photo.right === false ? h("span.sub", "it is ", bdi(photo.truth)) : h("span.sub", photo.split ?? ""),
        ]
      : h("span.sub", bdi(typeof words === "function" ? words(photo) : words)),
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
export const keepSet = (from, rows) => remember(`ccr-set-${from}`, rows);
export const keptSet = (from) => recalled(`ccr-set-${from}`);

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
    "div.strip",
    photos.map((photo) => tile(photo, { ...options, extra: options.extra?.(photo) ?? null })),
  );
}
