"""SeenModel: one frozen model on all photos, as columns that filters, sorts and counts read."""

from __future__ import annotations

import hashlib
import threading
from copy import copy
from functools import cached_property

import numpy as np
import torch
from scipy import sparse

from ccr.coding import ThresholdRule, TopRule, apply_rule
from ccr.edit import texts_of
from ccr.errors import CCRError
from ccr.explain import Audit, Explanation, ModelView, explain, view_codes
from ccr.inputs import CHUNK_VALUES, Embeddings
from ccr.io.provenance import whole_list
from ccr.knowledge.shown import of_photos
from ccr.metrics import fidelity
from ccr.model import ConceptModel
from ccr.space import Space
from ccr.utils.texts import did_you_mean
from ccr_studio.cache import Recent
from ccr_studio.photos import Photos

#: Up to this many bytes the photos are kept in the model's space; beyond, they are read again for every question.
RESIDENT = 4 << 30
#: Spaces whose photos are kept, and columns of scores for sorting.
KEPT_SPACES, KEPT_SCORES = 2, 48
#: Photos on which the fidelity of edited concepts is measured.
FIDELITY_ROWS = 16_384
#: Photos whose gained and lost pictures an audit names.
DRIFTED = 12


class PlacedPhotos:
    """The photos in the space of a model, prepared once for all models that share it."""

    def __init__(self, photos: Photos) -> None:
        self.photos = photos
        self._lock = threading.Lock()
        self._kept: Recent[str, Embeddings] = Recent(KEPT_SPACES)

    def in_space(self, model: ConceptModel) -> Embeddings:
        """All photos as unit rows of the model's space; another encoder's are refused."""
        lazy, key = model.images(self.photos.store), _space_key(model.space)
        if lazy.shape[0] * lazy.shape[1] * 4 > RESIDENT:
            return lazy
        with self._lock:  # of two models that need the same, one prepares it
            known = self._kept.get(key)
            return self._kept.put(key, Embeddings.ready(_together(lazy))) if known is None else known


class SeenModel:
    """A model, the `version` that every answer names, and what it says of every photo. Never changed.

    `truth` and `predicted` (m,) are class numbers, -1 where a label is missing or unknown to the model; `confidence`
    (m,) is the probability of the prediction; `codes` (m, n) CSR.
    """

    def __init__(
        self, model: ConceptModel, version: str, placed: PlacedPhotos, *, like: SeenModel | None = None
    ) -> None:
        self.model, self.version, self.photos = model, version, placed.photos
        self.classes = tuple(str(name) for name in model.classes.tolist())
        self.images = placed.in_space(model)
        self.truth = self._truth()
        same = like is not None and _same_codes(like.model, model)
        self.codes: sparse.csr_matrix = (
            like.codes if like and same else apply_rule(model.rule, self.images, model.concepts.embeddings)
        )
        self.predicted, self.confidence = self._predictions()
        self.right = self.predicted == self.truth
        self._scores: Recent[int, np.ndarray] = Recent(KEPT_SCORES)
        self._slow = threading.Lock()

    @cached_property
    def by_concept(self) -> sparse.csc_matrix:
        """The codes by column."""
        return self.codes.tocsc()

    @cached_property
    def fit_digest(self) -> str:
        """A digest of what a refit on these photos depends on: settings, knowledge, the list, photos and labels."""
        origin, rows = self.model.provenance, self.rows("shown")
        digest = hashlib.sha256(repr(sorted(origin.settings.items(), key=str)).encode())
        digest.update(("" if origin.knowledge is None else origin.knowledge.digest).encode())
        texts = whole_list(origin)
        if texts is not None:
            digest.update("\0".join(texts.names).encode(errors="surrogatepass"))
            digest.update(np.ascontiguousarray(texts.embeddings).tobytes())
        for numbers in (rows, self.truth[rows]):
            digest.update(np.ascontiguousarray(numbers).tobytes())
        return digest.hexdigest()[:24]

    def predicting(self, rows: np.ndarray, predicted: np.ndarray, confidence: np.ndarray) -> SeenModel:
        """The same with other predictions of these rows, such as those of refits that have not seen the photos."""
        other = copy(self)
        other.predicted, other.confidence = self.predicted.copy(), self.confidence.copy()
        other.predicted[rows], other.confidence[rows] = predicted, confidence
        other.right = other.predicted == other.truth
        return other

    def threshold(self, concept: str | None = None) -> float | None:
        """The score from which on a photo shows a concept, where the coder has one: that of this concept, or, without a
        name, of all of them if it is the same."""
        rule = self.model.rule
        if not isinstance(rule, ThresholdRule) or (concept is None and rule.factors is not None):
            return None
        return float(rule.bounds[self.model.row(concept)]) if rule.factors and concept else float(rule.threshold)

    def values(self, concept: str) -> np.ndarray:
        """Strength with which each photo (m,) shows the concept: its score, or where codes are no scores, its code."""
        column = self.model.row(concept)
        known = self._scores.get(column)
        return self._scores.put(column, self._values(column)) if known is None else known

    def scores(self, direction: np.ndarray) -> np.ndarray:
        """Products (m,) of all photos with a unit direction (d,) of the model's space."""
        row = torch.from_numpy(np.array(direction, np.float32))
        return np.concatenate([(chunk @ row).numpy() for chunk in self._chunks()])

    def explain(self, row: int) -> Explanation:
        """Explanation of the prediction of a photo."""
        model = self.model
        classes = model.classes.tolist()
        return explain(
            self.codes[row],
            model.head,
            concepts=model.names,
            classes=classes,
            answers=model.confirmed,
            shown=of_photos(model.shown),
        )

    def number(self, name: str) -> int:
        """The number of a class; one that the model does not know is refused."""
        if name not in self.classes:
            raise CCRError(f"no class is called {name!r}{did_you_mean(name, self.classes)}")
        return self.classes.index(name)

    def rows(self, scope: str) -> np.ndarray:
        """Labelled rows of a scope: validation, train, test, or shown (all but test)."""
        photos = self.photos
        rows = {"validation": photos.validation, "train": photos.training, "test": photos.test}.get(scope)
        if scope == "shown":
            rows = np.flatnonzero(photos.open)
        if rows is None:
            raise CCRError(f"mistakes are counted on validation, train, test or shown photos, got {scope!r}")
        return rows[self.truth[rows] >= 0]

    def view(self) -> ModelView:
        """Concepts that carry each class, measured on the photos outside the test split."""
        with self._slow:
            return self._view

    def fidelity(self) -> np.ndarray:
        """The fidelity (n,) of each concept to its own words: as the fit measured it, or, once concepts were edited,
        on a sample of the training photos; NaN where it is not known."""
        with self._slow:
            return self._fidelity

    def audit(self) -> Audit:
        """Do concepts still see what their texts see? On the photos that are shown unasked."""
        with self._slow:
            return self._audit

    @cached_property
    def _view(self) -> ModelView:
        rows = np.flatnonzero(self.photos.open & (self.truth >= 0))
        truth: np.ndarray | None = self.truth[rows]
        if not len(rows):
            rows, truth = np.flatnonzero(self.photos.open), None
        return view_codes(
            [self.codes[rows]],
            self.model.head,
            concepts=self.model.names,
            classes=self.model.classes.tolist(),
            y=truth,
        )

    @cached_property
    def _fidelity(self) -> np.ndarray:
        known, model = self.model.provenance.fidelity, self.model
        if known is not None:
            return np.asarray(known, np.float64)
        texts = model.space.own_texts(texts_of(model).embeddings)
        origins = texts if model.provenance.knowledge is None else model.initial.embeddings
        rows = self.photos.training if len(self.photos.training) > 1 else np.flatnonzero(self.photos.open)
        some = rows[np.linspace(0, len(rows) - 1, min(FIDELITY_ROWS, len(rows))).astype(np.int64)]
        return fidelity(Embeddings.ready(self.images.take(some)), model.concepts.embeddings, origins)

    @cached_property
    def _audit(self) -> Audit:
        return self.model.audit(self.photos.store.select(rows=self.photos.open), images=DRIFTED)

    def _values(self, column: int) -> np.ndarray:
        if isinstance(self.model.rule, (ThresholdRule, TopRule)):
            return self.scores(self.model.concepts.embeddings[column])
        return np.asarray(self.by_concept[:, [column]].todense(), np.float32).ravel()

    def _chunks(self) -> list[torch.Tensor]:
        prepared = self.images.prepared
        return [prepared] if prepared is not None else list(self.images.chunks())

    def _truth(self) -> np.ndarray:
        known = {name: number for number, name in enumerate(self.classes)}
        numbers = np.array([known.get(label, -1) for label in self.photos.vocabulary], np.int32)
        return numbers[self.photos.label]

    def _predictions(self) -> tuple[np.ndarray, np.ndarray]:
        m = self.codes.shape[0]
        predicted, confidence = np.empty(m, np.int32), np.empty(m, np.float32)
        size = max(1, CHUNK_VALUES // max(1, len(self.classes)))
        for start in range(0, m, size):
            part = slice(start, start + size)
            logits = self.model.head.logits(self.codes[part]).astype(np.float64)
            largest = logits.max(axis=1)
            predicted[part] = logits.argmax(axis=1)
            confidence[part] = 1.0 / np.exp(logits - largest[:, None]).sum(axis=1)
        return predicted, confidence


def _together(lazy: Embeddings) -> torch.Tensor:
    """All rows (m, d) in one place; no chunk is held beside them."""
    rows, at = torch.empty(lazy.shape, dtype=torch.float32), 0
    for chunk in lazy.chunks():
        rows[at : at + len(chunk)] = chunk
        at += len(chunk)
    return rows


def _same_codes(one: ConceptModel, other: ConceptModel) -> bool:
    """Whether two models give every image the same code."""
    return (
        one.rule == other.rule
        and np.array_equal(one.concepts.embeddings, other.concepts.embeddings)
        and _space_key(one.space) == _space_key(other.space)
    )


def _space_key(space: Space) -> str:
    """Digest of the transform that puts images into the model's space: their mean, and the whitening."""
    digest = hashlib.sha256()
    for part in (space.image_mean, None if space.metric is None else space.metric.whiten):
        digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
