"""Exports: a model in the forms in which it leaves the library."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ccr.coding import Rule, ThresholdRule, TopRule
from ccr.errors import CCRError

if TYPE_CHECKING:
    from ccr.export.torch_module import ConceptModule


# Which models can leave the library: those whose codes are scores, kept or dropped one by one.
def exportable_rule(rule: Rule, target: str) -> ThresholdRule | TopRule:
    """The rule itself if `target`, such as "ONNX", can compute it; an error with the reason otherwise."""
    if isinstance(rule, (ThresholdRule, TopRule)):
        return rule
    raise CCRError(
        f"{target} takes codes that are a threshold or the top k of the scores, this model's are made by "
        f"{type(rule).__name__}, which solves a problem of its own for every image, concept after concept: fit with "
        "HardThreshold or TopK to export, or run this model in Python"
    )


class Exports:
    """`to_onnx` and `to_torch` of a `ConceptModel`; what writes them is imported when it is used."""

    def to_onnx(self, path: str | os.PathLike[str], *, with_encoder: bool = False) -> None:
        """Write an ONNX file: embeddings in; label, probabilities, codes, contributions to the label, and logits out.

        `with_encoder` joins the bundled image tower: the pixels of one photo in. Models that code by a pursuit or the
        lasso are refused.
        """
        from ccr.export.onnx_model import write_onnx

        write_onnx(self, path, with_encoder=with_encoder)

    def to_torch(self) -> ConceptModule:
        """A module from embeddings (b, d) to (logits, codes), with gradients; it can be scripted and exported."""
        from ccr.export.torch_module import torch_module

        return torch_module(self)
