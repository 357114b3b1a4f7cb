"""The linear probe: what embeddings allow without any concepts."""

from __future__ import annotations

from ccr.models.rivals import LinearProbe
from ccr.study.experiments.part import Part


def probe_accuracy(train: Part, test: Part) -> float:
    """Test accuracy, in [0, 1], of a `LinearProbe`, its penalty chosen by cross-validation on the training images."""
    return float(LinearProbe().fit(train.X, train.y).score(test.X, test.y))
