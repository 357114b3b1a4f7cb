// A wall of any number of photos: only the rows near the window are elements, only their pages are asked for.

import { get, Refused } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { tile } from "./tiles.js";

const PAGE = 120,
  MOST = 500,
  CAPTION = 46,
  GAP = 14,
  NEAR = 900,
  TALLEST = 15_000_000;

export function wall({ columnWidth = 150, values = () => ({}), picked, pick, fail }) {
  const inner = h("div.wall-inner");
  const root = h(
    "div",
    { class: "wall", role: "list", "aria-label": "Photos", tabindex: "-1", "data-content": "" },
    inner,
  );
  let filters = {},
    total = 0,
    version = null,
    pages = new Map(),
    columns = 1,
    side = columnWidth,
    rendered = "",
    ask = 0;

  const height = () => side + CAPTION + GAP;

  function measure() {
    const width = root.clientWidth || 800;
    columns = Math.max(2, Math.floor((width + GAP) / (columnWidth + GAP)));
    side = (width - (columns - 1) * GAP) / columns;
    root.style.height = `${Math.min(Math.ceil(total / columns) * height(), TALLEST)}px`;
  }

  async function page(number) {
    if (pages.has(number)) return;
    pages.set(number, null);
    const mine = ask;
    try {
      const answer = await get("photos", { ...filters, offset: number * PAGE, limit: PAGE });
      if (mine !== ask) return;
      if (answer.version !== version) {
        root.dispatchEvent(new CustomEvent("stale"));
        return;
      }
      pages.set(number, answer.photos);
      draw(true);
    } catch (error) {
      pages.delete(number);
      fail(error);
    }
  }

  function draw(force = false) {
    if (!root.isConnected || !total) return;
    const top = root.getBoundingClientRect().top;
    const firstRow = Math.max(0, Math.floor((-top - NEAR) / height()));
    const lastRow = Math.ceil((window.innerHeight - top + NEAR) / height());
    const first = Math.min(firstRow * columns, Math.max(total - 1, 0)),
      last = Math.min(total, lastRow * columns);
    for (let number = Math.floor(first / PAGE); number * PAGE < last; number += 1) page(number);
    const key = `${first}-${last}-${columns}-${Math.round(side)}`;
    if (key === rendered && !force) return;
    rendered = key;
    const active = inner.contains(document.activeElement) ? document.activeElement : null,
      focused = active?.closest("[data-at]")?.dataset.at;
    inner.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    inner.style.transform = `translateY(${firstRow * height()}px)`;
    const tiles = [];
    for (let at = first; at < last; at += 1) {
      const photo = pages.get(Math.floor(at / PAGE))?.[at % PAGE];
      tiles.push(
        photo
          ? made(photo, at)
          : h(
              "figure",
              { class: "tile", style: { height: `${side + CAPTION}px` } },
              h("span", { class: "pic", style: { display: "block" } }),
            ),
      );
    }
    fill(inner, tiles);
    if (focused)
      inner
        .querySelector(`[data-at="${focused}"] ${active.matches(".pick") ? ".pick" : "a"}`)
        ?.focus({ preventScroll: true });
  }

  function made(photo, at) {
    const box = h("input", {
      type: "checkbox",
      class: "pick",
      "aria-label": `Select ${photo.name}`,
      checked: picked.has(photo.row),
      onclick: (event) => pick(photo.row, event.target.checked, event.shiftKey),
    });
    const one = tile(photo, {
      values: values(),
      size: side * (window.devicePixelRatio || 1) > 190 ? 320 : 160,
      extra: box,
    });
    one.dataset.at = at;
    one.setAttribute("role", "listitem");
    one.style.height = `${side + CAPTION}px`;
    return one;
  }

  function move(event) {
    const at = Number(event.target.closest("[data-at]")?.dataset.at);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (Number.isNaN(at) || !step) return;
    const next = inner.querySelector(`[data-at="${at + step}"] a`);
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }

  inner.addEventListener("keydown", move);
  const watch = () => draw();
  const sized = new ResizeObserver(() => {
    measure();
    draw();
  });
  sized.observe(root);
  window.addEventListener("scroll", watch, { passive: true });

  return {
    root,
    async rowsBetween(one, other) {
      // rows between two positions; those on pages that were not shown are asked for
      const low = Math.min(one, other),
        high = Math.max(one, other),
        mine = ask,
        rows = [];
      const known = (at) => pages.get(Math.floor(at / PAGE))?.[at % PAGE]?.row;
      for (let at = low; at <= high && known(at) !== undefined; at += 1) rows.push(known(at));
      while (low + rows.length <= high) {
        const answer = await get("photos", {
          ...filters,
          offset: low + rows.length,
          limit: Math.min(MOST, high - low - rows.length + 1),
        });
        if (mine !== ask || answer.version !== version || !answer.photos.length)
          throw new Refused("The photos have changed meanwhile: pick again.");
        rows.push(...answer.photos.map((photo) => photo.row));
      }
      return rows;
    },
    at: (row) => {
      for (const [number, list] of pages) {
        const i = list?.findIndex((photo) => photo.row === row) ?? -1;
        if (i >= 0) return number * PAGE + i;
      }
      return -1;
    },
    set(asked, answer) {
      filters = asked;
      total = answer.total;
      version = answer.version;
      ask += 1;
      pages = new Map();
      rendered = "";
      measure();
      if (!total) {
        fill(inner, empty("No photo fits these filters.", "Take one of them away."));
        root.style.height = "12rem";
        inner.style.transform = "";
        inner.style.gridTemplateColumns = "1fr";
        return;
      }
      draw(true);
    },
    clear() {
      total = 0;
      fill(inner);
      root.style.height = "0";
    },
    redraw: () => draw(true),
    leave() {
      sized.disconnect();
      window.removeEventListener("scroll", watch);
    },
  };
}
