"""The bundled image tower as ONNX nodes before a model's own: from the pixels of one photo to its embedding.

Resizing, cropping and normalising are inside; decoding a file and turning it upright are not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

from ccr.encoders.assets import CLIP_IMAGE_TOWER, Log, fetch
from ccr.encoders.bundled import BundledEncoder
from ccr.encoders.registry import ClipPreprocess
from ccr.errors import CCRError, MissingExtraError

#: ONNX operator set and IR version of 2022, which most runtimes know.
OPSET, IR_VERSION = 18, 8


def onnx_library() -> Any:
    """The package onnx; an error that names the extra where it is missing."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError('an ONNX file is written by onnx: pip install "ccr-xai[export]"') from error
    return onnx


class GraphParts:
    """Nodes and constants of a graph in the order in which they are added."""

    def __init__(self) -> None:
        self.onnx = onnx_library()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any) -> str:
        """A constant tensor; texts become a tensor of texts."""
        array = np.asarray(value)
        if array.dtype.kind == "U":
            array = array.astype(object)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, name: str, **attributes: Any) -> str:
        """One node whose output has this name."""
        made = self.onnx.helper.make_node(operator, list(inputs), [name], name=name, **attributes)
        self.nodes.append(made)
        return name


# Pillow's bicubic resizing as ONNX nodes, to the bit: two products with matrices of whole numbers. The tower's 8-bit
# arithmetic amplifies small differences: one pixel that differs by 1 moves an embedding to cosine 0.99. ONNX's own
# Resize rounds a few pixels of a photo differently from Pillow, so the weights are computed here as Pillow computes
# them (`Resample.c`), in float64, in which sums of whole numbers are exact. Pixels are rounded between the two
# products, so their order matters: Pillow resizes horizontally first, but vertically first where a photo loses much
# more height than width.
PIXELS = "pixels"
#: Pillow's weights are whole numbers of 2^-22.
_PRECISION = 22
_SUPPORT = 2.0  # of the bicubic filter, with a = -0.5


def add_centre_square(parts: GraphParts, size: int) -> str:
    """PIXELS (height, width, 3) with the short side at `size`, and of that the centre square (3, size, size)."""
    for name, value in {"n_0": 0.0, "n_half": 0.5, "n_1": 1.0, "n_2": 2.0, "n_side": size, "n_255": 255.0}.items():
        parts.constant(name, np.float64(value))
    parts.constant("n_unit", np.float64(2**_PRECISION))
    parts.constant("n_carry", np.float64(2 ** (_PRECISION - 1)))
    sides = _sides(parts)
    planes = parts.add("Cast", PIXELS, name="pixels_double", to=parts.onnx.TensorProto.DOUBLE)
    planes = parts.add("Transpose", planes, name="planes", perm=[2, 0, 1])
    parts.add("Transpose", _weights(parts, "width", sides), name="across", perm=[1, 0])
    parts.add("Identity", _weights(parts, "height", sides), name="down")
    if not flattens_first():
        return _narrow_first(parts, planes, "square")
    return _in_order(parts, planes)


def flattens_first() -> bool:
    """Whether Pillow, as it is installed, makes photos that lose much height flat before it makes them narrow; older
    ones never do. The average of these pixels is 1 if that of rows is rounded first, and 0 if that of columns is."""
    pixels = np.tile(np.array([[1, 0], [0, 1], [0, 0]], np.uint8), (3, 1))
    return Image.fromarray(pixels).resize((1, 3), Image.Resampling.BOX).getpixel((0, 0)) == 0


def _in_order(parts: GraphParts, planes: str) -> str:
    """The square, by the order that Pillow takes: flat first if the height is reduced by more than twice as many pixels
    as the width."""
    less = {side: parts.add("Sub", side, f"{side}_resized", name=f"{side}_less") for side in ("height", "width")}
    twice = parts.add("Mul", less["width"], "n_2", name="width_less_twice")
    reduced = parts.add("Greater", less["height"], "n_0", name="height_is_less")
    more = parts.add("Greater", less["height"], twice, name="height_much_less")
    much = parts.add("And", reduced, more, name="flat_first")
    helper, double = parts.onnx.helper, parts.onnx.TensorProto.DOUBLE
    branches = {}
    for name, steps in {"then": _flat_first, "else": _narrow_first}.items():
        inner = GraphParts()
        # No shape is given: with one, the nodes of the tower would be fused differently than in its own file.
        made = helper.make_tensor_value_info(steps(inner, planes, f"{name}_square"), double, None)
        branches[f"{name}_branch"] = helper.make_graph(inner.nodes, name, [], [made], inner.constants)
    return parts.add("If", much, name="square", **branches)


def _narrow_first(parts: GraphParts, planes: str, name: str) -> str:
    narrow = _rounded(parts, parts.add("MatMul", planes, "across", name=f"{name}_narrow_sums"), f"{name}_narrow")
    return _rounded(parts, parts.add("MatMul", "down", narrow, name=f"{name}_sums"), name)


def _flat_first(parts: GraphParts, planes: str, name: str) -> str:
    flat = _rounded(parts, parts.add("MatMul", "down", planes, name=f"{name}_flat_sums"), f"{name}_flat")
    return _rounded(parts, parts.add("MatMul", flat, "across", name=f"{name}_sums"), name)


def _sides(parts: GraphParts) -> str:
    """The smaller of height and width; both are noted as doubles under their names."""
    shape = parts.add("Shape", PIXELS, name="shape")
    for axis, name in enumerate(("height", "width")):
        whole = parts.add("Gather", shape, parts.constant(f"{name}_axis", np.array(axis)), name=f"{name}_whole", axis=0)
        parts.add("Cast", whole, name=name, to=parts.onnx.TensorProto.DOUBLE)
    return parts.add("Min", "height", "width", name="short_side")


def _weights(parts: GraphParts, side: str, short: str) -> str:
    """The matrix (size, pixels of this side) of whole numbers that makes the pixels of the square."""

    def named(operator: str, *inputs: str, name: str) -> str:
        return parts.add(operator, *inputs, name=f"{side}_{name}")

    # As ClipPreprocess resizes and crops: rounded as Python rounds, the left of two middles.
    resized = named("Mul", side, named("Div", "n_side", short, name="factor"), name="exact")
    resized = named("Max", named("Round", resized, name="round"), "n_side", name="resized")
    spare = named("Div", named("Sub", resized, "n_side", name="spare"), "n_2", name="half_spare")
    start = named("Floor", spare, name="start")
    stop = named("Add", start, "n_side", name="stop")
    scale = named("Div", side, resized, name="scale")
    filter_scale = named("Max", scale, "n_1", name="filter_scale")
    support = named("Mul", filter_scale, "n_2", name="support")
    out = named("Add", named("Range", start, stop, "n_1", name="range"), "n_half", name="middles")
    out = named("Mul", out, scale, name="centres_flat")
    centres = named("Unsqueeze", out, parts.constant(f"{side}_columns", np.array([1])), name="centres")
    pixels = named("Range", "n_0", side, "n_1", name="numbers")
    first = named("Add", named("Sub", centres, support, name="left"), "n_half", name="left_half")
    first = named("Floor", named("Max", first, "n_0", name="left_inside"), name="first")
    last = named("Add", named("Add", centres, support, name="right"), "n_half", name="right_half")
    last = named("Floor", named("Min", last, side, name="right_inside"), name="last")
    inside = named("GreaterOrEqual", pixels, first, name="from_first")
    inside = named("And", inside, named("Less", pixels, last, name="to_last"), name="inside")
    away = named("Add", named("Sub", pixels, centres, name="distance"), "n_half", name="away")
    inverse = named("Div", "n_1", filter_scale, name="inverse")
    raw = _bicubic(parts, side, named("Mul", away, inverse, name="position"))
    raw = named("Where", inside, raw, "n_0", name="raw")
    total = parts.add("ReduceSum", raw, f"{side}_columns", name=f"{side}_total", keepdims=1)
    return _whole(parts, side, named("Div", raw, total, name="weights"))


def _bicubic(parts: GraphParts, side: str, position: str) -> str:
    """((a + 2) x - (a + 3)) x x + 1 up to 1, (((x - 5) x + 8) x - 4) a up to 2, with a = -0.5."""

    def step(operator: str, value: str, other: float | str, name: str) -> str:
        given = other if isinstance(other, str) else parts.constant(f"{side}_{name}_by", np.float64(other))
        return parts.add(operator, value, given, name=f"{side}_{name}")

    x = parts.add("Abs", position, name=f"{side}_x")
    near = step("Sub", step("Mul", x, 1.5, "near_1"), 2.5, "near_2")
    near = step("Add", step("Mul", step("Mul", near, x, "near_3"), x, "near_4"), 1.0, "near")
    far = step("Add", step("Mul", step("Sub", x, 5.0, "far_1"), x, "far_2"), 8.0, "far_3")
    far = step("Mul", step("Sub", step("Mul", far, x, "far_4"), 4.0, "far_5"), -0.5, "far")
    is_far = step("Less", x, _SUPPORT, "is_far")
    outer = parts.add("Where", is_far, far, "n_0", name=f"{side}_outer")
    return parts.add("Where", step("Less", x, 1.0, "is_near"), near, outer, name=f"{side}_filter")


def _whole(parts: GraphParts, side: str, weights: str) -> str:
    """Weights as whole numbers of 2^-22, halves away from zero."""
    scaled = parts.add("Mul", weights, "n_unit", name=f"{side}_scaled")
    up = parts.add("Floor", parts.add("Add", scaled, "n_half", name=f"{side}_plus"), name=f"{side}_up")
    down = parts.add("Ceil", parts.add("Sub", scaled, "n_half", name=f"{side}_minus"), name=f"{side}_down")
    negative = parts.add("Less", scaled, "n_0", name=f"{side}_negative")
    return parts.add("Where", negative, down, up, name=f"{side}_whole_weights")


def _rounded(parts: GraphParts, sums: str, name: str) -> str:
    """Sums of such weights as pixels from 0 to 255, halves up."""
    carried = parts.add("Add", sums, "n_carry", name=f"{name}_carried")
    floor = parts.add("Floor", parts.add("Div", carried, "n_unit", name=f"{name}_quotient"), name=f"{name}_floor")
    return parts.add("Clip", floor, "n_0", "n_255", name=name)


_TOWER = "tower/"  # begins the names of the tower's parts


def check_bundled(model: Any) -> None:
    """An error unless the model was fitted on embeddings of the bundled encoder."""
    ours, origin = BundledEncoder(), model.provenance
    if origin.encoder_fingerprint != ours.fingerprint:
        noted = origin.encoder or "an encoder that it does not name"
        raise CCRError(
            f"only the bundled image tower can be joined to a model, and this one reads embeddings of {noted} "
            f"(fingerprint {origin.encoder_fingerprint}, the bundled encoder's is {ours.fingerprint}): export without "
            "the encoder, or fit on a store made with --encoder bundled"
        )


def add_tower(parts: GraphParts, *, log: Log | None = None) -> str:
    """Everything from one photo's PIXELS (height, width, 3) to its embedding (1, 512); the embedding's name."""
    tower = _tower(str(fetch(CLIP_IMAGE_TOWER, log=log)))
    seen = _preprocessed(parts, ClipPreprocess())
    renamed = {"pixel_values": seen}
    for node in tower.graph.node:
        copy = parts.onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = _TOWER + copy.name
        copy.input[:] = [renamed.get(name, name and _TOWER + name) for name in node.input]
        copy.output[:] = [name and _TOWER + name for name in node.output]
        parts.nodes.append(copy)
    for tensor in tower.graph.initializer:
        named = parts.onnx.TensorProto()
        named.CopyFrom(tensor)
        named.name = _TOWER + tensor.name
        parts.constants.append(named)
    return f"{_TOWER}image_embeds"


@lru_cache(maxsize=1)
def _tower(path: str) -> Any:
    """The tower in our operator set, its 8-bit weights unsigned."""
    onnx = onnx_library()
    tower = onnx.version_converter.convert_version(onnx.load(path), OPSET)
    signed = {
        name for node in tower.graph.node if node.op_type == "MatMulInteger" for name in (node.input[1], node.input[3])
    }
    for tensor in tower.graph.initializer:
        if tensor.name in signed and tensor.data_type == onnx.TensorProto.INT8:
            # Weights and zero points alike by 128, so that products are the same integers. Kernels for unsigned weights
            # are exact everywhere; those for signed ones saturate on processors without VNNI.
            values = onnx.numpy_helper.to_array(tensor).astype(np.int16) + 128
            tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.uint8), tensor.name))
    return tower


def _preprocessed(parts: GraphParts, how: ClipPreprocess) -> str:
    """(1, 3, size, size) float32, as `ClipPreprocess` makes it: the arithmetic is the same, step by step."""
    square = add_centre_square(parts, how.size)
    pixels = parts.add("Cast", square, name="square_float", to=parts.onnx.TensorProto.FLOAT)
    pixels = parts.add("Div", pixels, parts.constant("most", np.float32(255)), name="to_one")
    by_plane = {name: np.array(value, np.float32)[:, None, None] for name, value in vars(how).items() if name != "size"}
    pixels = parts.add("Sub", pixels, parts.constant("pixel_mean", by_plane["mean"]), name="less_mean")
    pixels = parts.add("Div", pixels, parts.constant("pixel_std", by_plane["std"]), name="scaled_pixels")
    # -1, not 1: where the batch is known, the nodes of the tower are fused otherwise than in its own file.
    shape = parts.constant("square_shape", np.array([-1, 3, how.size, how.size]))
    return parts.add("Reshape", pixels, shape, name="pixel_values")
