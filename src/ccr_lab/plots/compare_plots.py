"""Figures of a comparison: the paper's curve with the others as lines, accuracy with intervals, accuracy when
explanations are cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr.explain.picture import AGAINST, FOR, INK, NEUTRAL
from ccr.show.style import COLOURS, annotate_right, label_axes
from ccr_lab.experiments.compare import KEPT, Comparison, Row
from ccr_lab.experiments.curves import Curve
from ccr_lab.experiments.protocol import Protocol
from ccr_lab.plots.experiment_plots import training_figure

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


def by_epoch(curves: Sequence[Curve], comparison: Comparison) -> Figure:
    """Accuracy by epoch of CCR and its baseline, mean and band over seeds; the other methods' final one as lines."""
    figure = training_figure(curves)
    axes = figure.axes[0]
    for row in (comparison.row(name) for name in LINES):
        if row is not None:
            colour, dash = LOOKS[row.method]
            axes.axhline(100 * row.accuracy, color=colour, linestyle=dash, linewidth=1.2, label=row.title)
    figure.set_size_inches(8, 4.6)
    figure.legends.clear()
    axes.set_title(f"Test accuracy at {comparison.length:g} concepts per image", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def accuracies(comparison: Comparison) -> Figure:
    """Accuracy of every method with its interval, in the order of the table, coloured by group; at CCR's controls, the
    meaning gap."""
    figure = Figure(figsize=(8, 1.2 + 0.34 * len(comparison.rows)), layout="constrained")
    axes = figure.subplots()
    gaps = {gap.control: f"   meaning gap {100 * gap.gap:+.1f}" for gap in comparison.meaning_gaps}
    for number, row in enumerate(comparison.rows):
        low, high = 100 * row.interval.low, 100 * row.interval.high
        axes.plot([low, high], [number, number], color=GROUPS[row.group], linewidth=2.2, solid_capstyle="round")
        axes.plot(100 * row.accuracy, number, "o", color=GROUPS[row.group], markersize=6)
        annotate_right(axes, high, number, f"{100 * row.accuracy:.1f}{gaps.get(row.method, '')}")
    axes.set_yticks(range(len(comparison.rows)))
    axes.set_yticklabels([row.title for row in comparison.rows], parse_math=False)
    axes.set_ylim(len(comparison.rows) - 0.4, -0.6)
    axes.margins(x=0.22 if gaps else 0.12)
    label_axes(axes, f"test accuracy, % (95 % intervals, {comparison.images} images)", "")
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"At {comparison.length:g} concepts per image; CCR: {comparison.settings}", loc="left", fontsize=11)
    return figure


def cut_explanations(comparison: Comparison) -> Figure:
    """Accuracy with an image's k largest contributions alone (left), and with a class's k largest weights (right)."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    rows = [row for row in (comparison.row(name) for name in CUT) if row is not None]
    for axes, field, label in zip(
        panels, ("accuracy_at", "nec"), ("concepts kept per image", "weights kept per class (NEC)"), strict=True
    ):
        for row in rows:
            _curve(axes, row, getattr(row, field))
        label_axes(axes, label, "")
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 3, 5, 10, 20, 30])
        axes.set_xticklabels(["1", "2", "3", "5", "10", "20", "30"])
        axes.minorticks_off()
    panels[0].set_ylabel("test accuracy, %")
    panels[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def by_length(protocol: Protocol) -> Figure:
    """CLIP-IP-OMP by the number of concepts: accuracy (left) beside the settings' own, and time (right)."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    ks = [run.k for run in protocol.pursued]
    left.plot(ks, [100 * run.accuracy for run in protocol.pursued], "o-", color=INK, label="CLIP-IP-OMP")
    right.plot(ks, [run.seconds for run in protocol.pursued], "o-", color=INK, label="CLIP-IP-OMP")
    for (name, runs), look in zip(protocol.runs().items(), COLOURS, strict=False):
        length = float(np.mean([run.length for run in runs]))
        left.plot(length, 100 * np.mean([run.accuracy for run in runs]), "s", color=look, label=name)
        right.plot(length, np.mean([run.seconds for run in runs]), "s", color=look, label=name)
    label_axes(left, "concepts per image", "test accuracy, %")
    label_axes(right, "concepts per image", "seconds to fit")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _curve(axes: Axes, row: Row, values: Sequence[float] | None) -> None:
    if values is not None:
        colour, dash = LOOKS[row.method]
        axes.plot(KEPT, 100 * np.asarray(values), color=colour, linestyle=dash, label=row.title)
