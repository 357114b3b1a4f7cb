"""Headline numbers of a report: the model against its baseline and the linear probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.core.metrics import Evaluation, wilson_interval
from ccr.models.classifier import ConceptClassifier
from ccr.show import page


@dataclass(frozen=True, eq=False)
class Measured:
    """A model on the rows of a report: what `evaluate` found and what it predicted (m,)."""

    model: ConceptClassifier
    evaluation: Evaluation
    predictions: np.ndarray

    @classmethod
    def on(cls, model: ConceptClassifier, rows: Any) -> Measured:
        return cls(model, model.evaluate(rows), model.predict(rows))


def headline(model: Measured, baseline: Measured | None, probe: float | None, truth: np.ndarray) -> list[str]:
    """The numbers in a table, and what they mean in a sentence."""
    found = model.evaluation
    rows = [("this model", *_numbers(found))]
    if baseline is not None:
        rows.append((f"baseline (radius {baseline.model.radius:g})", *_numbers(baseline.evaluation)))
    if probe is not None:
        interval = wilson_interval(round(probe * found.n), found.n)
        rows.append(("linear probe: no concepts, no explanation", f"{probe:.1%}", _interval(interval), *[""] * 4))
    header = ("", "accuracy", "95 % interval", "length", "moved", "most", "kept")
    parts = [
        f'<p><span class="big-number">{found.accuracy:.1%}</span> of {found.n:,} images right, with '
        f"{found.length:.1f} of {len(model.model.concepts_):,} concepts an image.</p>",
        page.table(header, rows),
        '<p class="quiet">length: concepts an image; moved, most: mean and largest deviation of a concept from where '
        "it started; kept: share of concepts that are still nearest to themselves.</p>",
    ]
    if baseline is not None:
        parts.insert(1, _against(model, baseline, truth))
    return parts


def _against(model: Measured, baseline: Measured, truth: np.ndarray) -> str:
    ours, theirs = model.predictions == truth, baseline.predictions == truth
    gain = 100 * (model.evaluation.accuracy - baseline.evaluation.accuracy)
    return (
        f"<p>{gain:+.1f} points against the baseline; images right only here: {int((ours & ~theirs).sum()):,}, "
        f"right only there: {int((theirs & ~ours).sum()):,}.</p>"
    )


def _numbers(found: Evaluation) -> tuple[str, ...]:
    return (
        f"{found.accuracy:.1%}",
        _interval(found.interval),
        f"{found.length:.1f}",
        f"{found.deviation.mean:.3f}",
        f"{found.deviation.max:.3f}",
        f"{found.retention:.0%}",
    )


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1%} to {interval[1]:.1%}"
