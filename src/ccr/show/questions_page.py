"""Pages that are answered offline: claims of a sheet to judge, and questions about photos. Their scripts and styles are
files of the folder `static`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ccr.data.store import EmbeddingStore
from ccr.knowledge import COLUMNS
from ccr.review.judgement import Sheet
from ccr.show.page import name, page, static
from ccr.show.pictures import Pictures
from ccr.utils.texts import counted, visible

#: Longer side of a photo on the page of judgements, in pixels.
SIZE = 720
_BUTTONS = "".join(
    f'<button data-verdict="{verdict}" aria-pressed="false" title="{words[0].upper()}">{words}</button> '
    for verdict, words in {"true": "true", "half": "half true", "false": "false"}.items()
)


def judge_page(sheet: Sheet, rows: EmbeddingStore, *, judge: str = "") -> str:
    """The photos and claims of a sheet, with a verdict by key or button for each claim, and a file to save. The page
    holds no origins of claims, so that nobody who judges can look them up in it. `rows` has the photos, `judge` is who
    judges."""
    pictures = Pictures(rows)
    body = [
        "<h1>Is it true of the photo?</h1>",
        "<p>Look at the photo and press <b>T</b> (true), <b>H</b> (half true) or <b>F</b> (false) for each claim; "
        "<b>B</b> goes back. Judge what is seen in this photo, not what is usual. Verdicts stay in this browser until "
        "they are saved to a file; <code>ccr judge --read</code> reads it.</p>",
        f'<header><label>Judge <input id="judge" maxlength="80" value="{escape(visible(judge))}"></label>'
        '<button id="back">Back</button><button id="save">Save verdicts</button>'
        '<span id="progress" role="status"></span></header>',
        f'<main data-sheet="{sheet.digest}">',
    ]
    for photo in sheet.photos:  # each hidden until its turn
        lines = "".join(f"<li>{name(visible(claim))}<span>{_BUTTONS}</span></li>" for claim in photo.claims)
        caption = f'<div class="muted">{name(visible(photo.name))}</div>'
        shown = pictures.of(photo.row, SIZE)
        body.append(f"<section hidden><div>{shown}{caption}</div><ol>{lines}</ol></section>")
    body.append("</main>")
    return page("Is it true of the photo?", body, style=static("judge.css"), script=static("judge.js"))


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
        static("questions.html"),
    ]
    return page(title, body, style=static("questions.css"), script=static("questions.js"))
