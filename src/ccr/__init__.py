"""Image classifiers whose every prediction is a short, exact sum of named concepts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccr.core.coding import IPOMP, OMP, HardThreshold, NonNegativeLasso, TopK
    from ccr.core.concepts import Concepts
    from ccr.core.knowledge import Knowledge
    from ccr.core.space import Angular, Symmetric
    from ccr.data.encoders import load_encoder
    from ccr.data.store import EmbeddingStore
    from ccr.data.vocab import embed_concepts, read_concepts
    from ccr.models.classifier import ConceptClassifier
    from ccr.models.concept_model import ConceptModel

    __version__: str

__all__ = [
    "IPOMP",
    "OMP",
    "Angular",
    "ConceptClassifier",
    "ConceptModel",
    "Concepts",
    "EmbeddingStore",
    "HardThreshold",
    "Knowledge",
    "NonNegativeLasso",
    "Symmetric",
    "TopK",
    "__version__",
    "embed_concepts",
    "load_encoder",
    "read_concepts",
]

_HOMES = {
    "Angular": "ccr.core.space",
    "ConceptClassifier": "ccr.models.classifier",
    "ConceptModel": "ccr.models.concept_model",
    "Concepts": "ccr.core.concepts",
    "EmbeddingStore": "ccr.data.store",
    "HardThreshold": "ccr.core.coding",
    "IPOMP": "ccr.core.coding",
    "Knowledge": "ccr.core.knowledge",
    "NonNegativeLasso": "ccr.core.coding",
    "OMP": "ccr.core.coding",
    "Symmetric": "ccr.core.space",
    "TopK": "ccr.core.coding",
    "embed_concepts": "ccr.data.vocab",
    "load_encoder": "ccr.data.encoders",
    "read_concepts": "ccr.data.vocab",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: `ccr --help` and the processes that decode images need no torch.
    if name == "__version__":
        return _version()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ccr' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ccr-xai")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
