"""The other methods, as estimators with the calls of `ConceptClassifier`.

SpLiCE and CLIP-IP-OMP need none of their own: they are `ConceptClassifier` with `radius=0` and the coders
`NonNegativeLasso(length=...)` and `IPOMP(...)`.
"""

from ccr.models.rivals.base import Rival
from ccr.models.rivals.controls import LinearProbe, ZeroShot, random_unit_concepts
from ccr.models.rivals.dense_model import DenseModel
from ccr.models.rivals.labelfree import LabelFreeCBM

__all__ = ["DenseModel", "LabelFreeCBM", "LinearProbe", "Rival", "ZeroShot", "random_unit_concepts"]
