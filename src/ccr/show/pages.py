"""Whole pages: the claims of a model, a checked list of concepts, a review, the demo, and questions that are answered
offline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from ccr.explain import Explanation
from ccr.explain.claims import Claim
from ccr.knowledge import COLUMNS, Knowledge
from ccr.show import page
from ccr.show.pictures import Pictures
from ccr.utils.texts import counted, fidelity_text, share_text, visible

if TYPE_CHECKING:
    from ccr.controls import Gain
    from ccr.data.store import EmbeddingStore
    from ccr.metrics import Evaluation
    from ccr.review.judgement import Sheet

# A model's claims as a page: by class, every sentence that a positive weight says, with what speaks for it.
#: With more classes than this, sections are folded.
MOST_OPEN = 30
CLAIMS_HEADER = (
    "claim",
    "status",
    "weight",
    "its images that show it",
    "images showing it that are its",
    "accuracy without",
    "source",
    "by",
    "at",
)


def claims_in_words(counts: Mapping[str, int]) -> str:
    """Claim counts as a sentence, such as "70 claims: 52 confirmed, 15 unknown, 3 contradicted"."""
    total = sum(counts.values())
    parts = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    return f"{total:,} claim{'' if total == 1 else 's'}: {parts}"


def knowledge_in_words(found: Evaluation) -> str:
    """Measures of a model that was fitted with knowledge, in words: its claims, truth, transfer and text fidelity."""
    assert found.claims is not None
    parts = [claims_in_words(found.claims)]
    if found.truth is not None and found.is_told:
        unknown = f" ({found.unanswered:.1%} have none)" if found.unanswered else ""
        parts.append(f"{found.truth:.1%} of the shown concepts with an answer{unknown} are true of the image's class")
    if found.without_reason:
        parts.append(f"{found.without_reason:.1%} of the images show none of the concepts that the model may use")
    if found.transfer is not None and found.is_told:
        parts.append(f"transfer {found.transfer:.2f} to classes that concepts were not told about (0.5 is chance)")
    if found.text_fidelity is not None:
        mean, least = map(fidelity_text, found.text_fidelity)
        parts.append(f"fidelity to the bare texts {mean}, lowest {least} (above: to where they were grounded)")
    return "; ".join(parts)


def count_claims(claims: Sequence[Claim]) -> dict[str, int]:
    """How many of the claims are confirmed, unknown and contradicted."""
    found = [claim.status for claim in claims]
    return {status: found.count(status) for status in ("confirmed", "unknown", "contradicted")}


def edit_rows(edits: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """The edits made by hand, oldest first: number, what was done, and to what."""
    return [
        (str(number), str(edit["action"]), ", ".join(f"{key}: {edit[key]}" for key in edit if key != "action"))
        for number, edit in enumerate(edits, 1)
    ]


def claims_page(
    title: str, claims: Sequence[Claim], *, measured: str, knowledge: Knowledge | None, signed: str | None = None
) -> str:
    """The page of these claims, by class. `measured` says in a sentence on which images they were, `signed` who signed
    the model."""
    known = "The model was fitted without knowledge." if knowledge is None else f"Knowledge {knowledge.digest}."
    body = [
        f"<h1>{page.name(visible(title))}</h1>",
        f'<p class="verdict">{claims_in_words(count_claims(claims))}</p>',
        f"<p>A positive weight claims that the class shows the concept. {escape(visible(measured))} "
        f'<span class="muted">{known}</span></p>',
    ]
    if signed is not None:
        body.insert(2, f"<p><strong>{page.name(visible(signed))}</strong></p>")
    groups = [(label, list(found)) for label, found in groupby(claims, key=lambda claim: str(claim.label))]
    for label, found in groups:
        counts = ", ".join(f"{number} {status}" for status, number in count_claims(found).items() if number)
        summary = f'{page.name(visible(label))} <span class="muted">{counts}</span>'
        body.append(page.details(summary, claims_table(found), opened=len(groups) <= MOST_OPEN, kind="class"))
    return page.page(title, body)


def claims_table(claims: Sequence[Claim]) -> str:
    """Claims of one class as a table; columns that are empty for all of them are left out."""
    rows = [_claims_cells(claim) for claim in claims]
    kept = [column for column in range(len(CLAIMS_HEADER)) if column < 3 or any(row[column] for row in rows)]
    texts = [at for at, column in enumerate(kept) if CLAIMS_HEADER[column] in ("status", "source", "by", "at")]
    return page.table_of_html(
        [CLAIMS_HEADER[column] for column in kept], [[row[column] for column in kept] for row in rows], texts=texts
    )


def _claims_cells(claim: Claim) -> list[str]:
    return [
        f"{page.mark(claim.status)} {page.name(visible(claim.sentence))}",
        f'<span class="claim {claim.status}">{claim.status}</span>',
        f"{claim.weight:.2f}",
        percent(claim.share),
        percent(claim.purity),
        "" if claim.accuracy_without is None else f"{claim.accuracy_without:.1%}",
        *(escape(visible(text)) for text in (claim.source, claim.by, claim.at.partition("T")[0])),
    ]


def percent(share: float | None) -> str:
    """A share without digits behind the point, but never rounded up to all; nothing for None."""
    return "" if share is None else share_text(share)


# Page of a checked concept list: problems of each concept, its share of images, and the images that show it most.
@dataclass(frozen=True)
class Row:
    """A concept on the page: its verdict (good, doubtful, implausible, bad), why, the share of images in which it is
    active, and the rows of the store that show it most; the last two None and empty where no photos were looked at."""

    concept: str
    verdict: str
    reasons: Sequence[str]
    share: float | None = None
    top: Sequence[int] = ()


def concepts_page(title: str, facts: Sequence[tuple[str, str]], rows: Sequence[Row], store: Any | None) -> str:
    """The page, bad ones first, a fold for each verdict, that of the good ones closed, and an index by name. `facts`
    are pairs of what and how much; `store` has the images of the rows' `top`."""
    pictures = None if store is None else Pictures(store)
    places = {number: f"concept-{number}" for number in range(len(rows))}
    folds, jumps = [], []
    for verdict in ("bad", "implausible", "doubtful", "good"):
        own = [number for number, row in enumerate(rows) if row.verdict == verdict]
        if own:
            cards = "".join(_card(rows[number], pictures, places[number]) for number in own)
            summary = f"{verdict.capitalize()} ({len(own):,})"
            fold = page.details(summary, f'<div class="cards">{cards}</div>', opened=verdict != "good", kind="class")
            folds.append(f'<div id="{verdict}">{fold}</div>')
            jumps.append(f'<a href="#{verdict}">{summary}</a>')
    by_name = sorted(places, key=lambda number: rows[number].concept.casefold())
    index = " ".join(f'<a href="#{places[number]}">{page.name(rows[number].concept)}</a>' for number in by_name)
    body = [f"<h1>{escape(title)}</h1>", page.table(("", ""), facts, texts=(1,)), "<h2>Concepts, the worst first</h2>"]
    jumps.append('<a href="#names">All by name</a>')
    body += [f"<nav>{' '.join(jumps)}</nav>", *folds]
    body += ['<h2 id="names">All by name</h2>', f'<nav class="index">{index}</nav>']
    if pictures is not None and pictures.missing:
        count = "1 image" if pictures.missing == 1 else f"{pictures.missing:,} images"
        body.append(f'<p class="muted">{count} could not be read: {escape(pictures.reason)}</p>')
    return page.page(title, body)


def _card(row: Row, pictures: Pictures | None, place: str) -> str:
    kind = "right" if row.verdict == "good" else "wrong"
    parts = [f'<p class="verdict">{page.name(row.concept)} <span class="{kind}">{row.verdict}</span></p>']
    parts += [f'<div class="muted">{escape(reason)}</div>' for reason in row.reasons]
    if row.share is not None:
        parts.append(f'<div class="muted">active in {row.share:.1%} of the images</div>')
    if pictures is not None:
        parts.append(pictures.strip([(number, "") for number in row.top]))
    return f'<section class="card" id="{place}">{"".join(parts)}</section>'


# Printable page of a review: the confirmed and the forbidden claims of each class, with reviewer, date and reason.
_PRINT = "@media print { details { break-inside: avoid; } nav { display: none; } }"
REVIEW_HEADER = ("concept", "state", "source", "by", "at", "reason")


def review_page(title: str, rows: Sequence[Mapping[str, Any]], *, signed: str, without: str = "") -> str:
    """The page of the rows of a review (`ccr.review.review_rows`). `signed` says in a sentence who signed, or what is
    missing; `without` is the class that is predicted where no concept is shown."""
    may = [row for row in rows if row["answer"] != "no"]
    never = [row for row in rows if row["answer"] == "no"]
    body = [f"<h1>{page.name(visible(title))}</h1>", f'<p class="verdict">{page.name(visible(signed))}</p>']
    if without:
        body.append(f"<p>An image that shows no concept is called {page.name(visible(without))}.</p>")
    for heading, chosen in (("It may say", may), ("It may never say", never)):
        body.append(f"<h2>{heading} <span class='muted'>({len(chosen):,})</span></h2>")
        labels = dict.fromkeys(str(row["class"]) for row in chosen)
        for label in labels:
            own = [_review_cells(row) for row in chosen if str(row["class"]) == label]
            table = page.table_of_html(REVIEW_HEADER, own, texts=range(len(REVIEW_HEADER)))
            body.append(page.details(page.name(visible(label)), table, opened=True, kind="class"))
    return page.page(title, body, style=_PRINT)


def _review_cells(row: Mapping[str, Any]) -> list[str]:
    concept = page.name(visible(str(row["concept"])))
    return [concept, *(escape(visible(str(row[name]))) for name in REVIEW_HEADER[1:])]


class ShownPhoto(NamedTuple):
    """An image to show with its explanation and its true class."""

    image: Image.Image
    explanation: Explanation
    truth: Any


class DemoMeasured(NamedTuple):
    """Fits of the demo without and with knowledge and with knowledge shuffled, the truth of what each shows, one for
    each seed, and the accuracy of a linear probe; all in [0, 1]."""

    plain: Gain
    known: Gain
    shuffled: Gain
    truth: Sequence[Sequence[float]]
    probe: float

    def rows(self) -> list[tuple[str, ...]]:
        """Cells of a table: the model, mean, least and largest accuracy, and the truth of what it shows."""
        plain, known, (without, told, mixed) = self.plain, self.known, self.truth
        rows: tuple[tuple[str, Sequence[float], Sequence[float]], ...] = (
            ("baseline (concepts stay)", plain.baseline, ()),
            ("its head refitted by L-BFGS", plain.refitted, ()),
            ("CCR without knowledge", plain.refined, without),
            ("CCR with knowledge", known.refined, told),
            ("control: that knowledge shuffled", self.shuffled.refined, mixed),
        )
        cells: list[tuple[str, ...]] = []
        for name, found, true in rows:
            spread = (f"{share:.1%}" for share in (np.mean(found), min(found), max(found)))
            cells.append((name, *spread, f"{np.mean(true):.0%}" if true else ""))
        return [*cells, ("linear probe (no explanation)", f"{self.probe:.1%}", "", "", "")]


class DemoPhotos(NamedTuple):
    """Test photos to show: the surest right prediction, with and without knowledge, the surest wrong one, a gallery."""

    right: ShownPhoto
    untold: ShownPhoto
    wrong: ShownPhoto
    gallery: Sequence[ShownPhoto]


def demo_page(measured: DemoMeasured, photos: DemoPhotos, facts: Sequence[tuple[str, str]]) -> str:
    """The page of the demo as HTML; `facts` are (name, value)."""
    cards = [page.explanation_card(item.explanation, item.image, truth=item.truth, top=6) for item in photos.gallery]
    body = [
        "<h1>Fruit by concepts</h1>",
        "<p>Every prediction on this page is an exact sum: a bias and one contribution for each active concept. "
        "Blue bars speak for the predicted class, orange ones against it. Hold the pointer over a bar to see code and "
        "weight.</p>",
        "<h2>A prediction that is right</h2>",
        _featured(photos.right),
        "<h2>The same photo, without knowledge</h2>",
        "<p>This model says whatever tells its classes apart, true or not; nobody was asked.</p>",
        _featured(photos.untold),
        f"<h2>Test accuracy over {len(measured.plain.seeds)} seeds</h2>",
        page.table(("model", "mean", "min", "max", "true"), measured.rows()),
        '<p class="muted">true: share of the five concepts shown first that a table, written by hand, says are true '
        "of the photo's kind of fruit. The model of this page was fitted with the same table, so that what it shows is "
        "untrue by it only where a prediction is wrong. \u2713: the table confirms the concept for the predicted kind "
        "of fruit, which is not yet a check of this photo. Nonsense raises accuracy, too, because any code of the "
        "classes helps; it does not make explanations true.</p>",
        "<h2>A prediction that is wrong</h2>",
        "<p>The second sum says why the predicted class won over the true one.</p>",
        _featured(photos.wrong),
        "<h2>More test images, mistakes first</h2>",
        f'<div class="cards">{"".join(cards)}</div>',
        "<h2>How this was made</h2>",
        page.table(("what", ""), facts),
        '<p class="muted">' + escape("Photos: supermarket fruit, MIT licence, from a registry package.") + "</p>",
    ]
    return page.page("Fruit by concepts", body)


def _featured(item: ShownPhoto) -> str:
    mistaken = str(item.truth) != str(item.explanation.prediction)
    against = item.explanation.contrast(item.truth) if mistaken else None
    return page.explanation_card(item.explanation, item.image, truth=item.truth, against=against, top=12, big=True)


# Pages that are answered offline: claims of a sheet to judge, and questions about photos. Their scripts and styles are
# files of the folder `static`.
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
        lines = "".join(f"<li>{page.name(visible(claim))}<span>{_BUTTONS}</span></li>" for claim in photo.claims)
        caption = f'<div class="muted">{page.name(visible(photo.name))}</div>'
        shown = pictures.of(photo.row, SIZE)
        body.append(f"<section hidden><div>{shown}{caption}</div><ol>{lines}</ol></section>")
    body.append("</main>")
    return page.page("Is it true of the photo?", body, style=page.static("judge.css"), script=page.static("judge.js"))


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
        page.static("questions.html"),
    ]
    return page.page(title, body, style=page.static("questions.css"), script=page.static("questions.js"))
