"""What the bench shows of how a model was fitted."""

from __future__ import annotations

from typing import Any

from ccr.coding.coders import usual_length
from ccr.explain.terms import plain
from ccr.model import ConceptModel
from ccr.refine.region import chosen_fidelity


def settings_of(model: ConceptModel) -> dict[str, Any]:
    """Length or threshold, fidelity or radius, and weights per class, in plain types."""
    settings, coder = model.provenance.settings, model.provenance.settings.get("coder")
    radius = settings.get("radius")
    return {
        "length": plain(_usual(model) if coder is None else getattr(coder, "length", None)),
        "threshold": plain(getattr(coder, "threshold", None)),
        "fidelity": plain(chosen_fidelity(radius, settings.get("fidelity"))),
        "radius": plain(radius),
        "weights_per_class": plain(settings.get("weights_per_class")),
    }


def _usual(model: ConceptModel) -> float:
    """The length of a model for which none was asked."""
    return float(usual_length(len(model.names) + len(model.provenance.left_out)))
