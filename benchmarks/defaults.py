"""Why the defaults are what they are: centring and dispersion on real CLIP embeddings.

    python -m benchmarks.defaults [--signs] [--shared ../shared]

For each data set: test accuracy of baseline and CCR at the same length, and the mean cosine between a concept where
refinement starts and its own text. Concept lists and embeddings are read from the shared folder (docs/data.md).
With --signs: codes of both signs against one-sided ones, with the default centring and dispersion.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.private_data import add_shared_option, require
from ccr import Angular, ConceptClassifier, Concepts, HardThreshold, Symmetric
from ccr.core.coding import Sign
from ccr.core.geometry import unit_rows
from ccr.data.encoders import Encoder, load_encoder
from ccr.data.vocab import embed_concepts, read_concepts

CASES = (("cifar10", "cifar10", 5), ("cifar10", "cifar10", 12), ("cub", "cub", 20), ("pets", "cub", 12))
DISPERSIONS: dict[str, Any] = {
    "none": None,
    "angular": Angular(),
    "symmetric 0.8": Symmetric(0.8),
    "symmetric 0.9": Symmetric(0.9),
    "symmetric 1.0": Symmetric(1.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_option(parser)
    parser.add_argument("--signs", action="store_true")
    given = parser.parse_args()
    shared, encoder = given.shared, load_encoder("bundled")
    if given.signs:
        _signs(shared, encoder)
        return
    print(
        "| data | length | center | dispersion | baseline | CCR | cosine to own text |\n|---|--:|---|---|--:|--:|--:|"
    )
    for data, words, length in CASES:
        concepts = embed_concepts(read_concepts(require(shared / "concepts" / f"{words}.txt")), encoder)
        X, y, train = _load(shared / "embeddings" / f"{data}.npz")
        for center in (None, "data"):
            for name, dispersion in DISPERSIONS.items():
                cells = _row(concepts, X, y, train, length=length, center=center, dispersion=dispersion)
                print(f"| {data} | {length} | {center or 'none'} | {name} | {cells} |", flush=True)


def _signs(shared: Path, encoder: Encoder) -> None:
    print("| data | length | codes | baseline | CCR | cosine to own text |\n|---|--:|---|--:|--:|--:|")
    for data, words, length in (*CASES, ("cifar10", "cifar10", 20), ("cub", "cub", 10)):
        concepts = embed_concepts(read_concepts(require(shared / "concepts" / f"{words}.txt")), encoder)
        X, y, train = _load(shared / "embeddings" / f"{data}.npz")
        for sign in ("both", "positive"):
            cells = _row(concepts, X, y, train, length=length, sign=sign)
            print(f"| {data} | {length} | {sign} | {cells} |", flush=True)


def _load(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    stored = np.load(require(path))
    y = stored["y"].astype(int)
    train = stored["is_train"] if "is_train" in stored.files else np.random.default_rng(0).random(len(y)) < 0.7
    return stored["X"], y, train


def _row(
    concepts: Concepts,
    X: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    *,
    length: int,
    center: Any = "data",
    dispersion: Any = "auto",
    sign: Sign = "both",
) -> str:
    cells = []
    for radius in (0.0, 0.1):
        options = {"coder": HardThreshold(length=length, sign=sign), "center": center, "dispersion": dispersion}
        model = ConceptClassifier(concepts, radius=radius, random_state=0, **options).fit(X[train], y[train])
        cells.append(f"{model.score(X[~train], y[~train]):.1%}")
    texts = unit_rows(concepts.embeddings - (concepts.embeddings.mean(axis=0) if center else 0.0))
    cells.append(f"{float((texts * model.initial_concepts_.embeddings).sum(axis=1).mean()):.2f}")
    return " | ".join(cells)


if __name__ == "__main__":
    main()
