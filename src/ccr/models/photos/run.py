"""`predict_photos`: any number of photos to a file of predictions, resumable at any moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, Sample
from ccr.data.encoders import Encoder
from ccr.data.encoders.protocol import checked_batch_size
from ccr.data.store.workers import Decoders, Limits
from ccr.models.model_format import pack
from ccr.models.photos.chunk import predict_rows, predict_samples, printable
from ccr.models.photos.kept import PredictSummary, Run
from ccr.models.photos.prediction import Prediction, checked_explain
from ccr.progress import Tell, no_progress

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
    model: Any, store: Any, out: str | Path, *, explain: int = 5, tell: Tell = no_progress
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
    tell: Tell,
) -> Run:
    """The run of `predict_photos`, whoever makes its chunks."""
    explain, size = checked_explain(explain, model), _BATCHES_PER_CHUNK * checked_batch_size(batch_size)
    plan = _plan(model, encoder.fingerprint, [sample.key for sample in samples], explain=explain, batch_size=batch_size)
    plan |= {"max_pixels": limits.pixels, "max_bytes": limits.bytes}
    return Run(Path(out), plan, len(samples), size, model.classes, explain, tell)


def store_run(model: Any, store: Any, out: str | Path, *, explain: int, tell: Tell) -> tuple[Run, list[str]]:
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
