"""Why, and what if: one prediction, classes, the whole model, and how far its concepts drifted."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccr.core.explain.comparison import ComparedConcept, Comparison, compare
    from ccr.core.explain.counterfactual import CodeChange, Counterfactual, Shift
    from ccr.core.explain.drift import Audit, ConceptDrift, Neighbour, audit
    from ccr.core.explain.explanation import Explanation, explain
    from ccr.core.explain.images import ImageActivation, top_images
    from ccr.core.explain.intervention import Intervention, InterventionCurve, Order, intervention_curve
    from ccr.core.explain.many import Explanations
    from ccr.core.explain.mistake import MissingConcept, Mistake
    from ccr.core.explain.pairs import Coactivation, CoactivationOrder, coactivation
    from ccr.core.explain.patches import WAYS, Frame, PatchTerms, Way
    from ccr.core.explain.question import Question, settling_question
    from ccr.core.explain.terms import Contrast, Contribution
    from ccr.core.explain.views import (
        CarryingConcept,
        ClassView,
        ConceptUse,
        Confusion,
        ModelView,
        SeparatingConcept,
        view_codes,
    )
    from ccr.core.explain.where import PatchMap, RegionConcept, Where, located

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
    "WAYS": "patches",
    "Audit": "drift",
    "CarryingConcept": "views",
    "ClassView": "views",
    "Coactivation": "pairs",
    "CoactivationOrder": "pairs",
    "CodeChange": "counterfactual",
    "ComparedConcept": "comparison",
    "Comparison": "comparison",
    "ConceptDrift": "drift",
    "ConceptUse": "views",
    "Confusion": "views",
    "Contrast": "terms",
    "Contribution": "terms",
    "Counterfactual": "counterfactual",
    "Explanation": "explanation",
    "Explanations": "many",
    "Frame": "patches",
    "ImageActivation": "images",
    "Intervention": "intervention",
    "InterventionCurve": "intervention",
    "MissingConcept": "mistake",
    "Mistake": "mistake",
    "ModelView": "views",
    "Neighbour": "drift",
    "Order": "intervention",
    "PatchMap": "where",
    "PatchTerms": "patches",
    "Question": "question",
    "RegionConcept": "where",
    "SeparatingConcept": "views",
    "Shift": "counterfactual",
    "Way": "patches",
    "Where": "where",
    "audit": "drift",
    "coactivation": "pairs",
    "compare": "comparison",
    "explain": "explanation",
    "intervention_curve": "intervention",
    "located": "where",
    "settling_question": "question",
    "top_images": "images",
    "view_codes": "views",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: the light runtime needs the terms of a sum without all that can be asked about them.
    if name in _HOMES:
        return getattr(import_module(f"ccr.core.explain.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ccr.core.explain' has no attribute {name!r}")
