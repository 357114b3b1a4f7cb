"""Which device torch works on."""

from __future__ import annotations

import torch

from ccr.errors import CCRError


def resolve_device(name: str) -> torch.device:
    """`auto` is cuda if there is one, else mps, else cpu; other names as torch has them here."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(name)
        torch.ones(1, device=chosen).item()  # "meta" has tensors, but nothing in them
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise CCRError(
            f'device must be "auto", "cpu", "cuda" or "mps", one that torch has here, got {name!r}: {reason}'
        ) from None
    return chosen
