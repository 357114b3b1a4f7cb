"""Matplotlib figures of explanations. Each returns a Figure and touches no global state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

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
from ccr.explain import Contrast, Explanation
from ccr.explain.terms import AGAINST, FOR, INK, MARKS, NEUTRAL, SumRow, sum_rows
from ccr.show.pictures import LONGEST_CAPTION, WAYS_IN_WORDS, framed, overlay, parts, scales_of, shown_maps
from ccr.show.style import annotate_right, room_for, set_title, shortened, two_classes
from ccr.utils.texts import percent

# Where in the picture, as a figure: small multiples.
#: Pictures in a row.
ACROSS = 4


def located(
    explained: Explanation, image: Image.Image, *, against: Contrast | None = None, top: int = 6, truth: Any = None
) -> Figure:
    """The picture, and where its class's logit and each of the `top` contributions come from; the contributions share a
    colour scale."""
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
    drawn = [(f"{shortened(explained.prediction)}, {percent(explained.probability)}{verdict}", "", picture)]
    drawn += [
        (shortened(name, LONGEST_CAPTION), parts(item), overlay(picture, item.map, scale))
        for (name, item), scale in zip(maps, scales, strict=True)
    ]
    for axis, (heading, below, shown) in zip(axes, drawn, strict=False):
        axis.imshow(np.asarray(shown))
        set_title(axis, heading, 9)
        axis.text(0, -0.04, below, transform=axis.transAxes, va="top", fontsize=7, color=INK)
    for axis in axes:
        axis.set_axis_off()
    colours = LinearSegmentedColormap.from_list("for-against", [AGAINST, "#dddddd", FOR])
    kinds = {"all together": scales[0], "single concepts": scales[-1]}
    if against is not None:
        kinds = {"all together, and the lead": scales[0], "single concepts": scales[-1]}
    for (kind, scale), axis in zip(kinds.items(), halves[1].subplots(1, 2), strict=True):
        bar = ScalarMappable(Normalize(-scale, scale), colours)
        figure.colorbar(bar, cax=axis, orientation="horizontal", label=f"{kind}: of the logit, per patch")
        axis.set_box_aspect(0.05)
    halves[1].supxlabel(WAYS_IN_WORDS[where.way], fontsize=8, x=0.01, ha="left", color=INK)
    return figure


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


#: Characters of a name in a picture that grows with its names.
LONGEST = 70
#: Fonts with Chinese, Japanese and Korean letters, which matplotlib's own has not: Linux, macOS, Windows.
FALLBACKS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR",
    "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "PingFang SC",
    "Hiragino Sans GB", "Hiragino Sans", "Apple SD Gothic Neo", "Heiti TC", "Microsoft YaHei", "Yu Gothic",
    "Malgun Gothic", "SimHei", "Arial Unicode MS",
)  # fmt: skip


def explanation(
    explained: Explanation,
    image: Any | None = None,
    *,
    against: Contrast | None = None,
    top: int = 10,
    truth: Any | None = None,
) -> Figure:
    """A prediction: the image, and the sum that made it: contribution = code x weight, largest effect first; below, why
    the class and not the one that it is `against`. Blue speaks for the class, orange against it."""
    sums: list[tuple[str, str, list[SumRow]]] = [
        (
            _headline(explained, truth),
            "weight",
            sum_rows(explained.bias, explained.contributions, top, informed=explained.informed),
        )
    ]
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
        axes.set_axis_off()
    parts = np.atleast_1d(np.asarray(beside.subfigures(len(sums), 1, height_ratios=heights)))
    for part, (title, weight, rows) in zip(parts, sums, strict=True):
        part.suptitle(title.replace("$", r"\$"), color=INK, fontsize=12, x=0.01, ha="left")
        _sum_panels(part.subplots(1, 3, width_ratios=[1.3, 1, 1]), rows, weight)
    return figure


def waterfall(explained: Explanation | Contrast, *, top: int = 12) -> Figure:
    """The sum, step by step: bias, the `top` largest contributions, the rest, and the logit they add up to."""
    total = explained.logit if isinstance(explained, Explanation) else explained.difference
    steps = sum_rows(explained.bias, explained.contributions, top)
    names = [shortened(step.name) for step in steps]
    figure = Figure(figsize=(max(7.5, room_for(names) + 6), 1.2 + 0.3 * (len(steps) + 1)), layout="constrained")
    axes = figure.subplots()
    level = 0.0
    for row, (_, size, *_) in enumerate(steps):
        axes.barh(row, size, left=level, color=FOR if size >= 0 else AGAINST, height=0.7)
        axes.plot([level + size] * 2, [row - 0.4, row + 1.4], color=NEUTRAL, linewidth=0.8)
        axes.annotate(
            f"{size:+.2f}", (max(level, level + size), row), xytext=(4, 0), textcoords="offset points", va="center"
        )
        level += size
    axes.barh(len(steps), total, color=INK, height=0.7)
    ending = "logit" if isinstance(explained, Explanation) else "difference of logits"
    _names(axes, [*names, ending])
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
    title = two_classes(explained) if isinstance(explained, Contrast) else shortened(explained.prediction)
    axes.set_title(title, loc="left", fontsize=12, parse_math=False)
    return figure


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


def _headline(explanation: Explanation, truth: Any | None) -> str:
    text = f"{shortened(explanation.prediction)}, {percent(explanation.probability)}"
    if truth is None:
        return text
    return text + (" (right)" if str(truth) == str(explanation.prediction) else f" (wrong: it is {shortened(truth)})")


def _sum_panels(axes: Sequence[Axes], rows: Sequence[SumRow], weight: str) -> None:
    """Bar panels of a sum: the contribution of each row, and code and weight of the rows that are a single concept."""
    colours = [FOR if row.value >= 0 else AGAINST for row in rows]
    panels = {
        "contribution": [row.value for row in rows],
        "code: how strongly shown": [0.0 if row.term is None else row.term.code for row in rows],
        weight: [0.0 if row.term is None else row.term.weight for row in rows],
    }
    for panel, (title, values) in zip(axes, panels.items(), strict=True):
        panel.barh(range(len(rows)), values, color=colours, height=0.7)
        _names(panel, [_marked(row) if panel is axes[0] else "" for row in rows])
        panel.axvline(0.0, color=INK, linewidth=0.8)
        panel.set_title(title, loc="left", fontsize=10)
        panel.margins(x=0.2 if panel is axes[0] else 0.08)
    for number, row in enumerate(rows):
        annotate_right(axes[0], max(row.value, 0.0), number, f"{row.value:+.2f}")


def _marked(row: SumRow) -> str:
    """The row's name with the sign of what is known of its claim."""
    name = shortened(row.name, LONGEST)
    return name if row.claim is None else f"{name} {MARKS[row.claim]}"


def _names(axes: Axes, names: Sequence[str]) -> None:
    # parse_math off: a concept such as "$5 note" is a name, not a formula
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels(names, parse_math=False)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
