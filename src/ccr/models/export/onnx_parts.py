"""Parts of an ONNX graph: nodes and constants, named as they are added."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.errors import MissingExtraError

#: Of 2022, so that most runtimes know it.
OPSET, IR_VERSION = 18, 8


def onnx_library() -> Any:
    """The package onnx; an error that names the extra where it is missing."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError('an ONNX file is written by onnx: pip install "ccr-xai[export]"') from error
    return onnx


class Parts:
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
