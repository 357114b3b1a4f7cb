"""`predict`: photos, or the rows of a store, through a cluster into a file of predictions, the same to the byte as
`predict_photos` and `predict_store` write.

One chunk a task: workers answer with its predictions, and this process, which alone writes, keeps them as they come, in
any order. So no node but this one must see the file. What is kept is what a run on one machine keeps, and either goes
on where the other was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, Sample
from ccr.data.datasets.sources import FileImage
from ccr.data.encoders import Encoder
from ccr.data.store.workers import Limits
from ccr.errors import CCRError
from ccr.models.photos.chunk import predict_rows, predict_samples
from ccr.models.photos.kept import PredictSummary, Run
from ccr.models.photos.prediction import Prediction
from ccr.models.photos.run import photos_run, store_run
from ccr.progress import Tell, no_progress
from ccr.scale.cluster import beside_driver, connected, in_words
from ccr.scale.crew import EncoderOfNode, Member, answers
from ccr.scale.desks import Desk


def predict(
    model: Any,
    samples: Sequence[Sample],
    encoder: Encoder,
    out: str | Path,
    *,
    address: str = "auto",
    workers: int | None = None,
    explain: int = 5,
    batch_size: int = 32,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    tell: Tell = no_progress,
) -> PredictSummary:
    """Predict every photo into the file `out` on a Ray cluster; go on where an earlier run was stopped.

    As `ccr.models.photos.run.predict_photos`, and the file has the same bytes, whatever was killed on the way.

    Parameters
    ----------
    model : a `ConceptModel`.
    samples : the photos, as `open_photos` gives them; all nodes must see them.
    encoder : the model's encoder; every worker loads the same by its name.
    out : a .csv, .parquet or .jsonl file of this machine.
    address : the cluster: HOST:PORT, "auto" (one that runs here, or a new one) or "local".
    workers : encoders at work at once. None: one for each GPU, or else for each core, of the cluster.
    explain, batch_size, max_pixels, max_bytes, tell : as of `predict_photos`.
    """
    limits = Limits(max_pixels, max_bytes)
    run = photos_run(model, samples, encoder, out, explain=explain, batch_size=batch_size, limits=limits, tell=tell)
    arguments = {"encoder": encoder.name, "fingerprint": encoder.fingerprint, "batch_size": batch_size}
    arguments |= {"limits": tuple(limits), "explain": explain}
    with connected(address) as ray, in_words(ray):

        def make(numbers: Sequence[int]) -> Iterator[tuple[int, list[Prediction]]]:
            if numbers:
                seen = beside_driver(ray, Desk, [_from_anywhere(sample) for sample in samples], run.size)
                given = arguments | {"desk": seen, "model": ray.put(model)}
                yield from _predictions(answers(ray, PredictPhotos, numbers, workers, given), run)

        return run.write(make)


def predict_store(
    model: Any,
    store: Any,
    out: str | Path,
    *,
    address: str = "auto",
    workers: int | None = None,
    explain: int = 5,
    tell: Tell = no_progress,
) -> PredictSummary:
    """The same of photos whose embeddings are in a store, which all nodes must see."""
    run, paths = store_run(model, store, out, explain=explain, tell=tell)
    with connected(address) as ray, in_words(ray):

        def make(numbers: Sequence[int]) -> Iterator[tuple[int, list[Prediction]]]:
            if numbers:
                given = {"desk": beside_driver(ray, Desk, paths, run.size), "model": ray.put(model), "store": store}
                given |= {"size": run.size, "explain": explain}
                yield from _predictions(answers(ray, PredictRows, numbers, workers, given), run)

        return run.write(make)


def _predictions(told: Iterator[dict[str, Any]], run: Run) -> Iterator[tuple[int, list[Prediction]]]:
    for answer in told:
        items = [Prediction.from_dict(values) for values in answer["predictions"]]
        number = answer["task"]
        if len(items) != run.length(number):
            raise CCRError(f"chunk {number} came back with {len(items)} photos, not {run.length(number)}: run again")
        yield number, items


def _from_anywhere(sample: Sample) -> Sample:
    """The sample, found also by a process that works in another folder."""
    source = sample.source
    return replace(sample, source=FileImage(source.path.absolute())) if isinstance(source, FileImage) else sample


class PredictPhotos(Member):
    """Predicts the photos of chunks."""

    def __init__(
        self,
        desk: Any,
        model: Any,
        encoder: str,
        fingerprint: str,
        batch_size: int,
        limits: tuple[int, int],
        explain: int,
    ) -> None:
        import ray

        self.desk, self.model, self.explain, self.batch_size = desk, ray.get(model), explain, batch_size
        self.encoder = EncoderOfNode(encoder, fingerprint, batch_size, limits)

    def answer(self, number: int) -> dict[str, Any]:
        import ray

        samples: list[Sample] = ray.get(self.desk.chunk.remote(number))
        encoder, decoded = self.encoder.get(), self.encoder.decoded(samples)
        found = predict_samples(self.model, encoder, samples, decoded, explain=self.explain, batch_size=self.batch_size)
        return {"predictions": [item.to_dict() for item in found]}


class PredictRows(Member):
    """Predicts the rows of chunks of a store."""

    def __init__(self, desk: Any, model: Any, store: Any, size: int, explain: int) -> None:
        import ray

        self.desk, self.model, self.store, self.size, self.explain = desk, ray.get(model), store, size, explain

    def answer(self, number: int) -> dict[str, Any]:
        import ray

        names: list[str] = ray.get(self.desk.chunk.remote(number))
        start = number * self.size
        rows = np.asarray(self.store[start : start + len(names)])
        return {"predictions": [item.to_dict() for item in predict_rows(self.model, rows, names, explain=self.explain)]}
