"""Questions about photos as a page that is answered offline, by keys, and gives its answers back as a CSV file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ccr.data.store import EmbeddingStore
from ccr.judgement import JudgedPhoto, Sheet
from ccr.knowledge import COLUMNS
from ccr.show.page import STYLE, name, page
from ccr.show.pictures import Pictures
from ccr.utils.texts import counted, visible

# Claims as a page to judge them on: photos, a verdict by key or button for each claim, and a file to save. The page
# holds no origins of claims, so that nobody who judges can look them up in it.
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


class PhotoQuestion(NamedTuple):
    """Does the photo show the concept? `label` is the photo's class, empty if it has none; `picture` its place among
    the page's pictures."""

    label: str
    concept: str
    photo: str
    picture: int


def questions_page(title: str, questions: Sequence[PhotoQuestion], pictures: Sequence[str], *, by: str = "") -> str:
    """The page of these questions. `pictures` are data: addresses, each in the page once; `by` is who answers, unless
    another name is filled in. Answers stay in the browser, by the questions' digest, until they are downloaded."""
    asked = [
        PhotoQuestion(visible(one.label), visible(one.concept), visible(one.photo), one.picture) for one in questions
    ]
    content = json.dumps({"columns": COLUMNS, "questions": asked, "pictures": list(pictures), "by": visible(by)})
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
    data = content.replace("<", "\\u003c")  # so that no text can end the element that it stands in
    concepts = len({question.concept for question in asked})
    body = [
        "<h1>What do these photos show?</h1>",
        f"<p>{counted(len(asked), 'question')} about {counted(concepts, 'concept')}. Answer by the keys <kbd>Y</kbd> "
        "yes, <kbd>N</kbd> no, <kbd>U</kbd> unclear; <kbd>←</kbd> and <kbd>→</kbd> go back and on. Look at the photo "
        "alone: what is hidden or cannot be told is unclear. Answers are kept in this browser; download them at the "
        "end, or at any time.</p>",
        "<noscript><p>This page needs JavaScript to take answers.</p></noscript>",
        f'<script type="application/json" id="data" data-digest="{digest}">{data}</script>',
        _FORM,
    ]
    return page(title, body, style=_STYLE, script=_SCRIPT)


_FORM = """<main id="form" hidden>
<progress id="bar" value="0" max="1"></progress> <span id="count" class="muted" role="status"></span>
<p class="ask">Does this photo show <b id="concept"></b>?</p>
<figure><img id="photo" alt="the photo that is asked about"><figcaption class="muted"><bdi id="label"></bdi>
<bdi id="path"></bdi></figcaption></figure>
<div class="keys"><button data-answer="yes"><kbd>Y</kbd> yes</button><button data-answer="no"><kbd>N</kbd> no</button>
<button data-answer="unknown"><kbd>U</kbd> unclear</button><span class="gap"></span>
<button id="back"><kbd>←</kbd> back</button><button id="on"><kbd>→</kbd> on</button></div>
<p id="done" class="right" hidden>All questions are answered. Download the answers.</p>
<div class="keys"><label>Your name <input id="by" autocomplete="name" maxlength="80"></label>
<button id="download">Download answers.csv</button></div>
<p class="muted" id="lost" hidden>This browser keeps nothing for this page: download before you close it.</p>
<p class="muted">Then: <code>ccr knowledge ask-photos MODEL STORE --knowledge FILE --read answers.csv</code></p>
</main>"""

_STYLE = """
main { max-width: 46rem; } main progress { width: min(20rem, 60%); accent-color: var(--for); }
.ask { font-size: 1.35rem; margin: .8rem 0 .5rem; overflow-wrap: anywhere; } .ask b { unicode-bidi: isolate; }
main figure { margin: 0; } main figure img { display: block; border-radius: 6px; background: #f3f3f3; }
main figure img { height: min(26rem, 44vh); max-width: 100%; object-fit: contain; }
.keys { display: flex; flex-wrap: wrap; gap: .5rem; margin: .8rem 0; align-items: center; } .gap { flex: 0 0 1rem; }
button { font: inherit; padding: .45rem .8rem; border: 1px solid var(--line); border-radius: 6px; background: #fff; }
button { color: inherit; cursor: pointer; } button:disabled { color: var(--muted); cursor: default; }
button[aria-pressed=true] { background: var(--for); border-color: var(--for); color: #fff; }
button[aria-pressed=true] kbd { color: inherit; border-color: currentColor; background: none; }
button:focus-visible, input:focus-visible { outline: 3px solid var(--for); outline-offset: 2px; }
kbd { font: .8em ui-monospace, monospace; border: 1px solid var(--line); border-radius: 4px; padding: .05rem .35rem; }
kbd { background: #f7f7f7; } input { font: inherit; padding: .35rem .5rem; width: 13rem; max-width: 100%; }
input { border: 1px solid var(--line); border-radius: 6px; }
"""

_SCRIPT = r"""
"use strict";
const holder = document.getElementById("data");
const data = JSON.parse(holder.textContent);
const asked = data.questions.map(([label, concept, photo, picture]) => ({label, concept, photo, picture}));
const key = "ccr-questions-" + holder.dataset.digest;
const find = (id) => document.getElementById(id);
const WORDS = {y: "yes", n: "no", u: "unknown"};
let at = 0;
const kept = {answers: {}, by: data.by};
try {
  const before = JSON.parse(localStorage.getItem(key) || "{}");
  if (typeof before.by === "string") kept.by = before.by;
  for (const [number, told] of Object.entries(before.answers || {})) {
    const fits = Array.isArray(told) && Object.values(WORDS).includes(told[0]) && !Number.isNaN(Date.parse(told[1]));
    if (fits && Number(number) < asked.length) kept.answers[Number(number)] = told;
  }
} catch (error) { /* what an older page or somebody else left there is no answer */ }

function keep() {
  try { localStorage.setItem(key, JSON.stringify(kept)); } catch (error) { find("lost").hidden = false; }
}

function open_ones() { return asked.map((_, number) => number).filter((number) => !(number in kept.answers)); }

function show() {
  const question = asked[at], same = asked.filter((other) => other.concept === question.concept);
  const done = asked.length - open_ones().length, place = `photo ${same.indexOf(question) + 1} of ${same.length}`;
  find("bar").max = asked.length;
  find("bar").value = done;
  find("count").textContent = `${done} of ${asked.length} answered; ${place} for this concept`;
  find("concept").textContent = question.concept;
  find("photo").src = data.pictures[question.picture];
  find("label").textContent = question.label ? question.label + ", " : "";
  find("path").textContent = question.photo;
  for (const button of document.querySelectorAll("[data-answer]")) {
    button.setAttribute("aria-pressed", String((kept.answers[at] || [])[0] === button.dataset.answer));
  }
  find("back").disabled = at === 0;
  find("on").disabled = at === asked.length - 1;
  find("done").hidden = done < asked.length;
}

function move(step) { at = Math.min(asked.length - 1, Math.max(0, at + step)); show(); }

function answer(word) {
  kept.answers[at] = [word, new Date().toISOString().slice(0, 19) + "+00:00"];
  keep();
  const left = open_ones();
  at = left.find((number) => number > at) ?? left[0] ?? at;
  show();
}

// As the library writes them: what a spreadsheet would compute gets an apostrophe before it.
function cell(text) {
  const safe = /^'*[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\r\n]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}

function download() {
  const by = kept.by.replace(/[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, " ").trim();
  const lines = [data.columns];
  asked.forEach((question, number) => {
    if (!(number in kept.answers)) return;
    const [word, when] = kept.answers[number];
    lines.push([question.label, question.concept, word, "person", by, when, question.photo]);
  });
  const text = lines.map((line) => line.map(cell).join(",") + "\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  link.download = "answers.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === find("by")) return;
  const word = WORDS[event.key.toLowerCase()];
  if (word && !event.repeat) answer(word);
  else if (event.key === "ArrowLeft") move(-1);
  else if (event.key === "ArrowRight") move(1);
  else return;
  event.preventDefault();
});
for (const button of document.querySelectorAll("[data-answer]")) {
  button.addEventListener("click", () => answer(button.dataset.answer));
}
find("back").addEventListener("click", () => move(-1));
find("on").addEventListener("click", () => move(1));
find("download").addEventListener("click", download);
find("by").value = kept.by;
find("by").addEventListener("input", (event) => { kept.by = event.target.value; keep(); });
if (asked.length) {
  at = open_ones()[0] ?? 0;
  find("form").hidden = false;
  show();
}
"""
