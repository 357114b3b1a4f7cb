"""Base class of the torch encoders, and the last attention of their image towers, caught on the way."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from ccr.encoders.patches import Affine, Attended, Gate, LastLayer, Norm, gate_of
from ccr.encoders.registry import batches, digest_of, fill_template
from ccr.errors import CCRError


class TorchEncoder(ABC):
    """Base class of the torch encoders, a model in float32 on one device: batches, templates, fingerprints."""

    crop = None
    batch_size: int
    template: str | None

    @property
    @abstractmethod
    def fingerprint(self) -> str: ...

    @abstractmethod
    def _embed_images(self, images: list[Image.Image]) -> np.ndarray: ...

    @abstractmethod
    def _embed_texts(self, texts: list[str]) -> np.ndarray: ...

    @cached_property
    def dimension(self) -> int:
        return int(self.embed_texts(["x"], template="{}").shape[1])

    @property
    def text_fingerprint(self) -> str:
        return digest_of(space=self.fingerprint, template=self.template)

    def embed_images(self, images: Iterable[Image.Image], *, batch_size: int | None = None) -> np.ndarray:
        rows = [self._embed_images(batch) for batch in batches(images, batch_size or self.batch_size)]
        return np.concatenate(rows) if rows else np.empty((0, self.dimension), dtype=np.float32)

    def embed_texts(self, texts: Sequence[str], *, template: str | None = None) -> np.ndarray:
        prompts = fill_template(template or self.template, texts)
        rows = [self._embed_texts(batch) for batch in batches(prompts, self.batch_size)]
        return np.concatenate(rows) if rows else np.empty((0, self.dimension), dtype=np.float32)


def weights_digest(model: torch.nn.Module) -> str:
    """Hash of all parameters, whatever their names, file or device: the same weights give the same text."""
    tensors = sorted(_tensor_digest(tensor) for tensor in model.parameters())
    return hashlib.sha256("".join(tensors).encode()).hexdigest()


def features_of(output: Any) -> torch.Tensor:
    """The embeddings in a model's answer: transformers 5 wraps them, 4 gives them bare."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def _tensor_digest(tensor: torch.Tensor) -> str:
    values = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
    return hashlib.sha256(f"{values.shape}".encode() + values.tobytes()).hexdigest()


class Caught(NamedTuple):
    """Input of a module for one image, tokens (t, D), and the embedding that the model gave (d,)."""

    tokens: torch.Tensor
    embedding: np.ndarray


def catch(module: torch.nn.Module, run: Callable[[], torch.Tensor], *, tokens_first: bool = False) -> Caught:
    """Run the model on one image, and keep what goes into one of its modules."""
    caught: list[torch.Tensor] = []

    def keep(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        caught.append(given[0] if given else next(iter(named.values())))

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with torch.inference_mode():
            embedding = run()
    finally:
        handle.remove()
    tokens = caught[-1].transpose(0, 1) if tokens_first else caught[-1]
    return Caught(tokens[0].float(), numbers(embedding.reshape(-1)))


def attended(
    query: torch.Tensor,
    tokens: torch.Tensor,
    weights: Sequence[Affine],
    heads: int,
    *,
    residual: torch.Tensor | None,
    embedding: np.ndarray,
) -> Attended:
    """One query (D,) attending to tokens (t, D); `weights` make queries, keys and values."""
    asked, keys, values = (
        _heads(numbers(rows) @ part.weight.T + part.bias, heads)
        for rows, part in zip((query[None], tokens, tokens), weights, strict=True)
    )
    scores = (asked @ keys.transpose(0, 2, 1))[:, 0] / np.sqrt(asked.shape[2])
    attention = np.exp(scores - scores.max(axis=1, keepdims=True))
    attention /= attention.sum(axis=1, keepdims=True)
    return Attended(None if residual is None else numbers(residual), attention, values, embedding)


def layer_of(
    out: Affine,
    norm: Any,
    up: Any,
    down: Any,
    activation: Callable[[torch.Tensor], torch.Tensor],
    *,
    final_norm: Any = None,
    projection: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
) -> LastLayer:
    """The last layer of a model made of torch's modules; `scale` (D,) multiplies what its MLP gives."""
    lowered = affine(down.weight, down.bias)
    if scale is not None:
        lowered = Affine(lowered.weight * numbers(scale)[:, None], lowered.bias * numbers(scale))
    return LastLayer(
        out=out,
        norm=_norm(norm),
        up=affine(up.weight, up.bias),
        down=lowered,
        gate=_gate(activation),
        final_norm=None if final_norm is None else _norm(final_norm),
        projection=None if projection is None else numbers(projection),
    )


def in_projection(attention: torch.nn.MultiheadAttention) -> tuple[Affine, Affine, Affine]:
    """The maps to queries, keys and values of torch's own attention."""
    if attention.in_proj_weight is None:
        raise CCRError(
            "the encoder's last attention has queries, keys and values of different widths, which cannot be taken "
            "apart: use --way occlusion"
        )
    biases = attention.in_proj_bias
    weights = attention.in_proj_weight.chunk(3)
    query, key, value = map(affine, weights, [None] * 3 if biases is None else biases.chunk(3))
    return query, key, value


def affine(weight: torch.Tensor, bias: torch.Tensor | None) -> Affine:
    return Affine(numbers(weight), np.zeros(len(weight), np.float64) if bias is None else numbers(bias))


def numbers(tensor: torch.Tensor) -> np.ndarray:
    """float64, so that what is rounded is the encoder's own arithmetic."""
    return np.asarray(tensor.detach().to("cpu", torch.float64).numpy())


def _norm(norm: Any) -> Norm:
    return Norm(numbers(norm.weight), numbers(norm.bias), float(norm.eps))


def _gate(activation: Callable[[torch.Tensor], torch.Tensor]) -> Gate:
    def activate(hidden: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return numbers(activation(torch.from_numpy(hidden)))

    return gate_of(activate)


def _heads(rows: np.ndarray, heads: int) -> np.ndarray:
    """(heads, rows, width) of (rows, heads x width)."""
    return np.asarray(rows.reshape(len(rows), heads, -1).transpose(1, 0, 2))
