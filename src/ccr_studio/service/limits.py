"""Limits: how much one request may ask for, how much may wait, and the memory that decoding may take; and meters of
what was asked."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from PIL import Image
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

import ccr
from ccr.data.datasets.sources import MAX_PIXELS, Content, decode, pixels_of
from ccr.errors import CCRError
from ccr.utils.parameters import is_number

#: Bytes that an image may take while it is decoded, for each pixel: JPEG 2000, the largest, was measured at 19.4.
BYTES_PER_PIXEL = 20
#: Bytes of an image after whose decoding freed memory is given back to the system.
LARGE = 32 << 20
#: Upper ends of the bins of seconds and of photos.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
PHOTOS = (1, 2, 4, 8, 16, 32, 64)


class Busy(CCRError):
    """More is waiting than the server will hold; the same request may be sent again a little later."""


class NotReady(CCRError):
    """There is nothing to answer with yet: no model, or none that reads photos."""


@dataclass(frozen=True)
class RequestLimits:
    """Limits on the size, number and duration of requests; anything above is refused early, with the reason.

    Parameters
    ----------
    request_bytes : of the body of one request, however many photos it holds.
    json_bytes, json_values, json_lists : of a body of JSON, whose parser takes many times its bytes: values of lists
        and objects, and lists and objects themselves.
    bodies : bytes of the bodies of all requests under way; more are answered by 503.
    pixels : of one photo, width x height.
    photos : in one request.
    rows : embeddings in one request.
    waiting : photos that may wait for the encoder, of all requests together; more are answered by 503.
    connections : open at a time; more are answered by 503.
    seconds : for one request, from its first byte to the first of its answer.
    batch : photos that the encoder is given at a time.
    """

    request_bytes: int = 64 << 20
    json_bytes: int = 32 << 20
    json_values: int = 2_000_000
    json_lists: int = 5_000
    bodies: int = 512 << 20
    pixels: int = 50_000_000
    photos: int = 32
    rows: int = 1024
    waiting: int = 256
    connections: int = 256
    seconds: float = 30.0
    batch: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (is_number(value) and value > 0):
                raise CCRError(f"the limit {field.name} must be a number above 0, got {value!r}")


def _give_back() -> None:
    """Give freed memory back to the system. glibc keeps what each thread freed for that thread alone: forty threads
    that decoded one photo each, one after the other, held 4.4 GB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class DecodingGate:
    """The memory of decoded images, for all requests of a process together: each waits until there is room for it.

    Parameters
    ----------
    budget : bytes that images under way may take together; one larger than that is decoded alone.
    at_once : files that may be in memory to be decoded.
    waiting : requests that may wait, each of which holds a thread; more are `Busy`.
    patience : seconds after which whoever still waits is `Busy`.
    """

    def __init__(self, budget: int = 1 << 30, *, at_once: int = 4, waiting: int = 24, patience: float = 25.0) -> None:
        self.budget, self.waiting, self.patience = budget, waiting, patience
        self._slots, self._slots_taken = at_once, 0
        self._taken = self._waiting = 0
        self._changed = threading.Condition()

    @contextmanager
    def decoded(self, read: Callable[[], Content], *, max_pixels: int = MAX_PIXELS) -> Iterator[Image.Image]:
        """The image that `read` gives the content of; its memory counts until the block ends, so that only what is
        small may be kept."""
        with self._slot():
            content = read()
            with self.room(pixels_of(content, max_pixels=max_pixels)):
                yield decode(content, max_pixels=max_pixels)

    @contextmanager
    def room(self, pixels: int) -> Iterator[None]:
        """Room for images of so many pixels together; for more than the budget, once nothing else is under way."""
        cost = pixels * BYTES_PER_PIXEL
        with self._changed:
            self._wait(lambda: self._taken == 0 or self._taken + cost <= self.budget)
            self._taken += cost
        try:
            yield
        finally:
            if cost > LARGE:
                _give_back()
            with self._changed:
                self._taken -= cost
                self._changed.notify_all()

    @contextmanager
    def _slot(self) -> Iterator[None]:
        with self._changed:
            if self._waiting >= self.waiting:
                raise Busy(f"{self._waiting} photos wait to be decoded already: try again in a moment")
            self._wait(lambda: self._slots_taken < self._slots)
            self._slots_taken += 1
        try:
            yield
        finally:
            with self._changed:
                self._slots_taken -= 1
                self._changed.notify_all()

    def _wait(self, is_free: Callable[[], bool]) -> None:
        """Wait until it is free, with the lock held; an error after the last moment."""
        self._waiting += 1
        try:
            if not self._changed.wait_for(is_free, timeout=self.patience):
                raise Busy(f"there was no room to decode a photo for {self.patience:g} seconds: try again in a moment")
        finally:
            self._waiting -= 1


#: The gate of this process: every server in it, and every route that decodes, shares one budget.
DECODING = DecodingGate()


class Meters:
    """The metrics of one service, in a registry of its own: a process may have several services."""

    def __init__(self) -> None:
        self.registry = here = CollectorRegistry()
        self.requests = Counter("ccr_requests", "Requests, by route and status.", ("route", "status"), registry=here)
        self.seconds = Histogram(
            "ccr_request_seconds", "Seconds until a request was answered.", ("route",), buckets=SECONDS, registry=here
        )
        self.cut_off = Counter(
            "ccr_requests_cut_off", "Requests that were cut off because the server stopped.", registry=here
        )
        self.photos = Counter("ccr_photos", "Photos that were sent.", registry=here)
        self.unreadable = Counter("ccr_photos_unreadable", "Photos that could not be read.", registry=here)
        self.batches = Histogram(
            "ccr_batch_photos", "Photos that the encoder was given at a time.", buckets=PHOTOS, registry=here
        )
        self.waiting = Gauge("ccr_waiting_photos", "Photos that wait for the encoder.", registry=here)
        Info("ccr", "The version.", registry=here).info({"version": ccr.__version__})

    def total(self, name: str) -> int:
        """The value of a counter without labels."""
        return int(self.registry.get_sample_value(f"{name}_total") or 0)

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()
