"""Task: concepts, data and settings that every method of a comparison gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder
from ccr.errors import CCRError
from ccr.knowledge import Knowledge
from ccr.labels import Part, hold_out, store_parts
from ccr.refine.region import Claims, bound_text, chosen_radius
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import counted
from ccr.vocab import embed_concepts, random_words, read_concepts


@dataclass(frozen=True, eq=False)
class ComparisonTask:
    """Concepts, data and the length that all methods are matched at.

    Parameters
    ----------
    validation : Part or None
        None: a share of the training images is held out, another one for each seed.
    length : float
        Concepts per image, from 1 to the number of concepts.
    fidelity : float or None
        Least correlation in [0, 1] of CCR's concepts with their own texts.
    radius : float or None
        Instead, how far CCR may move a concept, in [0, 2]. Neither: as CCR does by itself.
    weights : int, "all", "auto" or None
        Weights per class of CCR, its baseline and its controls, at least 1; None: as CCR does by itself.
    center : None or "data"
        "data" measures images and concepts from their own means.
    max_iter : int or None
        Passes of CCR and its baseline over the data; None: as many as help.
    knowledge : Knowledge or None
        What is known of the classes: CCR and its baseline, in the ball too, use all of it, the other methods with
        concepts as a mask of their heads; stand-ins for the concepts use nothing.
    claims : "open" or "confirmed"
        What they may use of it.
    min_probability : float or None
        With answers about photos: CCR does not show what an image shows with a smaller probability.
    class_texts : Concepts or None
        The names of the classes, embedded: zero-shot needs them.
    random_words : Concepts or None
        As many embedded words as concepts, which have nothing to do with the images.
    """

    concepts: Concepts
    train: Part
    test: Part
    validation: Part | None = None
    length: float = 12.0
    fidelity: float | None = None
    radius: float | None = None
    weights: int | Literal["all", "auto"] | None = None
    candidates: float | None = None
    center: Any = "data"
    max_iter: int | None = None
    knowledge: Knowledge | None = None
    claims: Claims = "open"
    min_probability: float | None = None
    class_texts: Concepts | None = None
    random_words: Concepts | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.length <= len(self.concepts):
            raise CCRError(
                f"methods are compared at a length from 1 to the number of concepts, {len(self.concepts)}, "
                f"got {self.length:g}"
            )
        chosen_radius(self.radius, self.fidelity)
        unknown = np.setdiff1d(self.test.y, self.train.y)
        if len(unknown):
            raise CCRError(f"the test images have a class that the training images have not: {unknown[0].item()!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters that were asked for, of CCR, its baseline and its controls; the rest is theirs to choose."""
        bound = {"fidelity": self.fidelity, "radius": self.radius}
        asked: dict[str, Any] = {name: value for name, value in bound.items() if value is not None}
        if self.weights is not None:
            asked["weights_per_class"] = None if self.weights == "all" else self.weights
        if self.candidates is not None:
            asked["candidates"] = self.candidates
        return asked

    @property
    def informed(self) -> dict[str, Any]:
        """Parameters of CCR and its baseline about knowledge."""
        if self.knowledge is None:
            return {}
        least = {} if self.min_probability is None else {"min_probability": self.min_probability}
        return {"knowledge": self.knowledge, "claims": self.claims, **least}

    @property
    def described(self) -> str:
        """The settings of CCR, its baseline and its controls, in words."""
        weights = [] if self.weights is None else [f"{counted(self.weights, 'weight')} per class"]
        weights += [] if self.candidates is None else [f"chosen among {self.candidates:g} times as many"]
        known = [] if self.knowledge is None else [f"knowledge {self.knowledge.digest}, {self.claims} claims"]
        return ", ".join([bound_text(self.settings), *weights, *known])

    def split(self, seed: int) -> tuple[Part, Part]:
        """Training and validation images for this seed."""
        if self.validation is not None:
            return self.train, self.validation
        return hold_out(self.train, seed=seed)


def store_task(
    store: EmbeddingStore, concepts: Path, encoder: Encoder, *, tell: OnProgress = no_progress, **options: Any
) -> ComparisonTask:
    """The task of a store: its splits, the concepts of a file, and the texts that the controls need.

    `encoder` is the store's; `tell` hears how far the embedding is; `options` are further parameters of the
    `ComparisonTask`.
    """
    parts = store_parts(store, "a comparison")
    names, classes = read_concepts(concepts), [str(name) for name in store.classes]
    words = random_words(len(names), seed=0, exclude=[*names, *classes])
    return ComparisonTask(
        embed_concepts(names, encoder, tell=tell),
        train=parts["train"],
        test=parts["test"],
        validation=parts.get("val"),
        class_texts=embed_concepts(classes, encoder, tell=tell),
        random_words=embed_concepts(words, encoder, tell=tell),
        **options,
    )
