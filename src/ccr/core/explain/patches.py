"""PatchTerms: an image's embedding as a sum over the patches of the picture, and a rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from ccr.errors import CCRError

#: How an embedding is split over patches: the encoder's own last layer, its values alone, or covering parts.
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
    apart = np.arange(size)[:, None] - np.arange(size)
    shares = np.exp(-0.5 * (apart / width) ** 2)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
