"""Matplotlib figures of explanations. Each returns a Figure and touches no global state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr.core.explain import Contrast, Explanation
from ccr.show.style import AGAINST, FOR, INK, NEUTRAL, shortened, signed_name


def explanation(explained: Explanation, image: Any | None = None, *, top: int = 10, truth: Any | None = None) -> Figure:
    """The paper's picture of a prediction: the image, its `top` largest code entries, and those concepts' weights for
    the predicted class. Blue speaks for the class, orange against it."""
    terms = sorted(explained.contributions, key=lambda term: -abs(term.code))[:top]
    panels = [0.9, 1.0, 1.0] if image is not None else [1.0, 1.0]
    figure = Figure(figsize=(3.6 * sum(panels) + 1.6, 1.4 + 0.3 * max(len(terms), 4)), layout="constrained")
    axes = figure.subplots(1, len(panels), width_ratios=panels, squeeze=False)[0]
    figure.suptitle(_headline(explained, truth), color=INK, fontsize=12, x=0.01, ha="left")
    if image is not None:
        axes[0].imshow(np.asarray(image))
        axes[0].set_axis_off()
    colours = [FOR if term.contribution >= 0 else AGAINST for term in terms]
    names = [shortened(signed_name(term)) for term in terms]
    _bars(axes[-2], names, [term.code for term in terms], colours, "code")
    _bars(axes[-1], [""] * len(terms), [term.weight for term in terms], colours, "weight for the class")
    return figure


def waterfall(explained: Explanation | Contrast, *, top: int = 12) -> Figure:
    """The sum, step by step: bias, the `top` largest contributions, the rest, and the logit they add up to."""
    total = explained.logit if isinstance(explained, Explanation) else explained.difference
    steps: list[tuple[str, float]] = [("bias", explained.bias)]
    steps += [(shortened(signed_name(term)), term.contribution) for term in explained.contributions[:top]]
    rest = explained.contributions[top:]
    if rest:
        steps.append((f"{len(rest)} others", sum(term.contribution for term in rest)))
    figure = Figure(figsize=(7.5, 1.2 + 0.3 * (len(steps) + 1)), layout="constrained")
    axes = figure.subplots()
    level = 0.0
    for row, (_, size) in enumerate(steps):
        axes.barh(row, size, left=level, color=FOR if size >= 0 else AGAINST, height=0.7)
        axes.plot([level + size] * 2, [row - 0.4, row + 1.4], color=NEUTRAL, linewidth=0.8)
        axes.annotate(
            f"{size:+.2f}", (max(level, level + size), row), xytext=(4, 0), textcoords="offset points", va="center"
        )
        level += size
    axes.barh(len(steps), total, color=INK, height=0.7)
    ending = "logit" if isinstance(explained, Explanation) else "difference of logits"
    _names(axes, [name for name, _ in steps] + [ending])
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
    title = f"{shortened(explained.prediction)}" + (
        f" rather than {shortened(explained.other)}" if isinstance(explained, Contrast) else ""
    )
    axes.set_title(title, loc="left", fontsize=12, parse_math=False)
    return figure


def png(figure: Figure, *, dpi: int = 130) -> bytes:
    """The figure as PNG bytes, at `dpi` dots per inch."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # an emoji in a name is drawn as a box
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _headline(explanation: Explanation, truth: Any | None) -> str:
    text = f"{shortened(explanation.prediction)}, {explanation.probability:.0%}".replace("$", r"\$")
    if truth is None:
        return text
    return text + (
        " (right)" if str(truth) == str(explanation.prediction) else f" (wrong: it is {shortened(truth)})"
    ).replace("$", r"\$")


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float], colours: Sequence[str], title: str) -> None:
    axes.barh(range(len(values)), values, color=colours, height=0.7)
    _names(axes, names)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_title(title, loc="left", fontsize=10)
    axes.margins(x=0.08)


def _names(axes: Axes, names: Sequence[str]) -> None:
    # parse_math off: a concept such as "$5 note" is a name, not a formula
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels(names, parse_math=False)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
