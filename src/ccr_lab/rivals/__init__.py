"""The other methods, as estimators with the calls of `ConceptClassifier`.

SpLiCE and CLIP-IP-OMP need none of their own: they are `ConceptClassifier` with `radius=0` and the coders
`NonNegativeLasso(length=...)` and `IPOMP(...)`.
"""

from ccr_lab.rivals.controls import LinearProbe, ZeroShot
from ccr_lab.rivals.labelfree import LabelFreeCBM
from ccr_lab.rivals.model import DenseModel, Rival

__all__ = ["DenseModel", "LabelFreeCBM", "LinearProbe", "Rival", "ZeroShot"]
