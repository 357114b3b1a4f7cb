"""Headline numbers of a report: the model against its baseline and the linear probe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ccr.core.explain.drift import GROUNDED, TRANSFERS
from ccr.core.metrics import Evaluation, wilson_interval
from ccr.errors import CCRError
from ccr.models.bound import bound_in_words
from ccr.models.concept_model import ConceptModel
from ccr.models.signature import signature_in_words
from ccr.show import page
from ccr.show.claims_page import claims_in_words

#: Concepts that do not transfer, named at most.
MOST_NAMED = 20


@dataclass(frozen=True, eq=False)
class Measured:
    """A model on the rows of a report: what `evaluate` measured and what it predicted (m,)."""

    model: ConceptModel
    evaluation: Evaluation
    predictions: np.ndarray

    @classmethod
    def on(cls, model: Any, rows: Any) -> Measured:
        """Of a `ConceptModel`, or of the estimator that fitted it, on labelled rows."""
        model = getattr(model, "model_", model)
        return cls(model, model.evaluate(rows), model.predict(rows))


def check_baseline(baseline: Any, rows: Any) -> None:
    """Refuse a baseline that does not know all classes of these labelled rows."""
    known = set(map(str, getattr(baseline, "model_", baseline).classes.tolist()))
    unknown = [label for label in np.unique(rows.y).tolist() if str(label) not in known]
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        raise CCRError(
            f"the baseline must know every class of these images, but it does not know {shown}: give one "
            "that was fitted on the same classes"
        )


def headline(model: Measured, baseline: Measured | None, probe: float | None, truth: np.ndarray) -> list[str]:
    """The numbers in a table, and what they mean in a sentence; `probe` in [0, 1], `truth` (m,) are labels."""
    evaluation = model.evaluation
    rows = [("this model", *_numbers(evaluation))]
    if baseline is not None:
        bound = bound_in_words(baseline.model.provenance.settings)
        rows.append((f"baseline ({bound})", *_numbers(baseline.evaluation)))
    if probe is not None:
        interval = wilson_interval(round(probe * evaluation.n), evaluation.n)
        rows.append(("linear probe: no concepts, no explanation", f"{probe:.1%}", _interval(interval), *[""] * 5))
    header = ("", "accuracy", "95 % interval", "length", "in play", "weights", "fidelity", "worst")
    parts = [
        f'<p><span class="big-number">{evaluation.accuracy:.1%}</span> of {evaluation.n:,} images right, with '
        f"{evaluation.length:.1f} of {len(model.model.concepts):,} concepts per image.</p>",
        page.table(header, rows),
        '<p class="muted">length: concepts per image; in play: those with a weight for any class; weights: per class; '
        "fidelity, worst: correlation of concepts' scores with those of their own texts over these images, mean and "
        "least.</p>",
    ]
    if baseline is not None:
        parts.insert(1, _against(model, baseline, truth))
    signed = signature_in_words(model.model)
    return [*parts, *_knowledge(model), *([] if signed is None else [f"<p><strong>{page.name(signed)}</strong></p>"])]


def _knowledge(measured: Measured) -> list[str]:
    """The claims, their truth and transfer, and the concepts that do not transfer; nothing without knowledge."""
    found, model = measured.evaluation, measured.model
    if found.claims is None:
        return []
    parts = [claims_in_words(found.claims)]
    if found.truth is not None:
        parts.append(f"{found.truth:.0%} of the shown concepts with an answer are true of the image's class")
    if found.transfer is not None:
        parts.append(f"mean transfer {found.transfer:.2f} to classes that concepts were not told about (0.5 is chance)")
    if found.text_fidelity is not None and math.isfinite(found.text_fidelity.mean):
        parts.append(f"fidelity to the bare texts {found.text_fidelity.mean:.2f}, worst {found.text_fidelity.min:.2f}")
    lines = [f"<p>{escape('; '.join(parts))}.</p>", f'<p class="muted">{escape(GROUNDED)}</p>']
    few = sorted((value, name) for name, value in (model.transfer or {}).items() if value < TRANSFERS)
    if few:
        named = ", ".join(f"{page.name(name)} ({value:.2f})" for value, name in few[:MOST_NAMED])
        more = f" and {len(few) - MOST_NAMED:,} more" if len(few) > MOST_NAMED else ""
        lines.append(f'<p class="muted">Transfer below {TRANSFERS:g}: {named}{more}.</p>')
    return lines


def _against(model: Measured, baseline: Measured, truth: np.ndarray) -> str:
    ours, theirs = model.predictions == truth, baseline.predictions == truth
    gain = 100 * (model.evaluation.accuracy - baseline.evaluation.accuracy)
    return (
        f"<p>{gain:+.1f} points against the baseline; images right only here: {int((ours & ~theirs).sum()):,}, "
        f"right only there: {int((theirs & ~ours).sum()):,}.</p>"
    )


def _numbers(evaluation: Evaluation) -> tuple[str, ...]:
    return (
        f"{evaluation.accuracy:.1%}",
        _interval(evaluation.interval),
        f"{evaluation.length:.1f}",
        f"{evaluation.in_play:.1f}",
        f"{evaluation.weights_per_class:.1f}",
        *("-" if math.isnan(value) else f"{value:.2f}" for value in evaluation.fidelity),
    )


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1%} to {interval[1]:.1%}"
