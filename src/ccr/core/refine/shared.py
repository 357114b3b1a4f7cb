"""Steps of Algorithm 2 (docs/method.md) that a team of processes takes together: each finds the derivatives of its own
rows of a batch, their sum is everybody's, and everybody takes the same step."""

from __future__ import annotations

import numpy as np
import torch

from ccr.core.coding import ActiveEntries, Panels, Selection, screens
from ccr.core.heads import entry_logits
from ccr.core.kernels.plain.slopes import entry_slopes, sum_allowed, sum_by_concept
from ccr.core.refine.data import OwnBatch, Window
from ccr.core.refine.dense import DenseEngine, Gradients, hash32, step_salt
from ccr.core.refine.engine import Report, State, StepConfig
from ccr.core.team import Team
from ccr.core.threads import Workers

#: Rows of a batch, and concepts, that a thread takes at once.
ROWS, CONCEPTS = 128, 64
#: A head with at most this part of its weights left is summed weight by weight.
FEW_WEIGHTS = 0.1


class SharedEngine(DenseEngine):
    """The mathematics of `DenseEngine`, its derivatives found on sparse codes and summed over a team.

    The threshold, and what is restricted, are member 0's: processors that round differently must not part.
    """

    def __init__(self, start: State, config: StepConfig, workers: Workers, team: Team) -> None:
        self.team, self.workers = team, workers
        super().__init__(start, config, torch.device("cpu"))
        self._rows = self.dictionary.numpy().copy()
        self._panels: Panels | None = None
        self._allowed: tuple[np.ndarray, np.ndarray] | None = None
        #: Bytes that each member gave to the sums of the last step.
        self.summed_bytes = 0

    def steps(self, window: Window, size: int, rates: np.ndarray) -> Report:
        reports = [self._shared_step(batch, *pair) for batch, pair in zip(window.own_batches(size), rates, strict=True)]
        self.rule = self.rule.with_threshold(float(self.team.first(np.array([self.rule.threshold]))[0]))
        return Report(*np.array(reports).T)

    def restrict(self, allowed: np.ndarray) -> None:
        allowed = self.team.first(allowed.astype(np.uint8)).astype(bool)
        super().restrict(allowed)
        self._know_allowed()

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        super().load_state_dict(state)
        self._know_allowed()

    def _know_allowed(self) -> None:
        allowed = self.allowed.numpy() != 0
        self._allowed = None
        if allowed.sum() <= FEW_WEIGHTS * allowed.size:
            begins = np.concatenate([[0], np.cumsum(allowed.sum(axis=1))]).astype(np.int64)
            self._allowed = begins, np.nonzero(allowed)[1].astype(np.int64)

    def _shared_step(self, batch: OwnBatch, head_rate: float, dictionary_rate: float) -> tuple[float, float]:
        """Loss and length of one batch of the whole team."""
        found, loss, active = self._own_gradients(batch)
        seen = self.team.sum(np.array([loss, active], np.float64))
        gradient = self._summed(found, float(seen[0]))
        length = float(seen[1]) / batch.size
        self.taken += 1
        self._move_head(gradient, head_rate)
        if gradient.dictionary is not None:
            self._move_dictionary(gradient.dictionary, dictionary_rate)
            self.rule = self.rule.nudged(length)
        return float(seen[0]), length

    def _own_gradients(self, batch: OwnBatch) -> tuple[list[np.ndarray], float, int]:
        """Derivatives by bias, head and dictionary of this member's rows, their loss and active entries."""
        x, selection = batch.x, self.rule.selection()
        panels = self._packed(selection)
        pieces = [slice(start, min(start + ROWS, len(x))) for start in range(0, len(x), ROWS)]
        codes = _joined(self.workers.map(lambda part: panels.entries(x[part], selection), pieces))
        active = len(codes.data)
        codes, scale = self._dropped(codes, batch.positions)
        weights, refine = self.weights.numpy(), self.config.radius > 0
        slopes, loss = _logit_slopes(codes, weights, self.bias.numpy(), batch)
        through = np.zeros_like(codes.data)
        if refine and len(x):
            entry_slopes(codes.pointers, codes.indices, scale, slopes, weights, through)
        entries = _by_concept(codes, len(weights))
        head = self._head_slope(entries, codes.data, slopes)
        found = [slopes.sum(axis=0, dtype=np.float32), head]
        if refine:
            found.append(self._sum(entries, through, x, np.empty_like(self._rows)))
        return found, loss, active

    def _head_slope(self, entries: _Order, codes: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        if self._allowed is None:
            return self._sum(entries, codes, slopes, np.empty(self.weights.shape, np.float32))
        begins, columns = self._allowed
        out = np.zeros(len(columns), np.float32)
        values = codes[entries.order]

        def add(part: slice) -> None:
            sum_allowed(part.start, part.stop, entries.starts, entries.rows, values, slopes, begins, columns, out)

        self.workers.map(add, _concepts(len(self._rows)))
        return out

    def _sum(self, entries: _Order, values: np.ndarray, matrix: np.ndarray, out: np.ndarray) -> np.ndarray:
        ordered = values[entries.order]

        def add(part: slice) -> None:
            sum_by_concept(part.start, part.stop, entries.starts, entries.rows, ordered, matrix, out)

        self.workers.map(add, _concepts(len(self._rows)))
        return out

    def _summed(self, found: list[np.ndarray], loss: float) -> Gradients:
        """The derivatives of the whole batch."""
        flat = np.concatenate([array.ravel() for array in found])
        self.summed_bytes = flat.nbytes + 16
        total = self.team.sum(flat)
        ends = np.cumsum([array.size for array in found])
        bias, head, *rest = np.split(total, ends[:-1])
        if self._allowed is None:
            weights = torch.from_numpy(head.reshape(self.weights.shape))
        else:
            weights = torch.zeros_like(self.weights)
            weights[self.allowed != 0] = torch.from_numpy(head)
        dictionary = torch.from_numpy(rest[0].reshape(self.dictionary.shape)) if rest else None
        return Gradients(torch.tensor(loss), weights, torch.from_numpy(bias), dictionary)

    def _dropped(self, codes: ActiveEntries, positions: np.ndarray) -> tuple[ActiveEntries, np.ndarray]:
        """Codes after dropout, and how many times as large as their scores they are."""
        dropout = self.config.dropout
        if dropout == 0.0:
            return codes, np.ones_like(codes.data)
        rows = np.repeat(positions, np.diff(codes.pointers))
        salt = step_salt(self.config.seed, self.taken)
        bits = hash32(torch.from_numpy(rows), torch.from_numpy(codes.indices.astype(np.int64)), salt=salt)
        kept = (bits >= int(dropout * 2**32)).numpy()
        scale = (kept / (1.0 - dropout)).astype(np.float32)
        return codes._replace(data=codes.data * scale), scale

    def _packed(self, selection: Selection) -> Panels:
        self._rows[:] = self.dictionary.numpy()
        wanted = screens(selection, len(self._rows))
        if self._panels is None or self._panels.wanted != wanted:
            self._panels = Panels(self._rows, selection, seed=self.config.seed)
        else:
            self._panels.pack()
        return self._panels


class _Order:
    """Entries by concept: `order` sorts them, `rows` are their rows in that order, concept c has those from
    starts[c] to starts[c + 1]."""

    def __init__(self, order: np.ndarray, rows: np.ndarray, starts: np.ndarray) -> None:
        self.order, self.rows, self.starts = order, rows, starts


def _by_concept(codes: ActiveEntries, n: int) -> _Order:
    order = np.argsort(codes.indices, kind="stable")
    rows = np.repeat(np.arange(len(codes.pointers) - 1), np.diff(codes.pointers))[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes.indices, minlength=n))]).astype(np.int64)
    return _Order(order, rows, starts)


def _concepts(n: int) -> list[slice]:
    return [slice(start, min(start + CONCEPTS, n)) for start in range(0, n, CONCEPTS)]


def _joined(parts: list[ActiveEntries]) -> ActiveEntries:
    """Codes of some rows after those of others."""
    if not parts:
        return ActiveEntries(np.zeros(1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    lengths = np.concatenate([np.diff(part.pointers) for part in parts])
    pointers = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return ActiveEntries(
        pointers, *(np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data"))
    )


def _logit_slopes(
    codes: ActiveEntries, weights: np.ndarray, bias: np.ndarray, batch: OwnBatch
) -> tuple[np.ndarray, float]:
    """Derivatives by the logits (b, C), and the loss: both are shares of the whole batch's mean."""
    logits = torch.from_numpy(entry_logits(codes, weights, bias))
    rows, y = torch.arange(len(batch.y)), torch.from_numpy(batch.y)
    share = torch.from_numpy(batch.weight / np.float32(batch.size))
    log_p = torch.log_softmax(logits, dim=1)
    loss = -float((share * log_p[rows, y]).sum())
    slope = log_p.exp_()
    slope[rows, y] -= 1.0
    slope *= share[:, None]
    return slope.numpy(), loss
