"""The questions of `ccr review`: asked in the terminal with photos drawn, or answered by a table."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.markup import escape

from ccr.cli.common import console, note
from ccr.cli.common_photo import columns_for, draw_photo, read_key
from ccr.errors import CCRError
from ccr.texts import from_cell, visible

if TYPE_CHECKING:
    from PIL import Image

    from ccr.data.store import EmbeddingStore
    from ccr.review import Review, ReviewEvidence, ReviewQuestion

#: Keys that say no, each with its reason.
NO = {
    "n": "",
    "1": "background",
    "2": "wrong of this class",
    "3": "true of all classes",
    "4": "not to be seen",
}
KEYS = {
    "y": "yes",
    "n": "no",
    **{key: f"no: {reason}" for key, reason in NO.items() if reason},
    "u": "unclear",
    "x": "never a reason for any class",
    "b": "undo the last answer",
    "s": "skip",
    "o": "open the photos",
    "r": "refit",
    "q": "quit",
}
HELP = "  ".join(f"{key} {meaning}" for key, meaning in KEYS.items())
#: Pixels of a photo on the sheet of a claim, and lines below the sheet.
THUMBNAIL, BELOW = 160, 10


class Asked(NamedTuple):
    """How a round of questions ended: "done", "refit" or "quit", and how many answers it brought."""

    end: str
    answers: int


class Answers(NamedTuple):
    """A table of answers by class and concept, with a reason for no and its author where it names them; the class "*"
    is every class."""

    said: Mapping[tuple[str, str], tuple[str, str, str]]

    @classmethod
    def read(cls, path: Path) -> Answers:
        """The answers of a CSV or Parquet table, as `ccr fit --knowledge` reads them, and its column `reason`."""
        from ccr.core.knowledge import Knowledge

        reasons = _reasons(path) if path.suffix.lower() == ".csv" else {}
        words = {"yes": "yes", "no": "no", "unknown": "unclear"}
        said = {}
        for one in Knowledge.read(path):
            if not one.photo:
                why = reasons.get((one.label, one.concept), "") if one.answer == "no" else ""
                said[one.label, one.concept] = (words[one.answer], why, one.by)
        return cls(said)

    @property
    def struck(self) -> list[str]:
        """The concepts that are never a reason for any class."""
        return [concept for (label, concept), (answer, *_) in self.said.items() if label == "*" and answer == "no"]


def answer_from(answers: Answers, review: Review, evidence: ReviewEvidence, by: str | None, *, ahead: int) -> Asked:
    """Answer what is open by a table; strikes first."""
    from ccr.cli.knowledge_terminal import login_name

    name, given = by or login_name() or "table", 0
    names = set(review.concepts.names)
    struck = {one.concept for one in review.own if one.label is None}
    for concept in answers.struck:
        if concept in names and concept not in struck:
            review.strike(concept, by=name)
            given += 1
    # The class "*" is never asked about, so that a table's own answers cannot be taken for it.
    for one in list(_questions(review, evidence, None, ahead)):
        found = answers.said.get((str(one.label), one.concept))
        if found is None:
            continue
        answer, reason, author = found
        who = by or author or name
        if who not in {vote.by for vote in review.question(one.label, one.concept).votes}:
            review.decide(one.label, one.concept, answer, by=who, reason=reason)
            given += 1
    return Asked("done", given)


def ask_in_terminal(
    review: Review, evidence: ReviewEvidence, photos: EmbeddingStore | None, by: str, *, ahead: int, heading: str
) -> Asked:
    """Ask one question after the other until all are answered, or a refit or the end is wanted."""
    given, skipped = 0, set[tuple[str, str]]()
    while True:
        left = [one for one in _questions(review, evidence, by, ahead) if _key(one) not in skipped]
        if not left:
            return Asked("done", given)
        one = left[0]
        sheet = _show(one, review, evidence, photos, f"{heading}, {len(left)} to answer")
        key = read_key("> ", KEYS)
        if key in ("q", "r"):
            return Asked({"q": "quit", "r": "refit"}[key], given)
        if key == "s":
            skipped.add(_key(one))
        elif key == "o":
            _open(sheet)
        elif key == "b":
            try:
                review.decisions.undo(by=by)
                given -= 1
            except CCRError as error:
                note(f"note: {error}")
        else:
            _decide(review, one, key, by)
            given += 1


def _decide(review: Review, one: ReviewQuestion, key: str, by: str) -> None:
    if key == "x":
        review.strike(one.concept, by=by)
    elif key in NO:
        review.decide(one.label, one.concept, "no", by=by, reason=NO[key])
    else:
        review.decide(one.label, one.concept, {"y": "yes", "u": "unclear"}[key], by=by)


def _questions(review: Review, evidence: ReviewEvidence, by: str | None, ahead: int) -> Iterator[ReviewQuestion]:
    """The open claims, and `ahead` concepts of each class that are next in line."""
    yield from review.open(by)
    if ahead:
        for label in review.model.classes.tolist():
            yield from evidence.next_in_line(review, label, count=ahead)


def _key(one: ReviewQuestion) -> tuple[str, str]:
    return str(one.label), one.concept


def _show(
    one: ReviewQuestion, review: Review, evidence: ReviewEvidence, photos: EmbeddingStore | None, heading: str
) -> Image.Image | None:
    """Print the question with its evidence; the sheet of photos, if there are any."""
    found = evidence.of(one.label, one.concept, review=review)
    sheet = None if photos is None else _sheet(photos, (found.mine, found.others))
    columns = 0 if sheet is None else columns_for(sheet, below=BELOW)
    if sheet is not None and columns:
        typer.echo(draw_photo(sheet, columns))
        console.print(f"above: {len(found.mine)} of the class; below: {len(found.others)} of others", style="dim")
    counts = review.counts()
    progress = f"{heading}; {counts['confirmed']} of {sum(counts.values())} claims confirmed"
    console.print(f"\n{escape(visible(progress))}", style="dim", highlight=False)
    question = f"A [bold]{escape(visible(str(one.label)))}[/bold] shows [bold]{escape(visible(one.concept))}[/bold]?"
    console.print(question, highlight=False)
    console.print(escape(_numbers(one, found)), style="dim", highlight=False)
    console.print(escape(HELP), style="dim", highlight=False)
    return sheet


def _numbers(one: ReviewQuestion, found: object) -> str:
    facts = {name: getattr(found, name) for name in ("adds", "share", "purity", "accuracy", "accuracy_without")}
    parts = []
    if one.weight is None:
        parts.append("next in line, not a reason yet")
    if facts["adds"] is not None:
        parts.append(f"adds {facts['adds']:+.2f}")
    if facts["share"] is not None:
        parts.append(f"{facts['share']:.0%} of the class show it")
    if facts["purity"] is not None:
        parts.append(f"{facts['purity']:.0%} of those showing it are of the class")
    if facts["accuracy_without"] is not None:
        parts.append(f"accuracy on these photos {facts['accuracy']:.1%}, without it {facts['accuracy_without']:.1%}")
    return "; ".join(parts)


def _sheet(photos: EmbeddingStore, lines: Sequence[Sequence[int]]) -> Image.Image | None:
    """The photos side by side, a line of them for each group; None where none can be read."""
    from PIL import Image, ImageOps

    def fitted(row: int) -> Image.Image | None:
        with suppress(CCRError):  # a review does without a photo that is gone
            return ImageOps.fit(photos.image(row), (THUMBNAIL, THUMBNAIL))
        return None

    read = [[picture for row in rows if (picture := fitted(row)) is not None] for rows in lines]
    if not any(read):
        return None
    sheet = Image.new("RGB", (max(map(len, read)) * THUMBNAIL, len(read) * THUMBNAIL), "white")
    for down, line in enumerate(read):
        for across, picture in enumerate(line):
            sheet.paste(picture, (across * THUMBNAIL, down * THUMBNAIL))
    return sheet


def _open(sheet: Image.Image | None) -> None:
    if sheet is None:
        note("note: the store's photos cannot be read, so that there is nothing to open")
        return
    with tempfile.NamedTemporaryFile(suffix=".png", prefix="ccr-claim-", delete=False) as file:
        sheet.save(file, "PNG")
    typer.launch(file.name)


def _reasons(path: Path) -> dict[tuple[str, str], str]:
    """The column `reason` of a table with one row per answer, if it has one."""
    from ccr.reading import read_regular, understood

    with understood(path, "be a CSV table in UTF-8", "see docs/howto/review.md for its columns"):
        lines = read_regular(path).decode("utf-8-sig").splitlines()
        rows = [
            {str(name).strip().casefold(): from_cell(cell or "").strip() for name, cell in row.items()}
            for row in csv.DictReader(lines, restval="")
        ]
    return {(row["class"], row["concept"]): row["reason"] for row in rows if {"class", "concept", "reason"} <= set(row)}
