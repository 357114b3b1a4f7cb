"""Service: from uploads to answers. Decoding, embedding and predicting happen in threads; the event loop only waits."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from PIL import Image

from ccr.data.datasets import BadImage, decode
from ccr.data.datasets.sources import TooManyPixels, pixels_of
from ccr.encoders import Encoder
from ccr.errors import CCRError
from ccr.model import ConceptModel
from ccr.utils.texts import visible
from ccr_studio.service import answers
from ccr_studio.service.limits import BYTES_PER_PIXEL, DECODING, Busy, Meters, NotReady, RequestLimits

#: Seconds that the first photo waits for others. While the encoder works, others gather by themselves.
WINDOW = 0.002


@dataclass(eq=False)
class _Waiting:
    encoder: Encoder
    image: Image.Image
    row: asyncio.Future[np.ndarray] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Photos in, embeddings out, as many at a time as are waiting. One encoder works at a time, in a thread."""

    def __init__(self, limits: RequestLimits, meters: Meters) -> None:
        self.limits, self.meters = limits, meters
        self._waiting: deque[_Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ccr-encoder")

    @property
    def waiting(self) -> int:
        """Photos that wait for the encoder."""
        return len(self._waiting)

    async def embed(self, encoder: Encoder, images: Sequence[Image.Image]) -> np.ndarray:
        """Unit rows (m, d) of the images, embedded beside those of other requests."""
        if len(self._waiting) + len(images) > self.limits.waiting:
            raise Busy(f"{len(self._waiting)} photos wait for the encoder already: try again in a moment")
        jobs = [_Waiting(encoder, image) for image in images]
        self._waiting.extend(jobs)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            return np.array([await job.row for job in jobs], dtype=np.float32).reshape(len(jobs), encoder.dimension)
        finally:
            if not all(job.row.done() for job in jobs):  # nobody waits any more: photos are not held for nobody
                for job in jobs:
                    job.row.cancel()
                self._waiting = deque(job for job in self._waiting if not job.row.done())

    def close(self) -> None:
        """Let the thread end; photos that still wait are not embedded."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        await asyncio.sleep(WINDOW)
        while batch := self._take():
            failure = await self._answer(batch)
            if failure is not None and len(batch) > 1:  # one photo's trouble is not that of its neighbours
                for job in batch:
                    failure = await self._answer([job])
                    if failure is not None and not job.row.done():
                        job.row.set_exception(failure)
            elif failure is not None and not batch[0].row.done():
                batch[0].row.set_exception(failure)

    def _take(self) -> list[_Waiting]:
        """The next photos for one encoder; those that nobody waits for any more are passed over."""
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < self.limits.batch:
            if self._waiting[0].row.done():
                self._waiting.popleft()
            elif batch and self._waiting[0].encoder is not batch[0].encoder:
                break
            else:
                batch.append(self._waiting.popleft())
        return batch

    async def _answer(self, batch: list[_Waiting]) -> Exception | None:
        encoder, images = batch[0].encoder, [job.image for job in batch]
        self.meters.batches.observe(len(batch))
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, encoder.embed_images, images)
        except Exception as error:  # given to those who wait
            return error
        for job, row in zip(batch, rows, strict=True):
            if not job.row.done():
                job.row.set_result(row)
        return None


Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class Served:
    """The model being served, its name, and its encoder, if it reads photos."""

    name: str
    model: ConceptModel
    encoder: Encoder | None = None


#: The model that answers at the moment; it may raise `NotReady`.
Current = Callable[[], Served]


class SentFile(NamedTuple):
    """A file as it was sent."""

    name: str
    content: bytes


class Read(NamedTuple):
    """A photo as the encoder wants it, or why there is none."""

    name: str
    image: Image.Image | None
    error: str | None


class Service:
    """Answers about photos and embeddings by the current model, within limits.

    Parameters
    ----------
    current : gives the model that answers; asked once for each request, so that it may change between them.
    limits : what is refused.
    meters : what counts.
    """

    def __init__(self, current: Current, *, limits: RequestLimits | None = None, meters: Meters | None = None) -> None:
        self.current = current
        self.limits, self.meters = limits or RequestLimits(), meters or Meters()
        self.batcher = Batcher(self.limits, self.meters)
        self.meters.waiting.set_function(lambda: self.batcher.waiting)
        self._decoders = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="ccr-decoder")
        self._predictor = ThreadPoolExecutor(1, thread_name_prefix="ccr-predictor")
        self._admitting = ThreadPoolExecutor(1, thread_name_prefix="ccr-admission")  # first come, first served

    def close(self) -> None:
        """Let the threads end; what they have not begun is not done."""
        self.batcher.close()
        DECODING.dismiss()
        for pool in (self._decoders, self._predictor, self._admitting):
            pool.shutdown(wait=False, cancel_futures=True)

    async def predict_photos(
        self, uploads: Sequence[SentFile], *, classes: int, concepts: int
    ) -> answers.PhotoPredictions:
        """A prediction for each photo, or why there is none."""
        served = self.current()
        photos, rows = await self._embedded(served, uploads)
        predicted = await self._think(answers.predictions, served.model, rows, classes=classes, concepts=concepts)
        waiting = iter(predicted)
        results = [
            answers.PhotoPrediction(
                name=photo.name, prediction=None if photo.error is not None else next(waiting), error=photo.error
            )
            for photo in photos
        ]
        return answers.PhotoPredictions(model=served.name, results=results)

    async def embed_photos(self, uploads: Sequence[SentFile]) -> answers.PhotoEmbeddings:
        """An embedding for each photo, or why there is none."""
        served = self.current()
        photos, rows = await self._embedded(served, uploads)
        waiting = iter(rows.tolist())
        results = [
            answers.PhotoEmbedding(
                name=photo.name, embedding=None if photo.error is not None else next(waiting), error=photo.error
            )
            for photo in photos
        ]
        encoder = _encoder(served)
        return answers.PhotoEmbeddings(encoder=encoder.name, fingerprint=encoder.fingerprint, results=results)

    async def explain_photo(self, upload: SentFile, *, against: str | None, top: int) -> answers.ExplanationAnswer:
        """The sum behind one photo's prediction."""
        served = self.current()
        _, rows = await self._embedded(served, [upload])
        return await self._think(answers.explanation, served.name, served.model, rows[0], against=against, top=top)

    async def predict_embeddings(
        self, embeddings: Sequence[Sequence[float]], *, classes: int, concepts: int
    ) -> answers.EmbeddingPredictions:
        """A prediction for each embedding."""
        served = self.current()
        if len(embeddings) > self.limits.rows:
            raise CCRError(f"a request may have {self.limits.rows} embeddings, got {len(embeddings)}: send several")
        rows = await self._think(_as_rows, embeddings, served.model.dimension)
        results = await self._think(answers.predictions, served.model, rows, classes=classes, concepts=concepts)
        return answers.EmbeddingPredictions(model=served.name, results=results)

    async def explain_embedding(
        self, embedding: Sequence[float], *, against: str | None, top: int
    ) -> answers.ExplanationAnswer:
        """The sum behind the prediction of one embedding."""
        served = self.current()
        (row,) = _as_rows([embedding], served.model.dimension)
        return await self._think(answers.explanation, served.name, served.model, row, against=against, top=top)

    async def _embedded(self, served: Served, uploads: Sequence[SentFile]) -> tuple[list[Read], np.ndarray]:
        """The photos, and the rows of those that could be read; an error if none could."""
        encoder = _encoder(served)
        most = min(self.limits.photos, self.limits.waiting)  # more could never be waiting at once
        if len(uploads) > most:
            raise CCRError(f"a request may have {most} photos, got {len(uploads)}: send several")
        photos, rows = await (self._whole if encoder.crop is None else self._cropped)(encoder, uploads)
        self.meters.photos.inc(len(photos))
        unread = sum(photo.error is not None for photo in photos)
        self.meters.unreadable.inc(unread)
        if unread == len(photos):
            raise BadImage(f"no photo could be read; {photos[0].name}: {photos[0].error}")
        return photos, rows

    async def _cropped(self, encoder: Encoder, uploads: Sequence[SentFile]) -> tuple[list[Read], np.ndarray]:
        """Photos of which only the small part that the encoder looks at is kept, so that all are embedded at once."""
        photos = await asyncio.gather(*(self._read(upload, encoder) for upload in uploads))
        return list(photos), await self._rows(encoder, photos)

    async def _whole(self, encoder: Encoder, uploads: Sequence[SentFile]) -> tuple[list[Read], np.ndarray]:
        """Photos that the encoder is given whole: as many at a time as there is memory for until they are embedded."""
        sizes = await asyncio.gather(*(self._in_decoder(_pixels, upload, self.limits) for upload in uploads))
        photos: list[Read] = []
        rows = [np.empty((0, encoder.dimension), np.float32)]
        for start, end in _groups(sizes, DECODING.budget // BYTES_PER_PIXEL):
            async with self._room(sum(sizes[start:end])):
                part = await asyncio.gather(*(self._read(upload, encoder) for upload in uploads[start:end]))
                rows.append(await self._rows(encoder, part))
                photos += [photo._replace(image=None) for photo in part]
                del part  # before the room is given back
        return photos, np.concatenate(rows)

    @asynccontextmanager
    async def _room(self, pixels: int) -> AsyncIterator[None]:
        """Room at the gate, waited for in a thread of its own and given back whatever happens to the request."""
        with ExitStack() as held:
            admission = self._admitting.submit(held.enter_context, DECODING.room(pixels))
            try:
                await asyncio.wrap_future(admission)
            except BaseException:
                admission.add_done_callback(lambda _: held.close())  # it may be let in after the request is gone
                raise
            yield

    async def _rows(self, encoder: Encoder, photos: Sequence[Read]) -> np.ndarray:
        return await self.batcher.embed(encoder, [photo.image for photo in photos if photo.image is not None])

    async def _read(self, upload: SentFile, encoder: Encoder) -> Read:
        return await self._in_decoder(read_photo, upload, encoder.crop, self.limits)

    async def _in_decoder(self, function: Callable[..., Answer], *args: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._decoders, partial(function, *args))

    async def _think(self, function: Callable[..., Answer], *args: Any, **options: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._predictor, partial(function, *args, **options))


def read_photo(upload: SentFile, crop: Callable[[Image.Image], Image.Image] | None, limits: RequestLimits) -> Read:
    """The part of a photo that the encoder looks at, which is small, or the reason why there is none. Without `crop`
    it is the whole photo, for which there must be room already."""
    name = visible(upload.name)[:200]
    try:
        if crop is None:
            return Read(name, decode(upload.content, max_pixels=limits.pixels), None)
        with DECODING.decoded(lambda: upload.content, max_pixels=limits.pixels) as image:
            return Read(name, crop(image), None)
    except TooManyPixels as error:
        return Read(name, None, str(error.with_remedy("make it smaller (`ccr serve --megapixels` raises it)")))
    except BadImage as error:
        return Read(name, None, visible(str(error)))


def _pixels(upload: SentFile, limits: RequestLimits) -> int:
    """How many pixels will be decoded: none of a photo that is refused."""
    try:
        return pixels_of(upload.content, max_pixels=limits.pixels)
    except BadImage:
        return 0


def _groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive photos of at most so many pixels together; a larger photo is a range of its own."""
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > most:
            yield start, at
            start, total = at, 0
        total += size
    yield start, len(sizes)


def _encoder(served: Served) -> Encoder:
    if served.encoder is None:
        raise NotReady(f"{served.name} was fitted on embeddings without a known encoder: send embeddings, not photos")
    return served.encoder


def _as_rows(embeddings: Sequence[Sequence[float]], dimension: int) -> np.ndarray:
    wrong = next((row for row in embeddings if len(row) != dimension), None)
    if wrong is not None:
        raise CCRError(f"an embedding for this model has {dimension} numbers, got {len(wrong)}: use its encoder")
    return np.array(embeddings, dtype=np.float64)
