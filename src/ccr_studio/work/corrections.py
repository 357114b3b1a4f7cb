"""Log of corrections of single photos: a concept is present or absent, the label is wrong, the photo is left out.

The log is append-only, apart from the store and from the steps of a session: undo, refits and other models of the same
store leave it alone. The next refit uses it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ccr.errors import CCRError, FormatError
from ccr.io.files import open_regular
from ccr.knowledge import Answer, Knowledge
from ccr.review.decisions import append_lines
from ccr.utils.texts import check_name, csv_text, timestamp

#: The log in a session's folder.
LOG = "photos.jsonl"
Kind = Literal["concept", "label", "leave out"]
COLUMNS = ("photo", "row", "kind", "concept", "answer", "by", "at")
REMEDY = "mend or delete that line; the others stay as they are"


@dataclass(frozen=True)
class Correction:
    """One statement about the photo `row`: `answer` is yes or no for the kind concept, a class for label, yes for leave
    out; an empty one takes back what was said before."""

    row: int
    photo: str
    kind: Kind
    answer: str
    concept: str = ""
    by: str = ""
    at: str = ""

    @property
    def key(self) -> tuple[int, Kind, str]:
        """Row, kind and concept that it is about; a later correction with the same key replaces it."""
        return self.row, self.kind, self.concept


class Corrections:
    """The statements of a log that hold now.

    Parameters
    ----------
    path : the file, made by the first statement.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._read = (0, 0)
        self._all: dict[tuple[int, Kind, str], Correction] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Take up what others wrote; whether there was anything."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        with self._lock:
            now = (status.st_ino, status.st_size)
            if now == self._read:
                return False
            with open_regular(self.path) as stream:
                content = stream.read()
            found: dict[tuple[int, Kind, str], Correction] = {}
            whole, _, _ = content.rpartition(b"\n")  # what follows is being written, or was cut off by a crash
            for number, line in enumerate(whole.split(b"\n"), start=1):
                if line.strip():
                    one = _correction(line, f"line {number} of {self.path}")
                    found.pop(one.key, None)
                    if one.answer:
                        found[one.key] = one
            self._all, self._read = found, now
            return True

    def add(self, row: int, photo: str, kind: Kind, answer: str, *, concept: str = "", by: str = "") -> Correction:
        """Log a statement; it is on disk when this returns."""
        made = _checked(Correction(row, photo, kind, answer, concept, by.strip(), timestamp()))
        append_lines(self.path, [asdict(made)])
        self.refresh()
        return made

    def all(self) -> list[Correction]:
        """Corrections in force, sorted by photo."""
        return sorted(self._all.values(), key=lambda one: one.key)

    def of(self, row: int) -> dict[tuple[Kind, str], str]:
        """Corrections of one photo: the answer by kind and concept."""
        return {(one.kind, one.concept): one.answer for one in self._all.values() if one.row == row}

    def about(self, concept: str) -> dict[int, str]:
        """The answers yes and no about a concept by photo."""
        return {one.row: one.answer for one in self.all() if one.kind == "concept" and one.concept == concept}

    @property
    def labels(self) -> dict[int, str]:
        """The corrected labels by row."""
        return {one.row: one.answer for one in self.all() if one.kind == "label"}

    @property
    def left_out(self) -> list[int]:
        """The rows that no refit trains on and nothing is measured on."""
        return [one.row for one in self.all() if one.kind == "leave out"]

    def knowledge(self) -> Knowledge | None:
        """The answers about concepts as knowledge; None where there is none."""
        said = [one for one in self.all() if one.kind == "concept"]
        answers = [
            Answer("", one.concept, "yes" if one.answer == "yes" else "no", "person", one.by, one.at, photo=one.photo)
            for one in said
        ]
        return Knowledge.of(answers) if answers else None

    def csv(self) -> str:
        """All that holds as CSV, texts as inert as a spreadsheet lets them be."""
        return csv_text(COLUMNS, ([getattr(one, column) for column in COLUMNS] for one in self.all()))


def _correction(line: bytes, place: str) -> Correction:
    try:
        fields = json.loads(line)
        if not isinstance(fields, Mapping):
            raise CCRError(f"a line is one JSON object, got {type(fields).__name__}")
        return _checked(Correction(**fields))
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error) if isinstance(error, CCRError) else "it is no statement about a photo"
        raise FormatError(f"{place} is damaged: {reason}; {REMEDY}") from None


def _checked(one: Correction) -> Correction:
    texts: dict[str, Any] = {name: value for name, value in asdict(one).items() if name != "row"}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise CCRError(f"the {name} of a statement about a photo must be a text, got {text!r}")
        check_name(text, f"the {name} of a statement about a photo")
    if not isinstance(one.row, int) or one.row < 0:
        raise CCRError(f"the row of a photo must be a number from 0 on, got {one.row!r}")
    allowed = {"concept": ("yes", "no", ""), "leave out": ("yes", "")}
    if one.kind not in ("concept", "label", "leave out") or one.answer not in allowed.get(one.kind, (one.answer,)):
        raise CCRError(f"nothing can be said of a photo by kind {one.kind!r} and answer {one.answer!r}")
    if (one.kind == "concept") != bool(one.concept):
        raise CCRError("an answer about a concept needs its name, and other statements have none")
    return one
