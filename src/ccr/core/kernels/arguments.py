"""What `train` works on: arrays and numbers by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Parameters(NamedTuple):
    """What training moves and what it remembers of it. Numbers that change are arrays of one. Rows of the head and the
    bias are as wide as the next multiple of LANES, with zeros beyond the classes."""

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


class Manner(NamedTuple):
    """What stays the same for all steps. `kind` and `top` are those of `select_active`; `held` is the length that the
    threshold is held to, by `nudge` a batch, or 0; `dropped` the dropout in units of 2^-32."""

    refine: bool
    adaptive: bool
    momentum: float
    radius: float
    penalty: float
    scale: float
    kind: int
    top: int
    held: float
    nudge: float
    dropped: int
    keep: float
    key: int
    classes: int


class Lesson(NamedTuple):
    """Row i is x[rows[i]]; `size` rows make a batch. `rates` (steps, 2) are those of head and dictionary, `reports`
    (steps, 2) gets loss and mean length."""

    x: np.ndarray
    rows: np.ndarray
    y: np.ndarray
    share: np.ndarray
    size: int
    rates: np.ndarray
    reports: np.ndarray


class Room(NamedTuple):
    """Memory of a step: the panels of `pack_concepts`; by chunk its entries, with the derivative by the score in
    `through`, its sums of loss and active entries, and its counts by concept; all entries sorted by concept. `logits`
    (items, rows, CLASSES) has no items if the head is small."""

    pairs: np.ndarray
    floats: np.ndarray
    pointers: np.ndarray
    indices: np.ndarray
    codes: np.ndarray
    through: np.ndarray
    slopes: np.ndarray
    bias_slopes: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    starts: np.ndarray
    sorted_rows: np.ndarray
    sorted_sources: np.ndarray
    sorted_codes: np.ndarray
    sorted_through: np.ndarray
    logits: np.ndarray
