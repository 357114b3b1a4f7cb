"""A fitted model as one ONNX file: embeddings in, or pixels; label, probabilities, codes, contributions out."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

import ccr
from ccr.coding import ThresholdRule, TopRule, rule_to_dict
from ccr.coding.rules import exportable_rule
from ccr.encoders.assets import CLIP_IMAGE_TOWER, Log, fetch
from ccr.encoders.bundled import BundledEncoder
from ccr.encoders.registry import ClipPreprocess
from ccr.errors import CCRError
from ccr.explain.terms import plain
from ccr.export.torch_module import LARGE, SMALL
from ccr.io.files import write_bytes
from ccr.knowledge.shown import Shown, of_photos
from ccr.utils.arrays import import_extra

#: ONNX operator set and IR version of 2022, which most runtimes know.
OPSET, IR_VERSION = 18, 8


def onnx_library() -> Any:
    """The package onnx; an error that names the extra where it is missing."""
    return import_extra("onnx", "export", "an ONNX file is written by onnx")


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


# A model as ONNX nodes: embedding to space, scores, active codes, logits. The nodes compute the same as
# `ConceptModule`, in the same order of operations. Up to the codes it is in float64, so that a score within rounding
# of the threshold is decided as the full model decides it (Close calls, docs/method.md).

#: Outputs of a graph, in this order. `contributions` are those to the predicted class.
OUTPUTS = ("label", "probabilities", "codes", "contributions", "logits")


def outputs_of(model: Any) -> tuple[str, ...]:
    """OUTPUTS, and where answers about photos made a map from scores, `shown`: the probability that the image shows
    each concept, 0 for those that are not active."""
    return OUTPUTS if of_photos(model.shown) is None else (*OUTPUTS, "shown")


def add_model(parts: GraphParts, model: Any, embeddings: str) -> None:
    """Nodes from embeddings (b, d) to `outputs_of` the model."""
    rule = exportable_rule(model.rule, "ONNX")
    parts.constant("one", np.float64(1.0))
    parts.constant("columns", np.array([1]))
    rows = _place(parts, model, parts.add("Cast", embeddings, name="given", to=parts.onnx.TensorProto.DOUBLE))
    concepts = _wide(parts, "concepts_t", model.concepts.embeddings.T)
    scores = parts.add("MatMul", rows, concepts, name="scores")
    kept = _top(parts, scores, rule) if isinstance(rule, TopRule) else _threshold(parts, scores, rule)
    _head(parts, model, parts.add("Cast", kept, name="codes", to=parts.onnx.TensorProto.FLOAT))
    shown = of_photos(model.shown)
    if shown is not None:
        _shown(parts, kept, shown)


def _shown(parts: GraphParts, kept: str, shown: Shown) -> None:
    """1 / (1 + exp(-(intercept + slope * score))) of the scores that are kept, by the map of the winner's class."""
    if shown.by_class is None:
        slope = parts.constant("shown_slope", np.float64(shown.slope))
        intercept = parts.constant("shown_intercepts", shown.intercepts)
    else:
        tables = zip(("shown_intercepts", "shown_slopes"), shown.by_class, strict=True)
        intercept, slope = (
            parts.add("Gather", parts.constant(name, table), "winner", name=f"{name}_of_class", axis=0)
            for name, table in tables
        )
    scaled = parts.add("Mul", kept, slope, name="shown_scaled")
    logits = parts.add("Add", scaled, intercept, name="shown_logits")
    probabilities = parts.add("Sigmoid", logits, name="shown_all")
    zero = parts.constant("shown_zero", np.float64(0.0))
    active = parts.add("Greater", kept, zero, name="shown_active")
    masked = parts.add("Where", active, probabilities, zero, name="shown_wide")
    parts.add("Cast", masked, name="shown", to=parts.onnx.TensorProto.FLOAT)


def _wide(parts: GraphParts, name: str, value: np.ndarray) -> str:
    """Numbers that are kept as float32, and computed with as float64."""
    kept = parts.constant(f"{name}_float", np.ascontiguousarray(value, np.float32))
    return parts.add("Cast", kept, name=name, to=parts.onnx.TensorProto.DOUBLE)


def _place(parts: GraphParts, model: Any, embeddings: str) -> str:
    """Unit rows in the model's space."""
    rows = _first_unit(parts, embeddings)
    if model.space.image_mean is not None:
        mean = _wide(parts, "image_mean", model.space.image_mean)
        rows = _unit(parts, parts.add("Sub", rows, mean, name="from_mean"), "centered")
    if model.space.metric is not None:
        whiten = _wide(parts, "whiten", model.space.metric.whiten)
        rows = _unit(parts, parts.add("MatMul", rows, whiten, name="in_metric"), "whitened")
    return rows


def _first_unit(parts: GraphParts, rows: str) -> str:
    """Every row divided by its norm, however large or small its numbers are; zeros become NaN, and so do its codes."""
    size = parts.add("Abs", rows, name="sizes")
    largest = parts.add("ReduceMax", size, "columns", name="largest", keepdims=1)
    above = parts.add("Greater", largest, parts.constant("small", np.float64(SMALL)), name="not_small")
    below = parts.add("Less", largest, parts.constant("large", np.float64(LARGE)), name="not_large")
    usual = parts.add("And", above, below, name="usual")
    scaled = parts.add("Div", rows, parts.add("Where", usual, "one", largest, name="scale"), name="scaled")
    return parts.add("Div", scaled, parts.add("ReduceL2", scaled, "columns", name="norm", keepdims=1), name="unit")


def _unit(parts: GraphParts, rows: str, name: str) -> str:
    """Every row divided by its norm; zeros stay."""
    norm = parts.add("ReduceL2", rows, "columns", name=f"{name}_norm", keepdims=1)
    zero = parts.constant(f"{name}_zero", np.float64(0.0))
    is_zero = parts.add("Equal", norm, zero, name=f"{name}_is_zero")
    return parts.add("Div", rows, parts.add("Where", is_zero, "one", norm, name=f"{name}_divisor"), name=name)


def _threshold(parts: GraphParts, scores: str, rule: ThresholdRule) -> str:
    bound = parts.constant("threshold", rule.bounds.astype(np.float64))
    if rule.positive:
        mask = parts.add("Greater", scores, bound, name="active")
    else:
        mask = parts.add("GreaterOrEqual", parts.add("Abs", scores, name="score_sizes"), bound, name="active")
    return parts.add("Where", mask, scores, _none(parts, scores), name="kept")


def _top(parts: GraphParts, scores: str, rule: TopRule) -> str:
    """Nodes that keep the largest |scores| of each row. Of equal scores TopK takes the first, as the kernels do."""
    sizes = parts.add("Abs", scores, name="score_sizes")
    length = parts.constant("length", np.array([rule.length], np.int64))
    node = parts.onnx.helper.make_node("TopK", [sizes, length], ["top_sizes", "top"], name="top", axis=1)
    parts.nodes.append(node)
    kept = parts.add("GatherElements", scores, "top", name="top_scores", axis=1)
    return parts.add("ScatterElements", _none(parts, scores), "top", kept, name="kept", axis=1)


def _none(parts: GraphParts, scores: str) -> str:
    """Zeros, and NaN where a score is, so that no prediction comes out of a damaged embedding."""
    return parts.add("Sub", scores, scores, name="none")


def _head(parts: GraphParts, model: Any, codes: str) -> None:
    """Logits, probabilities, the label, and the contributions to it."""
    coef = model.head.coef.astype(np.float32)
    weights = parts.constant("weights_t", coef.T.copy())
    products = parts.add("MatMul", codes, weights, name="products")
    logits = parts.add("Add", products, parts.constant("bias", model.head.intercept.astype(np.float32)), name="logits")
    parts.add("Softmax", logits, name="probabilities", axis=1)
    winner = parts.add("ArgMax", logits, name="winner", axis=1, keepdims=0)
    _label(parts, class_tensor(model.classes), winner, logits)
    weights_of = parts.add("Gather", parts.constant("weights", coef), winner, name="winner_weights", axis=0)
    parts.add("Mul", codes, weights_of, name="contributions")


def _label(parts: GraphParts, classes: np.ndarray, winner: str, logits: str) -> None:
    """The winner's class; where logits are NaN, the label that stands for none, if classes of this kind have one."""
    none = {"O": "", "f": np.nan}.get(classes.dtype.kind)
    if none is not None:
        first = parts.add("Gather", logits, parts.constant("first_class", np.array(0)), name="first_logit", axis=1)
        damaged = parts.add("IsNaN", first, name="damaged")  # then all logits are NaN
        no_class = parts.constant("no_class", np.array(len(classes)))
        winner = parts.add("Where", damaged, no_class, winner, name="winner_or_none")
        classes = np.append(classes, np.array([none], classes.dtype))
    parts.add("Gather", parts.constant("classes", classes), winner, name="label", axis=0)


def class_tensor(classes: np.ndarray) -> np.ndarray:
    """Classes as ONNX knows them: texts, whole numbers of 64 bits, floating numbers or booleans."""
    kinds: dict[str, Any] = {"U": object, "i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}
    return classes.astype(kinds[classes.dtype.kind])


EMBEDDINGS = "embeddings"


def write_onnx(
    model: Any, path: str | os.PathLike[str], *, with_encoder: bool = False, log: Log | None = None
) -> dict[str, str]:
    """Write a `ConceptModel` as an ONNX file, checked by onnx; what the file says of itself.

    Parameters
    ----------
    path : the file, written whole or not at all.
    with_encoder : join the bundled image tower, so that the file takes the pixels of one photo. The model must have
        been fitted on embeddings of that encoder.
    log : called with a message when something is downloaded.
    """
    built = onnx_model(model, with_encoder=with_encoder, log=log)
    write_bytes(path, built.SerializeToString())
    return {item.key: item.value for item in built.metadata_props}


def onnx_model(model: Any, *, with_encoder: bool = False, log: Log | None = None) -> Any:
    """The same as an object of onnx."""
    parts = GraphParts()
    onnx, made = parts.onnx, parts.onnx.helper.make_tensor_value_info
    exportable_rule(model.rule, "ONNX")
    if with_encoder:
        check_bundled(model)
        add_model(parts, model, add_tower(parts, log=log))
        given = made(PIXELS, onnx.TensorProto.UINT8, ["height", "width", 3])
    else:
        add_model(parts, model, EMBEDDINGS)
        given = made(EMBEDDINGS, onnx.TensorProto.FLOAT, ["batch", model.dimension])
    outputs = _outputs(model, 1 if with_encoder else "batch")
    graph = onnx.helper.make_graph(parts.nodes, "ccr", [given], outputs, parts.constants)
    built = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="ccr",
        producer_version=ccr.__version__,
        doc_string="logits = bias + the sum of contributions; ccr explains every prediction by named concepts.",
    )
    onnx.helper.set_model_props(built, _metadata(model, with_encoder))
    _check(built)
    return built


def _outputs(model: Any, batch: int | str) -> list[Any]:
    onnx = onnx_library()
    classes, n = len(model.classes), len(model.names)
    kind = onnx.helper.np_dtype_to_tensor_dtype(class_tensor(model.classes[:1]).dtype)
    shapes: dict[str, list[Any]] = {"label": [batch], "probabilities": [batch, classes], "logits": [batch, classes]}
    shapes |= {name: [batch, n] for name in ("codes", "contributions", "shown")}
    kinds = {"label": kind}
    return [
        onnx.helper.make_tensor_value_info(name, kinds.get(name, onnx.TensorProto.FLOAT), shapes[name])
        for name in outputs_of(model)
    ]


def _metadata(model: Any, with_encoder: bool) -> dict[str, str]:
    """Texts by name; what is not a text is JSON."""
    origin = model.provenance
    metadata: dict[str, Any] = {
        "format": "ccr-onnx",
        "format_version": 1,
        "library_version": ccr.__version__,
        "classes": model.classes.tolist(),
        "concepts": list(model.names),
        "rule": rule_to_dict(model.rule),
        "encoder": origin.encoder,
        "encoder_fingerprint": origin.encoder_fingerprint,
        "contributions": "code x weight for the predicted class, one column per concept; with the class's bias they "
        "add up to its logit",
    }
    if origin.knowledge is not None:
        metadata["knowledge"] = origin.knowledge.digest
        metadata["claims"] = [
            {"class": plain(claim.label), "concept": claim.concept, "weight": claim.weight, "status": claim.status}
            for claim in model.claims()
        ]
    if with_encoder:
        metadata["pixels"] = "one photo, decoded and turned upright: (height, width, 3), RGB, 0 to 255"
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}


def _check(built: Any) -> None:
    """Check the graph with onnx's own checker; it refuses a file over 2 GB, which is too large for one message."""
    onnx = onnx_library()
    try:
        onnx.checker.check_model(built, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        raise CCRError(f"the model cannot be an ONNX file: {str(error).splitlines()[0]}") from error


# The bundled image tower before a model's own nodes, from the pixels of one photo to its embedding. Resizing, cropping
# and normalising are inside; decoding a file and turning it upright are not.
#
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
        operand = other if isinstance(other, str) else parts.constant(f"{side}_{name}_by", np.float64(other))
        return parts.add(operator, value, operand, name=f"{side}_{name}")

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
    """Nodes from one photo's PIXELS (height, width, 3) to its embedding (1, 512); the embedding's name."""
    tower = _tower(str(fetch(CLIP_IMAGE_TOWER, log=log)))
    pixels = _preprocessed(parts, ClipPreprocess())
    renamed = {"pixel_values": pixels}
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
