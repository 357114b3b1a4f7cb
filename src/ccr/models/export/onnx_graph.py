"""The path of an embedding through a model as ONNX nodes: placed, scored, selected, summed.

What the nodes compute is what `ConceptModule` computes; the order of operations is the same. Up to the codes it is in
float64, so that a score within rounding of the threshold is decided as the full model decides it (Close calls,
docs/method.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.core.coding import ThresholdRule, TopRule
from ccr.core.shown import Shown, of_photos
from ccr.models.export.exportable import exportable_rule
from ccr.models.export.onnx_parts import Parts
from ccr.models.export.torch_module import LARGE, SMALL

#: What a graph gives, in this order. `contributions` are those to the predicted class.
OUTPUTS = ("label", "probabilities", "codes", "contributions", "logits")


def outputs_of(model: Any) -> tuple[str, ...]:
    """OUTPUTS, and where answers about photos made a map from scores, `shown`: the probability that the image shows
    each concept, 0 for those that are not active."""
    return OUTPUTS if of_photos(model.shown) is None else (*OUTPUTS, "shown")


def add_model(parts: Parts, model: Any, embeddings: str) -> None:
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


def _shown(parts: Parts, kept: str, shown: Shown) -> None:
    """1 / (1 + exp(-(intercept + slope * score))) of the scores that are kept."""
    scaled = parts.add("Mul", kept, parts.constant("shown_slope", np.float64(shown.slope)), name="shown_scaled")
    logits = parts.add("Add", scaled, parts.constant("shown_intercepts", shown.intercepts), name="shown_logits")
    found = parts.add("Sigmoid", logits, name="shown_all")
    zero = parts.constant("shown_zero", np.float64(0.0))
    active = parts.add("Greater", kept, zero, name="shown_active")
    masked = parts.add("Where", active, found, zero, name="shown_wide")
    parts.add("Cast", masked, name="shown", to=parts.onnx.TensorProto.FLOAT)


def _wide(parts: Parts, name: str, value: np.ndarray) -> str:
    """Numbers that are kept as float32, and computed with as float64."""
    kept = parts.constant(f"{name}_float", np.ascontiguousarray(value, np.float32))
    return parts.add("Cast", kept, name=name, to=parts.onnx.TensorProto.DOUBLE)


def _place(parts: Parts, model: Any, embeddings: str) -> str:
    """Unit rows in the model's space."""
    rows = _first_unit(parts, embeddings)
    if model.space.image_mean is not None:
        mean = _wide(parts, "image_mean", model.space.image_mean)
        rows = _unit(parts, parts.add("Sub", rows, mean, name="from_mean"), "centered")
    if model.space.metric is not None:
        whiten = _wide(parts, "whiten", model.space.metric.whiten)
        rows = _unit(parts, parts.add("MatMul", rows, whiten, name="in_metric"), "whitened")
    return rows


def _first_unit(parts: Parts, rows: str) -> str:
    """Every row divided by its norm, however large or small its numbers are; zeros become NaN, and so do its codes."""
    size = parts.add("Abs", rows, name="sizes")
    largest = parts.add("ReduceMax", size, "columns", name="largest", keepdims=1)
    above = parts.add("Greater", largest, parts.constant("small", np.float64(SMALL)), name="not_small")
    below = parts.add("Less", largest, parts.constant("large", np.float64(LARGE)), name="not_large")
    usual = parts.add("And", above, below, name="usual")
    scaled = parts.add("Div", rows, parts.add("Where", usual, "one", largest, name="scale"), name="scaled")
    return parts.add("Div", scaled, parts.add("ReduceL2", scaled, "columns", name="norm", keepdims=1), name="unit")


def _unit(parts: Parts, rows: str, name: str) -> str:
    """Every row divided by its norm; zeros stay."""
    norm = parts.add("ReduceL2", rows, "columns", name=f"{name}_norm", keepdims=1)
    zero = parts.constant(f"{name}_zero", np.float64(0.0))
    is_zero = parts.add("Equal", norm, zero, name=f"{name}_is_zero")
    return parts.add("Div", rows, parts.add("Where", is_zero, "one", norm, name=f"{name}_divisor"), name=name)


def _threshold(parts: Parts, scores: str, rule: ThresholdRule) -> str:
    bound = parts.constant("threshold", rule.bounds.astype(np.float64))
    if rule.positive:
        mask = parts.add("Greater", scores, bound, name="active")
    else:
        mask = parts.add("GreaterOrEqual", parts.add("Abs", scores, name="score_sizes"), bound, name="active")
    return parts.add("Where", mask, scores, _none(parts, scores), name="kept")


def _top(parts: Parts, scores: str, rule: TopRule) -> str:
    """Of equal scores TopK takes the first, as the kernels do."""
    sizes = parts.add("Abs", scores, name="score_sizes")
    length = parts.constant("length", np.array([rule.length], np.int64))
    node = parts.onnx.helper.make_node("TopK", [sizes, length], ["top_sizes", "top"], name="top", axis=1)
    parts.nodes.append(node)
    kept = parts.add("GatherElements", scores, "top", name="top_scores", axis=1)
    return parts.add("ScatterElements", _none(parts, scores), "top", kept, name="kept", axis=1)


def _none(parts: Parts, scores: str) -> str:
    """Zeros, and NaN where a score is, so that no prediction comes out of a damaged embedding."""
    return parts.add("Sub", scores, scores, name="none")


def _head(parts: Parts, model: Any, codes: str) -> None:
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


def _label(parts: Parts, classes: np.ndarray, winner: str, logits: str) -> None:
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
