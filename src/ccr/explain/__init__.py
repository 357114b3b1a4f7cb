"""Why, and what if: one prediction, classes, the whole model, and how far its concepts drifted."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccr.explain.contrast import (
        ComparedConcept,
        Comparison,
        MissingConcept,
        Mistake,
        Question,
        compare,
        settling_question,
    )
    from ccr.explain.counterfactual import (
        CodeChange,
        Counterfactual,
        Intervention,
        InterventionCurve,
        Order,
        Shift,
        intervention_curve,
    )
    from ccr.explain.drift import Audit, ConceptDrift, Neighbour, audit
    from ccr.explain.explanation import Explanation, Explanations, explain
    from ccr.explain.terms import Contrast, Contribution
    from ccr.explain.views import (
        CarryingConcept,
        ClassView,
        Coactivation,
        CoactivationOrder,
        ConceptUse,
        Confusion,
        ImageActivation,
        ModelView,
        SeparatingConcept,
        coactivation,
        top_images,
        view_codes,
    )
    from ccr.explain.where import WAYS, Frame, PatchMap, PatchTerms, RegionConcept, Way, Where, located

__all__ = [
    "WAYS",
    "Audit",
    "CarryingConcept",
    "ClassView",
    "Coactivation",
    "CoactivationOrder",
    "CodeChange",
    "ComparedConcept",
    "Comparison",
    "ConceptDrift",
    "ConceptUse",
    "Confusion",
    "Contrast",
    "Contribution",
    "Counterfactual",
    "Explanation",
    "Explanations",
    "Frame",
    "ImageActivation",
    "Intervention",
    "InterventionCurve",
    "MissingConcept",
    "Mistake",
    "ModelView",
    "Neighbour",
    "Order",
    "PatchMap",
    "PatchTerms",
    "Question",
    "RegionConcept",
    "SeparatingConcept",
    "Shift",
    "Way",
    "Where",
    "audit",
    "coactivation",
    "compare",
    "explain",
    "intervention_curve",
    "located",
    "settling_question",
    "top_images",
    "view_codes",
]

_HOMES = {
    "WAYS": "where",
    "Audit": "drift",
    "CarryingConcept": "views",
    "ClassView": "views",
    "Coactivation": "views",
    "CoactivationOrder": "views",
    "CodeChange": "counterfactual",
    "ComparedConcept": "contrast",
    "Comparison": "contrast",
    "ConceptDrift": "drift",
    "ConceptUse": "views",
    "Confusion": "views",
    "Contrast": "terms",
    "Contribution": "terms",
    "Counterfactual": "counterfactual",
    "Explanation": "explanation",
    "Explanations": "explanation",
    "Frame": "where",
    "ImageActivation": "views",
    "Intervention": "counterfactual",
    "InterventionCurve": "counterfactual",
    "MissingConcept": "contrast",
    "Mistake": "contrast",
    "ModelView": "views",
    "Neighbour": "drift",
    "Order": "counterfactual",
    "PatchMap": "where",
    "PatchTerms": "where",
    "Question": "contrast",
    "RegionConcept": "where",
    "SeparatingConcept": "views",
    "Shift": "counterfactual",
    "Way": "where",
    "Where": "where",
    "audit": "drift",
    "coactivation": "views",
    "compare": "contrast",
    "explain": "explanation",
    "intervention_curve": "counterfactual",
    "located": "where",
    "settling_question": "contrast",
    "top_images": "views",
    "view_codes": "views",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: the light runtime needs the terms of a sum without all that can be asked about them.
    if name in _HOMES:
        return getattr(import_module(f"ccr.explain.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ccr.explain' has no attribute {name!r}")
