"""Localisation: maps of an explanation's terms over the parts of the picture.

The code of a concept is a linear function of the encoder's embedding once the norms of this image are fixed
(`Readouts`, docs/where.md), and the embedding is a sum over patches and a rest (`PatchTerms`). So every code, every
contribution and every logit is a map over patches plus a rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ccr.coding.heads import LinearHead
from ccr.concepts import unknown_concept
from ccr.errors import CCRError
from ccr.explain.terms import plain, position
from ccr.space import Readouts

if TYPE_CHECKING:
    from ccr.explain.explanation import Explanation

# Where concepts are in a picture: its embedding as a sum over patches, and a rest.

#: Way of splitting an embedding over patches: exactly by the encoder's last layer, by its values alone, or occlusion.
Way = Literal["exact", "values", "occlusion"]
WAYS: tuple[Way, ...] = ("exact", "values", "occlusion")


class Frame(NamedTuple):
    """The part of a picture that an encoder looks at, as fractions of its width and height."""

    left: float = 0.0
    top: float = 0.0
    right: float = 1.0
    bottom: float = 1.0

    def pixels(self, width: int, height: int) -> tuple[int, int, int, int]:
        """The same in pixels of a picture of this size: left, top, right, bottom."""
        across, down = (round(self.left * width), round(self.right * width)), (self.top * height, self.bottom * height)
        return across[0], round(down[0]), max(across[1], across[0] + 1), max(round(down[1]), round(down[0]) + 1)


@dataclass(frozen=True, eq=False)
class PatchTerms:
    """`embedding` == sum of `terms` + sum of `rest`, to rounding.

    Parameters
    ----------
    embedding : (d,), as the encoder gives it before it is made a unit vector.
    terms : (rows, columns, d), what each patch of the picture adds to it.
    rest : what no patch adds, (d,) by name.
    frame : the part of the picture that the patches cover.
    way : how the terms were made.
    """

    embedding: np.ndarray
    terms: np.ndarray
    rest: Mapping[str, np.ndarray]
    frame: Frame
    way: Way

    def __post_init__(self) -> None:
        if self.terms.ndim != 3 or self.terms.shape[2:] != self.embedding.shape:
            raise CCRError(
                f"patch terms must be (rows, columns, {len(self.embedding)}), as the embedding has dimensions, got "
                f"{self.terms.shape}"
            )

    def smoothed(self, width: float) -> PatchTerms:
        """Every patch's term shared with its neighbours, by a bell curve of this standard deviation in patches; what
        all patches add together stays what it is."""
        rows, columns = (_bell(size, width) for size in self.terms.shape[:2])
        return replace(self, terms=np.einsum("ri,cj,rcd->ijd", rows, columns, self.terms, optimize=True))


def _bell(size: int, width: float) -> np.ndarray:
    """Shares (size, size) that each of some places in a row gives to all of them; its rows add up to 1."""
    if not width > 1e-3:  # nothing reaches the neighbours, and the quotient could overflow
        return np.eye(size)
    distance = np.arange(size)[:, None] - np.arange(size)
    shares = np.exp(-0.5 * (distance / width) ** 2)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class PatchMap:
    """A number split over patches: sum of `map` (rows, columns) + sum of `rest` == `total`, to rounding."""

    name: str
    map: np.ndarray
    rest: Mapping[str, float]
    total: float

    @property
    def in_patches(self) -> float:
        """Sum over all patches."""
        return float(self.map.sum())

    @property
    def elsewhere(self) -> float:
        """Sum of the parts that belong to no patch."""
        return float(sum(self.rest.values()))

    def inside(self, cover: np.ndarray) -> float:
        """Sum over an area: `cover` (rows, columns) is the share of each patch that lies in it."""
        return float((self.map * cover).sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        sums = {"in_patches": self.in_patches, "total": self.total}
        return {"name": self.name, "map": plain(self.map), "rest": plain(self.rest), **sums}


@dataclass(frozen=True)
class RegionConcept:
    """A concept in an area of the picture: `inside` of its `code` comes from there, and so does `contribution` of what
    it adds to the class; `share` is the part of its positive patches' sum that lies inside."""

    concept: str
    inside: float
    code: float
    share: float
    contribution: float


@dataclass(frozen=True, eq=False)
class Where:
    """Maps of an explanation: the code of each active concept over patches (rows, columns), and a rest.

    Parameters
    ----------
    concepts : names of the active concepts, a of them.
    codes : (a,), what the explanation says.
    maps : (a, rows, columns); `maps.sum(axis=(1, 2))` + the sum of `rest` == `codes`, to rounding.
    rest : (a,) by name, what comes from no patch.
    frame : the part of the picture that the maps cover.
    way : how they were made; only "exact" splits what the encoder did, the others put what does not add up in the rest.
    classes, head, prediction : as in the explanation.
    """

    concepts: tuple[str, ...]
    codes: np.ndarray
    maps: np.ndarray
    rest: Mapping[str, np.ndarray]
    frame: Frame
    way: Way
    classes: tuple[Any, ...] = field(repr=False)
    head: LinearHead = field(repr=False)
    prediction: Any = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a map."""
        return int(self.maps.shape[1]), int(self.maps.shape[2])

    def code_map(self, concept: str) -> PatchMap:
        """Map of an active concept's code."""
        row = self._row(concept)
        rest = {name: float(values[row]) for name, values in self.rest.items()}
        return PatchMap(concept, self.maps[row], rest, float(self.codes[row]))

    def contribution_map(self, concept: str, *, of: Any = None) -> PatchMap:
        """Map of an active concept's contribution to the class `of` (None: the prediction)."""
        weights, row = np.zeros(len(self.concepts)), self._row(concept)
        weights[row] = self.head.coef[self._class(of), row]
        return self._weighted(concept, weights)

    def contributions(self, *, of: Any = None) -> tuple[PatchMap, ...]:
        """A map for each active concept with a weight for the class `of` (None: the prediction), in the order of the
        explanation: largest effect first. What is not in the sum has no map."""
        weights = self.head.coef[self._class(of)]
        terms = weights * self.codes
        order = sorted(np.flatnonzero(weights), key=lambda row: (-abs(terms[row]), self.concepts[row]))
        return tuple(self.contribution_map(self.concepts[row], of=of) for row in order)

    def class_map(self, of: Any = None) -> PatchMap:
        """Map of a class's logit: the sum of its contributions' maps; the bias is part of the rest."""
        number = self._class(of)
        return self._weighted(str(self.classes[number]), self.head.coef[number], self.head.intercept[number])

    def contrast_map(self, other: Any, *, of: Any = None) -> PatchMap:
        """Map of the contrast of the class `of` (None: the prediction) with `other`: the difference of their class
        maps."""
        mine, theirs = self._class(of), position(self.classes, other)
        name = f"{self.classes[mine]} rather than {self.classes[theirs]}"
        bias = self.head.intercept[mine] - self.head.intercept[theirs]
        return self._weighted(name, self.head.coef[mine] - self.head.coef[theirs], bias)

    def cover(self, box: tuple[float, float, float, float]) -> np.ndarray:
        """The share (rows, columns) of each patch that lies in a box (left, top, right, bottom), given as fractions of
        the picture."""
        left, top, right, bottom = (float(edge) for edge in box)
        if not (0.0 <= left < right <= 1.0 and 0.0 <= top < bottom <= 1.0):
            raise CCRError(
                f"a box is left, top, right, bottom as fractions of the picture with 0 <= left < right <= 1 and 0 <= "
                f"top < bottom <= 1, got {tuple(box)}: (0, 0, 0.5, 1) is the left half"
            )
        frame, (rows, columns) = self.frame, self.shape
        across = _overlap(left, right, frame.left, frame.right, columns)
        return np.outer(_overlap(top, bottom, frame.top, frame.bottom, rows), across)

    def concepts_in(
        self, box: tuple[float, float, float, float], *, of: Any = None, top: int | None = None
    ) -> tuple[RegionConcept, ...]:
        """The active concepts whose code comes from a box (left, top, right, bottom; fractions of the picture), most of
        it first; those to which the box adds nothing, or less, are left out."""
        cover, weights = self.cover(box), self.head.coef[self._class(of)]
        shares = []
        for row, concept in enumerate(self.concepts):
            sign, code = float(np.sign(self.codes[row])), float(self.codes[row])
            upward = self.maps[row] * sign
            inside, positive = float((upward * cover).sum()), np.maximum(upward, 0.0)
            if inside > 0.0:
                share, signed = float((positive * cover).sum() / positive.sum()), inside * sign
                shares.append(RegionConcept(concept, signed, code, share, signed * float(weights[row]) + 0.0))
        return tuple(sorted(shares, key=lambda item: (-abs(item.inside), item.concept))[:top])

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """Plain types only, ready for JSON: the maps of the `top` largest contributions, and of the class."""
        return {
            "way": self.way,
            "frame": list(self.frame),
            "rows": self.shape[0],
            "columns": self.shape[1],
            "contributions": [item.to_dict() for item in self.contributions()[:top]],
            "class": self.class_map().to_dict(),
        }

    def _weighted(self, name: str, weights: np.ndarray, bias: float | None = None) -> PatchMap:
        rest = {part: float(values @ weights) for part, values in self.rest.items()}
        if bias is not None:
            rest["bias"] = float(bias)
        total = float(weights @ self.codes) + (0.0 if bias is None else float(bias))
        return PatchMap(name, np.tensordot(weights, self.maps, axes=1), rest, total)

    def _row(self, concept: str) -> int:
        if concept not in self.concepts:
            if concept and self.concepts:
                raise unknown_concept(concept, self.concepts)
            raise CCRError(f"{concept!r} is not active in this image: there is a map only for what is in the sum")
        return self.concepts.index(concept)

    def _class(self, of: Any) -> int:
        return position(self.classes, self.prediction if of is None else of)


def located(explanation: Explanation, readouts: Readouts, patches: PatchTerms) -> Explanation:
    """The explanation with `where`: its codes, which `readouts` give, split over the patches of the picture."""
    maps = np.moveaxis(patches.terms.astype(np.float64) @ readouts.directions.T, 2, 0)
    rest = {name: readouts.directions @ part for name, part in patches.rest.items()}
    rest["mean"] = readouts.constants
    where = Where(
        concepts=explanation.active,
        codes=explanation.codes,
        maps=maps,
        rest=rest,
        frame=patches.frame,
        way=patches.way,
        classes=explanation.classes,
        head=explanation.head,
        prediction=explanation.prediction,
    )
    return replace(explanation, where=where)


def _overlap(start: float, stop: float, low: float, high: float, parts: int) -> np.ndarray:
    """The share (parts,) of each of equal parts of [low, high] that lies in [start, stop]."""
    edges = np.linspace(low, high, parts + 1)
    common = np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start)
    return np.asarray(np.maximum(common, 0.0) / (high - low) * parts)
