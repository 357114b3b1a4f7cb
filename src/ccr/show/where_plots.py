"""Where in the picture, as a figure: small multiples on one colour scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from PIL import Image

from ccr.core.explain import Contrast, Explanation
from ccr.errors import CCRError
from ccr.show.axes import set_title
from ccr.show.style import AGAINST, FOR, INK, shortened
from ccr.show.where_pictures import LONGEST, common_scale, framed, overlay, parts, shown_maps
from ccr.texts import percent

#: Pictures in a row.
ACROSS = 4


def located(
    explained: Explanation, image: Image.Image, *, against: Contrast | None = None, top: int = 6, truth: Any = None
) -> Figure:
    """The picture, and where its class's logit and each of the `top` contributions come from; one colour scale."""
    where = explained.where
    if where is None:
        raise CCRError(
            "the explanation has no maps: make it from the picture, by ccr.models.photos.where.explain_image"
        )
    maps = shown_maps(where, top=top, against=against)
    scale, picture = common_scale([item for _, item in maps]), framed(image, where.frame, 336)
    down = -(-(len(maps) + 1) // ACROSS)
    figure = Figure(figsize=(2.7 * ACROSS + 0.8, 3.1 * down + 0.4), layout="constrained")
    axes = np.asarray(figure.subplots(down, ACROSS, squeeze=False)).ravel()
    verdict = "" if truth is None or str(truth) == str(explained.prediction) else f" (it is {shortened(truth)})"
    drawn = [(f"{shortened(explained.prediction)}, {percent(explained.probability)}{verdict}", "", picture)]
    drawn += [(shortened(name, LONGEST), parts(item), overlay(picture, item.map, scale)) for name, item in maps]
    for axis, (heading, below, shown) in zip(axes, drawn, strict=False):
        axis.imshow(np.asarray(shown))
        set_title(axis, heading, 9)
        axis.text(0, -0.04, below, transform=axis.transAxes, va="top", fontsize=7, color=INK)
    for axis in axes:
        axis.set_axis_off()
    colours = LinearSegmentedColormap.from_list("for-against", [AGAINST, "#dddddd", FOR])
    bar = ScalarMappable(Normalize(-scale, scale), colours)
    figure.colorbar(bar, ax=axes.tolist(), shrink=0.6, label="of the logit, per patch")
    return figure
