"""A fitted model as one ONNX file: embeddings in, or pixels; label, probabilities, codes, contributions out."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

import ccr
from ccr.coding import ThresholdRule, TopRule, rule_to_dict
from ccr.coding.rules import exportable_rule
from ccr.encoders.assets import Log
from ccr.errors import CCRError
from ccr.explain.terms import plain
from ccr.export.onnx_encoder import IR_VERSION, OPSET, PIXELS, GraphParts, add_tower, check_bundled, onnx_library
from ccr.export.torch_module import LARGE, SMALL
from ccr.io.files import write_bytes
from ccr.shown import Shown, of_photos

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
    """Everything from embeddings (b, d) to `outputs_of` the model."""
    rule = exportable_rule(model.rule, "ONNX")
    parts.constant("one", np.float64(1.0))
    parts.constant("columns", np.array([1]))
    rows = _place(parts, model, parts.add("Cast", embeddings, name="given", to=parts.onnx.TensorProto.DOUBLE))
    concepts = _wide(parts, "concepts_t", model.concepts.embeddings.T)
    scores = parts.add("MatMul", rows, concepts, name="scores")
    kept = _top(parts, scores, rule) if isinstance(rule, TopRule) else _threshold(parts, scores, rule)
    shown = of_photos(model.shown)
    if shown is not None:
        _shown(parts, kept, shown)
    _head(parts, model, parts.add("Cast", kept, name="codes", to=parts.onnx.TensorProto.FLOAT))


def _shown(parts: GraphParts, kept: str, shown: Shown) -> None:
    """1 / (1 + exp(-(intercept + slope * score))) of the scores that are kept."""
    scaled = parts.add("Mul", kept, parts.constant("shown_slope", np.float64(shown.slope)), name="shown_scaled")
    logits = parts.add("Add", scaled, parts.constant("shown_intercepts", shown.intercepts), name="shown_logits")
    found = parts.add("Sigmoid", logits, name="shown_all")
    zero = parts.constant("shown_zero", np.float64(0.0))
    active = parts.add("Greater", kept, zero, name="shown_active")
    masked = parts.add("Where", active, found, zero, name="shown_wide")
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
        nobody = parts.constant("nobody", np.array(len(classes)))
        winner = parts.add("Where", damaged, nobody, winner, name="winner_or_nobody")
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
    found: dict[str, Any] = {
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
        found["knowledge"] = origin.knowledge.digest
        found["claims"] = [
            {"class": plain(claim.label), "concept": claim.concept, "weight": claim.weight, "status": claim.status}
            for claim in model.claims()
        ]
    if with_encoder:
        found["pixels"] = "one photo, decoded and turned upright: (height, width, 3), RGB, 0 to 255"
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}


def _check(built: Any) -> None:
    """Check the graph with onnx's own checker; it refuses a file over 2 GB, which is too large for one message."""
    onnx = onnx_library()
    try:
        onnx.checker.check_model(built, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        raise CCRError(f"the model cannot be an ONNX file: {str(error).splitlines()[0]}") from error
