"""What refinement brings: CCR against its own baseline at equal length and dispersion, and against a refitted head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from ccr.core.concepts import Concepts
from ccr.core.geometry import centered, unit_rows
from ccr.core.heads import LinearHead, fit_softmax
from ccr.models.classifier import ConceptClassifier

#: Penalties tried for a refitted head and for the probe, in units of 1 / (number of training images).
HEAD_PENALTIES, PROBE_PENALTIES = (0.3, 1.0, 3.0, 10.0), (3.0, 10.0, 30.0)
FOLDS = 3


class Part(NamedTuple):
    """Embeddings and labels of one split."""

    X: Any
    y: np.ndarray


@dataclass(frozen=True, eq=False)
class Gain:
    """Test accuracies, one for each seed, and the two models of the first seed.

    `baseline` is radius 0, trained as long; `refitted` is that baseline with its head solved to convergence by L-BFGS
    on the frozen codes, its penalty chosen by cross-validation; `refined` is CCR.
    """

    seeds: tuple[int, ...]
    baseline: tuple[float, ...]
    refitted: tuple[float, ...]
    refined: tuple[float, ...]
    baseline_model: ConceptClassifier
    model: ConceptClassifier

    @property
    def over_baseline(self) -> float:
        return float(np.mean(self.refined) - np.mean(self.baseline))

    @property
    def over_refitted(self) -> float:
        return float(np.mean(self.refined) - np.mean(self.refitted))

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        lists = {name: list(getattr(self, name)) for name in ("seeds", "baseline", "refitted", "refined")}
        return {**lists, "gain_over_baseline": self.over_baseline, "gain_over_refitted_head": self.over_refitted}


def refinement_gain(
    concepts: Concepts,
    *,
    train: Part,
    test: Part,
    options: Mapping[str, Any],
    radius: float,
    seeds: Sequence[int] = range(5),
    progress: Callable[[int, int], None] | None = None,
) -> Gain:
    """Fit CCR and its baseline with the same options for every seed and measure both on the test split."""
    models: dict[float, list[ConceptClassifier]] = {0.0: [], radius: []}
    for seed in seeds:
        for size, fitted in models.items():
            model = ConceptClassifier(concepts, **{**options, "radius": size, "random_state": seed})
            fitted.append(model.fit(train.X, train.y))
            if progress is not None:
                progress(sum(map(len, models.values())), 2 * len(seeds))
    scores = {size: tuple(float(model.score(test.X, test.y)) for model in fitted) for size, fitted in models.items()}
    # Frozen codes are the same for every seed, and the solved head has no seed.
    refitted = (refitted_accuracy(models[0.0][0], train, test),) * len(seeds)
    return Gain(tuple(seeds), scores[0.0], refitted, scores[radius], models[0.0][0], models[radius][0])


def linear_probe(*, train: Part, test: Part) -> float:
    """Test accuracy of logistic regression on the embeddings themselves: what they allow without any concepts."""
    mean = unit_rows(np.asarray(train.X, np.float32)).mean(axis=0)

    def rows(part: Part) -> np.ndarray:
        unit = centered(unit_rows(np.asarray(part.X, np.float32)), mean)
        return unit * np.sqrt(unit.shape[1])  # entries of size 1, for which the penalties are meant

    search = GridSearchCV(
        LogisticRegression(max_iter=2000, tol=1e-2), {"C": [1.0 / penalty for penalty in PROBE_PENALTIES]}, cv=_folds()
    )
    return float(search.fit(rows(train), train.y).score(rows(test), test.y))


def refitted_accuracy(baseline: ConceptClassifier, train: Part, test: Part) -> float:
    """Test accuracy when the head is solved to convergence on the model's frozen codes, its penalty chosen by
    cross-validation."""
    codes = baseline.transform(train.X)
    numbers = np.searchsorted(baseline.classes_, train.y)
    size = float(np.mean(codes.data**2)) if codes.nnz else 1.0

    def solved(rows: np.ndarray, penalty: float) -> LinearHead:
        alpha = penalty * size / len(rows)
        return fit_softmax(codes[rows], numbers[rows], classes=len(baseline.classes_), alpha=alpha, tol=1e-5)

    def right(penalty: float) -> int:
        return sum(
            int((solved(fold, penalty).logits(codes[rest]).argmax(axis=1) == numbers[rest]).sum())
            for fold, rest in _folds().split(codes, numbers)
        )

    head = solved(np.arange(len(numbers)), max(HEAD_PENALTIES, key=right))
    winners = head.logits(baseline.transform(test.X)).argmax(axis=1)
    return float(np.mean(baseline.classes_[winners] == test.y))


def _folds() -> StratifiedKFold:
    return StratifiedKFold(FOLDS, shuffle=True, random_state=0)
