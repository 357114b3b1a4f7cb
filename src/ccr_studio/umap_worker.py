"""The process that lays photos out by UMAP, which compiles and computes for a while: pages stay quick meanwhile."""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np

from ccr.data.store import EmbeddingStore
from ccr.io.files import write_bytes
from ccr_studio.arrays import in_square, npy


def main() -> None:
    """Read one order, write the places (m, 2) that it asks for, and say on stderr why not."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_the_studio, daemon=True).start()
    try:
        places = umap_places(np.asarray(EmbeddingStore.open(order["store"]), np.float32))
        write_bytes(Path(order["file"]), npy(in_square(places)))
    except Exception as error:  # whatever UMAP raises: the page says it
        sys.exit(f"{type(error).__name__}: {error}")


def umap_places(rows: np.ndarray) -> np.ndarray:
    """Places (m, 2) of embeddings (m, d), the same every time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        umap = import_module("umap")
        neighbours = min(15, len(rows) - 1)
        model = umap.UMAP(metric="cosine", n_neighbors=neighbours, random_state=0, n_jobs=1)
        return np.asarray(model.fit_transform(rows), np.float32)


def _leave_with_the_studio() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
