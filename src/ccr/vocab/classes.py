"""Class names to propose concepts for: of a text file, or of a store with its photos."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.vocab.read import read_concepts
from ccr.vocab.statistics import class_statistics

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
    found = class_statistics(train, train.y)
    rows = unit_rows(found.means - found.mean)
    photos = dict(zip(map(str, found.classes), rows, strict=True))
    return Classes([str(name) for name in found.classes], photos, grey_photos(train))


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
