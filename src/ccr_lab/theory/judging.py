"""Claims, and how they are judged: a measure over random worlds that must never pass what is allowed, or must."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from ccr_lab.theory.sampling import Observe, Sizes, sweep

Verdict = Literal["holds", "violated", "fails, as it must", "cannot tell"]
#: Bounds may be exceeded by this part: rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Claim:
    """What is asserted: `measure` never exceeds `allowed`. With `breaks`, an assumption is broken and it must."""

    key: str
    claim: str
    section: str
    measure: str
    allowed: float
    breaks: str = ""


@dataclass(frozen=True)
class Group:
    """Claims read off the same worlds, at most `most` of them: None, however many are asked for."""

    observe: Observe
    sizes: Sizes
    claims: tuple[Claim, ...]
    most: int | None = None


@dataclass(frozen=True)
class ClaimResult:
    """A claim checked in `instances` worlds; `worst` is the largest measure, `beyond` counts worlds past `allowed`."""

    key: str
    claim: str
    section: str
    measure: str
    allowed: float
    breaks: str
    instances: int
    worst: float
    beyond: int
    complete: bool

    @property
    def verdict(self) -> Verdict:
        """A broken assumption must show in most worlds; otherwise the check could not have told."""
        if not self.complete:
            return "cannot tell"
        if self.breaks:
            return "fails, as it must" if 2 * self.beyond > self.instances else "cannot tell"
        return "violated" if self.beyond else "holds"

    @property
    def ok(self) -> bool:
        return self.verdict in ("holds", "fails, as it must")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def check_group(group: Group, instances: int, seed: int) -> tuple[ClaimResult, ...]:
    """One group's claims; its random numbers do not depend on the other groups."""
    rng = np.random.default_rng([seed, zlib.crc32(group.claims[0].key.encode())])
    instances = instances if group.most is None else min(instances, group.most)
    with threadpool_limits(1):
        observed = sweep(group.observe, group.sizes, rng, instances)
    return tuple(_judge(claim, values, instances) for claim, values in zip(group.claims, observed, strict=True))


def _judge(claim: Claim, values: np.ndarray, instances: int) -> ClaimResult:
    beyond = ~(values <= claim.allowed * (1 + ROUNDING))  # a NaN is beyond, too
    worst = float(np.max(values, initial=-np.inf))
    return ClaimResult(
        **asdict(claim),
        instances=len(values),
        worst=worst,
        beyond=int(beyond.sum()),
        complete=len(values) == instances,
    )
