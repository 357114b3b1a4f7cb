"""Arguments of kernels: named tuples of arrays and numbers; and the constants that tiers and engines share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: Rows of the head are as wide as the next multiple of this, the numbers of 32 bits in the widest vector register.
PADDING = 16
#: Bytes of a cache line.
LINE = 64
#: The bias beyond the last class: no class has such a logit.
FAR_BELOW = np.float32(-3e38)
#: Decay of the running size of a gradient, and what keeps a step from dividing by zero.
SIZE_DECAY, SIZE_FLOOR = 0.99, 1e-12

#: Kinds of a `Criterion`.
TWO_SIDED, ONE_SIDED, TOP = 0, 1, 2


class Criterion(NamedTuple):
    """Criterion of active scores: `kind` is TWO_SIDED (|s| >= bound), ONE_SIDED (s > bound) or TOP (the `length`
    largest |s| of a row, of equal ones the first). Kernels take `bound` as a float32, and compare with it times the
    factor of the concept."""

    kind: int
    bound: float
    length: int


class Dropout(NamedTuple):
    """Active entries are left out whose `mixed_bits` of (first + row, concept) are below `below`, of 2^32."""

    first: int
    below: int
    salt: np.uint64


class Entries(NamedTuple):
    """The parts of a CSR matrix: row r has its columns, rising, at pointers[r]:pointers[r + 1] of `indices`."""

    pointers: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class SortedEntries(NamedTuple):
    """A batch's entries by concept: those of concept j are at starts[j]:starts[j + 1]. `rows` are those of the batch,
    `sources` those of x; `grad_scores` is the derivative of the loss by the score."""

    starts: np.ndarray
    rows: np.ndarray
    sources: np.ndarray
    codes: np.ndarray
    grad_scores: np.ndarray


class StepState(NamedTuple):
    """Parameters that training updates, with their momentum and running sizes. Numbers that change are arrays of one.
    Rows of the head and the bias are as wide as the next multiple of PADDING; beyond the classes weights are zero and
    the bias is FAR_BELOW. `allowed`, if it has rows, is 1 for weights that may move and 0 for those that stay zero."""

    dictionary: np.ndarray
    center: np.ndarray
    dictionary_moment: np.ndarray
    dictionary_size: np.ndarray
    weights: np.ndarray
    weight_moment: np.ndarray
    weight_size: np.ndarray
    bias: np.ndarray
    bias_moment: np.ndarray
    bias_size: np.ndarray
    threshold: np.ndarray
    steps: np.ndarray
    allowed: np.ndarray


class StepSettings(NamedTuple):
    """Settings of all steps, for the loop, its engines and the kernels.

    `refine`: the dictionary moves too, within caps of `radius`. `adaptive` and `momentum` are those of
    `ccr.refine.Training`, `penalty` is that on squared weights, `scale` the size of a code entry. Codes: `kind` and
    `length` are those of the `Criterion`; `target_length` is the length that the threshold is held to, by `nudge` per
    batch, or 0. `dropped` is the `dropout` in units of 2^-32, `keep` what the other codes are multiplied by, `seed` its
    seed. `sparse_head`: weights will be restricted.
    """

    refine: bool
    adaptive: bool
    momentum: float
    radius: float
    penalty: float
    scale: float
    kind: int
    length: int
    target_length: float
    nudge: float
    dropped: int
    keep: float
    seed: int
    classes: int
    dropout: float = 0.0
    sparse_head: bool = False

    @classmethod
    def of(
        cls,
        *,
        radius: float,
        adaptive: bool,
        momentum: float,
        dropout: float,
        alpha: float,
        scale: float,
        seed: int,
        sparse_head: bool = False,
    ) -> StepSettings:
        """Settings from options in their own units: `alpha` is the penalty for codes scaled to size 1. The engine adds
        what its coding rule says."""
        return cls(
            refine=radius > 0, adaptive=adaptive, momentum=float(momentum), radius=float(radius),
            penalty=float(alpha * scale**2), scale=float(scale), kind=TWO_SIDED, length=0, target_length=0.0, nudge=0.0,
            dropped=int(dropout * 2**32), keep=1.0 / (1.0 - dropout), seed=seed, classes=0,
            dropout=float(dropout), sparse_head=sparse_head,
        )  # fmt: skip


class BatchPlan(NamedTuple):
    """The batches of some steps, `size` rows each, no row twice: row i is x[rows[i]], of class y[i], and its loss
    counts share[i] times. `rates` (steps, 2) are those of head and dictionary."""

    x: np.ndarray
    rows: np.ndarray
    y: np.ndarray
    share: np.ndarray
    size: int
    rates: np.ndarray


class Pace(NamedTuple):
    """Size of a step: the rates of head and dictionary, and by what part running means have filled up."""

    head_rate: float
    dictionary_rate: float
    unbias: float
    unbias_size: float


def line_zeros(*shape: int, kind: type = np.float32) -> np.ndarray:
    """Zeros from the beginning of a cache line on; NumPy asks for large pages, where there are some, if it is much."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    zeros: np.ndarray = memory[start : start + size].view(kind).reshape(shape)
    zeros[...] = 0
    return zeros
