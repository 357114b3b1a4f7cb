"""Controls of a fitted model: the same fit with random words and with random vectors in its concepts' place, and, of a
model with knowledge, with each concept's answers given to other classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.core.concepts import Concepts
from ccr.core.metrics import Interval, paired_bootstrap
from ccr.data.encoders import Encoder
from ccr.data.vocab import embed_concepts, random_words
from ccr.errors import CCRError
from ccr.models.classifier import ConceptClassifier
from ccr.models.part import Part, store_parts
from ccr.progress import Tell, no_progress

#: Under this name controls are noted with a model.
NOTED = "controls"


@dataclass(frozen=True)
class Control:
    """Accuracy in [0, 1] with meaningless concepts, and the meaning gap: how far the model is ahead, with its interval
    by a paired bootstrap over the images."""

    accuracy: float
    gap: float
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {"accuracy": self.accuracy, "gap": self.gap, "interval": list(self.interval)}


@dataclass(frozen=True)
class Controls:
    """What a model's accuracy on some images is without the meaning of its words."""

    images: int
    accuracy: float
    words: Control
    vectors: Control
    shuffled: Control | None = None

    @property
    def named(self) -> dict[str, Control]:
        """By what stands in the place of the concepts or of the knowledge."""
        more = {} if self.shuffled is None else {"shuffled knowledge": self.shuffled}
        return {"random words": self.words, "random vectors": self.vectors, **more}

    def to_dict(self) -> dict[str, Any]:
        """As it is noted with a model: `model.with_metrics("controls", controls.to_dict())`."""
        return {**{name: control.to_dict() for name, control in self.named.items()}, "images": self.images}


def measure_controls(
    model: ConceptClassifier, store: Any, encoder: Encoder, *, seed: int = 0, tell: Tell = no_progress
) -> Controls:
    """Fit as the model was fitted, on the store's training images, with as many random words and random vectors as it
    had concepts, and measure all three on the test images. These know nothing. A model with knowledge is also fitted
    with that knowledge shuffled: random answers help, too, so only what it is ahead of them shows that they are true.

    Parameters
    ----------
    model : fitted on this store.
    store : with the splits train and test; a split val chooses epochs, as in the fit.
    encoder : the model's, which embeds the words.
    seed : which words and vectors.
    tell : called as the fits go on.
    """
    fitted, parts = model.fitted(), store_parts(store, "measuring controls")
    if fitted.provenance.texts is None:
        raise CCRError("the model does not know its concepts' texts, so nothing can stand in their place: fit it again")
    fitted.images(store)  # refuses embeddings of another encoder
    given = [*fitted.names, *fitted.provenance.left_out]
    like = Concepts(given, np.ones((len(given), fitted.dimension)))
    words = random_words(len(given), seed=seed, exclude=[*given, *map(str, fitted.classes.tolist())])
    kinds = {"random words": embed_concepts(words, encoder), "random vectors": random_unit_concepts(like, seed=seed)}
    test = parts["test"]
    right = [fitted.predict(test.X) == test.y]
    for name, concepts in kinds.items():
        right.append(_fitted(model, concepts, parts, name, tell).predict(test.X) == test.y)
    if model.knowledge is not None:
        assert model.concepts is not None
        told = {"knowledge": model.knowledge.shuffled(seed), "claims": model.claims}
        shuffled = _fitted(model, model.concepts, parts, "shuffled knowledge", tell, **told)
        right.append(shuffled.predict(test.X) == test.y)
    scores = np.array(right, np.float64)
    _, apart = paired_bootstrap(scores)
    means = scores.mean(axis=1)
    controls = [
        Control(float(mean), float(means[0] - mean), found.turned())
        for mean, found in zip(means[1:], apart[1:], strict=True)
    ]
    return Controls(len(test.y), float(means[0]), *controls)


def _fitted(
    model: ConceptClassifier,
    concepts: Concepts,
    parts: Mapping[str, Part],
    name: str,
    tell: Tell,
    **known: Any,
) -> ConceptClassifier:
    """The same settings with other concepts, or knowledge; nothing is held out for certainty, which only the model
    needs."""
    settings = {**model.settings(), "coverage": None, "claims": "open", "min_transfer": None, **known}
    settings["random_state"] = 0 if settings["random_state"] is None else settings["random_state"]
    val = parts.get("val")
    return ConceptClassifier(concepts, **settings).fit(
        parts["train"].X,
        parts["train"].y,
        validation=None if val is None or not settings["validation_fraction"] else (val.X, val.y),
        callback=lambda epoch, epochs: tell(epoch.epoch, epochs, f"fitting with {name}"),
    )


def random_unit_concepts(concepts: Concepts, *, seed: int) -> Concepts:
    """As many isotropic random unit vectors as there are concepts, of their dimension, called "random 0", ..."""
    rows = np.random.default_rng(seed).normal(size=concepts.embeddings.shape)
    return Concepts([f"random {row}" for row in range(len(rows))], rows)
