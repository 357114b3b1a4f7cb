"""Grounding: concepts started from classes and photos that are known to show them, and how far they transfer.

In the images' metric (The images' metric, docs/method.md) the direction between the means of what shows a concept and
of what does not is Fisher's discriminant. It is drawn toward the concept's text the more, the fewer the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.knowledge.table import NO, UNKNOWN, YES
from ccr.utils.arrays import LazyModule

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = LazyModule("scipy.sparse")

# Grounding: a concept starts between its text and the mean of the classes and photos known to show it. Transfer:
# does it recognise classes that its grounding left out? (Knowledge, docs/method.md) Both work on sufficient
# statistics of the images, the mean and the number of each class, in the space that concepts and images share. An
# answer about a class counts as its images, an answer about a photo as one image.

#: Weight of a concept's text, in answers of each kind: with one yes and many no it leads by two to one.
TEXT_ANSWERS = 4.0
#: Weight of a class without an answer among those that lack a concept: most pairs are "no".
UNKNOWN_SHARE = 0.1
#: Folds of classes, each left out of the grounding once to measure transfer.
FOLDS = 4
#: One division into folds is a matter of chance, so that there are several; few classes make few pairs within a fold
#: and are divided more often, about so many classes in all.
LEAST_PARTITIONS, DIVIDED_CLASSES, MOST_PARTITIONS = 4, 200, 16
#: Concepts that are worked on at once, which bounds memory at any number of classes.
AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Groups:
    """Images that are answered for together: `means` (g, d) of their rows, and how many they are, `counts` (g,)."""

    means: np.ndarray
    counts: np.ndarray

    @property
    def effective(self) -> np.ndarray:
        """Effective sample size of each group (g,): n / (1 + (n - 1) r).

        Images of a class are alike, so that a thousand of them say less about a concept than a thousand photos of
        different things: r, their correlation, is the share of unit rows' variance that lies between groups. This is
        the design effect of cluster sampling, and for a single photo it is 1.
        """
        counts = self.counts.astype(np.float64)
        many = counts > 1
        if not many.any():
            return np.minimum(counts, 1.0)
        between = float((self.means[many] ** 2).sum(axis=1).mean())
        noise = float((1.0 / counts[many]).mean())  # what the means of so few unit rows scatter by chance
        alike = min(max((between - noise) / max(1.0 - noise, 1e-9), 0.0), 1.0)
        return counts / np.maximum(1.0 + (counts - 1.0) * alike, 1.0)


class Evidence(NamedTuple):
    """Evidence of answers about each concept: weighted sums (n, d) of the groups that show it and of those that lack
    it, their weights (n,), and the number of answers (n,) behind them. Evidence of different groups adds up."""

    shown: np.ndarray
    shown_weight: np.ndarray
    shown_answers: np.ndarray
    lacking: np.ndarray
    lacking_weight: np.ndarray
    lacking_answers: np.ndarray

    def of(self, concepts: np.ndarray | slice) -> Evidence:
        """The evidence of these concepts alone."""
        return Evidence(*(column[concepts] for column in self))

    def replaced(self, change: np.ndarray, shows: np.ndarray) -> Evidence:
        """The evidence where one answer about each concept, whether an image `shows` it (n,), were about another image:
        one that is different by the `change` (n, d)."""
        yes = np.asarray(shows, np.float64)[:, None]
        return self._replace(shown=self.shown + yes * change, lacking=self.lacking + (1.0 - yes) * change)

    def plus(self, other: Evidence | None) -> Evidence:
        """Both together."""
        return self if other is None else Evidence(*(one + two for one, two in zip(self, other, strict=True)))


def evidence(answers: Any, groups: Groups, *, unknown: float = 0.0) -> Evidence:
    """The evidence of answers (g, n), dense or sparse, 1 yes, -1 no, 0 unknown; groups without an answer count as
    lacking the concept with the weight `unknown`."""
    there = groups.counts > 0
    weight = np.where(there, groups.effective, 0.0)
    rows = groups.means * weight[:, None]
    parts = (_part(answers, sign) for sign in (YES, NO))
    sums = [(part.T @ rows, part.T @ weight, part.T @ there.astype(np.float64)) for part in parts]
    if unknown:
        every = rows.sum(axis=0), weight.sum(), float(there.sum())
        for at, (total, yes, no) in enumerate(zip(every, *sums, strict=True)):
            sums[1][at][:] = no + unknown * (total - yes - no)
    return Evidence(*sums[0], *sums[1])


def _part(answers: Any, value: int) -> Any:
    """Indicator matrix (g, n) of the answers with this value, 1.0 or 0.0; sparse if they are."""
    member = (answers == value).astype(np.float64)
    return sparse.csr_matrix(member) if sparse.issparse(answers) else member


class Contrasts(NamedTuple):
    """Means (n, d) of what shows and of what lacks each concept, the unit direction (n, d) from one to the other, and
    whether there is one (n,): evidence of both kinds, with different means."""

    shown: np.ndarray
    lacking: np.ndarray
    direction: np.ndarray
    known: np.ndarray


def contrasts(evidence: Evidence) -> Contrasts:
    """The direction in which what shows a concept differs from what lacks it."""
    # By the answers, which are counted exactly: a weight can be above 0 by rounding alone.
    known = (evidence.shown_answers > 0) & (evidence.lacking_answers > 0)
    shown = evidence.shown / np.where(known, evidence.shown_weight, 1.0)[:, None]
    lacking = evidence.lacking / np.where(known, evidence.lacking_weight, 1.0)[:, None]
    size = np.linalg.norm(shown - lacking, axis=1)
    known = known & (size > 1e-9)
    return Contrasts(shown, lacking, (shown - lacking) / np.where(known, size, 1.0)[:, None], known)


def ground(texts: np.ndarray, evidence: Evidence) -> np.ndarray:
    """Grounded concepts for these texts (n, d), unit rows: unit((1 - s) g + s text), where g is the direction of
    `contrasts` and s = T / (T + h) with h the harmonic mean of the numbers of answers of both kinds. Concepts without
    evidence of both kinds keep their text."""
    rows, contrast = np.asarray(texts, np.float64), contrasts(evidence)
    yes, no = (np.where(contrast.known, count, 1.0) for count in (evidence.shown_answers, evidence.lacking_answers))
    share = (TEXT_ANSWERS / (TEXT_ANSWERS + 2.0 / (1.0 / yes + 1.0 / no)))[:, None]
    mixed = (1.0 - share) * contrast.direction + share * rows
    usable = contrast.known & (np.linalg.norm(mixed, axis=1) > 1e-9)  # a text may point exactly the other way
    return unit_rows(np.where(usable[:, None], mixed, rows))


def transfer(
    texts: np.ndarray, answers: np.ndarray, groups: Groups, photos: Evidence | None = None, *, grounded: bool = True
) -> np.ndarray:
    """AUC (n,) of each concept's scores on classes that its grounding left out, against the answers (C, n) about them;
    `grounded=False` scores with the bare texts. Classes without an answer count as lacking the concept with a small
    weight. NaN where no fold has a class that shows the concept beside one that lacks it."""
    there = np.flatnonzero(groups.counts > 0)
    left_out = [there[folds == fold] for folds in partitions(len(there)) for fold in range(FOLDS)]
    right, pairs = np.zeros(len(texts)), np.zeros(len(texts))
    for start in range(0, len(texts), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        part_texts = texts[part]
        more = None if photos is None else photos.of(part)
        for unseen in left_out:
            others, rows = np.setdiff1d(there, unseen), part_texts
            if grounded:
                known = Groups(groups.means[others], groups.counts[others])
                rows = ground(part_texts, evidence(answers[others, part], known, unknown=UNKNOWN_SHARE).plus(more))
            scores = np.asarray(rows, np.float64) @ groups.means[unseen].T
            for at, (score, labels) in enumerate(zip(scores, answers[unseen, part].T, strict=True), start=start):
                ordered, possible = _ordered_pairs(score, labels)
                right[at] += ordered
                pairs[at] += possible
    return np.divide(right, pairs, out=np.full(len(texts), np.nan), where=pairs > 0)


def partitions(classes: int) -> list[np.ndarray]:
    """The fold of each class (classes,) in several divisions at random, more of them for few classes."""
    first = np.arange(classes) % FOLDS
    count = min(MOST_PARTITIONS, max(LEAST_PARTITIONS, -(-DIVIDED_CLASSES // max(classes, 1))))
    return [np.random.default_rng(seed).permutation(first) for seed in range(count)]


def _ordered_pairs(score: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The weight of pairs of a class that shows a concept above one that lacks it (ties count half), and of all."""
    shows = score[labels == YES]
    order = np.argsort(score[labels != YES], kind="stable")
    lacks, weight = score[labels != YES][order], np.where(labels[labels != YES] == UNKNOWN, UNKNOWN_SHARE, 1.0)[order]
    if not len(shows) or not len(lacks):
        return 0.0, 0.0
    below = np.concatenate([[0.0], np.cumsum(weight)])
    ends = (np.searchsorted(lacks, shows, side=side) for side in ("left", "right"))
    return float(sum(below[end].sum() for end in ends)) / 2.0, float(below[-1] * len(shows))


#: Shrinkage of the images' covariance.
SHRINKAGE = 0.5


class Learned(NamedTuple):
    """`direction` (d,), a unit vector whose product with an image's unit embedding, as it is, is its score; the
    `threshold` of that score between the two kinds; `error`, the share of photos on the wrong side when each is left
    out of learning in turn; and that for each photo, those that show it first."""

    direction: np.ndarray
    threshold: float
    error: float
    wrong: np.ndarray


def learn_direction(
    shows: Any,
    lacks: Any,
    *,
    text: np.ndarray | None = None,
    mean: np.ndarray | None = None,
    covariance: np.ndarray | None = None,
) -> Learned:
    """The direction that tells photos that show something from photos that do not.

    Parameters
    ----------
    shows, lacks : (p, d) and (q, d), embeddings of at least two photos each.
    text : (d,), the concept's text as images meet it: a direction from the mean of texts. None: photos alone.
    mean, covariance : (d,) and (d, d), of many images of the same kind as the photos. None: photos are not measured
        from a mean, and spread the same in all directions.
    """
    rows, p = _checked(shows, lacks)
    d = rows.shape[1]
    _check_shape("text", text, (d,))
    _check_shape("mean", mean, (d,))
    _check_shape("covariance", covariance, (d, d))
    origin = np.zeros(d) if mean is None else np.asarray(mean, np.float64)
    rows = rows - origin
    whiten, color = _metric(covariance, d)
    text_direction = None if text is None else unit_rows((np.asarray(text, np.float64) @ color)[None])[0]
    rows = rows @ whiten
    kinds = np.arange(len(rows)) < p
    wrong = np.array([_is_wrong(rows, kinds, text_direction, at) for at in range(len(rows))])
    direction, threshold = _direction(rows, kinds, text_direction)
    back = direction @ whiten
    size = np.linalg.norm(back)
    unit = back / size
    return Learned(unit, float(threshold / size + unit @ origin), float(wrong.mean()), wrong)


def _checked(shows: Any, lacks: Any) -> tuple[np.ndarray, int]:
    kinds = [np.atleast_2d(np.asarray(rows, dtype=np.float64)) for rows in (shows, lacks)]
    for name, rows in zip(("shows", "lacks"), kinds, strict=True):
        if rows.ndim != 2 or len(rows) < 2:
            raise CCRError(f"a concept is learned from at least 2 photos in {name}=, got {len(rows)}: add some")
        if not np.isfinite(rows).all() or not rows.any(axis=1).all():
            raise CCRError(f"embeddings of {name} must be finite and not zero: embed those photos again")
    if kinds[0].shape[1] != kinds[1].shape[1]:
        raise CCRError(f"photos must have the same dimensions, got {kinds[0].shape[1]} and {kinds[1].shape[1]}")
    return unit_rows(np.concatenate(kinds)), len(kinds[0])


def _check_shape(name: str, array: np.ndarray | None, shape: tuple[int, ...]) -> None:
    """An error where something that goes with photos of d dimensions has others, or is not finite."""
    if array is None:
        return
    values = np.asarray(array)
    if values.shape != shape:
        raise CCRError(f"{name} must have the photos' dimensions, shape {shape}, got {values.shape}")
    if not np.isfinite(np.asarray(values, np.float64)).all():
        raise CCRError(f"{name} must be finite, got NaN or infinity: measure it again")


def _metric(covariance: np.ndarray | None, d: int) -> tuple[np.ndarray, np.ndarray]:
    """S^(-1/2) and S^(1/2) of the shrunk covariance; both symmetric."""
    if covariance is None:
        return np.eye(d), np.eye(d)
    values, vectors = np.linalg.eigh(covariance)
    values = (1.0 - SHRINKAGE) * np.maximum(values, 0.0) + SHRINKAGE * max(values.mean(), 1e-12)
    whiten, color = ((vectors * values**power) @ vectors.T for power in (-0.5, 0.5))
    return whiten, color


def _direction(rows: np.ndarray, kinds: np.ndarray, text: np.ndarray | None) -> tuple[np.ndarray, float]:
    """The unit direction in the metric, and the threshold halfway between the two means on it."""
    answers = np.where(kinds, YES, NO)[:, None]
    answered = evidence(answers, Groups(rows, np.ones(len(rows), np.int64)))
    contrast = contrasts(answered)
    if not contrast.known[0]:
        raise CCRError("the photos that show it and those that do not have the same mean: give other photos")
    direction = contrast.direction[0] if text is None else ground(text[None], answered)[0]
    return direction, float(direction @ (contrast.shown[0] + contrast.lacking[0]) / 2.0)


def _is_wrong(rows: np.ndarray, kinds: np.ndarray, text: np.ndarray | None, left_out: int) -> bool:
    """Leave-one-out error: whether a photo falls on the wrong side of the direction learned from the others."""
    others = np.arange(len(rows)) != left_out
    direction, threshold = _direction(rows[others], kinds[others], text)
    return bool((rows[left_out] @ direction > threshold) != kinds[left_out])
