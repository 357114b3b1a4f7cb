"""Matplotlib figures of explanations, classes, drift and errors. Each returns a Figure and touches no global state."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any
from unicodedata import east_asian_width

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from PIL import Image

from ccr.errors import CCRError
from ccr.explain import Audit, ClassView, ConceptDrift, Contrast, Explanation, ModelView
from ccr.explain.terms import AGAINST, FOR, INK, MARKS, NEUTRAL, NO_REASON, SumRow, signed_name, sum_rows
from ccr.show.pictures import (
    LONGEST_CAPTION,
    WAYS_IN_WORDS,
    framed,
    overlay,
    parts,
    scales_of,
    shortened,
    shown_maps,
)
from ccr.utils.texts import percent, share_text

#: Lines of one figure: colour-blind safe (Okabe and Ito).
COLOURS = (FOR, AGAINST, "#009E73", "#CC79A7", NEUTRAL)
#: Pictures in a row.
ACROSS = 4
#: Characters of a name in a picture that grows with its names.
LONGEST = 70
#: A map of errors with more classes than this shows those with most.
MOST_NAMED = 40
#: Fonts with Chinese, Japanese and Korean letters, which matplotlib's own has not: Linux, macOS, Windows.
FALLBACKS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR",
    "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "PingFang SC",
    "Hiragino Sans GB", "Hiragino Sans", "Apple SD Gothic Neo", "Heiti TC", "Microsoft YaHei", "Yu Gothic",
    "Malgun Gothic", "SimHei", "Arial Unicode MS",
)  # fmt: skip


def label_axes(axes: Axes, x: str, y: str) -> None:
    """Name both axes, and leave a light grid without a frame."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names of horizontal bars or lines, the first at the top."""
    # parse_math off: a concept such as "$5 note" is a name, not a formula
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels(names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _room_for(names: Iterable[str]) -> float:
    """About how many inches the longest of these names takes."""
    return max(
        (sum(0.14 if east_asian_width(letter) in "WF" else 0.085 for letter in name) for name in names), default=0
    )


def set_title(axes: Axes, text: str, size: int = 11) -> None:
    axes.set_title(text, loc="left", fontsize=size, parse_math=False)


def annotate_right(axes: Axes, x: float, row: float, text: str) -> None:
    """A small text to the right of a point."""
    axes.annotate(text, (x, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8, color=INK)


def annotate_below(axes: Axes, x: float, y: float, text: str) -> None:
    """A small text below a point, to its right."""
    options = {"textcoords": "offset points", "fontsize": 8, "parse_math": False}
    axes.annotate(text, (x, y), xytext=(7, -10), **options)  # type: ignore[arg-type]


def png(figure: Figure, *, dpi: int = 130) -> bytes:
    """The figure as PNG bytes, at `dpi` dots per inch; letters that its font lacks come from others installed here."""
    buffer, families, usual = BytesIO(), _font_families(), rcParams["font.family"]
    with warnings.catch_warnings(), rc_context({"font.family": families}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # an emoji in a name is drawn as a box
        for text in figure.findobj(Text):
            if text.get_fontfamily() == usual:
                text.set_fontfamily(families)
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _font_families() -> list[str]:
    """The user's font, and those of `FALLBACKS` that are installed: what one lacks, the next draws."""
    installed = set(fontManager.get_font_names())
    return [*rcParams["font.family"], *(name for name in FALLBACKS if name in installed)]


def stacked(pictures: Sequence[bytes]) -> bytes:
    """PNG pictures below each other as one."""
    images = [Image.open(BytesIO(picture)).convert("RGB") for picture in pictures]
    whole = Image.new("RGB", (max(image.width for image in images), sum(image.height for image in images)), "white")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height
    buffer = BytesIO()
    whole.save(buffer, format="PNG")
    return buffer.getvalue()


def explanation(
    explained: Explanation,
    image: Any | None = None,
    *,
    against: Contrast | None = None,
    top: int = 10,
    truth: Any | None = None,
    name: str = "",
) -> Figure:
    """A prediction: the image, called by its `name`, and the sum that made it: contribution = code x weight, largest
    effect first; below, why the class and not the one that it is `against`. Blue speaks for the class, orange against
    it."""
    rows = sum_rows(explained.bias, explained.contributions, top, informed=explained.informed)
    nothing = "" if explained.contributions else f": {NO_REASON}"
    sums = [(_headline(explained, truth) + nothing, "weight", rows)]
    if against is not None:
        title = f"{shortened(against.prediction)} rather than {shortened(against.other)}, {against.difference:+.2f}"
        sums.append((title, "difference of weights", sum_rows(against.bias, against.contributions, top)))
    longest = max(len(_marked(row)) for _, _, rows in sums for row in rows)
    heights = [1.1 + 0.3 * max(len(rows), 4) for _, _, rows in sums]
    width = (3.3 if image is not None else 0.0) + 0.085 * longest + 7.0
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    beside: Any = figure
    if image is not None:
        halves: Any = figure.subfigures(1, 2, width_ratios=[3.3, width - 3.3])
        beside, axes = halves[1], halves[0].subplots()
        axes.imshow(np.asarray(image))
        set_title(axes, shortened(name, LONGEST_CAPTION), 9)
        axes.set_axis_off()
    parts = np.atleast_1d(np.asarray(beside.subfigures(len(sums), 1, height_ratios=heights)))
    for part, (title, weight, shown) in zip(parts, sums, strict=True):
        part.suptitle(title.replace("$", r"\$"), color=INK, fontsize=12, x=0.01, ha="left")
        _sum_panels(part.subplots(1, 3, width_ratios=[1.3, 1, 1]), shown, weight)
    return figure


def _headline(explanation: Explanation, truth: Any | None) -> str:
    text = f"{shortened(explanation.prediction)}, {percent(explanation.probability)}"
    if truth is None:
        return text
    return text + (" (right)" if str(truth) == str(explanation.prediction) else f" (wrong: it is {shortened(truth)})")


def _sum_panels(axes: Sequence[Axes], rows: Sequence[SumRow], weight: str) -> None:
    """Bar panels of a sum: the contribution of each row, and code and weight of the rows that are a single concept."""
    colours = [_colour(row.value) for row in rows]
    panels = {
        "contribution": [row.value for row in rows],
        "code: how strongly shown": [0.0 if row.term is None else row.term.code for row in rows],
        weight: [0.0 if row.term is None else row.term.weight for row in rows],
    }
    for panel, (title, values) in zip(axes, panels.items(), strict=True):
        panel.barh(range(len(rows)), values, color=colours, height=0.7)
        name_rows(panel, [_marked(row) if panel is axes[0] else "" for row in rows])
        panel.axvline(0.0, color=INK, linewidth=0.8)
        panel.set_title(title, loc="left", fontsize=10)
        panel.margins(x=0.2 if panel is axes[0] else 0.08)
    for number, row in enumerate(rows):
        annotate_right(axes[0], max(row.value, 0.0), number, f"{row.value:+.2f}")


def _marked(row: SumRow) -> str:
    """The row's name with the sign of what is known of its claim."""
    name = shortened(row.name, LONGEST)
    return name if row.claim is None else f"{name} {MARKS[row.claim]}"


def located(
    explained: Explanation,
    image: Image.Image,
    *,
    against: Contrast | None = None,
    top: int = 6,
    truth: Any = None,
    name: str = "",
) -> Figure:
    """The picture, with its `name` below, and where its class's logit and each of the `top` contributions come from;
    the contributions share a colour scale."""
    where = explained.where
    if where is None:
        raise CCRError("the explanation has no maps: make it from the picture, by ccr.photos.on_photos.explain_image")
    maps = shown_maps(where, top=top, against=against)
    scales, picture = scales_of(maps, against=against), framed(image, where.frame, 336)
    down = -(-(len(maps) + 1) // ACROSS)
    figure = Figure(figsize=(2.7 * ACROSS, 3.1 * down + 1.3), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[3.1 * down, 1.3])
    axes = np.asarray(halves[0].subplots(down, ACROSS, squeeze=False)).ravel()
    verdict = "" if truth is None or str(truth) == str(explained.prediction) else f" (it is {shortened(truth)})"
    headline = f"{shortened(explained.prediction)}, {percent(explained.probability)}{verdict}"
    drawn = [(headline, shortened(name, LONGEST_CAPTION), picture)]
    drawn += [
        (shortened(kind, LONGEST_CAPTION), parts(item), overlay(picture, item.map, scale))
        for (kind, item), scale in zip(maps, scales, strict=True)
    ]
    for axis, (heading, below, shown) in zip(axes, drawn, strict=False):
        axis.imshow(np.asarray(shown))
        set_title(axis, heading, 9)
        axis.text(0, -0.04, below, transform=axis.transAxes, va="top", fontsize=7, color=INK, parse_math=False)
    for axis in axes:
        axis.set_axis_off()
    colours = LinearSegmentedColormap.from_list("for-against", [AGAINST, "#dddddd", FOR])
    kinds = (f"all together{'' if against is None else ', and the lead'}", scales[0]), ("single concepts", scales[-1])
    for (kind, scale), axis in zip(kinds, halves[1].subplots(1, 2), strict=True):
        bar = ScalarMappable(Normalize(-scale, scale), colours)
        figure.colorbar(bar, cax=axis, orientation="horizontal", label=f"{kind}: of the logit, per patch")
        axis.set_box_aspect(0.05)
    halves[1].supxlabel(WAYS_IN_WORDS[where.way], fontsize=8, x=0.01, ha="left", color=INK)
    return figure


def class_view(view: ClassView, *, top: int = 10) -> Figure:
    """The concepts that carry a class and those that speak against it; beside each bar, how many of its images
    show it."""
    shown = [*view.carrying[:top], *reversed(view.opposing[: max(1, top // 2)])]
    names, values = [shortened(signed_name(item)) for item in shown], [item.contribution for item in shown]
    figure = Figure(figsize=(max(8, _room_for(names) + 6), 1.3 + 0.3 * max(len(names), 2)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(values)), values, color=[_colour(value) for value in values], height=0.7)
    for row, item in enumerate(shown):
        annotate_right(axes, max(item.contribution, 0.0), row, f"{item.contribution:+.2f}  {share_text(item.share)}")
    name_rows(axes, names)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.use_sticky_edges = False
    axes.margins(x=0.2)
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
    shown, panels = known[:top], 1 if known[0].overlap is None else 2
    tall = 0.27 * max(len(shown), 3)
    width = max(5 + 2 * panels, _room_for(shortened(item.concept) for item in shown) + 3.2 + 1.8 * panels)
    figure = Figure(figsize=(width, 2.9 + tall), layout="constrained")
    grid = figure.add_gridspec(2, panels, height_ratios=[1.3, tall / 0.9 + 0.6])
    above, below = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, 0])
    values = [[item.fidelity or 0.0 for item in known if item.flagged is kind] for kind in (False, True)]
    lowest = min(min(kind) for kind in values if kind)
    above.hist(values, bins=np.linspace(min(lowest, 0.95), 1, 31).tolist(), stacked=True, color=[FOR, AGAINST])
    edge = f"; dashed: {least:g}, their bound on training images" if least else ""
    label_axes(above, f"fidelity of all {len(known)} concepts{edge}", "concepts")
    for axes in (above, below) if least else ():
        axes.axvline(least or 0.0, color=INK, linestyle="--", linewidth=1)
    set_title(above, f"{len(audit.flagged)} of {len(audit.concepts)} concepts flagged for drift")
    _lost_fidelity(below, shown, least)
    if panels == 2:
        _images_kept(figure.add_subplot(grid[1, 1]), shown)
    return figure


def _lost_fidelity(axes: Axes, concepts: Sequence[ConceptDrift], least: float | None) -> None:
    """Distance of each concept's fidelity from 1, where it sees exactly what its text sees."""
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
    counts = np.array([(item.active_after or 0, item.gained or 0, item.lost or 0) for item in concepts], np.float64)
    shown, gained, lost = counts.T
    left = np.zeros(len(concepts))
    for name, colour, bars in (
        ("by both", FOR, shown - gained),
        ("gained: by the model alone", COLOURS[2], gained),
        ("lost: by its text alone", NEUTRAL, lost),
    ):
        axes.barh(range(len(concepts)), bars, left=left, color=colour, height=0.7, label=name)
        left += bars
    name_rows(axes, [""] * len(concepts))
    axes.set_xlabel("images that show it")
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, columnspacing=0.8)


def confusion_map(view: ModelView) -> Figure:
    """True classes against predicted ones, in percent of the true class; right ones are left blank. Of many classes,
    those with most errors are shown."""
    if not view.labelled:
        raise CCRError("a map of confusions needs the true labels, but this view was made without them: give y")
    counts = view.confusion.astype(np.float64)
    np.fill_diagonal(counts, 0.0)
    errors, rows = (counts + counts.T).sum(axis=1), np.arange(len(counts))
    if len(rows) > MOST_NAMED:
        rows = np.sort(np.argsort(-errors, kind="stable")[:MOST_NAMED])
        rows = rows[errors[rows] > 0] if errors.any() else rows
    cells = (100 * counts / np.maximum(view.images, 1)[:, None])[np.ix_(rows, rows)]
    np.fill_diagonal(cells, np.nan)
    size, most = 3.0 + 0.22 * len(rows), float(np.nanmax(cells, initial=0.0))
    figure = Figure(figsize=(size + 2.2, size + 0.8), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(cells, cmap="Blues", vmin=0.0, vmax=most or 1.0, interpolation="nearest")
    axes.set_facecolor("#dddddd")  # under the blank diagonal
    texts = [shortened(view.classes[row]) for row in rows]
    axes.set_xticks(range(len(texts)))
    axes.set_xticklabels(texts, rotation=90, parse_math=False, fontsize=8)
    axes.set_yticks(range(len(texts)))
    axes.set_yticklabels(texts, parse_math=False, fontsize=8)
    figure.colorbar(image, ax=axes, label="% of the true class", shrink=0.7)
    for row, column in np.argwhere(np.nan_to_num(cells) > 0) if len(rows) <= 20 else ():
        value = cells[row, column]
        text = f"{value:.0f}" if most > 1 else f"{value:.2f}".lstrip("0")
        colour = "white" if value > most / 2 else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_ylabel("true class")
    axes.set_xlabel("taken for")
    part = f", the {len(rows)} of {len(view.classes)} classes with most" if len(rows) < len(view.classes) else ""
    set_title(axes, f"Errors by class{part}")
    return figure


def _colour(value: float) -> str:
    return FOR if value >= 0 else AGAINST
