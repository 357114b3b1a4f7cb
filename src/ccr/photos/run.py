"""Predictions of photos: those of a model, and resumable runs of any number of photos into a file."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import IO, Any, overload

import numpy as np

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, Sample
from ccr.data.datasets.base import printable
from ccr.data.store import Skipped
from ccr.data.store.workers import Decoded, Decoders, Limits
from ccr.encoders.registry import Encoder, check_named, checked_batch_size, load_encoder
from ccr.errors import CCRError, FormatError, UnreachableError
from ccr.explain.explanation import terms_of
from ccr.explain.terms import Contribution, PlainResult, plain
from ccr.io.files import locked, read_object, read_regular, remove_leftovers, write_json, write_stream
from ccr.io.format import pack
from ccr.io.remote import is_url
from ccr.knowledge.shown import of_photos
from ccr.utils.arrays import to_frame
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import to_cell


# Which encoder embeds a photo for a model: the one that it was fitted on, and no other.
def encoder_of_model(model: Any, given: Encoder | str | None) -> Encoder:
    """The encoder given, by itself or by its spec, or else the one that the model names; checked to be the model's."""
    origin = model.provenance
    if given is None:
        if origin.encoder is None:
            raise CCRError(
                'the model does not say which encoder made its embeddings: give encoder="bundled" or another'
            )
        check_named(origin.encoder, "the model")
    loaded = load_encoder(given or origin.encoder) if given is None or isinstance(given, str) else given
    if origin.encoder_fingerprint not in (None, loaded.fingerprint):
        raise CCRError(
            f"the model was fitted on embeddings of encoder {origin.encoder_fingerprint} ({origin.encoder}), but "
            f"{loaded.name} is {loaded.fingerprint}: give the encoder with the same weights"
        )
    return loaded


@dataclass(frozen=True)
class Prediction(PlainResult):
    """One photo: its class, or the `error` for which there is none.

    `bias` + the sum of `concepts` + `others` == `logit`: the concepts with the largest contributions, as many as were
    asked for, and the other contributions together.
    """

    path: str
    prediction: Any = None
    probability: float | None = None
    runner_up: Any = None
    runner_up_probability: float | None = None
    logit: float | None = None
    bias: float | None = None
    concepts: tuple[Contribution, ...] = ()
    others: float | None = None
    error: str | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Prediction:
        """Inverse of `to_dict`."""
        return cls(**{**values, "concepts": tuple(Contribution(**term) for term in values["concepts"])})


class Predictions(Sequence[Prediction]):
    """Predictions of several photos, in the order in which the photos were given."""

    def __init__(self, items: Sequence[Prediction], *, explained: int) -> None:
        self._items, self.explained = tuple(items), explained

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...

    @overload
    def __getitem__(self, index: slice) -> Predictions: ...

    def __getitem__(self, index: int | slice) -> Prediction | Predictions:
        if isinstance(index, slice):
            return Predictions(self._items[index], explained=self.explained)
        return self._items[index]

    def __repr__(self) -> str:
        unreadable = sum(item.error is not None for item in self)
        return f"Predictions({len(self)} photos" + (f", {unreadable} unreadable)" if unreadable else ")")

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per photo; "pandas" or "polars", None: the first of the two that is installed."""
        rows = [flat(item, self.explained) for item in self]
        return to_frame({name: [row[name] for row in rows] for name in column_names(self.explained)}, kind)


def checked_explain(explain: int, model: Any) -> int:
    """How many concepts are named per photo: what was asked for, and at most all that the model has."""
    if not isinstance(explain, Integral) or isinstance(explain, bool) or explain < 0:
        raise CCRError(
            f"explain must be a whole number from 0, got {explain!r}: it is how many concepts are named per photo"
        )
    return min(int(explain), len(model.names))


def column_names(explained: int) -> tuple[str, ...]:
    """Columns of a table of predictions with so many concepts each."""
    names = ["path", "prediction", "probability", "runner_up", "runner_up_probability"]
    if explained:
        names += ["logit", "bias"]
        for number in range(1, explained + 1):
            names += [f"concept_{number}", f"contribution_{number}", f"shown_{number}"]
        names.append("others")
    return (*names, "error")


def flat(item: Prediction, explained: int) -> dict[str, Any]:
    """A prediction as a row of such a table."""
    row: dict[str, Any] = dict.fromkeys(column_names(explained))
    row |= {name: value for name, value in vars(item).items() if name in row}
    for number, term in enumerate(item.concepts, start=1):
        row |= {f"{name}_{number}": getattr(term, name) for name in ("concept", "contribution", "shown")}
    return row


# A chunk: predictions of a fixed run of photos, the smallest step of a run on one machine or on many.
def predict_samples(
    model: Any,
    encoder: Encoder,
    samples: Sequence[Sample],
    decoded: Iterable[Decoded],
    *,
    explain: int,
    batch_size: int,
) -> list[Prediction]:
    """One prediction for each sample, in order; `decoded` holds their images, or why there is none.

    The numbers depend on the samples of this call alone, so that chunks may be made anywhere and in any order.

    Parameters
    ----------
    model : a `ConceptModel`.
    explain : concepts per photo, from 0.
    batch_size : images that the encoder gets at a time, from 1.
    """
    items = list(islice(decoded, len(samples)))
    for item in items:
        if item.failure is not None:  # no fault of the photo's: the run stops, and goes on when it is called again
            raise UnreachableError(item.failure)
    images = [item.image for item in items if item.image is not None]
    rows = encoder.embed_images(images, batch_size=batch_size) if images else np.empty((0, encoder.dimension))
    paths = [printable(sample.key) for sample, item in zip(samples, items, strict=True) if item.image is not None]
    predicted = iter(predict_rows(model, rows, paths, explain=explain))
    return [
        next(predicted)
        if item.image is not None
        else Prediction(printable(sample.key), error=item.reason or "no reason known")
        for sample, item in zip(samples, items, strict=True)
    ]


def predict_rows(model: Any, X: Any, paths: Sequence[str], *, explain: int) -> list[Prediction]:
    """The predictions for embeddings X (m, d) of the photos at these paths."""
    if not len(paths):
        return []
    codes = model.encode(X)
    logits, probabilities = model.head.logits(codes), model.predict_proba(X)
    classes = [plain(name) for name in model.classes]
    predictions = []
    for row, path in enumerate(paths):
        first = int(logits[row].argmax())
        second = int(np.where(np.arange(len(classes)) == first, -np.inf, logits[row]).argmax())
        prediction = Prediction(
            path=path,
            prediction=classes[first],
            probability=float(probabilities[row, first]),
            runner_up=classes[second],
            runner_up_probability=float(probabilities[row, second]),
            **(_sum(model, codes, row, first, explain) if explain else {}),
        )
        predictions.append(prediction)
    return predictions


def _sum(model: Any, codes: Any, row: int, winner: int, explain: int) -> dict[str, Any]:
    """The sum behind the winner's logit: its bias, the largest contributions, the others together."""
    part = slice(codes.indptr[row], codes.indptr[row + 1])
    columns, values = codes.indices[part], codes.data[part].astype(np.float64)
    weights = model.head.coef[winner, columns].astype(np.float64)
    names, facts = [model.names[column] for column in columns], (model.confirmed, of_photos(model.shown))
    terms = terms_of(names, values, columns, weights, winner, *facts, winner)
    bias, others = float(model.head.intercept[winner]), sum(term.contribution for term in terms[explain:])
    total = bias + sum(term.contribution for term in terms)
    return {"logit": total, "bias": bias, "concepts": terms[:explain], "others": float(others)}


# Writers of predictions: CSV, Parquet, or JSON Lines, row by row.
#: Rows of one group of a Parquet file.
GROUP = 16_384


def write_table(stream: IO[bytes], ending: str, items: Iterable[Prediction], *, explained: int, classes: Any) -> None:
    """Write predictions with so many concepts each in the form of the file's ending."""
    _WRITERS[ending](stream, items, explained, classes)


def table_ending(path: Path) -> str:
    """The ending of a file that predictions can be written to."""
    ending = path.suffix.lower()
    if ending not in _WRITERS:
        raise CCRError(f"predictions are written to a file that ends in {', '.join(_WRITERS)}, got {path.name!r}")
    return ending


def _write_csv(stream: IO[bytes], items: Iterable[Prediction], explained: int, classes: Any) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    rows = csv.DictWriter(text, column_names(explained), lineterminator="\n")
    rows.writeheader()
    for item in items:
        rows.writerow({name: to_cell(value) for name, value in flat(item, explained).items()})
    text.detach()


def _write_lines(stream: IO[bytes], items: Iterable[Prediction], explained: int, classes: Any) -> None:
    unasked = () if explained else ("logit", "bias", "concepts", "others")
    for item in items:
        values = {name: value for name, value in item.to_dict().items() if name not in unasked}
        stream.write(json.dumps(values, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _write_parquet(stream: IO[bytes], items: Iterable[Prediction], explained: int, classes: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, _kind(name, classes)) for name in column_names(explained)])
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        left = iter(items)
        while group := list(islice(left, GROUP)):
            writer.write_table(pa.Table.from_pylist([flat(item, explained) for item in group], schema=schema))


def _kind(name: str, classes: Any) -> Any:
    import pyarrow as pa

    if name in ("prediction", "runner_up"):
        kinds = {"U": pa.string(), "i": pa.int64(), "u": pa.uint64(), "f": pa.float64(), "b": pa.bool_()}
        return kinds[np.asarray(classes).dtype.kind]
    is_text = name in ("path", "error") or name.startswith("concept_")
    return pa.string() if is_text else pa.float64()


_WRITERS: dict[str, Callable[[IO[bytes], Iterable[Prediction], int, Any], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_lines,
}


# Resumable prediction into a file. Photos are cut into chunks of a fixed size; the predictions of each chunk are one
# file, written atomically, in a folder beside the output. A killed run resumes with the missing chunks, and the output
# is the same to the byte, however often the run was interrupted and on whichever machine chunks were made.
_PLAN = "plan.json"
#: Entries of the plan that two runs must agree on, and their names.
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
#: Function that makes the chunks of these numbers, each with its number, in any order.
Make = Callable[[Sequence[int]], Iterable[tuple[int, Sequence[Prediction]]]]


@dataclass(frozen=True)
class PredictSummary(PlainResult):
    """Summary of a prediction run; `resumed` photos were predicted by an earlier run."""

    out: str
    photos: int
    predicted: int
    unreadable: tuple[Skipped, ...]
    classes: Mapping[str, int]
    resumed: int
    seconds: float
    photos_per_second: float


@dataclass
class Run:
    """One run into a file: which chunks are there, and the file that they make."""

    out: Path
    plan: dict[str, Any]
    photos: int
    size: int
    classes: np.ndarray
    explain: int
    tell: OnProgress

    def write(self, make: Make) -> PredictSummary:
        """Make the chunks that are missing, and write the file of all."""
        if is_url(self.out):
            raise CCRError(f"predictions are written to a file of this machine, got {self.out}: copy it there later")
        ending, started = table_ending(self.out), time.perf_counter()
        with self._prepared():
            missing = [number for number in range(self.count) if self._load(number) is None]
            resumed = done = self.photos - sum(self.length(number) for number in missing)
            self.tell(done, self.photos, "predicting photos")
            for number, items in make(missing):
                write_json(self._path(number), {"predictions": [item.to_dict() for item in items]})
                done += self.length(number)
                self.tell(done, self.photos, "predicting photos")
            unreadable: list[Skipped] = []
            counts = dict.fromkeys(map(str, self.classes.tolist()), 0)
            items_counted = self._counted(unreadable, counts)
            write_stream(
                self.out,
                lambda out: write_table(out, ending, items_counted, explained=self.explain, classes=self.classes),
            )
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
        """The photos of a chunk."""
        return slice(number * self.size, min((number + 1) * self.size, self.photos))

    def length(self, number: int) -> int:
        """How many those are."""
        part = self.part(number)
        return part.stop - part.start

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        """The folder of progress with this plan in it and no other run at work; another plan is refused."""
        self.progress.mkdir(parents=True, exist_ok=True)
        with locked(self.progress, f"another run is predicting into {self.out}: wait for it or choose another file"):
            remove_leftovers(self.progress)
            file = self.progress / _PLAN
            if not file.is_file():
                write_json(file, self.plan)
            begun = read_object(file, "be a plan of ccr", f"delete {self.progress} and predict again")
            differences = [words for name, words in _ENTRIES.items() if begun.get(name) != self.plan.get(name)]
            if differences:
                raise CCRError(
                    f"{self.progress} holds a run into {self.out} that was stopped, with another "
                    f"{', another '.join(differences)}: repeat that command as it was, choose another --out, or "
                    "delete the folder to begin anew"
                )
            yield

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

    def _counted(self, unreadable: list[Skipped], counts: dict[str, int]) -> Iterator[Prediction]:
        """All predictions in order; who is counted is noted on the way."""
        for number in range(self.count):
            items = self._load(number)
            if items is None:
                raise FormatError(f"{self._path(number)} was damaged meanwhile: run the same command again")
            for item in items:
                if item.error is not None:
                    unreadable.append(Skipped(item.path, item.error))
                else:
                    counts[str(item.prediction)] += 1
                yield item


def progress_folder(out: Path) -> Path:
    """Folder in which a run into `out` keeps finished chunks until all are."""
    return out.with_name(f"{out.name}.progress")


_BATCHES_PER_CHUNK = 2  # what a killed run loses at most, in batches
_ROWS_PER_CHUNK = 4096  # where embeddings are there already


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
    tell: OnProgress = no_progress,
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
    limits = Limits(max_pixels, max_bytes)
    run = photos_run(model, samples, encoder, out, explain=explain, batch_size=batch_size, limits=limits, tell=tell)
    with Decoders(workers, crop=encoder.crop, limits=limits) as decoders:

        def make(numbers: Sequence[int]) -> Iterator[tuple[int, list[Prediction]]]:
            parts = [samples[run.part(number)] for number in numbers]
            decoded = decoders.decode(sample for part in parts for sample in part)
            for number, part in zip(numbers, parts, strict=True):
                yield number, predict_samples(model, encoder, part, decoded, explain=explain, batch_size=batch_size)

        return run.write(make)


def predict_store(
    model: Any, store: Any, out: str | Path, *, explain: int = 5, tell: OnProgress = no_progress
) -> PredictSummary:
    """The same of photos whose embeddings are in a store, which need no encoder."""
    run, paths = store_run(model, store, out, explain=explain, tell=tell)

    def make(numbers: Sequence[int]) -> Iterator[tuple[int, list[Prediction]]]:
        for number in numbers:
            part = run.part(number)
            yield number, predict_rows(model, np.asarray(store[part]), paths[part], explain=explain)

    return run.write(make)


def photos_run(
    model: Any,
    samples: Sequence[Sample],
    encoder: Encoder,
    out: str | Path,
    *,
    explain: int,
    batch_size: int,
    limits: Limits,
    tell: OnProgress,
) -> Run:
    """The run of `predict_photos`, whose chunks this process or a cluster makes."""
    explain, size = checked_explain(explain, model), _BATCHES_PER_CHUNK * checked_batch_size(batch_size)
    plan = _plan(model, encoder.fingerprint, [sample.key for sample in samples], explain=explain, batch_size=batch_size)
    plan |= {"max_pixels": limits.pixels, "max_bytes": limits.bytes}
    return Run(Path(out), plan, len(samples), size, model.classes, explain, tell)


def store_run(model: Any, store: Any, out: str | Path, *, explain: int, tell: OnProgress) -> tuple[Run, list[str]]:
    """The run of `predict_store`, and what its rows are called."""
    explain = checked_explain(explain, model)
    model.images(store)  # refuses embeddings of another encoder
    paths = [printable(str(row if path is None else path)) for row, path in enumerate(store.paths)]
    plan = _plan(model, store.fingerprint, paths, explain=explain, batch_size=_ROWS_PER_CHUNK)
    return Run(Path(out), plan, len(paths), _ROWS_PER_CHUNK, model.classes, explain, tell), paths


def _plan(model: Any, encoder: str | None, paths: Sequence[str], *, explain: int, batch_size: int) -> dict[str, Any]:
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
