"""From photos to predictions: one at a time, many at once, or a run of millions that can be stopped."""

from ccr.photos.prediction import Prediction, Predictions

__all__ = ["Prediction", "Predictions"]
