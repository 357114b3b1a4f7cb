"""Class and model views out of one pass over the codes: what carries a class, what is confused, what is unused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from ccr.core.explain.terms import plain, plain_fields, position
from ccr.core.heads import LinearHead
from ccr.errors import CCRError


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
class ClassView:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


@dataclass(frozen=True)
class SeparatingConcept:
    """`separation` = difference of the two classes' weights x difference of their mean codes; below 0 it confuses."""

    concept: str
    weight: float
    code: float
    separation: float


@dataclass(frozen=True)
class Confusion:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


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
    """What a model's codes look like on data: sums by class, no row of the data.

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
        """How much every concept is used, most used first."""
        counts, sums = self.active.sum(axis=0), self.totals.sum(axis=0)
        m, weights = int(self.images.sum()), np.abs(self.head.coef).max(axis=0)
        uses = [
            ConceptUse(name, int(count), int(count) / m, float(total) / max(int(count), 1), float(weight))
            for name, count, total, weight in zip(self.concepts, counts, sums, weights, strict=True)
        ]
        return tuple(sorted(uses, key=lambda use: (-use.images, use.concept)))

    def unused(self) -> tuple[str, ...]:
        """Concepts nobody uses: no image shows them, or their weights are all zero."""
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
            share = float(counts[column]) / images
            name = self.concepts[column]
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
        rows, columns = truth[_rows_of(codes)], codes.indices
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


def _rows_of(codes: sparse.csr_matrix) -> np.ndarray:
    return np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))
