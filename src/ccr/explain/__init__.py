"""Explanations of one prediction, of classes and of the whole model; contrasts, counterfactuals, and concept drift."""

from ccr.explain.counterfactual import Counterfactual, InterventionCurve, Order, intervention_curve
from ccr.explain.drift import Audit, ConceptDrift, audit
from ccr.explain.explanation import Explanation, Explanations, Mistake, Question, explain, settling_question
from ccr.explain.terms import Contrast, Contribution
from ccr.explain.views import (
    CarryingConcept,
    ClassView,
    Coactivation,
    CoactivationOrder,
    Confusion,
    ImageActivation,
    ModelView,
    coactivation,
    top_images,
    view_codes,
)
from ccr.explain.where import WAYS, Frame, PatchMap, PatchTerms, Way, Where, located

__all__ = [
    "WAYS",
    "Audit",
    "CarryingConcept",
    "ClassView",
    "Coactivation",
    "CoactivationOrder",
    "ConceptDrift",
    "Confusion",
    "Contrast",
    "Contribution",
    "Counterfactual",
    "Explanation",
    "Explanations",
    "Frame",
    "ImageActivation",
    "InterventionCurve",
    "Mistake",
    "ModelView",
    "Order",
    "PatchMap",
    "PatchTerms",
    "Question",
    "Way",
    "Where",
    "audit",
    "coactivation",
    "explain",
    "intervention_curve",
    "located",
    "settling_question",
    "top_images",
    "view_codes",
]
