"""How good predictions are beyond accuracy: F1, the first few classes, calibration."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

#: Bins of confidence over which calibration is measured.
BINS = 15


def macro_f1(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Mean over classes of 2 hits / (images of the class + predictions of it), over those that are there in either."""
    classes, numbers = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    true, guessed = numbers[: len(truth)], numbers[len(truth) :]
    hits, images, guesses = (
        np.bincount(rows, minlength=len(classes)) for rows in (true[true == guessed], true, guessed)
    )
    return float(np.mean(2 * hits / (images + guesses)))


def among_first(logits: np.ndarray, numbers: np.ndarray, k: int) -> np.ndarray:
    """Whether fewer than k classes have a larger logit (b, classes) than the class with each row's number (b,)."""
    own = np.take_along_axis(logits, numbers[:, None], axis=1)
    return np.asarray((logits > own).sum(axis=1) < k)


def confidences(logits: np.ndarray) -> np.ndarray:
    """The probability (b,) of the class with the largest logit of each row (b, classes)."""
    wide = logits.astype(np.float64)
    return np.exp(wide.max(axis=1) - logsumexp(wide, axis=1))


def calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error: mean distance between confidence (m,) and share right, over bins of confidence."""
    bin_of = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    sure, hits = (np.bincount(bin_of, weights=values, minlength=bins) for values in (confidence, right))
    return float(np.abs(sure - hits).sum() / len(confidence))
