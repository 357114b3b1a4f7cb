// Where in the picture a concept is: its patches, laid over the photo.

import { get, latest } from "./api.js";
import { dropdown, fixed, h, percent } from "./dom.js";

export function overlay(place, id, shown, app) {
  const canvas = h("canvas", { "aria-hidden": "true" }),
    words = h("p", { class: "muted", role: "status" }, ""),
    asking = latest();
  place.append(canvas);
  const show = async (concept) => {
    canvas.width = 0;
    words.textContent = "";
    const signal = asking.signal();
    if (!concept) return;
    try {
      const map = await get(`photos/${encodeURIComponent(id)}/where`, { concept }, signal),
        share = 1 - map.rest / map.code;
      const carried = `The patches carry ${percent(share)} of ${concept} (${fixed(map.code - map.rest)} of ${fixed(map.code)})`;
      if (share < LEAST) {
        words.textContent = `${carried}: it cannot be shown where it is.`;
        return;
      }
      draw(canvas, map);
      words.textContent = `${carried}. The brighter a part, the more it adds; orange takes away.`;
    } catch (error) {
      app.fail(error);
    }
  };
  const names = shown.contributions.map((term) => term.concept);
  return h(
    "div",
    { class: "stack", style: { gap: ".3rem" } },
    h("label.field", h("span", "Where is it?"), dropdown(null, [["", "choose a concept"], ...names], "", show, {})),
    words,
  );
}

// The same over a small picture, for as long as it stays; nothing where the patches carry too little.
export function overlayOn(place, id, concept) {
  const canvas = h("canvas", { class: "over", "aria-hidden": "true" });
  place.append(canvas);
  get(`photos/${encodeURIComponent(id)}/where`, { concept })
    .then((map) => {
      if (canvas.isConnected && 1 - map.rest / map.code >= LEAST) draw(canvas, map, true);
    })
    .catch(() => {});
  return canvas;
}

// Everything but the lit patches is darkened, also what the encoder did not look at: it saw the middle square.
const DARK = 0.7,
  LEAST = 0.2; // below this share of the code, no part of the picture is said to be the place

function draw(canvas, map, covers = false) {
  const image = canvas.parentElement.querySelector("img"),
    box = image.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1,
    wide = image.naturalWidth / image.naturalHeight;
  canvas.width = box.width * ratio;
  canvas.height = box.height * ratio;
  const width = (covers ? Math.max : Math.min)(canvas.width, canvas.height * wide),
    height = width / wide;
  const left = (canvas.width - width) / 2,
    top = (canvas.height - height) / 2,
    pen = canvas.getContext("2d");
  const seen = [left + map.left * width, top + map.top * height, map.width * width, map.height * height];
  pen.fillStyle = `rgb(10 14 18 / ${DARK})`;
  pen.fillRect(left, top, width, height);
  pen.clearRect(...seen);
  pen.imageSmoothingEnabled = true;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(veil(map), ...seen);
}

// One pixel for each patch. Full light from twice an even share of the code on, or the 80th percentile of what adds if that
// is more: patches that carry little of a code stay dark. What takes away is orange, on the same scale.
function veil(map) {
  const adding = map.values.filter((value) => value > 0).sort((a, b) => a - b);
  const full = Math.max(
    adding[Math.floor(0.8 * (adding.length - 1))] ?? 0,
    (2 * Math.abs(map.code)) / map.values.length,
  );
  const small = h("canvas", { width: map.columns, height: map.rows }),
    pen = small.getContext("2d"),
    pixels = pen.createImageData(map.columns, map.rows);
  map.values.forEach((value, at) => {
    const level = Math.min(1, Math.abs(value) / full);
    pixels.data.set(
      value < 0
        ? [213 * level + 10 * (1 - level), 94 * level + 14 * (1 - level), 18 * (1 - level), 255 * DARK]
        : [10, 14, 18, 255 * DARK * (1 - level)],
      4 * at,
    );
  });
  pen.putImageData(pixels, 0, 0);
  return small;
}
