"""Exports: a model in the forms in which it leaves the library."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccr.models.export.torch_module import ConceptModule


class Exports:
    """`to_onnx` and `to_torch` of a `ConceptModel`; what writes them is imported when it is used."""

    def to_onnx(self, path: str | os.PathLike[str], *, with_encoder: bool = False) -> None:
        """Write an ONNX file: embeddings in; label, probabilities, codes, contributions to the label, and logits out.

        `with_encoder` joins the bundled image tower: the pixels of one photo in. Models that code by a pursuit or the
        lasso are refused.
        """
        from ccr.models.export.onnx_file import write_onnx

        write_onnx(self, path, with_encoder=with_encoder)

    def to_torch(self) -> ConceptModule:
        """A module from embeddings (b, d) to (logits, codes), with gradients; it can be scripted and exported."""
        from ccr.models.export.torch_module import torch_module

        return torch_module(self)
