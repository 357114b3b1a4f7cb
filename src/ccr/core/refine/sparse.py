"""Steps of METHOD 3 on sparse codes, on the CPU.

Only active entries carry gradient. Beyond the one product X D^T a step costs O(b k (C + d)) and one pass over the
parameters. Threads take the steps of a whole window of rows together (`ccr.core.kernels.training`).
"""

from __future__ import annotations

import numpy as np
import torch

from ccr.core import kernels
from ccr.core.coding import NUDGE, Panels, Selection, line_zeros, screens
from ccr.core.kernels.arguments import KeptRows, Lesson, Manner, Parameters, Room
from ccr.core.kernels.llvm import LANES
from ccr.core.kernels.packing import unrounded
from ccr.core.kernels.step import FAR_BELOW
from ccr.core.kernels.tiles import ROWS
from ccr.core.kernels.training import CLASSES
from ccr.core.refine.data import Window
from ccr.core.refine.engine import Report, State, StepConfig
from ccr.core.threads import Workers

#: A batch is cut into about so many chunks, of at most so many rows.
CHUNKS, MOST_ROWS = 12, 32 * ROWS
#: Multiplications of a batch's product, and of a window's, from which a second thread helps.
WORTH_A_BATCH, WORTH_A_WINDOW = 1_000_000, 20_000_000
#: Weights beyond which the head is taken a few classes at a time: more do not stay in the cache.
WIDE_HEAD = 1_000_000
#: Arrays that the next step depends on.
REMEMBERED = (
    "dictionary", "dictionary_moment", "dictionary_size", "weights", "weight_moment", "weight_size",
    "bias", "bias_moment", "bias_size", "steps",
)  # fmt: skip


class SparseEngine:
    """The fast CPU engine: takes the steps of `DenseEngine`, to rounding, without its dense products."""

    def __init__(self, start: State, config: StepConfig, workers: Workers) -> None:
        self.rule = start.rule
        self.config = config
        self.workers = workers
        n, self.classes = start.weights.shape
        d, width = start.dictionary.shape[1], -(-self.classes // LANES) * LANES
        dictionary, center, moment = (line_zeros(n, d) for _ in range(3))
        dictionary[:], center[:] = start.dictionary, start.dictionary
        weights, weight_moment, bias = line_zeros(n, width), line_zeros(n, width), line_zeros(width)
        weights[:, : self.classes], bias[:] = start.weights, FAR_BELOW
        bias[: self.classes] = start.bias
        self.parameters = Parameters(
            dictionary=dictionary, center=center,
            dictionary_moment=moment, dictionary_size=np.zeros(n, np.float32),
            weights=weights, weight_moment=weight_moment, weight_size=np.zeros(n, np.float32),
            bias=bias, bias_moment=line_zeros(width),
            bias_size=np.zeros(1), threshold=np.zeros(1), steps=np.zeros(1, np.int64),
        )  # fmt: skip
        self._looked = np.full(1, np.nan)  # scores that a row of the last batch had computed in floats
        self._panels: Panels | None = None
        self._kept: tuple[torch.Tensor, KeptRows] | None = None
        self._room: Room | None = None

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        own, selection = self.parameters, self.rule.selection()
        own.threshold[0] = selection.bound
        size = min(size, len(window.rows))
        room, manner = self._made(size, selection), self._manner(selection)
        lesson = Lesson(
            window.x.contiguous().numpy(), self._kept_rows(window, room), window.rows.astype(np.int32), window.y,
            _shares(window.weight, size), size, rates, np.zeros((len(rates), 3)),
        )  # fmt: skip
        words = np.zeros(16, np.int64)

        def work(_: int) -> None:
            kernels.train(words, own, manner, lesson, room)

        self.workers.map(work, range(self._threads(size, len(window.rows))))
        if self.config.radius > 0:
            self.rule = self.rule.with_threshold(float(own.threshold[0]))
        losses, lengths, looked = lesson.reports.T
        self._looked[0] = looked[-1]
        return Report(losses, lengths)

    def state(self) -> State:
        own = self.parameters
        weights, bias = own.weights[:, : self.classes].copy(), own.bias[: self.classes].copy()
        return State(own.dictionary.copy(), weights, bias, self.rule)

    def state_dict(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self.parameters, name).copy() for name in REMEMBERED}
        return {**arrays, "looked": self._looked.copy()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        for name in REMEMBERED:
            getattr(self.parameters, name)[:] = state[name]
        self._looked[:] = state["looked"]
        self._panels = None

    def _manner(self, selection: Selection) -> Manner:
        config = self.config
        return Manner(
            refine=config.radius > 0, adaptive=config.adaptive, momentum=float(config.momentum),
            radius=float(config.radius), penalty=float(config.alpha * config.scale**2), scale=float(config.scale),
            kind=selection.kind, top=selection.length, held=float(self.rule.held or 0.0), nudge=NUDGE,
            dropped=int(config.dropout * 2**32), keep=1.0 / (1.0 - config.dropout), key=config.seed,
            classes=self.classes,
        )  # fmt: skip

    def _threads(self, batch: int, rows: int) -> int:
        product = self.parameters.dictionary.size
        return self.workers.threads if batch * product >= WORTH_A_BATCH and rows * product >= WORTH_A_WINDOW else 1

    def _packed(self, selection: Selection) -> Panels:
        looked = None if np.isnan(self._looked[0]) else float(self._looked[0])
        dictionary = self.parameters.dictionary
        wanted = screens(selection, len(dictionary), looked)
        if self._panels is None or self._panels.wanted != wanted:
            self._panels = Panels(dictionary, selection, looked)  # every step packs them again
        return self._panels

    def _kept_rows(self, window: Window, room: Room) -> KeptRows:
        """Where rows that come again in every epoch keep their bytes, a quarter of what they take themselves."""
        if not window.lasting or len(room.screen.quads) == 0:
            self._kept = None
            return unrounded(0, window.x.shape[1])
        if self._kept is None or self._kept[0] is not window.x:
            self._kept = window.x, unrounded(*window.x.shape)
        return self._kept[1]

    def _made(self, size: int, selection: Selection) -> Room:
        """Memory used again by every step."""
        panels, room = self._packed(selection), self._room
        if room is not None and len(room.slopes) >= size:
            self._room = room._replace(screen=panels.screen, floats=panels.floats)
            return self._room
        n, width = len(self.parameters.dictionary), len(self.parameters.bias)
        rows = min(MOST_ROWS, ROWS * -(-size // (ROWS * CHUNKS)))
        chunks = -(-size // rows)
        # As many entries as there are scores: most are never touched, and then take no memory.
        entries = (chunks, rows * n)
        self._room = Room(
            screen=panels.screen, floats=panels.floats,
            pointers=np.zeros((chunks, rows + 1), np.int32), indices=_untouched(*entries, kind=torch.int32),
            codes=_untouched(*entries), through=_untouched(*entries), slopes=line_zeros(size, width),
            bias_slopes=line_zeros(chunks, width), sums=line_zeros(chunks, 3, kind=np.float64),
            counts=line_zeros(chunks, n, kind=np.int32), starts=line_zeros(n + 1, kind=np.int32),
            sorted_rows=_untouched(size * n, kind=torch.int32),
            sorted_sources=_untouched(size * n, kind=torch.int32), sorted_codes=_untouched(size * n),
            sorted_through=_untouched(size * n),
            logits=line_zeros(-(-width // CLASSES) if n * width >= WIDE_HEAD else 0, size, CLASSES),
        )  # fmt: skip
        return self._room


def _shares(weight: np.ndarray, size: int) -> np.ndarray:
    """Weights divided by the rows of their batch; the last batch may be smaller."""
    share = weight / np.float32(size)
    left = len(share) % size
    if left:
        share[-left:] = weight[-left:] / np.float32(left)
    return share


def _untouched(*shape: int, kind: torch.dtype = torch.float32) -> np.ndarray:
    return torch.empty(shape, dtype=kind).numpy()
