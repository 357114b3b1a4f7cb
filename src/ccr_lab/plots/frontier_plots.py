"""Figures of the frontiers: accuracy against fidelity, and against concepts in play."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, ScalarFormatter

from ccr.explain.picture import AGAINST, FOR, NEUTRAL
from ccr.show.plots import png
from ccr.show.style import label_axes
from ccr_lab.experiments.frontier import NAMED, RIVALS, VECTORS, WORDS, Frontier, Point
from ccr_lab.plots.compare_plots import LOOKS

#: Colour, dash and marker of a kind of concepts.
KINDS = {NAMED: (FOR, "-", "o"), WORDS: (AGAINST, "--", "s"), VECTORS: (NEUTRAL, ":", "^")}
#: Concepts in play that are written on the axis.
TICKS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)


def frontier_files(found: Frontier) -> dict[str, bytes]:
    """Both figures (PNG) and the numbers behind them (frontier.json), by the names of their files."""
    drawn = {"fidelity": fidelity_figure(found), "in_play": in_play_figure(found)}
    pictures = {f"{name}.png": png(figure, dpi=100) for name, figure in drawn.items()}
    return {**pictures, "frontier.json": json.dumps(found.to_dict(), indent=1, allow_nan=False).encode()}


def fidelity_figure(found: Frontier) -> Figure:
    """Accuracy against the mean fidelity seen on test images, a panel for each number of weights per class."""
    weights = list(dict.fromkeys(point.weights for point in found.points))
    figure = Figure(figsize=(3.1 * len(weights) + 0.6, 3.9), layout="constrained")
    panels = figure.subplots(1, len(weights), squeeze=False, sharex=True, sharey=True)[0]
    for axes, count in zip(panels, weights, strict=True):
        for kind, (colour, dash, marker) in KINDS.items():
            line = found.line(kind, count)
            seen = [np.nan if point.mean_fidelity is None else point.mean_fidelity for point in line]
            axes.plot(seen, _percent(line), dash, marker=marker, ms=5, color=colour, label=kind)
        _draw_probe(axes, found)
        label_axes(axes, "mean fidelity on test images", "")
        axes.set_title("all weights" if count is None else f"weights per class: {count}", fontsize=10)
    panels[0].set_ylabel("test accuracy, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(_title("Accuracy against fidelity, by weights per class", found), fontsize=11)
    return figure


def in_play_figure(found: Frontier) -> Figure:
    """Accuracy against concepts in play per image: CCR and its baseline by weights per class, rivals by length."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    for name, title, bound in (
        ("ccr", f"CCR, fidelity {found.shown:g}", found.shown),
        ("baseline", "baseline (fidelity 1)", 1.0),
    ):
        line = found.by_weights(bound)
        colour, dash = LOOKS[name]
        axes.plot([p.in_play for p in line], _percent(line), dash, marker="o", ms=5, color=colour, label=title)
    for name in RIVALS:
        rivals = sorted((point for point in found.rivals if point.method == name), key=lambda point: point.in_play)
        if rivals:
            colour, dash = LOOKS[name]
            accuracies = [100 * point.accuracy for point in rivals]
            title = rivals[0].title
            axes.plot([p.in_play for p in rivals], accuracies, dash, marker="s", ms=4, color=colour, label=title)
    _draw_probe(axes, found)
    _log_axis(axes, [*(p.in_play for p in found.points), *(p.in_play for p in found.rivals)])
    label_axes(axes, "concepts in play per image", "test accuracy, %")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.set_title(_title("Accuracy against concepts in play", found), fontsize=11, loc="left")
    return figure


def _log_axis(axes: Axes, counts: Sequence[float]) -> None:
    """A logarithmic axis that begins at 0 where a count is 0."""
    if min(counts, default=1.0) > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
    else:
        axes.set_xscale("symlog", linthresh=min([1.0, *(count for count in counts if count > 0)]))
        axes.xaxis.set_major_locator(FixedLocator((0, *TICKS)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()


def _percent(points: list[Point]) -> list[float]:
    return [100 * point.accuracy for point in points]


def _draw_probe(axes: Axes, found: Frontier) -> None:
    colour, dash = LOOKS["probe"]
    axes.axhline(100 * found.probe, color=colour, linestyle=dash, linewidth=1.2, label="linear probe")


def _title(what: str, found: Frontier) -> str:
    train, test = found.images
    return f"{what}\n{train:,} training and {test:,} test images, {found.concepts} concepts"
