"""The paper's figures of experiments: curves by epoch, sweeps, ablations, heat maps of correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ccr.errors import CCRError
from ccr.explain.picture import AGAINST, INK, NEUTRAL
from ccr.geometry import coherence, unit_rows
from ccr.show.style import COLOURS, annotate_below, label_axes, shortened
from ccr_lab.experiments.curves import Curve, SweepPoint
from ccr_lab.experiments.settings import EITHER
from ccr_lab.experiments.sweep import Outcome, Sweep

#: More rows than this are thinned evenly: a heat map cannot show them.
MOST_ROWS = 256
#: One shape per bound, dispersion and centring; after the last they begin again.
SHAPES = "osD^vPX"
#: Points of the front that are named.
MOST_LABELS = 10


def training_figure(curves: Sequence[Curve]) -> Figure:
    """Test accuracy by epoch: mean over seeds, band from the worst seed to the best."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.subplots()
    for name, colour in zip(dict.fromkeys(curve.name for curve in curves), COLOURS, strict=False):
        runs = np.array([100 * curve.column("validation_accuracy") for curve in curves if curve.name == name])
        epochs = np.arange(1, runs.shape[1] + 1)
        label = f"{name}, mean of {len(runs)} seeds" if len(runs) > 1 else f"{name}, one seed"
        axes.plot(epochs, runs.mean(axis=0), color=colour, label=label)
        axes.fill_between(epochs, runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    label_axes(axes, "epoch", "test accuracy, %")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    return figure


def ablation_figure(curves: Sequence[Curve]) -> Figure:
    """Accuracy, length, mean and largest deviation over training, with parts of the method left out."""
    panels = {
        "validation_accuracy": "test accuracy",
        "length": "concepts per image",
        "mean_deviation": "mean deviation",
        "max_deviation": "largest deviation",
    }
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (column, title) in zip(figure.subplots(2, 2).ravel(), panels.items(), strict=True):
        for curve, colour in zip(curves, COLOURS, strict=False):
            values = curve.column(column)
            axes.plot(np.arange(1, len(values) + 1), values, color=colour, label=curve.name)
        label_axes(axes, "epoch", title)
    figure.axes[0].legend(frameon=False)
    return figure


def sweep_figure(points: Sequence[SweepPoint], label: str) -> Figure:
    """Accuracy (left) and length (right) along a sweep, one line per name; `label` names the swept value."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, colour in zip(dict.fromkeys(point.name for point in points), COLOURS, strict=False):
        chosen = [point for point in points if point.name == name]
        values = [point.value for point in chosen]
        left.plot(values, [100 * point.accuracy for point in chosen], "o-", color=colour, label=name)
        right.plot(values, [point.length for point in chosen], "o-", color=colour, label=name)
    label_axes(left, label, "test accuracy, %")
    label_axes(right, label, "concepts per image")
    left.legend(frameon=False)
    return figure


def fixed_lambda_figures(
    thresholds: Sequence[SweepPoint], radii: Sequence[SweepPoint], threshold: float
) -> dict[str, Figure]:
    """The paper's two sweeps by name: over lambda, and over the radius with lambda fixed at `threshold`."""
    return {
        "thresholds": sweep_figure(thresholds, "lambda"),
        "radii": sweep_figure(radii, f"radius (lambda fixed at {threshold:.3f})"),
    }


def sweep_pareto(results: Sweep, *, chosen: Outcome | None = None) -> Figure:
    """Accuracy against length, coloured by fidelity: on validation with its front, and on test.

    The line joins the settings that nothing beats on validation, which are named. A ring marks the `chosen` setting in
    both panels; with several seeds, bars go from the worst to the best.
    """
    if not results.outcomes:
        raise CCRError("a Pareto figure needs at least one finished setting, got none: see why they failed")
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    least = np.nanmin([outcome.mean("test_fidelity") for outcome in results.outcomes] + [1.0])
    kinds = list(dict.fromkeys(_kind(outcome) for outcome in results.outcomes))
    front = np.array([_point(outcome, "validation") for outcome in results.front()])
    panels[0].step(front[:, 0], front[:, 1], where="post", color=NEUTRAL, linewidth=1.6, zorder=1)
    for axes, split in zip(panels, ("validation", "test"), strict=True):
        for number, kind in enumerate(kinds):
            alike = [outcome for outcome in results.outcomes if _kind(outcome) == kind]
            dots = _dots(axes, alike, split, number, float(least))
        for outcome in results.front()[:MOST_LABELS]:
            label = shortened(outcome.setting.described(results.varied()), 44)
            annotate_below(axes, *_point(outcome, split), label)
        if chosen is not None:
            axes.plot(*_point(chosen, split), "o", markersize=15, mfc="none", mec=AGAINST, mew=2, zorder=4)
        axes.set_title(f"{split}, {results.images[split]} images", loc="left", fontsize=11)
        label_axes(axes, "concepts per image", f"{split} accuracy, %")
        axes.tick_params(labelleft=True)
    panels[0].margins(0.08)
    figure.colorbar(dots, ax=list(panels), label="mean fidelity of the concepts, test")
    keys = _keys(kinds, chosen=chosen is not None)
    figure.legend(handles=keys, loc="outside lower center", ncols=min(len(keys), 5), frameon=False, fontsize=9)
    return figure


def heat_maps(dictionaries: Mapping[str, np.ndarray]) -> Figure:
    """|Correlation| between concepts, one panel per dictionary (n, d), all on one scale; many rows are thinned."""
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


def _point(outcome: Outcome, split: str) -> tuple[float, float]:
    return outcome.mean(f"{split}_length"), 100 * outcome.mean(f"{split}_accuracy")


def _dots(axes: Axes, outcomes: Sequence[Outcome], split: str, number: int, least: float) -> PathCollection:
    points = np.array([_point(outcome, split) for outcome in outcomes])
    accuracies = [outcome.known(f"{split}_accuracy") for outcome in outcomes]
    low, high = (np.array([100 * end(values) for values in accuracies]) for end in (min, max))
    axes.vlines(points[:, 0], low, high, color=NEUTRAL, linewidth=1, zorder=2)
    return axes.scatter(
        points[:, 0],
        points[:, 1],
        c=[outcome.mean("test_fidelity") for outcome in outcomes],
        marker=SHAPES[number % len(SHAPES)],
        cmap="viridis",
        vmin=min(least, 0.99),
        vmax=1.0,
        plotnonfinite=True,  # without a fidelity it is still a result
        s=max(90 * 0.6**number, 20),  # smaller and smaller, so that equal results are all seen
        edgecolors=INK,
        linewidths=0.6,
        zorder=3,
    )


def _kind(outcome: Outcome) -> tuple[str, ...]:
    """What the shape of a point says: which bound concepts have, how they are spread and centred."""
    setting = outcome.setting
    bound = next((name for name in EITHER if getattr(setting, name) is not None), "default bound")
    spread = f"dispersion {setting.dispersion or 'by default'}"
    return bound, spread, {"data": "centred", "none": "not centred"}[setting.center]


def _keys(kinds: Sequence[tuple[str, ...]], *, chosen: bool) -> list[Line2D]:
    keys = [Line2D([], [], color=NEUTRAL, label="front on validation")]
    if chosen:
        keys.append(Line2D([], [], ls="", marker="o", ms=11, mfc="none", mec=AGAINST, mew=2, label="recommended"))
    varied = [column for column, words in enumerate(zip(*kinds, strict=True)) if len(set(words)) > 1]
    for number, kind in enumerate(kinds if len(kinds) > 1 else []):
        shape, label = SHAPES[number % len(SHAPES)], ", ".join(kind[column] for column in varied)
        keys.append(Line2D([], [], ls="", marker=shape, mfc="white", mec=INK, label=label))
    return keys
