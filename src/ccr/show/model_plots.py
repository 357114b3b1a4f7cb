"""Figures of what a model does: contrasts, classes, drift, heat maps, accuracy against length. No global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr.errors import CCRError
from ccr.explain import Audit, CarryingConcept, ClassView, Coactivation, ConceptDrift, Contrast, ModelView
from ccr.explain.terms import AGAINST, FOR, INK, NEUTRAL, signed_name, sum_rows
from ccr.show.style import (
    COLOURS,
    annotate_below,
    annotate_right,
    label_axes,
    name_rows,
    room_for,
    set_title,
    shortened,
    two_classes,
)
from ccr.utils.texts import share_text

MARKERS = "osD^vP"
#: A heat map with more rows than this shows those with most to see.
MOST_NAMED = 40


class ParetoPoint(NamedTuple):
    """A model as a point: concepts per image, accuracy in [0, 1], mean deviation."""

    name: str
    length: float
    accuracy: float
    deviation: float


def contrast_bars(contrast: Contrast, *, top: int = 12) -> Figure:
    """Why one class and not the other: the part of the `top` concepts in the difference of their logits."""
    rows = sum_rows(contrast.bias, contrast.contributions, top)
    names = [shortened(row.name) for row in rows]
    figure, axes = _tall(names)
    _signed(axes, names, [row.value for row in rows])
    axes.set_xlabel("part of the difference of logits")
    set_title(axes, f"{two_classes(contrast)}\ntogether {contrast.difference:+.2f}")
    return figure


def class_view(view: ClassView, *, top: int = 10) -> Figure:
    """The concepts that carry a class and those that speak against it; beside each bar, how many of its images
    show it."""
    shown: list[CarryingConcept] = [*view.carrying[:top], *reversed(view.opposing[: max(1, top // 2)])]
    names = [shortened(signed_name(item)) for item in shown]
    figure, axes = _tall(names)
    values = [item.contribution for item in shown]
    _signed(axes, names, values, [f"{item.share:.0%}" for item in shown])
    axes.set_xlabel("contribution where it shows\nat the bar: share of the class's images that show it")
    accuracy = "" if np.isnan(view.accuracy) else f", {share_text(view.accuracy)} right"
    set_title(axes, f"{shortened(view.name)}: {view.images} images{accuracy}")
    return figure


def drift(audit: Audit, *, top: int = 25, least: float | None = None) -> Figure:
    """Fidelity of concepts: all of them as a histogram, the first `top` of the audit by name, flagged ones marked,
    beside the images that each kept, gained and lost.

    `least`, in [0, 1], is drawn as the bound that they were refined within; None: there was none.
    """
    known = [item for item in audit.concepts if item.fidelity is not None]
    if not known:
        raise CCRError("this audit has no fidelities: make it with data, as in model.audit(X)")
    shown, seen = known[:top], known[0].overlap is not None
    width = max(9 if seen else 7, room_for(shortened(item.concept) for item in shown) + (6.8 if seen else 5))
    figure = Figure(figsize=(width, 2.9 + 0.27 * max(len(shown), 3)), layout="constrained")
    grid = figure.add_gridspec(
        2, 2 if seen else 1, height_ratios=[1.3, 0.3 * max(len(shown), 3) + 0.6], width_ratios=[1, 1] if seen else [1]
    )
    above, below = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, 0])
    _fidelities(above, known, least)
    set_title(above, f"{len(audit.flagged)} of {len(audit.concepts)} concepts flagged for drift")
    _lost_fidelity(below, shown, least)
    if seen:
        _images_kept(figure.add_subplot(grid[1, 1]), shown)
    return figure


def accuracy_curve(
    lengths: Sequence[float],
    accuracies: Mapping[str, Any],
    *,
    full: Mapping[str, float] | None = None,
    label: str = "concepts kept",
) -> Figure:
    """Accuracy against the number of concepts kept (accuracy@k or NEC), one line per model.

    Parameters
    ----------
    lengths : sequence of float
        Numbers of concepts kept.
    accuracies : mapping of name to array
        Accuracies in [0, 1], (lengths,) or (seeds, lengths); of several seeds a band goes from the worst to the best.
    full : mapping of name to float, or None
        Accuracy with every concept, drawn as a dotted line.
    label : str
        What the horizontal axis is called.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (name, values) in enumerate(accuracies.items()):
        runs = 100 * np.atleast_2d(np.asarray(values, np.float64))
        if runs.shape[1] != len(lengths):
            raise CCRError(f"{name!r} must have an accuracy for each of {len(lengths)} lengths, got {runs.shape[1]}")
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        text = shortened(name).replace("$", r"\$")
        text = f" {text}" if text.startswith("_") else text  # matplotlib would leave it out of the legend
        axes.plot(lengths, runs.mean(axis=0), color=colour, marker=marker, markersize=5, label=text)
        if len(runs) > 1:
            axes.fill_between(lengths, runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        if full is not None and name in full:
            axes.axhline(100 * full[name], color=colour, linestyle=":", linewidth=1)
    label_axes(axes, label + (" (dotted: all of them)" if full else ""), "accuracy, %")
    axes.legend(frameon=False)
    return figure


def pareto(points: Sequence[ParetoPoint]) -> Figure:
    """Accuracy against length, coloured by how far concepts moved; the line joins what nothing beats in both."""
    if not points:
        raise CCRError("a Pareto figure needs at least one point, got none")
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.subplots()
    best = pareto_front(points)
    axes.step([p.length for p in best], [100 * p.accuracy for p in best], where="post", color=NEUTRAL, zorder=1)
    dots = axes.scatter(
        [p.length for p in points],
        [100 * p.accuracy for p in points],
        c=[p.deviation for p in points],
        cmap="cividis",
        vmin=0.0,
        s=60,
        edgecolors=INK,
        linewidths=0.6,
        zorder=2,
    )
    for point in points if len(points) <= 12 else best[:12]:
        annotate_below(axes, point.length, 100 * point.accuracy, shortened(point.name, 28))
    figure.colorbar(dots, ax=axes, label="mean deviation of the concepts")
    axes.margins(0.12)
    label_axes(axes, "concepts per image", "accuracy, %")
    return figure


def pareto_front(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """Points that no other is both shorter and more accurate than, shortest first."""
    best: list[ParetoPoint] = []
    for point in sorted(points, key=lambda p: (p.length, -p.accuracy)):
        if not best or point.accuracy > best[-1].accuracy:
            best.append(point)
    return best


def confusion_map(view: ModelView, *, most: int = MOST_NAMED) -> Figure:
    """True classes against predicted ones, in percent of the true class; right ones are left blank.

    Of more than `most` classes, those with most errors are shown.
    """
    if not view.labelled:
        raise CCRError("a map of confusions needs the true labels, but this view was made without them: give y")
    counts = view.confusion.astype(np.float64)
    np.fill_diagonal(counts, 0.0)
    rows = _busiest(counts + counts.T, most)
    shares = 100 * counts / np.maximum(view.images, 1)[:, None]
    cells = shares[np.ix_(rows, rows)]
    np.fill_diagonal(cells, np.nan)
    figure, axes = _map(cells, [view.classes[row] for row in rows], "% of the true class")
    axes.set_ylabel("true class")
    axes.set_xlabel("taken for")
    part = f", the {len(rows)} of {len(view.classes)} classes with most" if len(rows) < len(view.classes) else ""
    set_title(axes, f"Errors by class{part}")
    return figure


def coactivation_map(pairs: Sequence[Coactivation], *, most: int = MOST_NAMED) -> Figure:
    """How often concepts are active in the same images: both / either (Jaccard), for the concepts of these pairs."""
    if not pairs:
        raise CCRError("a map of co-activation needs at least one pair of concepts, got none")
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)))
    rows_of = {name: row for row, name in enumerate(names)}
    shares = np.zeros((len(names), len(names)))
    for pair in pairs:
        first, second = rows_of[pair.first], rows_of[pair.second]
        shares[first, second] = shares[second, first] = pair.jaccard
    rows = _busiest(shares, most)
    cells = shares[np.ix_(rows, rows)]
    np.fill_diagonal(cells, np.nan)
    figure, axes = _map(cells, [names[row] for row in rows], "share of images with either that have both")
    part = f", {len(rows)} of {len(names)} concepts" if len(rows) < len(names) else ""
    set_title(axes, f"Concepts active together{part}")
    return figure


def _busiest(weights: np.ndarray, most: int) -> list[int]:
    """All rows, or if there are more than `most` the ones of largest sum, in their own order."""
    sums = weights.sum(axis=1)
    if len(sums) <= most:
        return list(range(len(sums)))
    chosen = np.argsort(-sums, kind="stable")[:most]
    return sorted(row for row in chosen.tolist() if sums[row] > 0) or sorted(chosen.tolist())


def _map(cells: np.ndarray, names: Sequence[Any], label: str) -> tuple[Figure, Axes]:
    size = 3.0 + 0.22 * len(names)
    figure = Figure(figsize=(size + 2.2, size + 0.8), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        cells, cmap="Blues", vmin=0.0, vmax=np.nanmax(cells, initial=0.0) or 1.0, interpolation="nearest"
    )
    axes.set_facecolor("#dddddd")  # under the blank diagonal
    texts = [shortened(name) for name in names]
    axes.set_xticks(range(len(texts)))
    axes.set_xticklabels(texts, rotation=90, parse_math=False, fontsize=8)
    axes.set_yticks(range(len(texts)))
    axes.set_yticklabels(texts, parse_math=False, fontsize=8)
    figure.colorbar(image, ax=axes, label=label, shrink=0.7)
    if len(names) <= 20:
        dark = np.nanmax(cells, initial=0.0) / 2
        for row, column in np.argwhere(np.nan_to_num(cells) > 0):
            value = cells[row, column]
            text = f"{value:.0f}" if np.nanmax(cells) > 1 else f"{value:.2f}".lstrip("0")
            colour = "white" if value > dark else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    return figure, axes


def _fidelities(axes: Axes, concepts: Sequence[ConceptDrift], least: float | None) -> None:
    values = [[item.fidelity or 0.0 for item in concepts if item.flagged is kind] for kind in (False, True)]
    lowest = min(value for kind in values for value in kind)
    axes.hist(values, bins=np.linspace(min(lowest, 0.95), 1, 31).tolist(), stacked=True, color=[FOR, AGAINST])
    _bound(axes, least)
    edge = f"; dashed: {least:g}, their bound on training images" if least else ""
    label_axes(axes, f"fidelity of all {len(concepts)} concepts{edge}", "concepts")


def _bound(axes: Axes, least: float | None) -> None:
    if least:
        axes.axvline(least, color=INK, linestyle="--", linewidth=1)


def _lost_fidelity(axes: Axes, concepts: Sequence[ConceptDrift], least: float | None) -> None:
    """How far each concept is from 1, where it sees exactly what its text sees."""
    _bound(axes, least)
    for row, item in enumerate(concepts):
        colour, value = AGAINST if item.flagged else FOR, item.fidelity or 0.0
        axes.plot([value, 1], [row, row], color=colour, linewidth=1.2)
        axes.plot(value, row, "D" if item.flagged else "o", color=colour, markersize=6)
        annotate_right(axes, 1, row, f"{value:.2f}")
    name_rows(axes, [shortened(item.concept) for item in concepts])
    axes.set_xlabel("fidelity (orange diamonds: flagged)")
    lowest = min([0.95, least or 0.95, *(item.fidelity or 0.0 for item in concepts)])
    axes.set_xlim(lowest - 0.05 * (1 - lowest), 1 + 0.15 * (1 - lowest))


def _images_kept(axes: Axes, concepts: Sequence[ConceptDrift]) -> None:
    """Stacked bars per concept: images where it is active by model and text, by the model alone, by its text alone."""
    shown, gained, lost = np.array(
        [(item.active_after or 0, item.gained or 0, item.lost or 0) for item in concepts], np.float64
    ).T
    parts = {
        "by both": (FOR, shown - gained),
        "gained: by the model alone": (COLOURS[2], gained),
        "lost: by its text alone": (NEUTRAL, lost),
    }
    left = np.zeros(len(concepts))
    for name, (colour, counts) in parts.items():
        axes.barh(range(len(concepts)), counts, left=left, color=colour, height=0.7, label=name)
        left += counts
    name_rows(axes, [""] * len(concepts))
    axes.set_xlabel("images that show it")
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, columnspacing=0.8)


def _tall(names: Sequence[str]) -> tuple[Figure, Axes]:
    """A figure with a row for each of these names."""
    figure = Figure(figsize=(max(8, room_for(names) + 6), 1.3 + 0.3 * max(len(names), 2)), layout="constrained")
    return figure, figure.subplots()


def _signed(axes: Axes, names: Sequence[str], values: Sequence[float], notes: Sequence[str] | None = None) -> None:
    axes.barh(range(len(values)), values, color=[FOR if value >= 0 else AGAINST for value in values], height=0.7)
    for row, value in enumerate(values):
        text = f"{value:+.2f}" + (f"  {notes[row]}" if notes else "")
        annotate_right(axes, max(value, 0.0), row, text)
    name_rows(axes, names)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.use_sticky_edges = False
    axes.margins(x=0.2)
