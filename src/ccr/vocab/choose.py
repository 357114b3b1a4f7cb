"""The subset of a list that serves best: it covers every class, tells confusable classes apart, and repeats nothing.

The value of a subset S is a sum of three parts, each from 0 to 1:

- coverage: over classes c, sqrt(sum over S of r_cj), r_cj how far c's images lie above the others on concept j;
- discrimination: over pairs (a, b) of classes that are easily confused, sqrt(sum over S of d'_abj^2), d' the distance
  of two classes on a concept in standard deviations within classes;
- diversity: over all candidates i, max over S of their squared correlation on images.

Each is monotone and submodular (a concave function of a sum, or a maximum), and so is their sum: the greedy subset of k
has at least 1 - 1/e = 63 % of the value of the best one (Nemhauser, Wolsey and Fisher, 1978). What a concept brings is
weighted beforehand by its visibility and by the reason for which it may be said of a class: telling two classes apart
counts in full only if something ties the concept to one of them. Of near-duplicates one stays.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from ccr.errors import CCRError
from ccr.utils.progress import Tell, no_progress
from ccr.vocab.statistics import ClassStatistics, ScoreStatistics, score_statistics, spreads

#: Weights of coverage, discrimination and diversity.
WEIGHTS = (1.0, 1.0, 0.5)
#: Two concepts whose scores correlate more than this are the same to a reader of explanations.
SAME = 0.95
#: Nearest classes that a class is held against, and the most pairs in all.
NEIGHBOURS, MOST_PAIRS = 5, 5000


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen rows in the order of choice, and how much of the value of all candidates the first k of them have."""

    rows: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Objective:
    """The value of a set of candidates: `coverage` (n, C) and `discrimination` (n, P) under the square root,
    `diversity` (n, n) under the maximum, each scaled so that all candidates together are worth its weight."""

    coverage: np.ndarray
    discrimination: np.ndarray
    diversity: np.ndarray

    @classmethod
    def of(
        cls, scores: ScoreStatistics, pairs: np.ndarray, visibility: np.ndarray, reasons: np.ndarray | None = None
    ) -> Objective:
        """For candidates with these statistics; `pairs` (P, 2) of class numbers, `visibility` (n,) and `reasons` (n, C)
        from 0 to 1."""
        above = np.maximum(scores.means, 0.0).T * visibility[:, None]
        apart = (scores.means[pairs[:, 0]] - scores.means[pairs[:, 1]]).T / scores.within[:, None]
        if reasons is not None:
            above = above * reasons
            # The class that shows the concept more is the one that it would be said of.
            apart = apart * np.where(apart > 0, reasons[:, pairs[:, 0]], reasons[:, pairs[:, 1]])
        parts = above, (apart * visibility[:, None]) ** 2
        scaled = [
            weight**2 * part / _whole(np.sqrt(part.sum(axis=0))) ** 2
            for weight, part in zip(WEIGHTS[:2], parts, strict=True)
        ]
        alike = scores.correlation**2 * visibility.astype(np.float32)
        return cls(*(part.astype(np.float32) for part in (*scaled, WEIGHTS[2] * alike / len(alike))))

    def value(self, rows: np.ndarray) -> float:
        """Of a set of candidates."""
        if not len(rows):
            return 0.0
        sums = (np.sqrt(part[rows].sum(axis=0)).sum() for part in (self.coverage, self.discrimination))
        return float(sum(sums) + self.diversity[rows].max(axis=0).sum())


def choose(
    found: ClassStatistics,
    texts: np.ndarray,
    *,
    size: int,
    control: np.ndarray | None = None,
    reasons: np.ndarray | None = None,
    tell: Tell = no_progress,
) -> Choice:
    """The `size` candidates with text embeddings `texts` (n, d) that serve best on images with statistics `found`.

    Parameters
    ----------
    size : how many to choose, from 1; fewer come back when there are fewer that are not near-duplicates.
    control : text embeddings (k, d) of words that have nothing to do with the images: a concept whose scores spread
        less over images than theirs usually do is hardly seen. None: less than the candidates' own usually do.
    reasons : (n, C) from 0 to 1, how strong the reason is for which a candidate may be said of a class of `found`; see
        `Proposals.reasons`. Candidates without any reason are never chosen. None: all are as good.
    """
    if size < 1:
        raise CCRError(f"size must be at least 1, got {size}: it is how many concepts to choose")
    scores = score_statistics(found, texts)
    visibility = visible(scores.spread, scores.spread if control is None else spreads(found, control))
    plausible = np.ones(len(texts)) if reasons is None else reasons.max(axis=1)
    different = _different(scores, visibility * plausible)
    different = different[plausible[different] > 0]
    weights = None if reasons is None else reasons[different]
    objective = Objective.of(_part(scores, different), confusable(found), visibility[different], weights)
    chosen = greedy(objective, size, tell=tell)
    return Choice(different[chosen.rows], chosen.values)


def visible(spread: np.ndarray, control: np.ndarray) -> np.ndarray:
    """From 0 to 1, for each concept: how far its scores spread over images, in units of the median of the control's."""
    return np.minimum(1.0, spread / float(np.median(control)))


def greedy(objective: Objective, size: int, *, tell: Tell = no_progress) -> Choice:
    """The greedy subset: always the candidate that adds most. Lazy: what a candidate added earlier bounds what it adds
    now, so that only candidates near the top are computed again (Minoux, 1978)."""
    state = _State(objective)
    heap = [(-gain, row, 0) for row, gain in enumerate(state.gains())]
    heapq.heapify(heap)
    rows: list[int] = []
    values: list[float] = []
    while heap and len(rows) < size:
        gain, row, known_at = heapq.heappop(heap)
        if known_at == len(rows):
            state.add(row)
            rows.append(row)
            values.append((values[-1] if values else 0.0) - gain)
            tell(len(rows), size, "choosing concepts")
        else:
            heapq.heappush(heap, (-state.gain(row), row, len(rows)))
    return Choice(np.array(rows, dtype=np.int64), np.array(values))


def confusable(found: ClassStatistics) -> np.ndarray:
    """Pairs (P, 2) of classes that lie near each other in standard deviations within classes: of each class its nearest
    ones, at most `MOST_PAIRS`, the nearest first."""
    values, vectors = np.linalg.eigh(found.within)
    shrunk = 0.5 * np.maximum(values, 0.0) + 0.5 * max(values.mean(), 1e-12)
    placed = ((found.means - found.mean) @ vectors / np.sqrt(shrunk)).astype(np.float32)
    pairs: dict[tuple[int, int], float] = {}
    squares = (placed**2).sum(axis=1)
    for row in range(len(placed)):
        distance = squares + squares[row] - 2.0 * placed @ placed[row]
        distance[row] = np.inf
        for other in np.argsort(distance, kind="stable")[: min(NEIGHBOURS, len(placed) - 1)]:
            pairs[min(row, int(other)), max(row, int(other))] = float(distance[other])
    nearest = sorted(pairs, key=lambda pair: (pairs[pair], pair))[:MOST_PAIRS]
    return np.array(nearest, dtype=np.int64).reshape(-1, 2)


class _State:
    """What the chosen set has so far, so that one more candidate is judged by its own row alone."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._coverage = np.zeros(objective.coverage.shape[1])
        self._discrimination = np.zeros(objective.discrimination.shape[1])
        self._diversity = np.zeros(objective.diversity.shape[1])

    def gain(self, row: int) -> float:
        """What this candidate would add to the value."""
        sums = ((self._coverage, self._objective.coverage), (self._discrimination, self._objective.discrimination))
        roots = sum(float((np.sqrt(had + part[row]) - np.sqrt(had)).sum()) for had, part in sums)
        return roots + float(np.maximum(self._objective.diversity[row] - self._diversity, 0.0).sum())

    def gains(self) -> list[float]:
        return [self.gain(row) for row in range(len(self._objective.coverage))]

    def add(self, row: int) -> None:
        self._coverage += self._objective.coverage[row]
        self._discrimination += self._objective.discrimination[row]
        np.maximum(self._diversity, self._objective.diversity[row], out=self._diversity)


def _different(scores: ScoreStatistics, visibility: np.ndarray) -> np.ndarray:
    """Rows of candidates without near-duplicates: of those that correlate more than `SAME`, the most visible."""
    kept: list[int] = []
    for row in np.argsort(-visibility * scores.means.std(axis=0), kind="stable"):
        if not kept or scores.correlation[row, kept].max() <= SAME:
            kept.append(int(row))
    return np.sort(np.array(kept, dtype=np.int64))


def _part(scores: ScoreStatistics, rows: np.ndarray) -> ScoreStatistics:
    correlation = scores.correlation[np.ix_(rows, rows)]
    return ScoreStatistics(scores.means[:, rows], scores.within[rows], scores.spread[rows], correlation)


def _whole(roots: np.ndarray) -> float:
    return float(roots.sum()) or 1.0
