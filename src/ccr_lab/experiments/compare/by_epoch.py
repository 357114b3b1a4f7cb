"""CCR and its baseline epoch by epoch on the test images, as in the paper's figure. Nothing is chosen by them: weights
per class that are, are chosen by the validation images first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ccr.classifier import ConceptClassifier
from ccr.refine import Epoch
from ccr.utils.progress import Tell, no_progress
from ccr_lab.experiments.cache import RunCache
from ccr_lab.experiments.compare.comparison import shared_key
from ccr_lab.experiments.compare.task import Task
from ccr_lab.experiments.curves import Curve, Workbench, training_curves


def curves_by_epoch(
    task: Task, *, seeds: Sequence[int], cache: RunCache | None = None, tell: Tell = no_progress
) -> list[Curve]:
    """Curves of CCR, then of its baseline, one per seed, at the task's held length; those in `cache` are not made
    again."""
    cache, shared = cache or RunCache(None), shared_key(task)
    curves: list[Curve] = []
    for number, seed in enumerate(seeds):
        tell(number, len(seeds), f"by epoch, seed {seed}")
        key = {**shared, "curves": True, "seed": int(seed)}
        stored = cache.remember(key, partial(_curves, task, int(seed)))
        curves += [
            Curve(curve["name"], curve["seed"], tuple(Epoch(**epoch) for epoch in curve["history"]))
            for curve in stored["curves"]
        ]
    return sorted(curves, key=lambda curve: curve.name == "baseline")


def _curves(task: Task, seed: int) -> dict[str, Any]:
    train, validation = task.split(seed)
    options = {"center": task.center, "max_iter": task.max_iter}
    bench, settings = Workbench(task.concepts, train, task.test, options), {**task.settings, **task.informed}
    if settings.get("weights_per_class") == "auto":
        chosen = ConceptClassifier(
            task.concepts, coder=bench.coder(length=task.length), random_state=seed, **options, **settings
        ).fit(train.X, train.y, validation=(validation.X, validation.y))
        settings = {**settings, "weights_per_class": int(np.count_nonzero(chosen.coef_, axis=1).max())}
    curves = training_curves(bench, length=task.length, settings=settings, seeds=(seed,))
    return {"curves": [curve.to_dict() for curve in curves]}
