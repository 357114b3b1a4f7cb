"""What refinement brings: CCR against its own baseline at equal length and dispersion, and against a refitted head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from ccr.core.coding import code_size
from ccr.core.concepts import Concepts
from ccr.core.heads import LinearHead, fit_softmax
from ccr.models.bound import unrefined
from ccr.models.classifier import ConceptClassifier
from ccr.models.part import Part, stratified_folds
from ccr.progress import Tell, no_progress

#: Penalties tried for a refitted head, in units of 1 / (number of training images) for codes scaled to size 1.
PENALTIES = (0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, eq=False)
class Gain:
    """Test accuracies in [0, 1], one for each seed, the baseline of the first seed, and CCR's models of all seeds.

    `baseline` is the same with concepts that stay, trained as long; `refitted` is a head of all weights on the codes of
    all concepts, which stay, solved to convergence by L-BFGS, its penalty chosen by cross-validation; `refined` is CCR.
    """

    seeds: tuple[int, ...]
    baseline: tuple[float, ...]
    refitted: tuple[float, ...]
    refined: tuple[float, ...]
    baseline_model: ConceptClassifier
    models: tuple[ConceptClassifier, ...]

    @property
    def model(self) -> ConceptClassifier:
        """CCR's model of the first seed."""
        return self.models[0]

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
    seeds: Sequence[int] = range(5),
    jobs: int = 1,
    tell: Tell = no_progress,
) -> Gain:
    """Fit CCR and its baseline with the same options for every seed, and measure both on the test split.

    Parameters
    ----------
    options : mapping
        Further parameters of CCR's `ConceptClassifier`, and but for its bound of its baseline's.
    jobs : int
        Models fitted at a time, at least 1, each on one thread.
    """
    settings = (unrefined(options), dict(options))

    def fit(seed: int, chosen: dict[str, Any]) -> ConceptClassifier:
        return ConceptClassifier(concepts, **{**chosen, "random_state": seed}).fit(train.X, train.y)

    with one_thread_each(jobs) as pool:
        waiting = [pool.submit(fit, seed, chosen) for seed in seeds for chosen in settings]
        fitted = [future.result() for future in _finished(waiting, tell)]
        baselines, refined = fitted[::2], fitted[1::2]
        # Codes of all concepts, where they stay, are the same for every seed, and the solved head has no seed.
        whole = fit(seeds[0], {**unrefined(options), "weights_per_class": None, "max_iter": 1})
        refitted = (refitted_accuracy(whole, train, test),) * len(seeds)
    scores = [tuple(float(model.score(test.X, test.y)) for model in models) for models in (baselines, refined)]
    return Gain(tuple(seeds), scores[0], refitted, scores[1], baselines[0], tuple(refined))


@contextmanager
def one_thread_each(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """A pool for small work, most of which releases the GIL: `jobs` pieces at a time, each on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(jobs) as pool, threadpool_limits(1):
            yield pool
    finally:
        torch.set_num_threads(before)


def _finished(waiting: Sequence[Future[Any]], tell: Tell) -> Sequence[Future[Any]]:
    """The same, all done."""
    for number, _ in enumerate(as_completed(waiting), start=1):
        tell(number, len(waiting), "fitting models")
    return waiting


def refitted_accuracy(baseline: ConceptClassifier, train: Part, test: Part) -> float:
    """Test accuracy, in [0, 1], when the head is solved to convergence on the model's frozen codes, its penalty
    chosen by cross-validation."""
    codes = baseline.transform(train.X)
    numbers = np.searchsorted(baseline.classes_, train.y)
    size = code_size(codes) ** 2

    def solved(rows: np.ndarray, penalty: float) -> LinearHead:
        alpha = penalty * size / len(rows)
        return fit_softmax(codes[rows], numbers[rows], classes=len(baseline.classes_), alpha=alpha, tol=1e-5)

    def right(penalty: float) -> int:
        return sum(
            int((solved(fold, penalty).logits(codes[rest]).argmax(axis=1) == numbers[rest]).sum())
            for fold, rest in stratified_folds().split(codes, numbers)
        )

    head = solved(np.arange(len(numbers)), max(PENALTIES, key=right))
    winners = head.logits(baseline.transform(test.X)).argmax(axis=1)
    return float(np.mean(baseline.classes_[winners] == test.y))
