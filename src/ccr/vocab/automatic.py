"""A list for a store that has none: proposed, cleared and chosen without a person or a service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder
from ccr.encoders.assets import Log
from ccr.errors import CCRError
from ccr.utils.progress import Tell, no_progress
from ccr.vocab.choose import choose
from ccr.vocab.classes import store_classes, training_part
from ccr.vocab.propose import Proposals, WordNet, reasoned_proposals
from ccr.vocab.read import embed_concepts
from ccr.vocab.statistics import class_statistics
from ccr.vocab.words import control_words

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
    wanted = size or min(LARGEST, max(SMALLEST, PER_CLASS * len(classes.names)))
    rows = choose_on(store, candidates, encoder, size=wanted, proposals=proposed, tell=tell)
    chosen = Proposals(tuple(proposed.items[row] for row in rows), proposed.leaks, proposed.unknown)
    return Automatic(candidates.subset(rows), chosen, proposed)


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
    words = control_words(CONTROL_WORDS, texts=_texts(candidates.names, found.classes))
    control = encoder.embed_texts(words)
    reasons = proposals.reasons([str(name) for name in found.classes])
    return choose(found, candidates.embeddings, size=size, control=control, reasons=reasons, tell=tell).rows


def _texts(*groups: Sequence[str] | np.ndarray) -> list[str]:
    return [str(text) for group in groups for text in group]
