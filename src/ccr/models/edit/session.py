"""EditSession: edits of a fitted model, one after the other, each of which can be undone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from sklearn.base import clone

from ccr.core.coding import apply_rule
from ccr.core.concepts import Concepts
from ccr.core.explain.terms import plain
from ccr.core.heads import LinearHead
from ccr.core.inputs import Embeddings
from ccr.core.refine import Training
from ccr.errors import CCRError
from ccr.models.edit import changes
from ccr.models.edit.changes import State
from ccr.models.edit.effect import EditEffect, edit_effect
from ccr.models.edit.log import Edit, fixed_weights
from ccr.models.edit.refit import refit_head
from ccr.models.fitted import Fitted
from ccr.models.labels import Labels, training_weights

#: Arguments of edits that name a concept.
CONCEPT_NAMES = {"concept", "to", "first", "second", "name"}


class TextEncoder(Protocol):
    """What adding a concept by text needs of an encoder."""

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray: ...


class EditSession:
    """Edits of one fitted model, which itself is never changed; `model()` gives the edited one.

    Every edit returns the session, so that edits can be chained: `model.edit().suppress("grass").refit(X, y)`.
    An edit that is refused changes nothing.
    """

    def __init__(self, model: Any) -> None:
        fitted: Fitted = model._fitted
        texts = model.concepts
        if not isinstance(texts, Concepts) or texts.names != fitted.refined.names:
            raise CCRError("the model's concepts are not those it was fitted with: edit it before set_params, or refit")
        self._original = model
        self._states = [State(fitted, texts)]
        self._log: list[Edit] = []

    def __len__(self) -> int:
        return len(self._log)

    def __repr__(self) -> str:
        return f"EditSession({len(self)} edits, {len(self.concepts)} concepts)"

    @property
    def log(self) -> tuple[Edit, ...]:
        """This session's edits, oldest first; those of earlier sessions are in the model's `edits_`."""
        return tuple(self._log)

    @property
    def concepts(self) -> Concepts:
        """The concepts as they are now."""
        return self._states[-1].fitted.refined

    def suppress(self, concept: str) -> EditSession:
        """Take the concept away: no prediction uses or shows it any more."""
        return self._do(changes.suppress(self._now, concept), "suppress", concept=concept)

    def scale(self, concept: str, factor: float) -> EditSession:
        """Multiply the concept's weights by `factor`: 0.5 halves what it contributes, -1 turns it round."""
        return self._do(changes.scale(self._now, concept, factor), "scale", concept=concept, factor=factor)

    def rename(self, concept: str, to: str) -> EditSession:
        """Give the concept another name; predictions stay."""
        return self._do(changes.rename(self._now, concept, to), "rename", concept=concept, to=to)

    def pin(self, concept: str) -> EditSession:
        """Put the concept back to where it was before refinement."""
        return self._do(changes.pin(self._now, concept), "pin", concept=concept)

    def set_weight(self, concept: str, name: Any, value: float) -> EditSession:
        """Set the concept's weight for the class `name`; `refit` leaves it as set."""
        state = changes.set_weight(self._now, concept, name, value)
        return self._do(state, "set_weight", concept=concept, **{"class": name}, value=value)

    def zero_weight(self, concept: str, name: Any) -> EditSession:
        """Make the concept say nothing about the class `name`; `refit` leaves it so."""
        state = changes.set_weight(self._now, concept, name, 0.0)
        return self._do(state, "zero_weight", concept=concept, **{"class": name})

    def add(
        self,
        name: str,
        embedding: Any = None,
        *,
        encoder: TextEncoder | None = None,
        text: str | None = None,
        weights: Mapping[Any, float] | None = None,
    ) -> EditSession:
        """Add a concept: its text embedding (d,), or an `encoder` that embeds its `text` (by default the name).

        It contributes nothing until it has `weights` ({class: weight}), or the head is refitted.
        """
        weights = dict(weights or {})
        if embedding is None:
            embedding = self._embed(name if text is None else text, encoder)
        state = changes.add(self._now, name, embedding, weights)
        return self._do(state, "add", name=name, text=text, embedded=encoder is not None, weights=weights)

    def merge(self, first: str, second: str, *, name: str | None = None) -> EditSession:
        """Make two concepts one, halfway between them, called `name` (by default the first one's)."""
        return self._do(changes.merge(self._now, first, second, name), "merge", first=first, second=second, name=name)

    def refit(self, X: Any, y: Any = None, *, alpha: float | None = None) -> EditSession:
        """Fit the head alone to (X, y), with the concepts as they are now; weights that were set stay.

        `alpha` is the penalty on squared weights for codes of size 1; None is the model's own.
        """
        fitted, model = self._now.fitted, self._original
        embeddings: Embeddings = model._read(X)
        truth = model._known_labels(getattr(X, "y", None) if y is None else y, len(embeddings))
        numbers = np.searchsorted(fitted.classes, truth).astype(np.int64)
        strength = Training(alpha=model.alpha if alpha is None else alpha).penalty(len(numbers))
        fixed = sorted((number, fitted.refined.index(concept)) for concept, number in self._fixed())
        head = refit_head(
            apply_rule(fitted.rule, embeddings, fitted.refined.embeddings),
            numbers,
            LinearHead(fitted.coef, fitted.intercept),
            alpha=strength,
            weight=self._weights(numbers),
            fixed=fixed,
        )
        state = changes.with_head(self._now, head.coef, head.intercept)
        return self._do(state, "refit", images=len(numbers), alpha=strength, fixed=len(fixed))

    def undo(self, steps: int = 1) -> EditSession:
        """Take back the last edits; after all of them the model is the original, bit for bit."""
        if not 1 <= steps <= len(self._log):
            raise CCRError(f"there are {len(self._log)} edits to undo, got {steps}")
        del self._states[-steps:], self._log[-steps:]
        return self

    def model(self) -> Any:
        """The edited model, a new one of the original's kind; its `edits_` end with this session's."""
        parameters = {**self._original.get_params(deep=False), "concepts": None}
        # Copies: changing the edited model's coder must not change the original's.
        edited = type(self._original)(**{name: clone(value, safe=False) for name, value in parameters.items()})
        edited.concepts = self._now.texts
        fitted = self._now.fitted
        edited._adopt(replace(fitted, edits=self._history(), metrics=copy.deepcopy(fitted.metrics)))
        return edited

    def effect(self, X: Any, y: Any = None) -> EditEffect:
        """Accuracy before and after the edits on (X, y), in all and by class."""
        truth = self._original._known_labels(getattr(X, "y", None) if y is None else y, len(self._original._read(X)))
        return edit_effect(truth, self._original.predict(X), self.model().predict(X))

    @property
    def _now(self) -> State:
        return self._states[-1]

    def _history(self) -> tuple[dict[str, Any], ...]:
        """All edits since the model was fitted, of earlier sessions too."""
        return self._now.fitted.edits + tuple(edit.to_dict() for edit in self._log)

    def _fixed(self) -> set[tuple[str, int]]:
        return fixed_weights(self._history(), self._now.fitted.classes.tolist())

    def _do(self, state: State, action: str, **arguments: Any) -> EditSession:
        said = {key: plain(value) for key, value in arguments.items() if value is not None}
        # Concepts are known without the spaces around their names.
        said |= {key: said[key].strip() for key in CONCEPT_NAMES & said.keys()}
        self._states.append(state)
        self._log.append(Edit(action, said))
        return self

    def _embed(self, text: str, encoder: TextEncoder | None) -> np.ndarray:
        if encoder is None:
            raise CCRError(
                f"adding {text!r} needs its text embedding, or the encoder to make it: add(name, encoder=...)"
            )
        theirs, ours = getattr(encoder, "fingerprint", None), self._now.fitted.encoder_fingerprint
        if theirs is not None and ours is not None and theirs != ours:
            raise CCRError(
                f"this model reads embeddings of encoder {ours}, got encoder {theirs}: use the model's encoder"
            )
        return np.asarray(encoder.embed_texts([text]))

    def _weights(self, numbers: np.ndarray) -> np.ndarray | None:
        present, y = np.unique(numbers, return_inverse=True)
        class_weight = self._original.class_weight
        labels = Labels(self._now.fitted.classes[present], y)
        if isinstance(class_weight, Mapping):  # scikit-learn refuses weights of classes that are not there
            class_weight = {label: w for label, w in class_weight.items() if label in set(labels.classes.tolist())}
        return training_weights(labels, class_weight=class_weight, sample_weight=None)
