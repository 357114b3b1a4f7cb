"""The paper's released settings (Algorithm 2, docs/method.md)."""

from __future__ import annotations

from typing import Any

from ccr.core.coding import HardThreshold
from ccr.core.space import Angular
from ccr.errors import CCRError

#: Lambda of each data set.
PAPER_THRESHOLDS = {"cifar10": 0.15, "cifar100": 0.215, "cub": 0.22, "imagenet": 0.24, "places365": 0.22}


def paper_settings(dataset: str) -> dict[str, Any]:
    """Of a `ConceptClassifier`, for cifar10, cifar100, cub, imagenet or places365.

    Codes are one-sided as in the released code; the projection is exact, and the epoch is chosen on validation data,
    where the released code overshoots the radius and reads the test set.
    """
    if dataset not in PAPER_THRESHOLDS:
        raise CCRError(f"the paper has settings for {', '.join(PAPER_THRESHOLDS)}, not for {dataset!r}")
    return {
        "coder": HardThreshold(threshold=PAPER_THRESHOLDS[dataset], sign="positive"),
        "radius": 0.1,
        "weights_per_class": None,
        "center": None,
        "dispersion": Angular(),
        "max_iter": 20,
        "batch_size": 100,
        "optimizer": "sgd",
        "head_rate": 1.0,
        "dictionary_rate": 1e-4,
        "momentum": 0.9,
        "dropout": 0.5,
        "alpha": 0.0,
        "schedule": "constant",
        "n_iter_no_change": 20,
    }
