"""What `train` works on: arrays and numbers by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Parameters(NamedTuple):
    """What training moves and what it remembers of it. Numbers that change are arrays of one. Rows of the head and the
    bias are as wide as the next multiple of LANES; beyond the classes weights are zero and the bias is FAR_BELOW."""

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


#: What is known of a row in bytes: its scale, the product of its bytes with the noise of concepts, its length.
SCALE, PRODUCT, NORM = 0, 1, 2


class KeptRows(NamedTuple):
    """Bytes of the rows of x, four in each element of `quads` (m, quads), and what is known of them, `about` (m, 4);
    rows of scale 0 are not rounded yet. Without any rows nothing is kept."""

    quads: np.ndarray
    about: np.ndarray


class Lesson(NamedTuple):
    """Row i is x[rows[i]], and `kept` has the rows of x in bytes; `size` rows make a batch, no row twice. `rates`
    (steps, 2) are those of head and dictionary, `reports` (steps, 3) gets the loss, and means of a row: active scores,
    and scores computed in floats."""

    x: np.ndarray
    kept: KeptRows
    rows: np.ndarray
    y: np.ndarray
    share: np.ndarray
    size: int
    rates: np.ndarray
    reports: np.ndarray


class Screen(NamedTuple):
    """A dictionary in bytes, as the columns of panels (`pack_concepts`): four bytes of a concept in each element of
    `quads` (panels, quads, PANEL), `starts` (panels, blocks, PANEL) as `block_starts` makes them, `offsets` (panels,
    PANEL) that take the noise of rows out again, and the panels' `scales`; noise as in `rounding`."""

    quads: np.ndarray
    starts: np.ndarray
    offsets: np.ndarray
    scales: np.ndarray
    row_noise: np.ndarray
    concept_noise: np.ndarray


class Room(NamedTuple):
    """Memory of a step: the panels of `pack_concepts`; by chunk its entries, with the derivative by the score in
    `through`, its sums of what is reported, and its counts by concept; all entries sorted by concept. `logits`
    (items, rows, CLASSES) has no items if the head is small."""

    screen: Screen
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
