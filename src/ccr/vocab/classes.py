"""The classes of a text file or a store, and a list of concepts for a store that has none."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder
from ccr.encoders.assets import Log
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.utils.processes import Tell, no_progress
from ccr.vocab.choose import choose, class_statistics
from ccr.vocab.lists import control_words, embed_concepts, read_concepts
from ccr.vocab.proposals import Proposals, reasoned_proposals
from ccr.vocab.wordnet import WordNet

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


#: Concepts per class, and the smallest and largest list, where nobody says how many.
PER_CLASS, SMALLEST, LARGEST = 5, 64, 1024
#: Random words whose scores show how far those of words spread that have nothing to do with the images.
CONTROL_WORDS = 64


class Automatic(NamedTuple):
    """The chosen concepts, where they come from, and what was proposed."""

    concepts: Concepts
    chosen: Proposals
    proposed: Proposals


def automatic_concepts(
    store: EmbeddingStore,
    encoder: Encoder,
    *,
    size: int | None = None,
    log: Log | None = None,
    tell: Tell = no_progress,
) -> Automatic:
    """Concepts for the classes of a labelled store: WordNet and the generic list of their domains, chosen on training
    images.

    Parameters
    ----------
    encoder : the store's own.
    size : how many, from 1. None: five per class, from 64 to 1,024.
    """
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
    rows = choose_on(
        store, candidates, encoder, size=size or usual_size(len(classes.names)), proposals=proposed, tell=tell
    )
    chosen = Proposals(tuple(proposed.items[row] for row in rows), proposed.leaks, proposed.unknown)
    return Automatic(candidates.subset(rows), chosen, proposed)


def usual_size(classes: int) -> int:
    """Concepts of a list for so many classes, where nobody says how many."""
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
    found = class_statistics(train, train.y)
    if len(found.classes) < 2:
        raise CCRError(f"concepts are chosen to tell classes apart, but {store.path} has only {found.classes[0]!r}")
    words = control_words(CONTROL_WORDS, texts=[*candidates.names, *map(str, found.classes)])
    control = encoder.embed_texts(words)
    reasons = proposals.reasons([str(name) for name in found.classes])
    return choose(found, candidates.embeddings, size=size, control=control, reasons=reasons, tell=tell).rows
