"""Why, and what if: one prediction, classes, the whole model, and how far its concepts drifted."""

from ccr.core.explain.comparison import ComparedConcept, Comparison, compare
from ccr.core.explain.counterfactual import CodeChange, Counterfactual, Shift
from ccr.core.explain.drift import Audit, ConceptDrift, Neighbour, audit
from ccr.core.explain.explanation import Explanation, explain
from ccr.core.explain.images import ImageActivation, top_images
from ccr.core.explain.intervention import Intervention, InterventionCurve, Order, intervention_curve
from ccr.core.explain.mistake import MissingConcept, Mistake
from ccr.core.explain.pairs import Coactivation, CoactivationOrder, coactivation
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

__all__ = [
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
    "ImageActivation",
    "Intervention",
    "InterventionCurve",
    "MissingConcept",
    "Mistake",
    "ModelView",
    "Neighbour",
    "Order",
    "SeparatingConcept",
    "Shift",
    "audit",
    "coactivation",
    "compare",
    "explain",
    "intervention_curve",
    "top_images",
    "view_codes",
]
