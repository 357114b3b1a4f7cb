"""Further outputs of an ONNX graph, without a library to parse it.

An ONNX file is one protocol buffer, and two of them after each other are one that has the lists of both: that is how
the format defines its merging. So a graph gets further outputs when a graph of nothing but outputs is appended to it.
"""

from __future__ import annotations

from collections.abc import Iterable

_GRAPH, _OUTPUT, _NAME = 7, 12, 1  # fields of ModelProto, GraphProto and ValueInfoProto (onnx.proto)


def with_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """The same model, whose outputs are also these tensors of its graph, after those that it has."""
    outputs = b"".join(_field(_OUTPUT, _field(_NAME, name.encode())) for name in names)
    return model + _field(_GRAPH, outputs)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    groups = []
    while True:
        number, low = number >> 7, number & 127
        groups.append(low | (128 if number else 0))
        if not number:
            return bytes(groups)
