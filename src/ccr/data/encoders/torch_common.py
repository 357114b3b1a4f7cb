"""What the two torch encoders share: devices and a name for weights."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from ccr.errors import CCRError


def pick_device(device: str) -> torch.device:
    """`auto` is cuda if there is one, else mps, else cpu; other names as torch knows them."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise CCRError(f"device must be auto or one that torch has here, got {device!r}: {reason}") from error
    return chosen


def weights_digest(model: torch.nn.Module) -> str:
    """Hash of all parameters, whatever their names, file or place: the same weights give the same text."""
    tensors = sorted(_tensor_digest(tensor) for tensor in model.parameters())
    return hashlib.sha256("".join(tensors).encode()).hexdigest()


def features_of(output: Any) -> torch.Tensor:
    """The embeddings in a model's answer: transformers 5 wraps them, 4 gives them bare."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def _tensor_digest(tensor: torch.Tensor) -> str:
    values = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
    return hashlib.sha256(f"{values.shape}".encode() + values.tobytes()).hexdigest()
