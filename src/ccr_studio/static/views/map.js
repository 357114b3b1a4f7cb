// The map: photos in two dimensions. Drag to lasso; wheel, buttons or keys to look closer.

import { first } from "../address.js";
import { bytes, get, latest, post, thumbnail } from "../api.js";
import { hue, ramp } from "../colours.js";
import { combobox } from "../combobox.js";
import { toast } from "../dialogs.js";
import { bdi, debounce, dropdown, empty, fill, fixed, h, icon, kept, muted, spinner } from "../dom.js";

const BY = [
  ["class", "true class"],
  ["predicted", "predicted class"],
  ["right", "right or wrong"],
  ["split", "split"],
  ["concept", "a concept …"],
];

export default function map(root, values, app) {
  let by = first(values, "by", "class"),
    concept = first(values, "concept", ""),
    places = null,
    colours = null,
    only = null,
    tool = "lasso";
  let { zoom, middle } = history.state?.map ?? { zoom: 1, middle: [0.5, 0.5] },
    outline = null,
    drag = null,
    frame = 0,
    alive = true;
  const colouring = latest();
  const head = h("div.head"),
    legend = h("div.legend"),
    canvas = h("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": "Map of the photos. Arrow keys move, plus and minus zoom, S selects what is in view.",
    });
  const box = h("div.map"),
    tip = h("div.map-tip.hidden");
  root.append(head, box, h("div", { style: { "margin-top": ".7rem" } }, legend));

  const go = (changes) => app.go("map", { by: by === "class" ? null : by, concept, ...changes });
  const across = () => canvas.width - 44 * (window.devicePixelRatio || 1); // the tools stand at the right
  const side = () => Math.min(across(), canvas.height) * 0.95 * zoom;
  const wide = () => Math.min(1.9, Math.max(1, across() / canvas.height)); // the two axes are not of one kind: the width is used
  const toScreen = (x, y) => [
    across() / 2 + (x - middle[0]) * side() * wide(),
    canvas.height / 2 - (y - middle[1]) * side(),
  ];
  const toMap = (px, py) => [
    middle[0] + (px - across() / 2) / (side() * wide()),
    middle[1] - (py - canvas.height / 2) / side(),
  ];
  const pointer = (event) => {
    const place = canvas.getBoundingClientRect(),
      ratio = canvas.width / place.width;
    return [(event.clientX - place.left) * ratio, (event.clientY - place.top) * ratio];
  };

  async function load() {
    drawHead();
    if (!places) {
      fill(box, spinner("Computing the map"), h("p.empty", "Computing the map, once …"));
      try {
        let state = await get("map");
        while (state.state !== "ready" && alive) {
          await new Promise((done) => setTimeout(done, 700));
          state = await get("map");
        }
        if (!alive) return;
        const raw = new Uint16Array(await bytes("map/places"));
        places = Float32Array.from(raw, (value) => value / 65535);
        root.dataset.method = state.method;
        if (state.why_not) toast(`These are principal components, not UMAP: ${state.why_not}`, { bad: true });
      } catch (error) {
        fill(box, empty(error.message));
        return;
      }
      fill(box, canvas, tools(), tip);
      size();
    }
    try {
      colours = new Float32Array(await bytes("map/colours", { by, concept, held: true }, colouring.signal()));
      drawHead();
      drawLegend();
      later();
    } catch (error) {
      app.fail(error);
    }
  }

  function drawHead() {
    kept(head, () =>
      fill(
        head,
        h(
          "div.grow",
          h("h1", "Map"),
          muted(
            { pca: "By principal components; with umap-learn installed, by UMAP. ", umap: "By UMAP. " }[
              root.dataset.method
            ] ?? "",
            "Draw around photos to see what sets them apart.",
          ),
        ),
        h(
          "label.row",
          h("span.muted", "Colour by"),
          dropdown("Colour by", BY, by, (value) =>
            go({
              by: value === "class" ? null : value,
              concept: value === "concept" ? concept || app.names?.[0] : null,
            }),
          ),
        ),
        by === "concept"
          ? h(
              "div",
              { style: { width: "14rem" } },
              combobox({
                label: "Concept to colour by",
                hideLabel: true,
                placeholder: "Which concept?",
                value: concept,
                names: () => app.names ?? [],
                take: (name) => go({ by: "concept", concept: name }),
              }),
            )
          : null,
      ),
    );
  }

  const names = () =>
    ({
      class: app.state.classes,
      predicted: app.state.classes,
      split: Object.keys(app.state.splits),
      right: ["wrong", "right"],
    })[by] ?? [];

  function drawLegend() {
    if (by === "concept") {
      const bar = h("canvas", { class: "ramp", width: 192, height: 10, "aria-hidden": "true" }),
        pen = bar.getContext("2d");
      for (let x = 0; x < 192; x += 1) {
        pen.fillStyle = ramp(x / 191, dark());
        pen.fillRect(x, 0, 1, 10);
      }
      const [low, high] = range();
      fill(legend, h("span.row.small", h("span", fixed(low)), bar, h("span", fixed(high)), h("bdi.strong", concept)));
      return;
    }
    fill(
      legend,
      names().map((one, at) =>
        h(
          "button",
          {
            "aria-pressed": String(only === at),
            title: "Show these alone",
            onclick: () => {
              only = only === at ? null : at;
              drawLegend();
              later();
            },
          },
          swatch(at),
          bdi(one),
        ),
      ),
    );
  }
  function swatch(at) {
    const mark = h("i", { class: by === "right" && at === 0 ? "square" : "" });
    mark.style.background = colour(at);
    return mark;
  }
  const dark = () => getComputedStyle(document.documentElement).colorScheme.includes("dark");
  const css = (variable) => {
    canvas.style.color = `var(${variable})`; // of the theme that is shown
    return getComputedStyle(canvas).color;
  };
  const colour = (at) => (by === "right" ? css(at === 1 ? "--for" : "--against") : hue(at, names().length, dark()));

  function range() {
    const known = colours.filter((value) => !Number.isNaN(value)).sort();
    return known.length ? [known[0], known[Math.floor((known.length - 1) * 0.995)]] : [0, 1];
  }

  // Back and a reload find it.
  const keepPlace = () => alive && history.replaceState({ ...history.state, map: { zoom, middle } }, "");
  const keepSoon = debounce(keepPlace, 120);
  function later() {
    keepSoon();
    if (!frame)
      frame = requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
  }

  function draw() {
    if (!places || !colours || !canvas.isConnected) return;
    const pen = canvas.getContext("2d"),
      ratio = window.devicePixelRatio || 1;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const count = places.length / 2,
      radius = ratio * Math.max(1.4, Math.min(5.5, (count > 20000 ? 1.7 : count > 3000 ? 2.6 : 4) * Math.sqrt(zoom)));
    const [low, high] = by === "concept" ? range() : [0, 1],
      groups = new Map();
    for (let row = 0; row < count; row += 1) {
      const value = colours[row];
      if (Number.isNaN(value) || (only !== null && value !== only)) continue;
      const key =
        by === "concept" ? Math.round(24 * Math.min(1, Math.max(0, (value - low) / (high - low || 1)))) : value;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    for (const key of [...groups.keys()].sort((a, b) => a - b)) {
      pen.fillStyle =
        key < 0 && by !== "concept" ? css("--neutral") : by === "concept" ? ramp(key / 24, dark()) : colour(key);
      pen.globalAlpha = count > 20000 ? 0.7 : 0.88;
      pen.beginPath();
      for (const row of groups.get(key)) {
        const [x, y] = toScreen(places[2 * row], places[2 * row + 1]);
        if (x < -9 || y < -9 || x > canvas.width + 9 || y > canvas.height + 9) continue;
        if (by === "right" && key === 0) pen.rect(x - radius * 1.3, y - radius * 1.3, radius * 2.6, radius * 2.6);
        else {
          pen.moveTo(x + radius, y);
          pen.arc(x, y, radius, 0, 7);
        }
      }
      pen.fill();
    }
    pen.globalAlpha = 1;
    if ((by === "class" || by === "predicted") && only === null) label(pen, ratio, groups);
    if (outline) {
      pen.beginPath();
      outline.forEach(([x, y], at) => (at ? pen.lineTo(...toScreen(x, y)) : pen.moveTo(...toScreen(x, y))));
      pen.closePath();
      pen.fillStyle = dark() ? "rgb(86 180 233 / .18)" : "rgb(0 114 178 / .14)";
      pen.fill();
      pen.strokeStyle = css("--for");
      pen.lineWidth = 2 * ratio;
      pen.stroke();
    }
  }

  // Names where their photos are, so that colour is not the only sign; of names that would overlap, that of more photos.
  function label(pen, ratio, groups) {
    const taken = [],
      middleOf = (rows, axis) => {
        const sorted = Float32Array.from(rows, (row) => places[2 * row + axis]).sort();
        return sorted[Math.floor(sorted.length / 2)];
      };
    pen.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    pen.lineWidth = 4 * ratio;
    for (const [key, rows] of [...groups].filter(([number]) => number >= 0).sort((a, b) => b[1].length - a[1].length)) {
      const words = names()[key].slice(0, 28),
        [x, y] = toScreen(middleOf(rows, 0), middleOf(rows, 1)),
        half = [pen.measureText(words).width / 2 + 4 * ratio, 9 * ratio];
      if (
        x < half[0] ||
        x > canvas.width - half[0] ||
        taken.some(([left, top, across]) => Math.abs(left - x) < across + half[0] && Math.abs(top - y) < 2 * half[1])
      )
        continue;
      taken.push([x, y, half[0]]);
      pen.strokeStyle = css("--panel");
      pen.strokeText(words, x, y);
      pen.fillStyle = css("--ink");
      pen.fillText(words, x, y);
    }
  }

  function tools() {
    const one = (name, label, act, pressed) =>
      h(
        "button",
        {
          class: "icon",
          title: label,
          "aria-label": label,
          "aria-pressed": pressed === undefined ? null : String(pressed),
          onclick: act,
        },
        icon(name),
      );
    const place = h("div.map-tools");
    const rebuild = () =>
      fill(
        place,
        one(
          "lasso",
          "Lasso",
          () => {
            tool = "lasso";
            rebuild();
          },
          tool === "lasso",
        ),
        one(
          "hand",
          "Move",
          () => {
            tool = "move";
            rebuild();
          },
          tool === "move",
        ),
        one("plus", "Closer", () => scale(1.4)),
        one("minus", "Farther", () => scale(1 / 1.4)),
        one("home", "The whole map", () => {
          zoom = 1;
          middle = [0.5, 0.5];
          later();
        }),
        one("check", "Select what is in view", inView),
      ) && box.classList.toggle("panning", tool === "move");
    rebuild();
    return place;
  }

  function scale(by_, at = [canvas.width / 2, canvas.height / 2]) {
    const before = toMap(...at);
    zoom = Math.min(60, Math.max(0.6, zoom * by_));
    const after = toMap(...at);
    middle = [middle[0] + before[0] - after[0], middle[1] + before[1] - after[1]];
    later();
  }

  function inView() {
    const corner = (x, y) => toMap(x, y);
    selectInside([
      corner(0, 0),
      corner(canvas.width, 0),
      corner(canvas.width, canvas.height),
      corner(0, canvas.height),
    ]);
  }

  async function selectInside(corners) {
    try {
      const kept = await post("map/lasso", { corners });
      keepPlace();
      app.go("photos", { selection: kept.id });
    } catch (error) {
      outline = null;
      later();
      app.fail(error);
    }
  }

  function nearest(event) {
    const [px, py] = pointer(event),
      reach = 10 * (window.devicePixelRatio || 1);
    let best = -1,
      least = reach * reach;
    for (let row = 0; row < places.length / 2; row += 1) {
      if (Number.isNaN(colours[row]) || (only !== null && colours[row] !== only)) continue;
      const [x, y] = toScreen(places[2 * row], places[2 * row + 1]),
        away = (x - px) ** 2 + (y - py) ** 2;
      if (away < least) {
        least = away;
        best = row;
      }
    }
    return best;
  }

  let tipped = -1;
  async function hover(event) {
    const row = nearest(event);
    if (row === tipped) return;
    tipped = row;
    tip.classList.toggle("hidden", row < 0);
    if (row < 0) return;
    const place = box.getBoundingClientRect(),
      x = event.clientX - place.left,
      y = event.clientY - place.top;
    tip.style.left = `${Math.min(x + 14, place.width - 150)}px`;
    tip.style.top = `${Math.max(8, Math.min(y + 14, place.height - 190))}px`;
    const value = colours[row];
    fill(
      tip,
      h("img", { src: thumbnail(row), alt: "" }),
      by === "concept" ? `${concept}: ${fixed(value)}` : (names()[value] ?? "no label"),
    );
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    const start = pointer(event);
    drag =
      tool === "move" || event.button === 1 || event.shiftKey
        ? { kind: "move", at: start, moved: false }
        : { kind: "lasso", at: start, moved: false };
    if (drag.kind === "lasso") outline = [toMap(...start)];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      if (places && colours) hover(event);
      return;
    }
    const now = pointer(event);
    if (Math.hypot(now[0] - drag.at[0], now[1] - drag.at[1]) > 4) drag.moved = true;
    if (drag.kind === "move") {
      middle = [middle[0] - (now[0] - drag.at[0]) / (side() * wide()), middle[1] + (now[1] - drag.at[1]) / side()];
      drag.at = now;
    } else if (outline.length < 1500) outline.push(toMap(...now));
    later();
  });
  const release = (event) => {
    if (!drag) return;
    const { kind, moved } = drag;
    drag = null;
    if (kind === "lasso" && moved && outline.length >= 3) selectInside(outline);
    else {
      outline = null;
      later();
      if (!moved && event.type === "pointerup") {
        const row = colours ? nearest(event) : -1;
        if (row >= 0) {
          keepPlace();
          app.go("photo", { id: row, from: location.hash.slice(1) });
        }
      }
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    tip.classList.add("hidden");
    tipped = -1;
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      scale(Math.exp(-event.deltaY * 0.0016), pointer(event));
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const step = 0.12 / zoom,
      moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) {
      event.preventDefault();
      middle = [middle[0] + moves[event.key][0], middle[1] + moves[event.key][1]];
      later();
    } else if (event.key === "+" || event.key === "=") scale(1.4);
    else if (event.key === "-") scale(1 / 1.4);
    else if (event.key.toLowerCase() === "s") inView();
  });

  function size() {
    const ratio = window.devicePixelRatio || 1,
      place = box.getBoundingClientRect();
    canvas.width = Math.max(1, place.width * ratio);
    canvas.height = Math.max(1, place.height * ratio);
    later();
  }
  const sized = new ResizeObserver(size);
  sized.observe(box);

  load();
  if (!app.names)
    app
      .named()
      .then(drawHead)
      .catch(() => {});
  return {
    update(next) {
      by = first(next, "by", "class");
      concept = first(next, "concept", "");
      only = null;
      outline = null;
      colours = null;
      load();
      return true;
    },
    refresh: load,
    themed: () => {
      if (colours) {
        drawLegend();
        later();
      }
    },
    leave() {
      alive = false;
      colouring.stop();
      sized.disconnect();
    },
  };
}
