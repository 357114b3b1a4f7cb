"""What a bound on fidelity and a sparse head cost and bring, beside the ball of the paper and beside random words.

    python -m benchmarks.fidelity [--seeds 1] [--shared ../shared]

Bundled texts, one-sided codes, defaults otherwise. Test images choose nothing. Fidelity and concepts in play are those
on the test images. Embeddings and concept lists are read from the shared folder (docs/data.md).
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.data.encoders import Encoder, load_encoder
from ccr.data.vocab import embed_concepts, random_words, read_concepts
from ccr.models.rivals import LinearProbe

#: Data sets, and the concepts per image asked for.
SETS = {"cifar10": 11, "cub": 20}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"radius": 0.1},
    *({"fidelity": least, "weights_per_class": weights} for least in (0.875, 0.955) for weights in (None, 5, 3, 1)),
)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    add_shared_option(parser)
    given = parser.parse_args()
    encoder = load_encoder("bundled")
    print("| data | concepts | setting | accuracy, % | fidelity, mean (least) | in play |")
    print("|---|---|---|--:|--:|--:|")
    for name, length in SETS.items():
        data = np.load(require(given.shared / "embeddings" / f"{name}.npz"))
        X, y, train = data["X"].astype(np.float32), data["y"], data["is_train"].astype(bool)
        probe = LinearProbe().fit(X[train], y[train]).score(X[~train], y[~train])
        print(f"| {name} | none | linear probe | {100 * probe:.1f} | | |", flush=True)
        for kind, concepts in _concepts(given.shared / "concepts" / f"{name}.txt", encoder).items():
            for settings in SETTINGS:
                cells = [_measured(concepts, length, settings, seed, X, y, train) for seed in range(given.seeds)]
                accuracy, mean, least, playing = np.mean(cells, axis=0)
                words = ", ".join(f"{key} {value}" for key, value in settings.items() if value is not None)
                numbers = f"{100 * accuracy:.1f} | {mean:.3f} ({least:.3f}) | {playing:.1f}"
                print(f"| {name}, length {length} | {kind} | {words} | {numbers} |", flush=True)


def _concepts(path: Path, encoder: Encoder) -> dict[str, Concepts]:
    names = read_concepts(require(path))
    words = random_words(len(names), seed=0, exclude=names)
    return {"named": embed_concepts(names, encoder), "random words": embed_concepts(words, encoder)}


def _measured(
    concepts: Concepts,
    length: int,
    settings: dict[str, Any],
    seed: int,
    X: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
) -> tuple[float, float, float, float]:
    coder = HardThreshold(length=length, sign="positive")
    model = ConceptClassifier(concepts, coder=coder, random_state=seed, **settings).fit(X[train], y[train])
    found = model.evaluate(X[~train], y[~train])
    return found.accuracy, found.fidelity.mean, found.fidelity.min, found.in_play


if __name__ == "__main__":
    main()
