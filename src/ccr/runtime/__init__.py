"""A fitted model without the library around it: NumPy and safetensors alone.

model = ccr.runtime.load("photos-model")
model.predict(X); model.predict_proba(X)            # X (m, d): embeddings of the model's encoder
model.explain(X[0]).contributions                   # the sum that made the prediction
"""

from ccr.runtime.folder import load
from ccr.runtime.model import RuntimeModel
from ccr.runtime.why import RuntimeExplanation

__all__ = ["RuntimeExplanation", "RuntimeModel", "load"]
