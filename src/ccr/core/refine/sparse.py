"""One step of METHOD 3 on sparse codes, on the CPU.

Only active entries carry gradient. Beyond the one product X D^T a step costs O(b k (C + d)) and one pass over the
parameters. Rows of the batch are worked on in blocks, then concepts in ranges, by the threads of `Workers`; a
block's product runs on one thread of torch, so that no two thread pools compete.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch

from ccr.core import kernels
from ccr.core.coding import ThresholdRule, TopRule, scores_into
from ccr.core.refine.dense import SIZE_DECAY, State, StepOptions, StepReport, step_salt
from ccr.core.threads import Workers

#: Multiplications of a block: enough that starting it costs little beside it.
BLOCK_WORK = 16_000_000
#: Ranges of concepts a thread: some are slower than others, and so are threads on a busy machine.
RANGES = 4
#: Arrays that the next step depends on.
REMEMBERED = (
    "dictionary", "dictionary_moment", "dictionary_size",
    "weights", "weight_moment", "weight_size", "bias", "bias_moment",
)  # fmt: skip


class Block(NamedTuple):
    """Active entries of rows first:first + len(pointers) - 1 of a batch, with the slopes of the loss by their scores;
    what the step sums up over blocks."""

    first: int
    pointers: np.ndarray
    indices: np.ndarray
    codes: np.ndarray
    through: np.ndarray
    bias_slope: np.ndarray
    loss: float
    active: int


class Sorted(NamedTuple):
    """The entries of all blocks by concept: those of concept j are at starts[j]:starts[j + 1]."""

    starts: np.ndarray
    rows: np.ndarray
    codes: np.ndarray
    slopes: np.ndarray


class SparseEngine:
    """The fast CPU engine: takes the steps of `DenseEngine`, to rounding, without its dense products."""

    def __init__(self, start: State, options: StepOptions, workers: Workers) -> None:
        self.rule = start.rule
        self.options = options
        self.workers = workers
        self.center, self.dictionary, self.weights = (
            _owned(a) for a in (start.dictionary, start.dictionary, start.weights)
        )
        self.bias = start.bias.astype(np.float32).copy()
        self.weight_moment, self.dictionary_moment = np.zeros_like(self.weights), np.zeros_like(self.dictionary)
        self.weight_size, self.dictionary_size = (np.zeros(len(self.weights), np.float32) for _ in range(2))
        self.bias_moment, self.bias_size = np.zeros_like(self.bias), 0.0
        self.steps = 0
        self._room: dict[str, torch.Tensor] = {}

    def step(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
        *,
        head_rate: float,
        dictionary_rate: float,
    ) -> StepReport:
        slopes = self._buffer("slopes", len(x), len(self.bias))
        blocks = self._blocks(x, y.numpy(), (weight / len(x)).numpy(), slopes)
        self.steps += 1
        self._move(self._sorted(blocks), slopes, x.numpy(), head_rate, dictionary_rate)
        self._move_bias(np.sum([block.bias_slope for block in blocks], axis=0), head_rate)
        length = sum(block.active for block in blocks) / len(x)
        if self.options.radius > 0:
            self.rule = self.rule.nudged(length)
        return StepReport(sum(block.loss for block in blocks), length)

    def state(self) -> State:
        return State(self.dictionary.copy(), self.weights.copy(), self.bias.copy(), self.rule)

    def memory(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self, name).copy() for name in REMEMBERED}
        return {**arrays, "steps": np.array([self.steps]), "bias_size": np.array([self.bias_size])}

    def recall(self, memory: dict[str, np.ndarray]) -> None:
        self.steps, self.bias_size = int(memory["steps"][0]), float(memory["bias_size"][0])
        for name in REMEMBERED:
            getattr(self, name)[:] = memory[name]

    def _blocks(self, x: torch.Tensor, y: np.ndarray, share: np.ndarray, slopes: np.ndarray) -> list[Block]:
        """Codes, loss and slopes of all rows, block by block."""
        options, n = self.options, len(self.dictionary)
        dictionary = torch.from_numpy(self.dictionary)
        scores = self._buffer("scores", len(x), n)
        keep = np.float32(1.0 / (1.0 - options.dropout))
        dropped, salt = int(options.dropout * 2**32), step_salt(options.key, self.steps)
        selection = cast(ThresholdRule | TopRule, self.rule).selection()

        def work(rows: slice) -> Block:
            found = scores[rows]
            scores_into(x[rows], dictionary, torch.from_numpy(found))
            pointers, indices, data, active = selection.entries(found, first=rows.start, dropped=dropped, salt=salt)
            through, bias_slope = np.empty(len(data), np.float32), np.zeros(len(self.bias), np.float32)
            loss = kernels.head_slopes(
                pointers, indices, data, keep, y[rows], share[rows], self.weights, self.bias,
                options.radius > 0, slopes[rows], bias_slope, through,
            )  # fmt: skip
            return Block(rows.start, pointers, indices, data, through, bias_slope, loss, active)

        return self.workers.map(work, _slices(len(x), self._parts(len(x))))

    def _parts(self, rows: int) -> int:
        work = rows * self.dictionary.size
        return max(1, min(int(work / BLOCK_WORK), self.workers.threads * max(1, rows // (256 * self.workers.threads))))

    def _sorted(self, blocks: list[Block]) -> Sorted:
        n = len(self.dictionary)
        counts = np.zeros(n + 1, np.int64)
        for block in blocks:
            kernels.count_concepts(block.indices, int(block.pointers[-1]), counts[1:])
        starts = np.cumsum(counts)
        places, size = starts[:-1].copy(), int(starts[-1])
        rows, codes, slopes = np.empty(size, np.int32), np.empty(size, np.float32), np.empty(size, np.float32)
        for block in blocks:
            kernels.by_concept(
                block.first, block.pointers, block.indices, block.codes, block.through, places, rows, codes, slopes
            )
        return Sorted(starts, rows, codes, slopes)

    def _move(
        self, entries: Sorted, slopes: np.ndarray, x: np.ndarray, head_rate: float, dictionary_rate: float
    ) -> None:
        options = self.options
        unbias, unbias_size = 1.0 - options.momentum**self.steps, 1.0 - SIZE_DECAY**self.steps
        rate = head_rate / (options.scale if options.adaptive else 1.0)
        penalty = np.float32(options.alpha * options.scale**2)

        def work(concepts: slice) -> None:
            kernels.move_concepts(
                concepts.start, concepts.stop, options.adaptive, options.momentum, unbias, unbias_size,
                entries.starts, entries.rows, entries.codes, entries.slopes, slopes, x,
                self.weights, self.weight_moment, self.weight_size, penalty, rate,
                options.radius > 0, self.dictionary, self.dictionary_moment, self.dictionary_size, self.center,
                options.radius, dictionary_rate,
            )  # fmt: skip

        parallel = self._parts(len(x)) > 1
        self.workers.map(work, _slices(len(self.dictionary), self.workers.threads * RANGES if parallel else 1))

    def _move_bias(self, slope: np.ndarray, rate: float) -> None:
        options, beta = self.options, self.options.momentum
        if not options.adaptive:
            self.bias_moment = beta * self.bias_moment + slope
            self.bias -= (rate * self.bias_moment).astype(np.float32)
            return
        self.bias_moment = (beta * self.bias_moment + (1.0 - beta) * slope).astype(np.float32)
        self.bias_size = SIZE_DECAY * self.bias_size + (1.0 - SIZE_DECAY) * float(np.mean(slope**2))
        size = self.bias_size / (1.0 - SIZE_DECAY**self.steps)
        self.bias -= (rate / (1.0 - beta**self.steps) / (size**0.5 + 1e-12) * self.bias_moment).astype(np.float32)

    def _buffer(self, name: str, rows: int, columns: int) -> np.ndarray:
        """Memory used again by every step."""
        held = self._room.get(name)
        if held is None or len(held) < rows:
            held = self._room[name] = torch.empty(rows, columns)
        return held[:rows].numpy()


def _owned(array: np.ndarray) -> np.ndarray:
    # Memory of torch: its alignment is always the same, and with it the rounding of products.
    return torch.tensor(array, dtype=torch.float32).numpy()


def _slices(count: int, parts: int) -> list[slice]:
    parts = min(parts, count)
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
