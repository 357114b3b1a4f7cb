"""A run into a file of predictions: its chunks, each kept whole or not at all, and the file that they make.

Photos are cut into chunks of a fixed size; the predictions of each are one file in a folder beside the output. A killed
run goes on with the chunks that are missing, and the output is the same to the byte, however often it was interrupted
and wherever chunks were made.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.files import locked, remove_leftovers, write_json, write_stream
from ccr.models.photos.prediction import Prediction
from ccr.models.photos.tables import table_ending, write_table
from ccr.places import is_url
from ccr.progress import Tell
from ccr.reading import read_object, read_regular

_PLAN = "plan.json"
#: What two runs must agree on, in words.
_ENTRIES = {
    "model": "model",
    "encoder": "encoder",
    "explain": "number of concepts",
    "batch_size": "batch size",
    "max_pixels": "pixel limit",
    "max_bytes": "byte limit",
    "photos": "number of photos",
    "photos_sha256": "list of photos",
}
#: What makes the chunks of these numbers, each with its number, in any order.
Make = Callable[[Sequence[int]], Iterable[tuple[int, Sequence[Prediction]]]]


@dataclass(frozen=True)
class Unreadable:
    """A photo without a prediction, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class PredictSummary:
    """What the file holds, and what this run did for it: `resumed` photos were done by an earlier run."""

    out: str
    photos: int
    predicted: int
    unreadable: tuple[Unreadable, ...]
    classes: Mapping[str, int]
    resumed: int
    seconds: float
    photos_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON can hold it."""
        return asdict(self)


@dataclass
class Run:
    """One run into a file: which chunks are there, and the file that they make."""

    out: Path
    plan: dict[str, Any]
    photos: int
    size: int
    classes: np.ndarray
    explain: int
    tell: Tell

    def write(self, make: Make) -> PredictSummary:
        """Have the chunks made that are missing, and write the file of all."""
        ending, started = self._ending(), time.perf_counter()
        with self._prepared():
            missing = [number for number in range(self.count) if self._load(number) is None]
            resumed = done = self.photos - sum(self.length(number) for number in missing)
            self.tell(done, self.photos, "predicting photos")
            for number, items in make(missing):
                write_json(self._path(number), {"predictions": [item.to_dict() for item in items]})
                done += self.length(number)
                self.tell(done, self.photos, "predicting photos")
            unreadable: list[Unreadable] = []
            counts = dict.fromkeys(map(str, self.classes.tolist()), 0)
            items_counted = self._counted(unreadable, counts)
            options: dict[str, Any] = {"explained": self.explain, "classes": self.classes}
            write_stream(self.out, partial(_write, ending=ending, items=items_counted, **options))
        shutil.rmtree(self.progress, ignore_errors=True)
        seconds, fresh = time.perf_counter() - started, self.photos - resumed
        return PredictSummary(
            out=str(self.out),
            photos=self.photos,
            predicted=self.photos - len(unreadable),
            unreadable=tuple(unreadable),
            classes={name: count for name, count in counts.items() if count},
            resumed=resumed,
            seconds=seconds,
            photos_per_second=fresh / seconds if fresh else 0.0,
        )

    @property
    def progress(self) -> Path:
        """The folder of chunks that are done."""
        return progress_folder(self.out)

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return -(-self.photos // self.size)

    def part(self, number: int) -> slice:
        """Which photos are those of a chunk."""
        return slice(number * self.size, min((number + 1) * self.size, self.photos))

    def length(self, number: int) -> int:
        """How many those are."""
        part = self.part(number)
        return part.stop - part.start

    def _ending(self) -> str:
        if is_url(self.out):
            raise CCRError(f"predictions are written to a file of this machine, got {self.out}: copy it there later")
        return table_ending(self.out)

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        """The folder of progress with this plan in it and no other run at work; another plan is refused."""
        self.progress.mkdir(parents=True, exist_ok=True)
        with locked(self.progress, f"another run is predicting into {self.out}: wait for it or choose another file"):
            remove_leftovers(self.progress)
            if (self.progress / _PLAN).is_file():
                self._check_plan()
            else:
                write_json(self.progress / _PLAN, self.plan)
            yield

    def _check_plan(self) -> None:
        begun = read_object(self.progress / _PLAN, "be a plan of ccr", f"delete {self.progress} and predict again")
        differences = [words for name, words in _ENTRIES.items() if begun.get(name) != self.plan.get(name)]
        if differences:
            raise CCRError(
                f"{self.progress} holds a run into {self.out} that was stopped, with another "
                f"{', another '.join(differences)}: repeat that command as it was, choose another --out, or delete "
                "the folder to begin anew"
            )

    def _path(self, number: int) -> Path:
        return self.progress / f"chunk_{number}.json"

    def _load(self, number: int) -> list[Prediction] | None:
        """A chunk that is done; None when it is not there, or damaged in whatever way: then it is made again."""
        try:
            kept = json.loads(read_regular(self._path(number)))["predictions"]
            items = [Prediction.from_dict(values) for values in kept]
        except Exception:
            return None
        return items if len(items) == self.length(number) else None

    def _counted(self, unreadable: list[Unreadable], counts: dict[str, int]) -> Iterator[Prediction]:
        """All predictions in order; who is counted is noted on the way."""
        for number in range(self.count):
            items = self._load(number)
            if items is None:
                raise FormatError(f"{self._path(number)} was damaged meanwhile: run the same command again")
            for item in items:
                if item.error is not None:
                    unreadable.append(Unreadable(item.path, item.error))
                else:
                    counts[str(item.prediction)] += 1
                yield item


def progress_folder(out: Path) -> Path:
    """Where a run into `out` keeps what is done, until it is finished."""
    return out.with_name(f"{out.name}.progress")


def _write(stream: Any, *, ending: str, items: Iterable[Prediction], explained: int, classes: Any) -> None:
    write_table(stream, ending, items, explained=explained, classes=classes)
