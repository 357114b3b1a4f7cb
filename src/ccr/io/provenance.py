"""Provenance of a model: settings, training, knowledge and edits; and its signature, once every claim is confirmed."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr.concepts import Concepts, stored_concepts
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.explain.claims import ClaimEvidence
from ccr.explain.terms import PlainResult, plain, plain_fields
from ccr.geometry import ConeWidening
from ccr.knowledge import Knowledge
from ccr.knowledge.grounding import Groups
from ccr.labels import store_part
from ccr.metrics import Fidelity, retention
from ccr.refine.options import Epoch
from ccr.utils.texts import check_name

if TYPE_CHECKING:
    from ccr.refine.measure import Refinement


@dataclass(frozen=True, eq=False)
class Provenance:
    """Provenance of a fitted model: its settings, data, training, edits and knowledge. Predictions do not need it.

    Parameters
    ----------
    settings : the estimator's hyperparameters, without its concepts.
    texts : the concepts as they were embedded, before centring and dispersion; None for methods without concepts.
    encoder, encoder_fingerprint : of the store that the model was fitted on; None where X did not say.
    history, best_epoch : of the training.
    engine, stopped : which engine took the steps, and why it stopped; None for models of older versions.
    metrics : measurements by name, such as "training" and "test", in JSON types.
    edits : what was changed by hand since `fit`, oldest first, in JSON types.
    fidelity : (n,), of each concept on the training images; None for models of older versions and those whose concepts
        were edited, but for their names.
    left_out : names of the concepts that a sparse head gave no weight, and that are not in the model.
    left_out_texts, left_out_places : (k, d), their text embeddings, and (k,), how many of the model's concepts stood
        before each in the list; None for models of older versions.
    knowledge : what the model was fitted with; None: nothing.
    transfer : of every concept of the list by name, NaN where it could not be measured; None without knowledge.
    groups : means of the classes' training images in the model's space, with which concepts that are added later are
        grounded; None without knowledge.
    seen : what training images say of the model's claims; None for models of older versions and edited ones.
    """

    settings: Mapping[str, Any]
    texts: Concepts | None = None
    encoder: str | None = None
    encoder_fingerprint: str | None = None
    history: tuple[Epoch, ...] = ()
    best_epoch: int = 0
    engine: str | None = None
    stopped: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[Mapping[str, Any], ...] = ()
    fidelity: np.ndarray | None = None
    left_out: tuple[str, ...] = ()
    left_out_texts: np.ndarray | None = None
    left_out_places: np.ndarray | None = None
    knowledge: Knowledge | None = None
    transfer: Mapping[str, float] | None = None
    groups: Groups | None = None
    seen: ClaimEvidence | None = None

    @property
    def epochs(self) -> int:
        """Epochs of the training."""
        return len(self.history)


def encoder_of(X: Any) -> dict[str, Any]:
    """Encoder of a store X and its fingerprint, None for any other X: two fields of a `Provenance`."""
    return {"encoder": store_part(X, "encoder"), "encoder_fingerprint": store_part(X, "fingerprint")}


def training_facts(result: Refinement, initial: Concepts, *, fidelity: np.ndarray) -> dict[str, Any]:
    """Facts about training, as fields of a `Provenance`. A model whose codes are all empty gets a warning.

    `initial` are the concepts that are left, where refinement started; `fidelity` (n,) is theirs.
    """
    kept = asdict(result.history[result.best_epoch - 1])
    if kept["length"] == 0.0:
        warnings.warn(
            f"threshold {result.rule.threshold:g} leaves every code empty, so that all predictions come from the bias: "
            "lower it, or ask for a length, such as HardThreshold(length=12)",
            CCRWarning,
            stacklevel=4,
        )
    kept |= {"retention": retention(result.dictionary, initial), "fidelity": Fidelity.of(fidelity).mean}
    return {
        "history": result.history,
        "best_epoch": result.best_epoch,
        "engine": result.engine,
        "stopped": result.stopped,
        "fidelity": fidelity,
        "metrics": {"training": {name: None if math.isnan(value) else value for name, value in kept.items()}},
    }


_TEXTS = ("by", "at", "policy", "without", "digest")
_PARTS = ("class", "concept", "by", "at", "source", "reason")
_DAMAGED = "the model's signature is damaged: the file was changed after it was saved; sign it again"


@dataclass(frozen=True)
class Statement(PlainResult):
    """A decision on "the class `label` shows `concept`": by whom, when, and for a no the reason."""

    label: str
    concept: str
    by: str
    at: str = ""
    source: str = "person"
    reason: str = ""


@dataclass(frozen=True)
class Signature:
    """A review that left no claim open.

    Parameters
    ----------
    by, at : who signed, and when (ISO 8601).
    policy : how many reviewers had to agree on a claim.
    may : what the model may say: every claim that it makes, all confirmed.
    never : what it may never say: what was rejected.
    against : (class, concept) of its negative weights, which say what speaks against a class; no reviewer was asked.
    without : the class that it predicts for an image that shows no concept.
    digest : of the model and of all of the above; it does not fit a model that was changed since.
    """

    by: str
    at: str
    policy: str
    may: tuple[Statement, ...]
    never: tuple[Statement, ...]
    against: tuple[tuple[str, str], ...]
    without: str
    digest: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        lists = {name: plain(getattr(self, name)) for name in ("may", "never", "against")}
        texts = {name: getattr(self, name) for name in _TEXTS if name != "digest"}
        return {**texts, **lists, "digest": self.digest}

    @classmethod
    def from_dict(cls, fields: Any) -> Signature | None:
        """The signature that `to_dict` wrote; None where there is none."""
        if fields is None:
            return None
        try:
            by, at, policy, without, digest = (_text(fields[name]) for name in _TEXTS)
            may, never = (
                tuple(Statement(*(_text(entry[part]) for part in _PARTS)) for entry in fields[name])
                for name in ("may", "never")
            )
            against = tuple((_text(label), _text(concept)) for label, concept in fields["against"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(_DAMAGED) from error
        return cls(by, at, policy, may, never, against, without, digest)

    def fitting(self, model: Any) -> str:
        """The digest that this signature has if it is of this model."""
        fields = {name: value for name, value in self.to_dict().items() if name != "digest"}
        return _hash([model.digest.encode(), json.dumps(fields, sort_keys=True).encode()])

    def fits(self, model: Any) -> bool:
        """Whether the model is the one that was signed."""
        return self.digest == self.fitting(model)


def model_digest(model: Any) -> str:
    """A fingerprint of a `ConceptModel`: encoder, space, concepts, rule, weights, classes, edits, what is known of
    classes and photos, and when it does not answer, everything that decides what it says; not of what was measured on
    it."""
    space, head, origin, shown, certainty = model.space, model.head, model.provenance, model.shown, model.calibration
    spread = space.dispersion
    axis = spread.axis if isinstance(spread, ConeWidening) else spread
    facts = {
        "names": list(model.names),
        "classes": model.classes.tolist(),
        "rule": {"type": type(model.rule).__name__, **plain_fields(model.rule)},
        "factor": float(spread.factor) if isinstance(spread, ConeWidening) else None,
        "edits": [dict(edit) for edit in origin.edits],
        "encoder": [origin.encoder, origin.encoder_fingerprint],
        "knowledge": None if origin.knowledge is None else origin.knowledge.digest,
        "shown": None if shown is None else [shown.source, shown.slope, shown.stated],
        "certainty": None if certainty is None else [certainty.coverage, certainty.least_probability],
    }
    arrays = [model.concepts.embeddings, head.coef, head.intercept, space.image_mean, space.concept_mean, axis]
    arrays += [None, None] if space.metric is None else list(space.metric)
    arrays += [None, None] if shown is None else [shown.intercepts, shown.by_class]
    arrays.append(None if certainty is None else certainty.typical)
    arrays += [None, None] if shown is None else [shown.intercepts, shown.by_class]
    arrays.append(None if certainty is None else certainty.typical)
    parts = [json.dumps(plain(facts), sort_keys=True).encode()]
    for array in arrays:
        if array is None:
            parts += [b"", b""]
        else:
            rows = np.ascontiguousarray(array)
            parts += [f"{rows.dtype} {rows.shape}".encode(), rows.tobytes()]
    return _hash(parts)


def signature_sentence(model: Any) -> str | None:
    """Sentence on a model's signature: who signed it, and whether it is still valid; None for an unsigned model."""
    signed: Signature | None = model.signature
    if signed is None:
        return None
    if not model.is_signed:
        return f"The signature of {signed.by} ({signed.at[:10]}) has ended: the model was changed since."
    claims = f"all {len(signed.may):,} claims confirmed, {len(signed.never):,} others rejected"
    return f"Signed by {signed.by} ({signed.at[:10]}): {claims}."


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CCRError(_DAMAGED)
    check_name(value, "a signature's text")
    return value


def _hash(parts: list[bytes]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.hexdigest()


# Concepts left out of the model because a sparse head gave them no weight; they are kept for the next fit.
def kept_concepts(concepts: Concepts, rows: np.ndarray) -> Concepts:
    """The concepts of these rows, bit for bit."""
    if len(rows) == len(concepts):
        return concepts
    return stored_concepts([concepts.names[row] for row in rows], concepts.embeddings[rows])


def left_out_facts(texts: Concepts, kept: np.ndarray) -> dict[str, Any]:
    """The texts that are not among these sorted rows: fields of a `Provenance`."""
    gone = np.setdiff1d(np.arange(len(texts)), kept)
    if not len(gone):
        return {}
    return {
        "left_out": tuple(texts.names[row] for row in gone),
        "left_out_texts": texts.embeddings[gone],
        "left_out_places": np.searchsorted(kept, gone),
    }


def left_out_text(origin: Provenance, name: str) -> np.ndarray | None:
    """The text embedding (d,) of a concept that was left out, if the model knows it."""
    if origin.left_out_texts is None or not isinstance(name, str) or name.strip() not in origin.left_out:
        return None
    return origin.left_out_texts[origin.left_out.index(name.strip())]


def without(origin: Provenance, names: Collection[str]) -> Provenance:
    """The same, where concepts of these names are left out no longer: they are in the model."""
    rows = [row for row, name in enumerate(origin.left_out) if name not in names]
    if len(rows) == len(origin.left_out):
        return origin
    texts, places = origin.left_out_texts, origin.left_out_places
    return replace(
        origin,
        left_out=tuple(origin.left_out[row] for row in rows),
        left_out_texts=texts[rows] if texts is not None and rows else None,
        left_out_places=places[rows] if places is not None and rows else None,
    )


def whole_list(origin: Provenance) -> Concepts | None:
    """The list that the model was fitted with, as it is after edits: the model's own concepts and, in their places,
    those that were left out. A model of an older version knows its own alone."""
    texts, others, places = origin.texts, origin.left_out_texts, origin.left_out_places
    if texts is None or others is None or places is None:
        return texts
    known = set(texts.names)
    back = [row for row, name in enumerate(origin.left_out) if name not in known]  # edited models may have both
    places = np.minimum(places[back], len(texts))
    names = np.insert(np.array(texts.names, object), places, [origin.left_out[row] for row in back])
    return stored_concepts(names.tolist(), np.insert(texts.embeddings, places, others[back], axis=0))
