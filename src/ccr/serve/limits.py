"""Limits: how much one request may ask for, and how much may wait."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ccr.core.checks import is_number
from ccr.errors import CCRError


class Busy(CCRError):
    """More is waiting than the server will hold; the same request may be sent again a little later."""


class NotReady(CCRError):
    """There is nothing to answer with yet: no model, or none that reads photos."""


@dataclass(frozen=True)
class Limits:
    """What is refused, in words, before it costs much.

    Parameters
    ----------
    request_bytes : of the body of one request, however many photos it holds.
    pixels : of one photo, width x height.
    photos : in one request.
    rows : embeddings in one request.
    waiting : photos that may wait for the encoder, of all requests together; more are answered by 503.
    connections : open at a time; more are answered by 503.
    seconds : for one request, from its first byte to the first of its answer.
    batch : photos that the encoder is given at a time.
    """

    request_bytes: int = 64 << 20
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
