"""Batching: photos of requests that come at the same time are embedded together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from ccr.encoders import Encoder
from ccr_studio.service.limits import Busy, Limits
from ccr_studio.service.meters import PHOTOS, Meters

#: Seconds that the first photo waits for others. While the encoder works, others gather by themselves.
WINDOW = 0.002


@dataclass(eq=False)
class _Job:
    encoder: Encoder
    image: Image.Image
    row: asyncio.Future[np.ndarray] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Photos in, embeddings out, as many at a time as are waiting. One encoder works at a time, in a thread."""

    def __init__(self, limits: Limits, meters: Meters) -> None:
        self.limits, self.meters = limits, meters
        self._waiting: deque[_Job] = deque()
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
        jobs = [_Job(encoder, image) for image in images]
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

    def _take(self) -> list[_Job]:
        """The next photos for one encoder; those that nobody waits for any more are passed over."""
        batch: list[_Job] = []
        while self._waiting and len(batch) < self.limits.batch:
            if self._waiting[0].row.done():
                self._waiting.popleft()
            elif batch and self._waiting[0].encoder is not batch[0].encoder:
                break
            else:
                batch.append(self._waiting.popleft())
        return batch

    async def _answer(self, batch: list[_Job]) -> Exception | None:
        encoder, images = batch[0].encoder, [job.image for job in batch]
        self.meters.observe("ccr_batch_photos", "Photos that the encoder was given at a time.", len(batch), ends=PHOTOS)
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, encoder.embed_images, images)
        except Exception as error:  # given to those who wait
            return error
        for job, row in zip(batch, rows, strict=True):
            if not job.row.done():
                job.row.set_result(row)
        return None
