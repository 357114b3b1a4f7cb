"""The paper's figures of experiments: curves by epoch, sweeps, ablations, heat maps of correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr.core.geometry import coherence, unit_rows
from ccr.show.style import COLOURS
from ccr.study.experiments.curves import Curve, SweepPoint

#: More rows than this are thinned evenly: a heat map cannot show them.
MOST_ROWS = 256


def training_figure(curves: Sequence[Curve]) -> Figure:
    """Test accuracy by epoch: mean over seeds, band from the worst seed to the best."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.subplots()
    for name, colour in zip(dict.fromkeys(curve.name for curve in curves), COLOURS, strict=False):
        runs = np.array([100 * curve.column("validation_accuracy") for curve in curves if curve.name == name])
        epochs = np.arange(1, runs.shape[1] + 1)
        axes.plot(epochs, runs.mean(axis=0), color=colour, label=f"{name}, mean of {len(runs)} seeds")
        axes.fill_between(epochs, runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    _finish(axes, "epoch", "test accuracy, %")
    axes.legend(frameon=False)
    return figure


def ablation_figure(curves: Sequence[Curve]) -> Figure:
    """Accuracy, length, mean and largest deviation over training, with parts of the method left out."""
    panels = {
        "validation_accuracy": "test accuracy",
        "length": "concepts an image",
        "mean_deviation": "mean deviation",
        "max_deviation": "largest deviation",
    }
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (column, title) in zip(figure.subplots(2, 2).ravel(), panels.items(), strict=True):
        for curve, colour in zip(curves, COLOURS, strict=False):
            values = curve.column(column)
            axes.plot(np.arange(1, len(values) + 1), values, color=colour, label=curve.name)
        _finish(axes, "epoch", title)
    figure.axes[0].legend(frameon=False)
    return figure


def sweep_figure(points: Sequence[SweepPoint], label: str) -> Figure:
    """Accuracy (left) and length (right) along a sweep."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, colour in zip(dict.fromkeys(point.name for point in points), COLOURS, strict=False):
        chosen = [point for point in points if point.name == name]
        values = [point.value for point in chosen]
        left.plot(values, [100 * point.accuracy for point in chosen], "o-", color=colour, label=name)
        right.plot(values, [point.length for point in chosen], "o-", color=colour, label=name)
    _finish(left, label, "test accuracy, %")
    _finish(right, label, "concepts an image")
    left.legend(frameon=False)
    return figure


def heat_maps(dictionaries: Mapping[str, np.ndarray]) -> Figure:
    """|Correlation| between concepts, one panel a dictionary, all on one scale."""
    figure = Figure(figsize=(3.4 * len(dictionaries) + 0.6, 3.6), layout="constrained")
    panels = figure.subplots(1, len(dictionaries), squeeze=False)[0]
    for axes, (name, rows) in zip(panels, dictionaries.items(), strict=True):
        unit = unit_rows(np.asarray(rows, np.float64))
        thin = unit[np.linspace(0, len(unit) - 1, min(len(unit), MOST_ROWS)).astype(int)]
        axes.imshow(np.abs(thin @ thin.T), vmin=0, vmax=1, cmap="cividis", interpolation="nearest")
        axes.set_title(f"{name}\nmean {coherence(unit).mean:.3f}", fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.colorbar(panels[0].images[0], ax=list(panels), label="|correlation|", shrink=0.85)
    return figure


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
