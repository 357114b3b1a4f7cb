"""Reading and decoding ahead of the encoder, in worker processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait

from PIL import Image

from ccr.data.datasets import BadImage, Sample, content_hash, decode
from ccr.data.encoders.protocol import Crop, batches
from ccr.errors import CCRError

_SAMPLES_PER_TASK = 8  # few messages between processes, and still small steps


@dataclass(frozen=True)
class Decoded:
    """A sample's content hash and image, or the reason why there is none."""

    content: str = ""
    image: Image.Image | None = None
    reason: str | None = None


def decode_sample(sample: Sample, *, crop: Crop | None, max_pixels: int) -> Decoded:
    """Read, hash, decode and crop one sample."""
    try:
        sample.key.encode()
        content = sample.source.read()
        image = decode(content, max_pixels=max_pixels)
        return Decoded(content_hash(content), image if crop is None else crop(image))
    except BadImage as error:
        return Decoded(reason=str(error))
    except UnicodeEncodeError:
        return Decoded(reason="its name is not valid UTF-8")
    except Exception as error:  # one sample must never stop a run of a million
        return Decoded(reason=f"{type(error).__name__}: {error}"[:300])


class Decoders:
    """Decodes samples in order, some ahead of the reader; `workers=0` does it in this process, when asked."""

    def __init__(self, workers: int, *, crop: Crop | None, max_pixels: int) -> None:
        self._workers = workers
        self._crop = crop
        self._max_pixels = max_pixels
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Decoders:
        if self._workers:
            # spawn: a fork would copy the encoder's threads' locks in whatever state they are
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_die_with_parent)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def decode(self, samples: Iterable[Sample]) -> Iterator[Decoded]:
        """One result for each sample, in order; at most a few chunks for each worker are in memory."""
        if self._pool is None:
            for sample in samples:
                yield decode_sample(sample, crop=self._crop, max_pixels=self._max_pixels)
            return
        try:
            yield from self._decode_ahead(self._pool, samples)
        except BrokenProcessPool as error:
            raise CCRError(
                "a decoding process died: the machine may be out of memory, or a script that embeds lacks "
                '`if __name__ == "__main__":` around its calls; workers=0 decodes without processes'
            ) from error

    def _decode_ahead(self, pool: ProcessPoolExecutor, samples: Iterable[Sample]) -> Iterator[Decoded]:
        waiting: deque[Future[list[Decoded]]] = deque()
        for chunk in batches(samples, _SAMPLES_PER_TASK):
            waiting.append(pool.submit(_decode_chunk, chunk, self._crop, self._max_pixels))
            if len(waiting) > 2 * self._workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _decode_chunk(samples: Sequence[Sample], crop: Crop | None, max_pixels: int) -> list[Decoded]:
    return [decode_sample(sample, crop=crop, max_pixels=max_pixels) for sample in samples]


def _die_with_parent() -> None:
    """Workers of a killed run must not stay: they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
