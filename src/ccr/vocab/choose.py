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

A score is linear in the image, so that a concept's mean and variance over the images of a class follow from the
moments of the images: candidates cost nothing per image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder
from ccr.encoders.assets import Log
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.utils.processes import Tell, no_progress
from ccr.vocab.lists import control_words, embed_concepts, read_concepts
from ccr.vocab.proposals import Proposals, reasoned_proposals
from ccr.vocab.wordnet import WordNet

#: More concepts than this are not compared with each other: it takes the square of their number, four bytes each.
MOST_COMPARED = 30_000


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Moments of unit rows measured from their mean: `mean` (d,), `means` of the `classes` (C, d), their `counts` (C,),
    and the covariances (d, d) of all rows and within classes."""

    classes: np.ndarray
    counts: np.ndarray
    mean: np.ndarray
    means: np.ndarray
    covariance: np.ndarray
    within: np.ndarray


@dataclass(frozen=True, eq=False)
class ScoreStatistics:
    """Scores of n concepts in standard deviations over all images: `means` of classes (C, n), `within` (n,) their
    standard deviation inside classes, `spread` (n,) how far raw scores spread over images, `correlation` (n, n) of
    float32."""

    means: np.ndarray
    within: np.ndarray
    spread: np.ndarray
    correlation: np.ndarray


def class_statistics(X: Any, y: np.ndarray) -> ClassStatistics:
    """Class means and covariances of images X (m, d), labels y (m,), read in chunks: memory for C d + d^2 numbers."""
    embeddings = Embeddings(X)
    classes, numbers = np.unique(np.asarray(y), return_inverse=True)
    d = embeddings.shape[1]
    sums, square, start = np.zeros((len(classes), d)), np.zeros((d, d)), 0
    for chunk in embeddings.chunks():
        rows = chunk.numpy()
        np.add.at(sums, numbers[start : start + len(rows)], rows)
        square += rows.T @ rows
        start += len(rows)
    counts = np.bincount(numbers, minlength=len(classes))
    mean, means = sums.sum(axis=0) / start, sums / counts[:, None]
    covariance = square / start - np.outer(mean, mean)
    between = (means - mean) * np.sqrt(counts / start)[:, None]
    return ClassStatistics(classes, counts, mean, means, covariance, covariance - between.T @ between)


def score_statistics(statistics: ClassStatistics, texts: np.ndarray) -> ScoreStatistics:
    """Score statistics of concepts with text embeddings `texts` (n, d), centred among themselves as in a model."""
    check_number(len(texts))
    rows = _centred(texts)
    spread = spreads(statistics, texts)
    within = np.sqrt(np.maximum(np.einsum("nd,nd->n", rows @ statistics.within, rows), 1e-12)) / spread
    means = (statistics.means - statistics.mean) @ rows.T / spread
    scaled = rows / spread[:, None]
    correlation = (scaled @ statistics.covariance).astype(np.float32) @ scaled.T.astype(np.float32)
    return ScoreStatistics(means, within, spread, correlation)


def check_number(n: int) -> None:
    """Refuse more concepts than can be compared with each other."""
    if n > MOST_COMPARED:
        raise CCRError(
            f"at most {MOST_COMPARED:,} concepts are compared with each other at a time, got {n:,}: divide the list, "
            "or shorten it"
        )


def spreads(statistics: ClassStatistics, texts: np.ndarray) -> np.ndarray:
    """Spread (n,) over images of the raw scores of concepts with these text embeddings (n, d)."""
    rows = _centred(texts)
    return np.sqrt(np.maximum(np.einsum("nd,nd->n", rows @ statistics.covariance, rows), 1e-12))


def _centred(texts: np.ndarray) -> np.ndarray:
    """Unit rows, measured from their mean if there are several."""
    rows = unit_rows(np.asarray(texts, dtype=np.float64))
    return unit_rows(rows - rows.mean(axis=0)) if len(rows) > 1 else rows


#: Weights of coverage, discrimination and diversity.
WEIGHTS = (1.0, 1.0, 0.5)
#: Two concepts whose scores correlate more than this are the same to a reader of explanations.
SAME = 0.95
#: Nearest classes that a class is held against, and the most pairs in all.
NEIGHBOURS, MOST_PAIRS = 5, 5000
#: Candidates that are computed at a time.
AT_ONCE = 16


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
        """The objective for candidates with these statistics; `pairs` (P, 2) of class numbers, `visibility` (n,) and
        `reasons` (n, C) from 0 to 1."""
        above = np.maximum(scores.means, 0.0).T * visibility[:, None]
        distances = (scores.means[pairs[:, 0]] - scores.means[pairs[:, 1]]).T / scores.within[:, None]
        if reasons is not None:
            above = above * reasons
            # The class that shows the concept more is the one that it would be said of.
            distances = distances * np.where(distances > 0, reasons[:, pairs[:, 0]], reasons[:, pairs[:, 1]])
        parts = above, (distances * visibility[:, None]) ** 2
        scaled = [
            weight**2 * part / _whole(np.sqrt(part.sum(axis=0))) ** 2
            for weight, part in zip(WEIGHTS[:2], parts, strict=True)
        ]
        alike = scores.correlation**2 * visibility.astype(np.float32)
        return cls(*(part.astype(np.float32) for part in (*scaled, WEIGHTS[2] * alike / len(alike))))

    def value(self, rows: np.ndarray) -> float:
        """Value of a set of candidates; 0.0 if empty."""
        if not len(rows):
            return 0.0
        sums = (np.sqrt(part[rows].sum(axis=0)).sum() for part in (self.coverage, self.discrimination))
        return float(sum(sums) + self.diversity[rows].max(axis=0).sum())


def choose(
    statistics: ClassStatistics,
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
    scores = score_statistics(statistics, texts)
    visibility = visible(scores.spread, scores.spread if control is None else spreads(statistics, control))
    plausible = np.ones(len(texts)) if reasons is None else reasons.max(axis=1)
    different = _different(scores, visibility * plausible)
    different = different[plausible[different] > 0]
    weights = None if reasons is None else reasons[different]
    objective = Objective.of(_part(scores, different), confusable(statistics), visibility[different], weights)
    chosen = greedy(objective, size, tell=tell)
    return Choice(different[chosen.rows], chosen.values)


def visible(spread: np.ndarray, control: np.ndarray) -> np.ndarray:
    """Visibility of each concept, from 0 to 1: the spread of its scores over images, in units of the control's
    median."""
    return np.minimum(1.0, spread / float(np.median(control)))


def greedy(objective: Objective, size: int, *, tell: Tell = no_progress) -> Choice:
    """The greedy subset: always the candidate that adds most. Lazy: what a candidate added earlier bounds what it adds
    now, so that only candidates near the top are computed again (Minoux, 1978)."""
    state = _State(objective)
    bounds = state.gains(np.arange(len(objective.coverage)))
    current = np.ones(len(bounds), dtype=bool)
    rows: list[int] = []
    values: list[float] = []
    while len(rows) < min(size, len(bounds)):
        best = int(bounds.argmax())
        if current[best]:
            values.append((values[-1] if values else 0.0) + float(bounds[best]))
            rows.append(best)
            state.add(best)
            bounds[best], current[:] = -np.inf, False
            tell(len(rows), size, "choosing concepts")
        else:
            # Several at a time: numpy needs about as long for one.
            few = min(AT_ONCE, len(bounds))
            top = np.argpartition(-bounds, few - 1)[:few]
            stale = top[~current[top] & (bounds[top] > -np.inf)]
            bounds[stale], current[stale] = state.gains(stale), True
    return Choice(np.array(rows, dtype=np.int64), np.array(values))


def confusable(statistics: ClassStatistics) -> np.ndarray:
    """Pairs (P, 2) of classes that lie near each other in standard deviations within classes: of each class its nearest
    ones, at most `MOST_PAIRS`, the nearest first."""
    values, vectors = np.linalg.eigh(statistics.within)
    shrunk = 0.5 * np.maximum(values, 0.0) + 0.5 * max(values.mean(), 1e-12)
    placed = ((statistics.means - statistics.mean) @ vectors / np.sqrt(shrunk)).astype(np.float32)
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
    """Running sums of the greedy selection, so that the gain of a candidate needs only its own row."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._roots = np.concatenate([objective.coverage, objective.discrimination], axis=1)
        self._had = np.zeros(self._roots.shape[1], np.float32)
        self._diversity = np.zeros(objective.diversity.shape[1], np.float32)

    def gains(self, rows: np.ndarray) -> np.ndarray:
        """Marginal gain in value of each of these candidates."""
        gains = np.empty(len(rows))
        before = np.sqrt(self._had).sum(dtype=np.float64)
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            roots = np.sqrt(self._had + self._roots[part]).sum(axis=1, dtype=np.float64) - before
            more = np.maximum(self._objective.diversity[part] - self._diversity, 0.0).sum(axis=1, dtype=np.float64)
            gains[start : start + AT_ONCE] = roots + more
        return gains

    def add(self, row: int) -> None:
        self._had += self._roots[row]
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


#: Photos that are looked at for colour, the difference between channels (of 255) that compression leaves in grey ones,
#: and the share of photos that must be grey.
MOST_LOOKED, LARGEST_TINT, LEAST_GREY = 16, 12, 0.9


class Classes(NamedTuple):
    """Names, and where there is a store the mean of each class's photos measured from the mean of all, unit rows, and
    whether the photos are grey."""

    names: list[str]
    photos: dict[str, np.ndarray] | None
    grey: bool = False


def read_classes(path: Path) -> Classes:
    """The classes of a text file, one per line."""
    return Classes(read_concepts(path), None)


def store_classes(store: EmbeddingStore) -> Classes:
    """The classes of a store, with their training photos."""
    train = training_part(store)
    statistics = class_statistics(train, train.y)
    rows = unit_rows(statistics.means - statistics.mean)
    photos = dict(zip(map(str, statistics.classes), rows, strict=True))
    return Classes([str(name) for name in statistics.classes], photos, grey_photos(train))


def grey_photos(store: EmbeddingStore) -> bool:
    """Whether the photos of a store are without colour, judged by some of them; False where they cannot be read."""
    grey = 0
    rows = np.unique(np.linspace(0, len(store) - 1, MOST_LOOKED).astype(int))
    for row in rows:
        try:
            image = store.image(int(row)).convert("RGB")
        except (CCRError, OSError, ValueError):
            return False
        image.thumbnail((64, 64))
        pixels = np.asarray(image, dtype=np.int16)
        grey += float(np.percentile(pixels.max(axis=2) - pixels.min(axis=2), 99)) <= LARGEST_TINT
    return grey >= LEAST_GREY * len(rows)


def training_part(store: EmbeddingStore) -> EmbeddingStore:
    """The labelled rows that may be trained on, or of everything but `test`, or of everything, whichever has some
    first: what choices may be made on."""
    labels = store.labels
    if all(label is None for label in labels):
        raise CCRError(
            f"{store.path} has no labels, so that there are no classes to find concepts for: embed a folder with one "
            "folder per class, or give a text file of class names"
        )
    splits = store.splits
    labelled = labels != None  # noqa: E711 (elementwise)
    parts = (np.flatnonzero(part & labelled) for part in (store.trainable, splits != "test", labelled))
    return store.select(rows=next(rows for rows in parts if len(rows)))


#: Concepts per class, and the smallest and largest list, where no number is given.
PER_CLASS, SMALLEST, LARGEST = 5, 64, 1024
#: Random words whose scores show how far those of words spread that have nothing to do with the images.
CONTROL_WORDS = 64


class Automatic(NamedTuple):
    """The chosen concepts, where they come from, and what was proposed."""

    concepts: Concepts
    chosen: Proposals
    proposed: Proposals


def automatic_concepts(store: EmbeddingStore, encoder: Encoder, *, log: Log | None, tell: Tell) -> Automatic:
    """Concepts for the classes of a labelled store, by its own encoder: from WordNet and the generic list of their
    domains, chosen on training images, `usual_size` of them."""
    classes = store_classes(store)
    proposed = reasoned_proposals(
        classes.names,
        WordNet.open(log=log),
        embed=encoder.embed_texts,
        photos=classes.photos,
        grey=classes.grey,
        tell=tell,
    )
    candidates = embed_concepts(proposed.names, encoder, tell=tell)
    size = usual_size(len(classes.names))
    rows = choose_on(store, candidates, encoder, size=size, proposals=proposed, tell=tell)
    chosen = Proposals(tuple(proposed.items[row] for row in rows), proposed.leaks, proposed.unknown)
    return Automatic(candidates.subset(rows), chosen, proposed)


def usual_size(classes: int) -> int:
    """Default size of a list for so many classes."""
    return min(LARGEST, max(SMALLEST, PER_CLASS * classes))


def choose_on(
    store: EmbeddingStore,
    candidates: Concepts,
    encoder: Encoder,
    *,
    size: int,
    proposals: Proposals,
    tell: Tell = no_progress,
) -> np.ndarray:
    """Rows of the `size` candidates that serve best on the training images of a labelled store, in order of choice;
    `proposals` are the same candidates with their reasons."""
    train = training_part(store)
    if train.shape[1] != candidates.dimension:
        raise CCRError(
            f"{store.path} has {train.shape[1]} dimensions and the concepts {candidates.dimension}: embed both with "
            "the same encoder"
        )
    statistics = class_statistics(train, train.y)
    if len(statistics.classes) < 2:
        raise CCRError(
            f"concepts are chosen to tell classes apart, but {store.path} has only {statistics.classes[0]!r}"
        )
    words = control_words(CONTROL_WORDS, texts=[*candidates.names, *map(str, statistics.classes)])
    control = encoder.embed_texts(words)
    reasons = proposals.reasons([str(name) for name in statistics.classes])
    return choose(statistics, candidates.embeddings, size=size, control=control, reasons=reasons, tell=tell).rows
