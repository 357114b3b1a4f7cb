"""Figures of comparisons, sweeps, training curves and frontiers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, ScalarFormatter

from ccr.errors import CCRError
from ccr.explain.terms import AGAINST, FOR, INK, NEUTRAL
from ccr.geometry import coherence, unit_rows
from ccr.show.pictures import shortened
from ccr.show.plots import COLOURS, annotate_below, annotate_right, label_axes, png
from ccr_lab.experiments.compare import MethodComparison, MethodRow
from ccr_lab.experiments.curves import Curve, SweepPoint
from ccr_lab.experiments.frontier import NAMED, RIVALS, VECTORS, WORDS, Frontier, FrontierPoint
from ccr_lab.experiments.protocol import Protocol
from ccr_lab.experiments.runs import KEPT
from ccr_lab.experiments.sweep import EITHER, Outcome, Sweep

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
    """The facts that a point's shape stands for: the bound of the concepts, how they are spread and centred."""
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
#: Methods whose cut explanations are drawn.
CUT = ("ccr", "baseline", "ip-omp", "label-free", "splice", "random-vectors", "random-words")


def accuracies(comparison: MethodComparison) -> Figure:
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
    axes.margins(x=0.3 if gaps else 0.12)
    least, most = axes.get_xlim()
    axes.set_xticks([tick for tick in axes.get_xticks() if max(least, 0) <= tick <= min(most, 100)])
    axes.set_xlim(least, most)  # beyond 100 is room for the numbers
    label_axes(axes, f"test accuracy, % (95 % intervals, {comparison.images} images)", "")
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"At {comparison.length:g} concepts per image\nCCR: {comparison.settings}", loc="left", fontsize=11)
    return figure


def cut_explanations(comparison: MethodComparison) -> Figure:
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


def _curve(axes: Axes, row: MethodRow, values: Sequence[float] | None) -> None:
    if values is not None:
        colour, dash = LOOKS[row.method]
        axes.plot(KEPT, 100 * np.asarray(values), color=colour, linestyle=dash, label=row.title)


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


def _percent(points: list[FrontierPoint]) -> list[float]:
    return [100 * point.accuracy for point in points]


def _draw_probe(axes: Axes, found: Frontier) -> None:
    colour, dash = LOOKS["probe"]
    axes.axhline(100 * found.probe, color=colour, linestyle=dash, linewidth=1.2, label="linear probe")


def _title(what: str, found: Frontier) -> str:
    train, test = found.images
    return f"{what}\n{train:,} training and {test:,} test images, {found.concepts} concepts"
