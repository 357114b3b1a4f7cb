"""A fitted model without the library around it: NumPy and safetensors alone.

model = ccr.runtime.load("photos-model")
model.predict(X); model.predict_proba(X)            # X (m, d): embeddings of the model's encoder
model.explain(X[0]).contributions                   # the sum that made the prediction
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ccr.coding import FEW_ROWS, ThresholdRule, TopRule, few_codes
from ccr.coding.heads import few_logits
from ccr.errors import FormatError
from ccr.io.format import read_folder, unpack
from ccr.kernels import Entries
from ccr.model import ConceptModel


def load(path: str | os.PathLike[str]) -> RuntimeModel:
    """The model in a folder that `save` or `ccr fit` wrote, with NumPy and safetensors alone.

    Models that code by a threshold or the top k are read; those that code by a pursuit or the lasso need the full
    library, which the error says.
    """
    model = RuntimeModel(**read_folder(path, unpack))
    if not isinstance(model.rule, (ThresholdRule, TopRule)):
        raise FormatError(
            f"{path}: the light runtime codes by a threshold or the top k, this model by {type(model.rule).__name__}, "
            "whose codes are solved for image by image with compiled kernels: load it with ccr.ConceptModel"
        )
    return model


class RuntimeModel(ConceptModel):
    """A `ConceptModel` that codes any number of images with NumPy, a few at a time: slower on many, ready at once."""

    def encode(self, X: Any) -> np.ndarray:
        """Codes (m, n) of the embeddings X (m, d): the scores of the active concepts, zero elsewhere."""
        parts = []
        for codes in self._parts(X):
            dense = np.zeros((len(codes.pointers) - 1, len(self.names)), np.float32)
            dense[np.repeat(np.arange(len(dense)), np.diff(codes.pointers)), codes.indices] = codes.data
            parts.append(dense)
        return np.concatenate(parts)

    def _have_reasons(self, X: Any) -> np.ndarray:
        weights = self.head.coef[self.logits(X).argmax(axis=1)]
        return np.asarray(((self.encode(X) != 0) & (weights != 0)).any(axis=1))

    def map_logits(self, X: Any, use: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        return [use(few_logits(codes, *self._weights)) for codes in self._parts(X)]

    def _parts(self, X: Any) -> Iterator[Entries]:
        """Codes of some rows of X after the other, in order."""
        images = self.images(X)
        for start in range(0, len(images), FEW_ROWS):
            rows = np.arange(start, min(start + FEW_ROWS, len(images)))
            yield few_codes(self.rule, images.exact(rows), self._wide_concepts)  # type: ignore[arg-type]
