"""What the two torch encoders share: batching, templates, and a name for weights."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image

from ccr.data.encoders.protocol import batches, digest_of, fill_template


class TorchEncoder(ABC):
    """A model in float32 on one device: batches, templates and fingerprints of texts."""

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
