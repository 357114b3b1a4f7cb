// Where in the picture a concept is: its patches, laid over the photo.
import { h } from "./dom.js";
import { get } from "./api.js";

export function overlay(place, id, shown, app) {
  const canvas = h("canvas", { "aria-hidden": "true" }), words = h("p", { class: "muted", role: "status" }, "");
  place.append(canvas);
  const show = async (concept) => {
    canvas.width = 0;
    words.textContent = "";
    if (!concept) return;
    try { draw(canvas, await get(`photos/${encodeURIComponent(id)}/where`, { concept })); words.textContent = `The lit part is where the model sees ${concept}.`; } catch (error) { app.fail(error); }
  };
  const names = shown.contributions.map((term) => term.concept);
  return h("div", { class: "stack", style: { gap: ".3rem" } }, h("label", { class: "field" }, h("span", {}, "Where is it?"), h("select", { onchange: (event) => show(event.target.value) }, h("option", { value: "" }, "choose a concept"), names.map((one) => h("option", { value: one }, one)))), words);
}

// Everything but the lit patches is darkened; the encoder saw the middle square of the picture.
function draw(canvas, map) {
  const image = canvas.parentElement.querySelector("img"), box = image.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1, wide = image.naturalWidth / image.naturalHeight;
  canvas.width = box.width * ratio; canvas.height = box.height * ratio;
  const width = Math.min(canvas.width, canvas.height * wide), height = width / wide;
  const left = (canvas.width - width) / 2 + map.left * width, top = (canvas.height - height) / 2 + map.top * height;
  const most = Math.max(...map.values, 1e-9), pen = canvas.getContext("2d");
  const cell = [(map.width * width) / map.columns, (map.height * height) / map.rows];
  map.values.forEach((value, at) => {
    const strength = Math.max(0, value) / most;
    pen.fillStyle = `rgb(10 14 18 / ${0.72 * (1 - strength)})`;
    pen.fillRect(left + (at % map.columns) * cell[0], top + Math.floor(at / map.columns) * cell[1], cell[0] + 0.6, cell[1] + 0.6);
  });
}
