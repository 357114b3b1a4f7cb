"""Figures of a comparison: the paper's curve with the others as lines, accuracy with intervals, accuracy when
explanations are cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr.show.experiment_plots import training_figure
from ccr.show.style import AGAINST, COLOURS, FOR, INK, NEUTRAL
from ccr.study.experiments.compare import KEPT, Comparison, Row
from ccr.study.experiments.curves import Curve
from ccr.study.experiments.protocol import Protocol

#: Colour and dash of a method, the same in every figure.
LOOKS = {
    "ccr": (FOR, "-"),
    "baseline": (AGAINST, "-"),
    "ip-omp": ("#009E73", "-"),
    "omp": ("#009E73", ":"),
    "label-free": ("#CC79A7", "-"),
    "splice": ("#E69F00", "-"),
    "random-vectors": (NEUTRAL, "-"),
    "random-words": (NEUTRAL, "--"),
    "probe": (INK, "--"),
    "zero-shot": (INK, ":"),
}
GROUPS = {"ours": FOR, "others": "#009E73", "controls": NEUTRAL}
#: Lines of the paper's figure.
LINES = ("ip-omp", "label-free", "splice", "probe", "random-vectors")
#: Methods whose cut explanations are drawn.
CUT = ("ccr", "baseline", "ip-omp", "label-free", "splice", "random-vectors", "random-words")


def by_epoch(curves: Sequence[Curve], found: Comparison) -> Figure:
    """Accuracy by epoch of CCR and its baseline, mean and band over seeds; the other methods' final one as lines."""
    figure = training_figure(curves)
    axes = figure.axes[0]
    for row in (found.row(name) for name in LINES):
        if row is not None:
            colour, dash = LOOKS[row.method]
            axes.axhline(100 * row.accuracy, color=colour, linestyle=dash, linewidth=1.2, label=row.title)
    figure.set_size_inches(8, 4.6)
    figure.legends.clear()
    axes.set_title(f"Test accuracy at {found.length:g} concepts an image", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def accuracies(found: Comparison) -> Figure:
    """Accuracy of every method with its interval, in the order of the table, coloured by group."""
    figure = Figure(figsize=(8, 1.2 + 0.34 * len(found.rows)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(found.rows):
        low, high = 100 * row.interval.low, 100 * row.interval.high
        axes.plot([low, high], [place, place], color=GROUPS[row.group], linewidth=2.2, solid_capstyle="round")
        axes.plot(100 * row.accuracy, place, "o", color=GROUPS[row.group], markersize=6)
        axes.annotate(
            f"{100 * row.accuracy:.1f}", (high, place), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize=8, color=INK,
        )  # fmt: skip
    axes.set_yticks(range(len(found.rows)))
    axes.set_yticklabels([row.title for row in found.rows], parse_math=False)
    axes.set_ylim(len(found.rows) - 0.4, -0.6)
    axes.margins(x=0.12)
    _finish(axes, f"test accuracy, % (95 % intervals, {found.images} images)", "")
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"At {found.length:g} concepts an image", loc="left", fontsize=11)
    return figure


def cut_explanations(found: Comparison) -> Figure:
    """Accuracy with an image's k largest contributions alone (left), and with a class's k largest weights (right)."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    rows = [row for row in (found.row(name) for name in CUT) if row is not None]
    for axes, field, label in zip(
        panels, ("accuracy_at", "nec"), ("concepts kept of an image", "weights kept of a class (NEC)"), strict=True
    ):
        for row in rows:
            _curve(axes, row, getattr(row, field))
        _finish(axes, label, "")
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 3, 5, 10, 20, 30])
        axes.set_xticklabels(["1", "2", "3", "5", "10", "20", "30"])
        axes.minorticks_off()
    panels[0].set_ylabel("test accuracy, %")
    panels[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def by_length(found: Protocol) -> Figure:
    """CLIP-IP-OMP by the number of concepts: accuracy (left) beside the settings' own, and time (right)."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    ks = [item.k for item in found.pursued]
    left.plot(ks, [100 * item.accuracy for item in found.pursued], "o-", color=INK, label="CLIP-IP-OMP")
    right.plot(ks, [item.seconds for item in found.pursued], "o-", color=INK, label="CLIP-IP-OMP")
    for (name, runs), look in zip(found.runs().items(), COLOURS, strict=False):
        length = float(np.mean([run.length for run in runs]))
        left.plot(length, 100 * np.mean([run.accuracy for run in runs]), "s", color=look, label=name)
        right.plot(length, np.mean([run.seconds for run in runs]), "s", color=look, label=name)
    _finish(left, "concepts an image", "test accuracy, %")
    _finish(right, "concepts an image", "seconds to fit")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _curve(axes: Axes, row: Row, values: Sequence[float] | None) -> None:
    if values is not None:
        colour, dash = LOOKS[row.method]
        axes.plot(KEPT, 100 * np.asarray(values), color=colour, linestyle=dash, label=row.title)


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
