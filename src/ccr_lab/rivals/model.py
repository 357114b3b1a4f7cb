"""A rival's model (codes are all scores of a linear layer, on which a linear head predicts) and its estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse

from ccr.classifier import FromModel, ModelEstimator
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError, FormatError
from ccr.io.format import (
    ModelFolder,
    optional,
    pack_common,
    pack_space,
    read_folder,
    save_folder,
    stored_concepts,
    tensor,
    unpack_common,
    unpack_head,
    unpack_space,
)
from ccr.io.provenance import Provenance
from ccr.knowledge import Knowledge
from ccr.model import LinearModel
from ccr.refine.region import Claims, permitted_weights
from ccr.space import Space


@dataclass(frozen=True, eq=False)
class DenseModel(LinearModel):
    """Codes are (rows @ layer.T - mean) / scale, of unit rows in the space.

    Parameters
    ----------
    kind : name of the method, such as "LabelFreeCBM".
    space : where embeddings are put first.
    columns : names of the codes' columns (n).
    layer : (n, d) float32; None: the coordinates themselves are the codes, and there is nothing to explain by.
    mean, scale : (n,) float32, what codes are measured from and in.
    head, classes, provenance : as in `ConceptModel`.
    facts : what else `fit` found, by name: numbers, arrays, or mappings of numbers.
    """

    kind: str
    space: Space
    columns: tuple[str, ...]
    layer: np.ndarray | None
    mean: np.ndarray
    scale: np.ndarray
    head: LinearHead
    classes: np.ndarray
    provenance: Provenance
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._freeze()

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns

    @property
    def dimension(self) -> int:
        return len(self.names) if self.layer is None else int(self.layer.shape[1])

    def encode(self, X: Any) -> np.ndarray:
        """Codes (m, n) of X (m, d), float32."""
        return np.concatenate(list(self._chunks(X)))

    def map_logits(self, X: Any, use: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        return [use(self.head.logits(codes)) for codes in self._chunks(X)]

    def save(self, path: str | os.PathLike[str]) -> None:
        save_folder(path, _pack(self), _unpack)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DenseModel:
        return cls(**read_folder(path, _unpack))

    def _explained_code(self, rows: np.ndarray) -> sparse.csr_matrix:
        """Concepts without weight for any class are left out."""
        if self.layer is None:
            raise CCRError(
                "a probe has no concepts, so its predictions cannot be explained by them: explain a ConceptClassifier's"
            )
        return sparse.csr_matrix(self.encode(rows) * self.head.coef.any(axis=0))

    def _chunks(self, X: Any) -> Iterator[np.ndarray]:
        features = self.images(X)
        if self.layer is None:
            yield from (chunk.numpy() for chunk in features.chunks())
            return
        layer = torch.from_numpy(self.layer.T.copy())
        for chunk in features.chunks(len(self.names)):
            yield ((chunk @ layer).numpy() - self.mean) / self.scale


def _pack(model: DenseModel) -> ModelFolder:
    facts = {name: value for name, value in model.facts.items() if not isinstance(value, np.ndarray)}
    texts = model.provenance.texts
    config = {
        **pack_common(model, model.kind),
        "names": list(model.names),
        "facts": {
            name: list(map(list, value.items())) if isinstance(value, Mapping) else value
            for name, value in facts.items()
        },
        "mappings": [name for name, value in facts.items() if isinstance(value, Mapping)],
        "texts": None if texts is None else list(texts.names),
    }
    tensors = {"mean": model.mean, "scale": model.scale, "coef": model.head.coef, "intercept": model.head.intercept}
    tensors |= pack_space(model.space)
    tensors |= {f"facts.{name}": value for name, value in model.facts.items() if isinstance(value, np.ndarray)}
    if model.layer is not None:
        tensors["layer"] = model.layer
    if texts is not None:
        tensors["texts"] = texts.embeddings
    return ModelFolder(config, tensors)


def _unpack(folder: ModelFolder) -> dict[str, Any]:
    config, tensors = folder
    if "names" not in config:
        raise FormatError(f"this folder holds a {config.get('model')}: load it with the class of that name")
    if config.get("raw"):
        raise FormatError("this model was made by an older version from features of another backbone: fit it again")
    facts = {name: dict(value) if name in config["mappings"] else value for name, value in config["facts"].items()}
    prefix = "facts."
    facts |= {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    texts = None if config["texts"] is None else stored_concepts(config["texts"], tensors["texts"])
    names = tuple(str(name) for name in config["names"])
    n, layer = len(names), tensors.get("layer")
    dimension = n if layer is None else layer.shape[-1]
    return {
        "kind": str(config["model"]),
        "space": unpack_space(config, tensors, dimension),
        "columns": names,
        "layer": optional(tensors, "layer", (n, dimension), narrow=False),
        "mean": tensor(tensors, "mean", (n,), narrow=False),
        "scale": tensor(tensors, "scale", (n,), narrow=False, infinite=True),  # infinite: of columns that are flat
        **unpack_head(config, tensors, n),
        "provenance": Provenance(**unpack_common(config), texts=texts),
        "facts": facts,
    }


def head_mask(knowledge: Knowledge, classes: Iterable[Any], names: Sequence[str], claims: Claims) -> np.ndarray:
    """Mask (classes, concepts) of the weights that knowledge permits: the part of it that any method with a linear head
    can use."""
    return permitted_weights(knowledge.aligned(classes, names), claims).allowed.T


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
            facts=facts,
        )
