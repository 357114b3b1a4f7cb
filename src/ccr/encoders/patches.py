"""The last attention of an image tower, taken apart: what each token carries into the embedding.

After the last attention an image tower is nearly linear. The class token's stream is `residual + sum over tokens and
heads of attention x value x out_weight + out_bias`; then come an MLP, a layer norm and a projection. With the
attention, the two norms' scales and the MLP's gates (activation(f) / f) taken at the image's own values, everything
that follows is a linear function of that sum, so that each token's term can be followed into the embedding.
docs/where.md has the formulas. SigLIP's pooling head has the same form, with no residual, final norm or projection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from ccr.encoders.registry import Encoder
from ccr.explain import Frame, PatchTerms
from ccr.utils.processes import OnProgress, no_progress

# Patch terms by occlusion, covering parts of the picture and embedding it again: slow, approximate, for any encoder.

#: Cells along a side of the map, and along a side of the covered square.
CELLS, COVERED = 8, 2


def occluded_terms(encoder: Encoder, image: Image.Image, *, tell: OnProgress = no_progress) -> PatchTerms:
    """Patch terms by occlusion: the change of the embedding when a square of the picture is covered with its mean
    colour, divided among the cells of the square and averaged over the squares that a cell is in; `rest` is the
    remainder of the embedding.

    A picture is embedded 50 times: whole, and with each of 7 x 7 overlapping squares covered.
    """
    frame = encoder.frame(image) if hasattr(encoder, "frame") else Frame()
    places = [(row, column) for row in range(CELLS - COVERED + 1) for column in range(CELLS - COVERED + 1)]
    rows = encoder.embed_images(_covered(image.convert("RGB"), frame, places, tell)).astype(np.float64)
    tell(len(places) + 1, len(places) + 1, "covering parts")
    embedding, lost = rows[0], rows[0] - rows[1:]
    terms, times = np.zeros((CELLS, CELLS, len(embedding))), np.zeros((CELLS, CELLS, 1))
    for (row, column), drop in zip(places, lost, strict=True):
        cells = slice(row, row + COVERED), slice(column, column + COVERED)
        terms[cells] += drop / COVERED**2
        times[cells] += 1
    terms /= times
    return PatchTerms(embedding, terms, {"not split": embedding - terms.sum(axis=(0, 1))}, frame, "occlusion")


def _covered(
    image: Image.Image, frame: Frame, places: list[tuple[int, int]], tell: OnProgress
) -> Iterator[Image.Image]:
    """The image, then copies of it with a square of cells covered."""
    left, top, right, bottom = frame.pixels(*image.size)
    colour = mean_colour(image.crop((left, top, right, bottom)))
    yield image
    for number, (row, column) in enumerate(places):
        tell(number + 1, len(places) + 1, "covering parts")
        edges = [
            left + (right - left) * column // CELLS,
            top + (bottom - top) * row // CELLS,
            left + (right - left) * (column + COVERED) // CELLS,
            top + (bottom - top) * (row + COVERED) // CELLS,
        ]
        copy = image.copy()
        copy.paste(colour, (edges[0], edges[1], max(edges[2], edges[0] + 1), max(edges[3], edges[1] + 1)))
        yield copy


def mean_colour(image: Image.Image) -> tuple[int, int, int]:
    """Mean colour of a picture: red, green, blue."""
    red, green, blue = np.asarray(image.convert("RGB")).reshape(-1, 3).mean(axis=0)
    return round(red), round(green), round(blue)


Gate = Callable[[np.ndarray], np.ndarray]


class Affine(NamedTuple):
    """x @ weight.T + bias."""

    weight: np.ndarray
    bias: np.ndarray


class Norm(NamedTuple):
    """A layer norm."""

    weight: np.ndarray
    bias: np.ndarray
    eps: float

    def at(self, rows: np.ndarray, like: np.ndarray) -> np.ndarray:
        """The norm's linear part on rows (m, D), with the scale that it has at `like` (D,)."""
        scale = np.sqrt(like.var() + self.eps)
        return np.asarray((rows - rows.mean(axis=-1, keepdims=True)) / scale * self.weight)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        middle = rows - rows.mean(axis=-1, keepdims=True)
        scale = np.sqrt((middle**2).mean(axis=-1, keepdims=True) + self.eps)
        return np.asarray(middle / scale * self.weight + self.bias)


class Attended(NamedTuple):
    """One image at the last attention.

    residual : (D,), the stream that the attention's result is added to; None: there is none.
    attention : (heads, tokens), how much the class token, or the pooling probe, attends to each.
    values : (heads, tokens, D / heads).
    embedding : (d,), what the encoder made of it in the end.
    middle, hidden, final : the stream (D,) after the attention, the MLP's hidden layer (M,) before its activation, and
        the stream (D,) at the end, as the encoder had them; None: they are computed here.
    """

    residual: np.ndarray | None
    attention: np.ndarray
    values: np.ndarray
    embedding: np.ndarray
    middle: np.ndarray | None = None
    hidden: np.ndarray | None = None
    final: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class LastLayer:
    """The weights from the last attention's result to the embedding; `gate` is the activation divided by its input."""

    out: Affine
    norm: Norm
    up: Affine
    down: Affine
    gate: Gate
    final_norm: Norm | None
    projection: np.ndarray | None

    def split(self, image: Attended) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Contribution of each token to the embedding (tokens, d), and the other contributions by name: the class
        token's residual stream, the biases, and the rounding of the encoder's arithmetic."""
        carried = self._carried(image)
        residual = np.zeros_like(self.out.bias) if image.residual is None else image.residual
        middle = residual + carried.sum(axis=0) + self.out.bias if image.middle is None else image.middle
        hidden = self._affine(self.norm(middle), self.up) if image.hidden is None else image.hidden
        gates = self.gate(hidden)
        final = middle + self._affine(hidden * gates, self.down) if image.final is None else image.final

        def onward(rows: np.ndarray) -> np.ndarray:
            lifted = self.norm.at(rows, middle) @ self.up.weight.T * gates @ self.down.weight.T
            return self._read(rows + lifted, final)

        parts = onward(np.concatenate([carried, residual[None], self.out.bias[None]]))
        constant = (self.norm.bias @ self.up.weight.T + self.up.bias) * gates @ self.down.weight.T + self.down.bias
        biases = parts[-1] + self._read(constant[None], final)[0] + self._offset()
        rest = {"class token": parts[-2], "biases": biases}
        rest["rounding"] = image.embedding - parts[:-1].sum(axis=0) - biases
        return parts[:-2], rest

    def projected_values(self, image: Attended) -> np.ndarray:
        """Each token's value as if it were the image's whole stream (tokens, d), unit rows: MaskCLIP's way."""
        tokens = image.values.shape[1]
        rows = self._affine(image.values.transpose(1, 0, 2).reshape(tokens, -1), self.out)
        if self.final_norm is not None:
            rows = self.final_norm(rows)
        rows = rows if self.projection is None else rows @ self.projection.T
        return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))

    def _carried(self, image: Attended) -> np.ndarray:
        """Contribution of each token to the residual stream through attention (tokens, D)."""
        heads, tokens, width = image.values.shape
        weighted = (image.attention[:, :, None] * image.values).transpose(1, 0, 2).reshape(tokens, heads * width)
        return np.asarray(weighted @ self.out.weight.T)

    def _read(self, rows: np.ndarray, final: np.ndarray) -> np.ndarray:
        """Parts of the final stream (m, D) in the embedding (m, d), without constants."""
        rows = rows if self.final_norm is None else self.final_norm.at(rows, final)
        return np.asarray(rows if self.projection is None else rows @ self.projection.T)

    def _offset(self) -> np.ndarray | float:
        if self.final_norm is None:
            return 0.0
        bias = self.final_norm.bias
        return bias if self.projection is None else np.asarray(bias @ self.projection.T)

    @staticmethod
    def _affine(rows: np.ndarray, by: Affine) -> np.ndarray:
        return np.asarray(rows @ by.weight.T + by.bias)


class Grid(NamedTuple):
    """Layout of tokens: the first `before` are no patches, then come rows x columns patches."""

    rows: int
    columns: int
    before: int


def patch_terms(
    layer: LastLayer, image: Attended, *, grid: Grid, frame: Frame, way: Literal["exact", "values"]
) -> PatchTerms:
    """The embedding of one image over its patches; tokens that are no patches go to the rest."""
    patches = slice(grid.before, grid.before + grid.rows * grid.columns)
    if way == "values":
        size = np.linalg.norm(image.embedding) / (grid.rows * grid.columns)
        terms = layer.projected_values(image)[patches] * size
        rest = {"not split": image.embedding - terms.sum(axis=0)}
    else:
        tokens, rest = layer.split(image)
        terms = tokens[patches]
        rest["class token"] = rest["class token"] + tokens.sum(axis=0) - terms.sum(axis=0)
    return PatchTerms(image.embedding, terms.reshape(grid.rows, grid.columns, -1), rest, frame, way)


def gate_of(activation: Callable[[np.ndarray], np.ndarray]) -> Gate:
    """An activation divided by its input; where that is zero, so is the result, whatever the gate."""

    def gate(hidden: np.ndarray) -> np.ndarray:
        small = np.abs(hidden) < 1e-12
        return np.asarray(np.where(small, 0.5, activation(hidden) / np.where(small, 1.0, hidden)))

    return gate


def quick_gelu_gate(hidden: np.ndarray) -> np.ndarray:
    """The gate of x sigmoid(1.702 x)."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.851 * hidden)))  # a sigmoid that never overflows
