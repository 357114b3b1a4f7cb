"""`predict_photos`: any number of photos to a file of predictions, resumable at any moment.

Photos are cut into chunks of a fixed size; the predictions of each are one file that appears whole or not at all, in a
folder beside the output. A killed run goes on at the first chunk that is missing, and the output is the same to the
byte, however often it was interrupted.
"""

from __future__ import annotations

import hashlib
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

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, Sample
from ccr.data.encoders import Encoder
from ccr.data.encoders.protocol import checked_batch_size
from ccr.data.store.workers import Decoders, Limits
from ccr.errors import CCRError, FormatError
from ccr.files import locked, remove_leftovers, write_json, write_stream
from ccr.models.model_format import pack
from ccr.models.photos.chunk import predict_rows, predict_samples, printable
from ccr.models.photos.prediction import Prediction
from ccr.models.photos.tables import table_ending, write_table
from ccr.progress import Tell, no_progress
from ccr.reading import read_object

_PLAN = "plan.json"
_BATCHES_PER_CHUNK = 2  # what a killed run loses at most, in batches
_ROWS_PER_CHUNK = 4096  # where embeddings are there already
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


def predict_photos(
    model: Any,
    samples: Sequence[Sample],
    encoder: Encoder,
    out: str | Path,
    *,
    explain: int = 5,
    workers: int = 1,
    batch_size: int = 32,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    tell: Tell = no_progress,
) -> PredictSummary:
    """Predict every photo into the file `out`, a .csv, .parquet or .jsonl; go on where an earlier run was stopped.

    Parameters
    ----------
    model : a `ConceptModel`.
    samples : the photos, as `open_photos` gives them.
    encoder : the model's encoder.
    explain : concepts per photo, from 0.
    workers : processes that read and decode ahead of the encoder; 0: everything happens in this one.
    batch_size : images that the encoder gets at a time, from 1.
    max_pixels, max_bytes : larger images and files count as unreadable.
    tell : called as photos pass.
    """
    size = _BATCHES_PER_CHUNK * checked_batch_size(batch_size)
    limits = Limits(max_pixels, max_bytes)
    plan = _plan(model, encoder.fingerprint, [sample.key for sample in samples], explain=explain, batch_size=batch_size)
    plan |= {"max_pixels": max_pixels, "max_bytes": max_bytes}
    with Decoders(workers, crop=encoder.crop, limits=limits) as decoders:

        def chunks(first: int) -> Iterator[list[Prediction]]:
            decoded = decoders.decode(samples[first * size :])
            for start in range(first * size, len(samples), size):
                part = samples[start : start + size]
                yield predict_samples(model, encoder, part, decoded, explain=explain, batch_size=batch_size)

        return _Run(Path(out), plan, len(samples), size, model.classes, explain, tell).write(chunks)


def predict_store(
    model: Any, store: Any, out: str | Path, *, explain: int = 5, tell: Tell = no_progress
) -> PredictSummary:
    """The same of photos whose embeddings are in a store, which need no encoder."""
    model.images(store)  # refuses embeddings of another encoder
    paths = [printable(str(row if path is None else path)) for row, path in enumerate(store.paths)]
    plan = _plan(model, store.fingerprint, paths, explain=explain, batch_size=_ROWS_PER_CHUNK)

    def chunks(first: int) -> Iterator[list[Prediction]]:
        for start in range(first * _ROWS_PER_CHUNK, len(paths), _ROWS_PER_CHUNK):
            part = slice(start, start + _ROWS_PER_CHUNK)
            yield predict_rows(model, np.asarray(store[part]), paths[part], explain=explain)

    return _Run(Path(out), plan, len(paths), _ROWS_PER_CHUNK, model.classes, explain, tell).write(chunks)


@dataclass
class _Run:
    """One run into a file: which chunks are there, and the file that they make."""

    out: Path
    plan: dict[str, Any]
    photos: int
    size: int
    classes: np.ndarray
    explain: int
    tell: Tell

    def write(self, chunks: Callable[[int], Iterable[list[Prediction]]]) -> PredictSummary:
        """Make the chunks that are missing, `chunks(first)` on, and the file of all."""
        ending, started = table_ending(self.out), time.perf_counter()
        with self._prepared():
            done = next(number for number in range(self.count + 1) if self._load(number) is None)
            resumed = min(done * self.size, self.photos)
            self.tell(resumed, self.photos, "predicting photos")
            for number, items in enumerate(chunks(done), start=done):
                write_json(self._path(number), {"predictions": [item.to_dict() for item in items]})
                self.tell(min((number + 1) * self.size, self.photos), self.photos, "predicting photos")
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
            kept = json.loads(self._path(number).read_bytes())["predictions"]
            items = [Prediction.from_dict(values) for values in kept]
        except Exception:
            return None
        return items if len(items) == min(self.size, self.photos - number * self.size) else None

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


def _plan(model: Any, encoder: str | None, paths: Sequence[str], *, explain: int, batch_size: int) -> dict[str, Any]:
    if explain < 0:
        raise CCRError(f"explain must be at least 0, got {explain}: it is how many concepts are named per photo")
    digest = hashlib.sha256()
    for path in paths:
        digest.update(printable(path).encode() + b"\0")
    plan = {"model": _model_digest(model), "encoder": encoder, "explain": explain, "batch_size": batch_size}
    return {**plan, "photos": len(paths), "photos_sha256": digest.hexdigest()}


def _model_digest(model: Any) -> str:
    """Changes when anything of the model does."""
    config, tensors = pack(model)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name in sorted(tensors):
        digest.update(name.encode() + np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()
