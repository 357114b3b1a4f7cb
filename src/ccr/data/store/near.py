"""Near-duplicates: pictures that look the same although their files differ, found by a perceptual hash.

The hash is a difference hash: the picture in grey, shrunk to 9 x 8 and to 8 x 9 pixels, and for each pair of neighbours
whether it becomes brighter, to the right and downwards; 128 bits. On the demo's photos, copies that were compressed
again, halved, brightened by 15 % or trimmed by 2 % on each side differ in at most 17 bits, other photos in at least 34.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from ccr.data.store.store import EmbeddingStore

#: Pictures whose hashes differ in at most so many of the 128 bits look the same.
MOST_BITS = 20
#: A picture with fewer set bits is nearly of one colour: all such pictures would look the same.
LEAST_BITS = 8
#: Pairs of pictures that are compared at a time, and in all: of more, a sample of the measured images is compared.
AT_ONCE, MOST_PAIRS = 1 << 22, 10**10


@dataclass(frozen=True)
class NearCopy:
    """An image of a split that is measured on, and a training image that looks the same."""

    image: str
    split: str
    training_image: str
    bits: int


@dataclass(frozen=True)
class NearCopies:
    """Images outside the training split that look like a training image: `found` of `compared`, the first of them as
    `examples`, most alike first; alike means at most `most_bits` different bits of 128."""

    compared: int
    found: int
    most_bits: int
    examples: tuple[NearCopy, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {**asdict(self), "examples": [asdict(one) for one in self.examples]}


def look_of(image: Image.Image) -> str:
    """The perceptual hash of a picture as 32 hexadecimal digits."""
    grey = image.convert("L")
    across = np.asarray(grey.resize((9, 8), Image.Resampling.BOX), np.int16)
    down = np.asarray(grey.resize((8, 9), Image.Resampling.BOX), np.int16)
    bits = np.concatenate([(across[:, 1:] > across[:, :-1]).ravel(), (down[1:] > down[:-1]).ravel()])
    return np.packbits(bits).tobytes().hex()


def near_copies(store: EmbeddingStore, *, examples: int = 5) -> NearCopies | None:
    """Images of `test`, `val` and other splits that look like one of `train`; None for stores without hashes, which
    older versions made, or without both kinds of splits. Copies of the very same file are not counted."""
    looks, splits = store.looks, store.splits
    known = np.array([look is not None for look in looks], bool)
    train, measured = (np.flatnonzero(known & part) for part in (splits == "train", splits != "train"))
    if not len(train) or not len(measured):
        return None
    if len(train) * len(measured) > MOST_PAIRS:
        measured = np.random.default_rng(0).permutation(measured)[: max(1, MOST_PAIRS // len(train))]
    compared = len(measured)
    train, measured = (rows[_is_lively(_words(looks[rows]))] for rows in (train, measured))
    if not len(train) or not len(measured):
        return NearCopies(compared, 0, MOST_BITS, ())
    bits, nearest = _nearest(_words(looks[measured]), _words(looks[train]))
    alike, contents = bits <= MOST_BITS, store.contents
    alike &= contents[measured] != contents[train[nearest]]
    order = np.flatnonzero(alike)[np.argsort(bits[alike], kind="stable")]
    shown = tuple(
        NearCopy(
            str(store.paths[measured[at]]),
            str(splits[measured[at]]),
            str(store.paths[train[nearest[at]]]),
            int(bits[at]),
        )
        for at in order[:examples]
    )
    return NearCopies(compared, len(order), MOST_BITS, shown)


def _words(looks: np.ndarray) -> np.ndarray:
    """Hashes as two numbers each (m, 2)."""
    return np.array([np.frombuffer(bytes.fromhex(look), np.uint64) for look in looks]).reshape(len(looks), 2)


def _is_lively(hashes: np.ndarray) -> np.ndarray:
    return np.asarray(np.bitwise_count(hashes).sum(axis=1) >= LEAST_BITS)


def _nearest(hashes: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each hash (a, 2) the fewest different bits to one of the others (b, 2), and which one."""
    bits, nearest = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
    step = max(1, AT_ONCE // len(others))
    for start in range(0, len(hashes), step):
        part = hashes[start : start + step]
        apart = sum(np.bitwise_count(part[:, None, word] ^ others[None, :, word]) for word in (0, 1))
        nearest[start : start + step] = apart.argmin(axis=1)
        bits[start : start + step] = apart.min(axis=1)
    return bits, nearest
