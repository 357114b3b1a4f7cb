"""The tiers of kernels that tests run in: the plain one, and the one that was chosen."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from ccr import kernels
from ccr.kernels.tiers import choose_tier

TIERS = sorted({"plain", kernels.TIER})
NAMES = ("TIER", "SCREENS", "PackedConcepts", "StepKernels", "code_rows", "logits")
bytes_only = pytest.mark.skipif(kernels.TIER != "x86", reason="scores in bytes are a part of the x86 kernels")


def module(tier: str, name: str) -> ModuleType:
    return importlib.import_module(f"ccr.kernels.{tier}.{name}")


@contextmanager
def using(tier: str) -> Iterator[None]:
    """Coding and training by the kernels of a tier."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(kernels, name, getattr(choose_tier(tier), name))
        yield
