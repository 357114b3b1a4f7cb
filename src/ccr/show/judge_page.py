"""Claims as a page to judge them on: photos, a verdict by key or button for each claim, and a file to save.

The page holds no origins of claims, so that nobody who judges can look them up in it.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape

from ccr.data.store import EmbeddingStore
from ccr.models.judgement import JudgedPhoto, Sheet
from ccr.show.page import STYLE, name
from ccr.show.report.pictures import Pictures
from ccr.texts import visible

#: Longer side of a photo on the page, in pixels.
SIZE = 720
VERDICTS = {"true": ("T", "true"), "half": ("H", "half true"), "false": ("F", "false")}
LOOK = """
main { display: grid; grid-template-columns: minmax(0, 1fr) minmax(18rem, 30rem); gap: 1rem 2rem; align-items: start; }
main section { display: contents; } main section[hidden] { display: none; }
main img { max-width: 100%; max-height: 78vh; border-radius: 6px; display: block; }
main section > div { position: sticky; top: 0; background: #fff; padding: .3rem 0; }
ol { list-style: none; margin: 0; padding: 0; } li { padding: .3rem .6rem; border-left: 4px solid transparent; }
li { display: flex; flex-wrap: wrap; gap: .2rem .3rem; align-items: center; }
li > bdi { flex: 1 1 9rem; } li > span { white-space: nowrap; }
li.here { border-left-color: var(--for); background: #f3f6fb; }
li.here > bdi { font-weight: 650; } button, input { font: inherit; padding: .25rem .7rem; }
button { border: 1px solid #777; border-radius: 6px; background: #fff; cursor: pointer; }
button[aria-pressed="true"] { background: var(--for); color: #fff; border-color: var(--for); }
header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .5rem 0 1rem; }
@media (max-width: 700px) { main { grid-template-columns: minmax(0, 1fr); } main img { max-height: 35vh; } }
"""
SCRIPT = """
"use strict";
const main = document.querySelector("main"), digest = main.dataset.sheet, place = "ccr-judge-" + digest;
const photos = [...main.querySelectorAll("section")];
const claims = photos.map((photo) => [...photo.querySelectorAll("li")]);
const order = claims.flatMap((list, at) => list.map((_, number) => [at, number]));
const who = document.querySelector("#judge"), said = document.querySelector("#progress");
let verdicts = claims.map((list) => list.map(() => "")), here = 0;
try {
  const kept = JSON.parse(localStorage.getItem(place));
  if (kept && kept.verdicts.length === verdicts.length) {
    verdicts = verdicts.map((list, at) => list.map((_, number) => {
      const verdict = kept.verdicts[at][number];
      return ["true", "half", "false"].includes(verdict) ? verdict : "";
    }));
    who.value = kept.judge || who.value;
  }
} catch { /* a browser that keeps nothing: save before the page is closed */ }
const open = () => order.findIndex(([at, number]) => !verdicts[at][number]);
const result = () => JSON.stringify({ sheet: digest, judge: who.value.trim(), verdicts }, null, 1);
const keep = () => { try { localStorage.setItem(place, result()); } catch { /* as above */ } };
function draw() {
  const [at, number] = order[here];
  photos.forEach((photo, other) => { photo.hidden = other !== at; });
  claims.forEach((list, photo) => list.forEach((line, claim) => {
    line.classList.toggle("here", photo === at && claim === number);
    line.querySelectorAll("button").forEach((button) => {
      button.setAttribute("aria-pressed", String(verdicts[photo][claim] === button.dataset.verdict));
    });
  }));
  const done = verdicts.flat().filter(Boolean).length;
  said.textContent = `photo ${at + 1} of ${photos.length}, ${done} of ${order.length} claims judged`
    + (done === order.length ? ": all done, save the verdicts" : "");
  claims[at][number].scrollIntoView({ block: "nearest" });
}
function go(to) { here = Math.min(Math.max(to, 0), order.length - 1); draw(); }
function judge(verdict) {
  const [at, number] = order[here];
  verdicts[at][number] = verdict;
  keep();
  const later = order.findIndex(([photo, claim], place) => place > here && !verdicts[photo][claim]);
  go(later >= 0 ? later : open() >= 0 ? open() : here);
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === who) return;
  const verdict = { t: "true", h: "half", f: "false" }[event.key.toLowerCase()];
  if (verdict) judge(verdict);
  else if (["b", "arrowup", "arrowleft"].includes(event.key.toLowerCase())) go(here - 1);
  else if (["arrowdown", "arrowright"].includes(event.key.toLowerCase())) go(here + 1);
  else return;
  event.preventDefault();
});
claims.forEach((list, at) => list.forEach((line, number) => line.addEventListener("click", (event) => {
  here = order.findIndex(([photo, claim]) => photo === at && claim === number);
  const verdict = event.target.dataset.verdict;
  if (verdict) { judge(verdict); } else { draw(); }
})));
who.addEventListener("input", keep);
document.querySelector("#back").addEventListener("click", () => go(here - 1));
document.querySelector("#save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([result()], { type: "application/json" }));
  link.download = `verdicts-${digest}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
});
go(Math.max(open(), 0));
"""
# The one script that may run is this one, by its hash; nothing is loaded, and nothing can be sent anywhere.
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'"
)


def judge_page(sheet: Sheet, rows: EmbeddingStore, *, judge: str = "") -> str:
    """One self-contained page with the photos and claims of a sheet; `rows` has the photos, `judge` is who judges."""
    pictures = Pictures(rows)
    photos = "\n".join(_photo(photo, pictures) for photo in sheet.photos)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>Is it true of the photo?</title><style>{STYLE}{LOOK}</style></head>\n<body>\n"
        "<h1>Is it true of the photo?</h1>\n"
        "<p>Look at the photo and press <b>T</b> (true), <b>H</b> (half true) or <b>F</b> (false) for each claim; "
        "<b>B</b> goes back. Judge what is seen in this photo, not what is usual. Verdicts stay in this browser until "
        "they are saved to a file; <code>ccr judge --read</code> reads it.</p>\n"
        f'<header><label>Judge <input id="judge" maxlength="80" value="{escape(visible(judge))}"></label>'
        '<button id="back">Back</button><button id="save">Save verdicts</button>'
        '<span id="progress" role="status"></span></header>\n'
        f'<main data-sheet="{sheet.digest}">\n{photos}\n</main>\n<script>{SCRIPT}</script>\n</body></html>\n'
    )


def _photo(photo: JudgedPhoto, pictures: Pictures) -> str:
    """A photo with its claims; hidden until its turn."""
    buttons = "".join(
        f'<button data-verdict="{verdict}" aria-pressed="false" title="{key}">{words}</button> '
        for verdict, (key, words) in VERDICTS.items()
    )
    lines = "".join(f"<li>{name(visible(claim))}<span>{buttons}</span></li>" for claim in photo.claims)
    caption = f'<div class="muted">{name(visible(photo.name))}</div>'
    return f"<section hidden><div>{pictures.of(photo.row, SIZE)}{caption}</div><ol>{lines}</ol></section>"
