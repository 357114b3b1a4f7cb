"""Claims, and how they are judged: a measure over random worlds that must never pass what is allowed, or must."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from ccr.explain.terms import PlainResult
from ccr_lab.theory.testbed import Testbed

Verdict = Literal["holds", "violated", "fails, as it must", "cannot tell"]
#: Bounds may be exceeded by this part: rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class TheoryClaim:
    """An assertion: `measure` never exceeds `allowed`. With `breaks`, an assumption is broken and it must."""

    key: str
    claim: str
    section: str
    measure: str
    allowed: float
    breaks: str = ""


@dataclass(frozen=True)
class ClaimGroup:
    """Claims read off the same worlds, at most `most` of them: None, however many are asked for."""

    observe: Observe
    sizes: Sizes
    claims: tuple[TheoryClaim, ...]
    most: int | None = None


def claim_group(observe: Observe, sizes: Sizes, *claims: tuple[Any, ...], most: int | None = None) -> ClaimGroup:
    """A group of claims, each given by the fields of a `TheoryClaim`."""
    return ClaimGroup(observe, sizes, tuple(TheoryClaim(*claim) for claim in claims), most)


@dataclass(frozen=True, kw_only=True)
class ClaimResult(TheoryClaim, PlainResult):
    """A claim checked in `instances` worlds; `worst` is the largest measure, `beyond` counts worlds past `allowed`."""

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
        return {**super().to_dict(), "verdict": self.verdict}


def check_group(group: ClaimGroup, instances: int, seed: int) -> tuple[ClaimResult, ...]:
    """One group's claims; its random numbers do not depend on the other groups."""
    rng = np.random.default_rng([seed, zlib.crc32(group.claims[0].key.encode())])
    instances = instances if group.most is None else min(instances, group.most)
    with threadpool_limits(1):
        observed = sweep(group.observe, group.sizes, rng, instances)
    return tuple(_judge(claim, values, instances) for claim, values in zip(group.claims, observed, strict=True))


def _judge(claim: TheoryClaim, values: np.ndarray, instances: int) -> ClaimResult:
    beyond = ~(values <= claim.allowed * (1 + ROUNDING))  # a NaN is beyond, too
    worst = float(np.max(values, initial=-np.inf))
    return ClaimResult(
        **asdict(claim), instances=len(values), worst=worst, beyond=int(beyond.sum()), complete=len(values) == instances
    )


#: So many testbeds share the instances of a claim.
TESTBEDS = 50
#: Largest number of dimensions drawn.
WIDEST = 96

#: One number for each claim of a group and each world: (claims, worlds).
Observe = Callable[[Testbed, int, np.random.Generator], np.ndarray]
#: Draws the sizes (n, d, k) of testbed number `index`.
Sizes = Callable[[np.random.Generator, int], tuple[int, int, int]]


def sweep(observe: Observe, sizes: Sizes, rng: np.random.Generator, instances: int) -> np.ndarray:
    """Observe `instances` worlds over random testbeds: (claims, instances)."""
    return np.concatenate([observe(bed, count, rng) for bed, count in _testbeds(sizes, rng, instances)], axis=1)


def any_size(*, least_k: int = 1, spare: int = 0, parity: int | None = None, widest: int = WIDEST) -> Sizes:
    """n <= d <= widest, least_k <= k <= n - spare; `parity` 0 or 1 makes k even or odd. Extremes come first."""
    least_n = least_k + spare

    def draw(rng: np.random.Generator, index: int) -> tuple[int, int, int]:
        d = widest if index < 2 else least_n if index == 2 else _log_integer(rng, least_n, widest)
        n = d if index == 0 or rng.random() < 0.3 else _log_integer(rng, least_n, d)
        k = _log_integer(rng, least_k, n - spare)
        if parity is not None and k % 2 != parity:
            k = k - 1 if k > least_k else k + 1
        return n, d, k

    return draw


def square_size(*, widest: int, share: float = 0.0, extra: int = 0, spare: int = 0) -> Sizes:
    """d = n + 1 to `extra` (0: n = d exactly), 2 <= k <= n - spare, at least about `share` of n. The widest first."""

    def draw(rng: np.random.Generator, index: int) -> tuple[int, int, int]:
        n = widest if index == 0 else _log_integer(rng, 2 + spare, widest)
        k = _log_integer(rng, max(2, round(share * n)), n - spare)
        return n, n + (int(rng.integers(1, extra + 1)) if extra else 0), k

    return draw


def _testbeds(sizes: Sizes, rng: np.random.Generator, instances: int) -> Iterator[tuple[Testbed, int]]:
    for index, count in enumerate(np.diff(np.linspace(0, instances, TESTBEDS + 1).astype(int))):
        if count:
            n, d, k = sizes(rng, index)
            gamma = float(np.exp(rng.uniform(np.log(0.1), np.log(2.0))))
            spread = 1.0 if rng.random() < 0.1 else float(rng.uniform(1.0, 5.0))
            yield Testbed(n, d, k, gamma=gamma, Gamma=gamma * spread), int(count)


def _log_integer(rng: np.random.Generator, low: int, high: int) -> int:
    """An integer in [low, high], uniform in its logarithm."""
    return min(high, int(np.exp(rng.uniform(np.log(low), np.log(high + 1)))))
