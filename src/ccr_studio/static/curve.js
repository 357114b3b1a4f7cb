// The live curve of a refit: validation accuracy, and training loss on a scale of its own.
import { h, muted, percent, svg } from "./dom.js";

const WIDTH = 420,
  HEIGHT = 150,
  LEFT = 38,
  RIGHT = 8,
  TOP = 10,
  BOTTOM = 22;

export function curve(job) {
  const epochs = Math.max(job.epochs, 1),
    points = job.curve;
  const x = (epoch) => LEFT + ((WIDTH - LEFT - RIGHT) * epoch) / epochs;
  const accuracies = points.map((one) => one.validation_accuracy).filter((value) => value !== null);
  const low = Math.max(0, Math.floor((Math.min(...accuracies, 1) - 0.05) * 10) / 10),
    most = Math.max(...points.map((one) => one.train_loss ?? 0), 1e-9);
  const y = (share) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (share - low) / Math.max(1 - low, 0.01));
  const path = (value, place) =>
    points
      .filter((one) => one[value] !== null)
      .map((one, at) => `${at ? "L" : "M"}${x(one.epoch).toFixed(1)} ${place(one[value]).toFixed(1)}`)
      .join("");
  const last = points.at(-1);
  const box = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: "curve",
    role: "img",
    "aria-label": last
      ? `Epoch ${last.epoch} of ${epochs}: validation accuracy ${percent(last.validation_accuracy, 1)}`
      : "No epoch yet",
  });
  for (const share of [low, (1 + low) / 2, 1]) {
    box.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share), y2: y(share) }));
    const text = svg("text", { x: LEFT - 5, y: y(share) + 4, "text-anchor": "end" });
    text.textContent = percent(share);
    box.append(text);
  }
  const text = svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" });
  text.textContent = last ? `epoch ${last.epoch} of ${epochs}` : "starting";
  box.append(
    text,
    svg("path", {
      class: "loss",
      d: path("train_loss", (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most)),
    }),
    svg("path", { class: "accuracy", d: path("validation_accuracy", y) }),
  );
  return h("div", box, muted(h("span.right", "— validation accuracy"), "   ", h("span.wrong", "- - training loss")));
}
