"""Co-activation: which concepts show up in the same images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from ccr.core.checks import is_number
from ccr.core.explain.terms import plain_fields
from ccr.errors import CCRError

CoactivationOrder = Literal["jaccard", "images", "lift"]
#: Codes are multiplied this many entries at a time: fewer products of sparse matrices, still little memory.
BATCH_ENTRIES = 2_000_000


@dataclass(frozen=True)
class Coactivation:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return plain_fields(self)


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
    counted = _count(chunks, len(concepts))
    pairs = counted.together.tocoo()
    keep = pairs.data >= min_images
    first, second, images = pairs.row[keep], pairs.col[keep], pairs.data[keep]
    jaccard = images / (counted.active[first] + counted.active[second] - images)
    lift = images * counted.m / (counted.active[first] * counted.active[second].astype(np.float64))
    value = {"jaccard": jaccard, "images": images, "lift": lift}[by]
    order = np.lexsort((second, first, -images, -value))[: int(top)]
    # (same - opposite) and (same + opposite) are known: half the ratio of their sum is the share of same.
    net = np.asarray(counted.signed[first[order], second[order]]).ravel() if len(order) else np.zeros(0)
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


class _Counts(NamedTuple):
    """Of m images: how many show each concept (n,), each pair (n, n), and with one sign minus with two."""

    m: int
    active: np.ndarray
    together: sparse.csr_matrix
    signed: sparse.csr_matrix


def _count(chunks: Iterable[sparse.csr_matrix], n: int) -> _Counts:
    together, signed = sparse.csr_matrix((n, n), dtype=np.int32), sparse.csr_matrix((n, n), dtype=np.int32)
    active, m = np.zeros(n, np.int64), 0
    for codes in _batches(chunks):
        signs = codes.copy()
        signs.data = np.sign(signs.data).astype(np.int32)
        signs.eliminate_zeros()
        shown = abs(signs)
        together = together + sparse.triu(shown.T @ shown, k=1, format="csr")
        signed = signed + sparse.triu(signs.T @ signs, k=1, format="csr")
        active += np.asarray(shown.sum(axis=0)).ravel()
        m += codes.shape[0]
    return _Counts(m, active, together, signed)


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
