"""What the other methods share: scikit-learn's calls, answered by a frozen `DenseModel`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.errors import FormatError
from ccr.estimator import FromModel, ModelEstimator
from ccr.heads import LinearHead
from ccr.io.provenance import Provenance
from ccr.linear_model import LinearModel
from ccr.space import Space
from ccr_lab.rivals.dense_model import DenseModel


class Rival(ModelEstimator):
    """Another method as an estimator. Fitted attributes are read-only views of `model_`, a `DenseModel`."""

    model_kind = DenseModel
    names_ = FromModel("names")
    space_ = FromModel("space")

    @classmethod
    def of(cls, model: LinearModel) -> Any:
        kind = getattr(model, "kind", type(model).__name__)
        if kind != cls.__name__:
            raise FormatError(f"this folder holds a {kind}, not a {cls.__name__}: load it with the class of that name")
        return super().of(model)

    def _model(
        self,
        space: Space,
        names: tuple[str, ...],
        head: LinearHead,
        classes: np.ndarray,
        *,
        layer: np.ndarray | None = None,
        mean: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        raw: bool = False,
        **facts: Any,
    ) -> DenseModel:
        n = len(names)
        texts = None if self.texts_parameter is None else getattr(self, self.texts_parameter)
        return DenseModel(
            kind=type(self).__name__,
            space=space,
            columns=names,
            layer=layer,
            mean=np.zeros(n, np.float32) if mean is None else mean,
            scale=np.ones(n, np.float32) if scale is None else scale,
            head=head,
            classes=classes,
            provenance=Provenance(settings=self.settings(), texts=texts),
            raw=raw,
            facts=facts,
        )
