"""Class and model views out of one pass over the codes: what carries a class, what is confused, what is unused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain.terms import PlainResult, plain, position
from ccr.utils.arrays import LazyModule
from ccr.utils.parameters import is_number

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = LazyModule("scipy.sparse")

# Top and borderline images of a concept: those with its largest and its smallest codes.

#: A candidate: an image `row` and its code for a concept `column`.
CANDIDATE = np.dtype([("column", "i4"), ("row", "i8"), ("code", "f4")])
#: Number of waiting candidates at which they are sorted out.
MOST_WAITING = 1_000_000


@dataclass(frozen=True)
class ImageActivation(PlainResult):
    """An image, by its row in the data, and its code for a concept."""

    row: int
    code: float


class TopCandidates:
    """The `top` images of largest code, by size, or of the `least`, for each of n columns, earlier rows first among
    equals.

    Holds at most n x top + MOST_WAITING candidates however many are added.
    """

    def __init__(self, n: int, top: int, *, least: bool = False) -> None:
        self.n, self.top, self.sign = n, top, 1 if least else -1
        self._kept = np.zeros(0, CANDIDATE)
        self._waiting: list[np.ndarray] = []

    def add(self, columns: np.ndarray, rows: np.ndarray, codes: np.ndarray) -> None:
        entries = np.empty(len(columns), CANDIDATE)
        entries["column"], entries["row"], entries["code"] = columns, rows, codes
        self._waiting.append(entries)
        if sum(map(len, self._waiting)) > max(MOST_WAITING, self.n * self.top):
            self._sort_out()

    def by_column(self) -> list[tuple[ImageActivation, ...]]:
        """Images of each column, best first."""
        self._sort_out()
        edges = np.searchsorted(self._kept["column"], np.arange(self.n + 1))
        return [
            tuple(ImageActivation(int(item["row"]), float(item["code"])) for item in self._kept[start:stop])
            for start, stop in pairwise(edges)
        ]

    def _sort_out(self) -> None:
        entries = np.concatenate([self._kept, *self._waiting])
        entries = entries[np.lexsort((entries["row"], self.sign * np.abs(entries["code"]), entries["column"]))]
        rank = np.arange(len(entries)) - np.searchsorted(entries["column"], entries["column"])
        self._kept, self._waiting = entries[rank < self.top], []


def top_images(
    chunks: Iterable[sparse.csr_matrix], *, columns: np.ndarray, top: int = 9, least: bool = False
) -> list[tuple[ImageActivation, ...]]:
    """Images with the `top` largest, or `least`, positive codes of each of these columns, out of one pass."""
    if top < 0:
        raise CCRError(f"top is how many images to give, 0 or more, got {top}")
    best, done = TopCandidates(len(columns), top, least=least), 0
    for codes in chunks:
        entries = codes[:, columns].tocoo()
        positive = entries.data > 0
        best.add(entries.col[positive], entries.row[positive] + done, entries.data[positive])
        done += codes.shape[0]
    return best.by_column()


# Co-activation: concepts that are active in the same images.
CoactivationOrder = Literal["jaccard", "images", "lift"]
#: Codes are multiplied this many entries at a time: fewer products of sparse matrices, still little memory.
BATCH_ENTRIES = 2_000_000


@dataclass(frozen=True)
class Coactivation(PlainResult):
    """Two concepts active together in `images` images.

    `jaccard`: of the images that show either; `lift`: how many times more often than if they were independent;
    `same_sign`: share of those images in which both codes have one sign.
    """

    first: str
    second: str
    images: int
    jaccard: float
    lift: float
    same_sign: float


def coactivation(
    chunks: Iterable[sparse.csr_matrix],
    *,
    concepts: Sequence[str],
    top: int = 20,
    by: CoactivationOrder = "jaccard",
    min_images: int = 2,
) -> tuple[Coactivation, ...]:
    """The `top` pairs of concepts most active together, out of one pass over codes (m, n).

    Pairs together in fewer than `min_images` images are left out. Memory: pairs that occur, never images x concepts.
    """
    if by not in ("jaccard", "images", "lift"):
        raise CCRError(f'by must be "jaccard", "images" or "lift", got {by!r}')
    if not (is_number(top) and top >= 0 and int(top) == top):
        raise CCRError(f"top must be a whole number >= 0, got {top!r}: it counts pairs of concepts")
    # Images that show each pair, and those with equal signs minus those with opposite signs: (n, n), upper triangles.
    together, signed = (sparse.csr_matrix((len(concepts),) * 2, dtype=np.int32) for _ in range(2))
    active, m = np.zeros(len(concepts), np.int64), 0
    for codes in _batches(chunks):
        signs = codes.copy()
        signs.data = np.sign(signs.data).astype(np.int32)
        signs.eliminate_zeros()
        shown = abs(signs)
        together = together + sparse.triu(shown.T @ shown, k=1, format="csr")
        signed = signed + sparse.triu(signs.T @ signs, k=1, format="csr")
        active += np.asarray(shown.sum(axis=0)).ravel()
        m += codes.shape[0]
    pairs = together.tocoo()
    keep = pairs.data >= min_images
    first, second, images = pairs.row[keep], pairs.col[keep], pairs.data[keep]
    jaccard = images / (active[first] + active[second] - images)
    lift = images * m / (active[first] * active[second].astype(np.float64))
    value = {"jaccard": jaccard, "images": images, "lift": lift}[by]
    order = np.lexsort((second, first, -images, -value))[: int(top)]
    # (same - opposite) and (same + opposite) are known: half the ratio of their sum is the share of same.
    net = np.asarray(signed[first[order], second[order]]).ravel() if len(order) else np.zeros(0)
    return tuple(
        Coactivation(
            concepts[first[i]],
            concepts[second[i]],
            int(images[i]),
            float(jaccard[i]),
            float(lift[i]),
            float(net[rank] + images[i]) / (2 * int(images[i])),
        )
        for rank, i in enumerate(order)
    )


def _batches(chunks: Iterable[sparse.csr_matrix]) -> Iterator[sparse.csr_matrix]:
    """The same rows, in pieces of about BATCH_ENTRIES entries."""
    waiting: list[sparse.csr_matrix] = []
    for chunk in chunks:
        waiting.append(chunk)
        if sum(piece.nnz for piece in waiting) >= BATCH_ENTRIES:
            yield sparse.vstack(waiting, format="csr")
            waiting = []
    if waiting:
        yield sparse.vstack(waiting, format="csr")


@dataclass(frozen=True)
class CarryingConcept:
    """A concept in a class: `contribution` = `weight` x mean `code` of those of its images, a `share`, that show it.

    `mean` = `share` x `contribution` is its part of the class's mean logit.
    """

    concept: str
    weight: float
    code: float
    share: float
    contribution: float
    mean: float


@dataclass(frozen=True)
class ClassView(PlainResult):
    """The concepts that speak for a class on its own `images` (`carrying`) and against it (`opposing`).

    `bias` + the `mean` of every concept, shown here or not, == `mean_logit` of these images.
    """

    name: Any
    images: int
    accuracy: float
    bias: float
    mean_logit: float
    carrying: tuple[CarryingConcept, ...]
    opposing: tuple[CarryingConcept, ...]


@dataclass(frozen=True)
class SeparatingConcept:
    """`separation` = difference of the two classes' weights x difference of their mean codes; below 0 it confuses."""

    concept: str
    weight: float
    code: float
    separation: float


@dataclass(frozen=True)
class Confusion(PlainResult):
    """Two classes that are taken for each other: `first_as_second` + `second_as_first` == `errors`.

    `rate` is the share of the two classes' images. `separation`, the sum over all concepts, is how much farther
    the first is ahead of the second on its own images than on the other's; `separating` has the largest parts,
    `confusing` those that work against.
    """

    first: Any
    second: Any
    errors: int
    first_as_second: int
    second_as_first: int
    rate: float
    separation: float
    separating: tuple[SeparatingConcept, ...]
    confusing: tuple[SeparatingConcept, ...]


@dataclass(frozen=True)
class ConceptUse:
    """How many images show a concept, which `share` that is, the mean code of those, and its largest |weight|."""

    concept: str
    images: int
    share: float
    code: float
    weight: float


@dataclass(frozen=True, eq=False)
class ModelView:
    """Statistics of a model's codes on data: sums by class, no row of the data.

    `images` (C,), `active` and `totals` (C, n): how many images of each class show each concept, and the sum of
    those codes. `confusion` (C, C) counts true by predicted class. Without labels, images count for the class
    predicted and `labelled` is False.
    """

    concepts: tuple[str, ...] = field(repr=False)
    classes: tuple[Any, ...] = field(repr=False)
    head: LinearHead = field(repr=False)
    images: np.ndarray
    active: np.ndarray = field(repr=False)
    totals: np.ndarray = field(repr=False)
    confusion: np.ndarray = field(repr=False)
    labelled: bool

    @cached_property
    def mean_codes(self) -> np.ndarray:
        """Mean code of each class (C, n), zeros counted; zeros for a class without images."""
        return self.totals / np.maximum(self.images, 1)[:, None]

    def of_class(self, name: Any, *, top: int | None = 10, min_share: float = 0.05) -> ClassView:
        """The concepts that carry the class, strongest first; `top=None` gives all.

        Concepts that fewer than `min_share` of its images show are left out: one odd image does not carry a class.
        """
        row = position(self.classes, name)
        items = self._in_class(row, min_share)
        right, images = int(self.confusion[row, row]), int(self.images[row])
        return ClassView(
            name=self.classes[row],
            images=images,
            accuracy=right / images if images and self.labelled else float("nan"),
            bias=float(self.head.intercept[row]),
            mean_logit=float(self.head.intercept[row]) + float(self.mean_codes[row] @ self.head.coef[row]),
            carrying=tuple(item for item in items if item.contribution > 0)[:top],
            opposing=tuple(item for item in reversed(items) if item.contribution < 0)[:top],
        )

    def confusions(self, *, top: int | None = 10, concepts: int = 5) -> tuple[Confusion, ...]:
        """Pairs of classes taken for each other, most errors first, with the concepts that tell them apart."""
        if not self.labelled:
            raise CCRError("confusions need the true labels, but this view was made without them: give y")
        pairs = self.confusion + self.confusion.T
        np.fill_diagonal(pairs, 0)
        first, second = np.nonzero(np.triu(pairs))
        errors = pairs[first, second]
        rates = errors / (self.images[first] + self.images[second])
        order = np.lexsort((second, first, -rates, -errors))[:top]
        return tuple(self._confusion(int(first[i]), int(second[i]), concepts) for i in order)

    def separation(self, first: Any, second: Any, *, concepts: int = 5) -> Confusion:
        """The same for two named classes, confused or not."""
        return self._confusion(position(self.classes, first), position(self.classes, second), concepts)

    def use(self) -> tuple[ConceptUse, ...]:
        """Use of every concept, most used first."""
        counts, sums = self.active.sum(axis=0), self.totals.sum(axis=0)
        m, weights = int(self.images.sum()), np.abs(self.head.coef).max(axis=0)
        uses = [
            ConceptUse(name, int(count), int(count) / m, float(total) / max(int(count), 1), float(weight))
            for name, count, total, weight in zip(self.concepts, counts, sums, weights, strict=True)
        ]
        return tuple(sorted(uses, key=lambda use: (-use.images, use.concept)))

    def unused(self) -> tuple[str, ...]:
        """Unused concepts: no image shows them, or their weights are all zero."""
        idle = (self.active.sum(axis=0) == 0) | ~np.any(self.head.coef, axis=0)
        return tuple(name for name, unused in zip(self.concepts, idle, strict=True) if unused)

    def to_dict(self, *, top: int | None = 10) -> dict[str, Any]:
        """Plain types only, ready for JSON: every class, the confusions, use of concepts and the unused ones."""
        return {
            "images": int(self.images.sum()),
            "classes": [self.of_class(name, top=top).to_dict() for name in self.classes],
            "confusions": plain(self.confusions(top=top)) if self.labelled else None,
            "use": plain(self.use()[:top]),
            "unused": list(self.unused()),
        }

    def _in_class(self, row: int, min_share: float) -> list[CarryingConcept]:
        counts, images = self.active[row], max(int(self.images[row]), 1)
        items = []
        for column in np.flatnonzero((counts > 0) & (counts >= min_share * images)):
            weight, code = float(self.head.coef[row, column]), float(self.totals[row, column] / counts[column])
            share, name = float(counts[column]) / images, self.concepts[column]
            items.append(CarryingConcept(name, weight, code, share, weight * code, share * weight * code))
        return sorted(items, key=lambda item: (-item.contribution, item.concept))

    def _confusion(self, first: int, second: int, concepts: int) -> Confusion:
        weights = self.head.coef[first].astype(np.float64) - self.head.coef[second]
        codes = self.mean_codes[first] - self.mean_codes[second]
        parts = [
            SeparatingConcept(name, float(weight), float(code), float(weight * code))
            for name, weight, code in zip(self.concepts, weights, codes, strict=True)
            if weight * code != 0
        ]
        parts.sort(key=lambda part: (-part.separation, part.concept))
        over, back = int(self.confusion[first, second]), int(self.confusion[second, first])
        return Confusion(
            first=self.classes[first],
            second=self.classes[second],
            errors=over + back,
            first_as_second=over,
            second_as_first=back,
            rate=(over + back) / max(int(self.images[first] + self.images[second]), 1),
            separation=float(weights @ codes),
            separating=tuple(part for part in parts if part.separation > 0)[:concepts],
            confusing=tuple(part for part in reversed(parts) if part.separation < 0)[:concepts],
        )


def view_codes(
    chunks: Iterable[sparse.csr_matrix],
    head: LinearHead,
    *,
    concepts: Sequence[str],
    classes: Sequence[Any],
    y: np.ndarray | None = None,
) -> ModelView:
    """One pass over codes (m, n), some rows after the other; `y` (m,) holds class numbers.

    Memory: two (classes, concepts) matrices and one chunk.
    """
    shape = (len(classes), len(concepts))
    active, totals = np.zeros(shape, np.int64), np.zeros(shape)
    confusion, done = np.zeros((len(classes), len(classes)), np.int64), 0
    for codes in chunks:
        predicted = head.logits(codes).argmax(axis=1)
        truth = predicted if y is None else y[done : done + len(predicted)]
        np.add.at(confusion, (truth, predicted), 1)
        rows, columns = np.repeat(truth, np.diff(codes.indptr)), codes.indices
        np.add.at(totals, (rows, columns), codes.data)
        np.add.at(active, (rows, columns), codes.data != 0)
        done += len(predicted)
    return ModelView(
        concepts=tuple(concepts),
        classes=tuple(classes),
        head=head,
        images=confusion.sum(axis=1),
        active=active,
        totals=totals,
        confusion=confusion,
        labelled=y is not None,
    )
