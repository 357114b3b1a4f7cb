"""Log of corrections of single photos: a concept is present or absent, the label is wrong, the photo is left out.

The log is append-only, apart from the store and from the steps of a session: undo, refits and other models of the same
store leave it alone. The next refit uses it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.io.files import read_regular
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
    paths : of the store's photos by row, as its statements name them: what was said of a photo that has another row now
        is about that row, and about none where it is gone.
    """

    def __init__(self, path: Path, paths: Sequence[Any] | np.ndarray = ()) -> None:
        self.path, self._paths = path, paths
        self._lock = threading.Lock()
        self._read = (0, 0, 0)
        self._all: dict[tuple[int, Kind, str], Correction] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Take up what others wrote; whether there was anything."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        with self._lock:
            now = (status.st_ino, status.st_size, status.st_mtime_ns)
            if now == self._read:
                return False
            try:
                content = read_regular(self.path)
            except OSError as error:
                raise FormatError(f"{self.path} cannot be read ({error.strerror}): move it away") from None
            found: dict[tuple[int, Kind, str], Correction] = {}
            whole, _, _ = content.rpartition(b"\n")  # what follows is being written, or was cut off by a crash
            for number, line in enumerate(whole.split(b"\n"), start=1):
                if line.strip():
                    one = self._placed(_correction(line, f"line {number} of {self.path}"))
                    found.pop(one.key, None)
                    if one.answer and one.row >= 0:
                        found[one.key] = one
            self._all, self._read = found, now
            return True

    def add(self, row: int, photo: str, kind: Kind, answer: str, *, concept: str = "", by: str = "") -> Correction:
        """Log a statement; it is on disk when this returns."""
        made = _checked(Correction(row, photo, kind, answer, concept, by.strip(), timestamp()))
        self.refresh()  # a damaged log is said before anything is added
        append_lines(self.path, [asdict(made)])
        self.refresh()
        return made

    def _placed(self, one: Correction) -> Correction:
        """The statement about the row that its photo has now, -1 where no row has it, or several have."""
        if not len(self._paths) or (one.row < len(self._paths) and photo_name(self._paths, one.row) == one.photo):
            return one
        return replace(one, row=self._rows.get(one.photo, -1))

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Rows by the photo's name, of those that differ."""
        names = [photo_name(self._paths, row) for row in range(len(self._paths))]
        counts = Counter(names)
        return {name: row for row, name in enumerate(names) if counts[name] == 1}

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


def photo_name(paths: Sequence[Any] | np.ndarray, row: int) -> str:
    """The name by which statements know a photo: its path in the store, or its row where it has none."""
    return str(row if paths[row] is None else paths[row])


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
    if type(one.row) is not int or one.row < 0:
        raise CCRError(f"the row of a photo must be a number from 0 on, got {one.row!r}")
    allowed = {"concept": ("yes", "no", ""), "leave out": ("yes", "")}
    if one.kind not in ("concept", "label", "leave out") or one.answer not in allowed.get(one.kind, (one.answer,)):
        raise CCRError(f"nothing can be said of a photo by kind {one.kind!r} and answer {one.answer!r}")
    if (one.kind == "concept") != bool(one.concept):
        raise CCRError("an answer about a concept needs its name, and other statements have none")
    return one
