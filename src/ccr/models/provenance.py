"""Provenance: where a fitted model comes from, and what was done to it since."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ccr.core.concepts import Concepts
from ccr.core.explain.claims import ClaimEvidence
from ccr.core.grounding import Groups
from ccr.core.knowledge import Knowledge
from ccr.core.metrics import Fidelity, retention
from ccr.core.refine import Epoch, Refinement
from ccr.errors import CCRWarning
from ccr.models.labels import store_part


@dataclass(frozen=True, eq=False)
class Provenance:
    """What a prediction does not need, but whoever asks about the model does.

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
    """Which encoder made X, if X is a store that says so: two fields of a `Provenance`."""
    return {"encoder": store_part(X, "encoder"), "encoder_fingerprint": store_part(X, "fingerprint")}


def training_facts(result: Refinement, initial: Concepts, *, fidelity: np.ndarray) -> dict[str, Any]:
    """How training went: fields of a `Provenance`. A model whose codes are all empty gets a warning.

    `initial` are the concepts that are left, where refinement started; `fidelity` (n,) is theirs.
    """
    kept = asdict(result.history[result.best_epoch - 1])
    if kept["length"] == 0.0:
        warnings.warn(
            f"threshold {result.rule.threshold:g} leaves every code empty, so that all predictions come from the bias: "
            "lower it, or ask for a length, such as HardThreshold(length=12)",
            CCRWarning,
            stacklevel=3,
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
