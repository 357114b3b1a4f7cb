"""A fitted model as one ONNX file: embeddings in, or pixels; label, probabilities, codes, contributions out."""

from __future__ import annotations

import json
import os
from typing import Any

import ccr
from ccr.core.coding import rule_to_dict
from ccr.core.explain.terms import plain
from ccr.data.assets import Log
from ccr.errors import CCRError
from ccr.files import write_bytes
from ccr.models.export.exportable import exportable_rule
from ccr.models.export.onnx_encoder import add_tower, check_bundled
from ccr.models.export.onnx_graph import add_model, class_tensor, outputs_of
from ccr.models.export.onnx_parts import IR_VERSION, OPSET, Parts, onnx_library
from ccr.models.export.onnx_resize import PIXELS

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
    parts = Parts()
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
    """What onnx itself finds wrong; a file over 2 GB is not one message any more."""
    onnx = onnx_library()
    try:
        onnx.checker.check_model(built, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        raise CCRError(f"the model cannot be an ONNX file: {str(error).splitlines()[0]}") from error
