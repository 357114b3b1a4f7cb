"""Reading and decoding ahead of the encoder, in worker processes."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from PIL import Image

from ccr.data.datasets import BadImage, Sample, content_hash, decode
from ccr.data.encoders.protocol import Crop, batches
from ccr.errors import CCRError, UnreachableError
from ccr.isolated import isolated_python

_SAMPLES_PER_TASK = 8  # few messages between processes, and still small steps
_PROGRAM = "from ccr.data.store.workers import serve; serve()"


class Limits(NamedTuple):
    """What is too large to be decoded."""

    pixels: int
    bytes: int


@dataclass(frozen=True)
class Decoded:
    """A sample's content hash and image, or the reason why there is none; `failure` says why it could not be had now,
    which is no fault of the image's."""

    content: str = ""
    image: Image.Image | None = None
    reason: str | None = None
    failure: str | None = None


def decode_sample(sample: Sample, *, crop: Crop | None, limits: Limits) -> Decoded:
    """Read, hash, decode and crop one sample."""
    try:
        sample.key.encode()
        content = sample.source.read(limits.bytes)
        image = decode(content, max_pixels=limits.pixels)
        return Decoded(content_hash(content), image if crop is None else crop(image))
    except BadImage as error:
        return Decoded(reason=str(error))
    except UnreachableError as error:
        return Decoded(failure=str(error))
    except UnicodeEncodeError:
        return Decoded(reason="its name is not valid UTF-8")
    except Exception as error:  # one sample must never stop a run of a million
        return Decoded(reason=f"{type(error).__name__}: {error}"[:300])


class Decoders:
    """Decodes samples in order, some ahead of the reader; `workers=0` does it in this process, when asked."""

    def __init__(self, workers: int, *, crop: Crop | None, limits: Limits) -> None:
        self._workers = workers
        self._crop = crop
        self._limits = limits
        self._pool: ThreadPoolExecutor | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def __enter__(self) -> Decoders:
        if self._workers:
            self._pool = ThreadPoolExecutor(self._workers)  # a thread waits for each child
            self._children = [_start() for _ in range(self._workers)]
            for child in self._children:
                self._idle.put(child)
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()  # it holds nothing but what was read
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for child in self._children:
            child.communicate()

    def decode(self, samples: Iterable[Sample]) -> Iterator[Decoded]:
        """One result for each sample, in order; at most a few chunks for each worker are in memory."""
        if self._pool is None:
            for sample in samples:
                yield decode_sample(sample, crop=self._crop, limits=self._limits)
            return
        waiting: deque[Future[list[Decoded]]] = deque()
        for chunk in batches(samples, _SAMPLES_PER_TASK):
            waiting.append(self._pool.submit(self._ask, chunk))
            if len(waiting) > 2 * self._workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()

    def _ask(self, samples: Sequence[Sample]) -> list[Decoded]:
        """Have an idle child decode these samples."""
        child = self._idle.get()
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            _send(child.stdin, (samples, self._crop, self._limits))
            return pickle.load(child.stdout)  # noqa: S301 (from our own child, as multiprocessing would)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise CCRError(
                "a decoding process died: the machine may be out of memory, or the data set or the encoder has parts "
                "that another process cannot import; workers=0 decodes without processes"
            ) from error
        finally:
            self._idle.put(child)


def serve() -> None:
    """A worker process: decodes what comes on stdin until that ends, which it does with the process that writes."""
    tasks, results = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not print into the results
    while True:
        try:
            samples, crop, limits = pickle.load(tasks)  # noqa: S301 (from the process that started this one)
        except EOFError:
            return
        _send(results, [decode_sample(sample, crop=crop, limits=limits) for sample in samples])


def _start() -> subprocess.Popen[bytes]:
    # In a session of its own, Ctrl-C reaches the parent alone, which then ends its children.
    pipe, command = subprocess.PIPE, isolated_python(_PROGRAM)
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)


def _send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()
