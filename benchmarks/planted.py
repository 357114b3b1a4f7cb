"""Do the defaults recover what is planted? Data made of known concepts, which refinement does not start from.

    python -m benchmarks.planted [--seeds 3]

48 orthonormal concepts in 64 dimensions, 5 of them active per image, of either sign, and 8 classes that are linear in
the codes. Concepts start at a chord of 0.33 from the planted ones and may move by 0.4. Printed: test accuracy, beside
that of a head on the planted concepts and of one on those that refinement starts from, and the mean distance from the
planted concepts: recovery means that it falls.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, NamedTuple

import numpy as np

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.geometry import unit_rows

CONCEPTS, DIMENSIONS, ACTIVE, CLASSES, IMAGES = 48, 64, 5, 8, 4000
START, RADIUS = 0.33, 0.4
PLAIN: dict[str, Any] = {"center": None, "dispersion": None}
#: What is changed of the defaults; the first is the defaults themselves.
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "dropout 0.1": {"dropout": 0.1},
    "no centring": {"center": None},
    "no dispersion": {"dispersion": None},
    "neither": PLAIN,
    "neither, dropout 0.1": {**PLAIN, "dropout": 0.1},
}


class Planted(NamedTuple):
    """Images (2 m, d) and classes, half of them for testing; the concepts that made them, and those to start from."""

    X: np.ndarray
    y: np.ndarray
    truth: np.ndarray
    start: np.ndarray


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    worlds = [planted(seed) for seed in range(parser.parse_args().seeds)]
    print("| concepts | accuracy, % | distance from the planted ones |\n|---|--:|--:|")
    for name, rows in (("planted, not refined", "truth"), ("start, not refined", "start")):
        _print(name, [fitted(world, getattr(world, rows), radius=0.0, **PLAIN) for world in worlds])
    for name, changed in SETTINGS.items():
        settings = {"radius": RADIUS, **changed}
        _print(f"refined, {name}", [fitted(world, world.start, **settings) for world in worlds])


def planted(seed: int) -> Planted:
    rng = np.random.default_rng(seed)
    truth = np.linalg.qr(rng.normal(size=(DIMENSIONS, DIMENSIONS)))[0][:CONCEPTS]
    codes = np.zeros((2 * IMAGES, CONCEPTS))
    active = rng.permuted(np.tile(np.arange(CONCEPTS), (2 * IMAGES, 1)), axis=1)[:, :ACTIVE]
    values = rng.uniform(0.5, 1.5, active.shape) * rng.choice([-1.0, 1.0], active.shape)
    np.put_along_axis(codes, active, values, axis=1)
    y = (codes @ rng.normal(size=(CONCEPTS, CLASSES))).argmax(axis=1)
    aside = rng.normal(size=truth.shape)
    aside = unit_rows(aside - (aside * truth).sum(axis=1, keepdims=True) * truth)
    cosine = 1.0 - START**2 / 2
    start = cosine * truth + np.sqrt(1.0 - cosine**2) * aside
    return Planted((codes @ truth).astype(np.float32), y, truth, start)


def fitted(world: Planted, rows: np.ndarray, **settings: Any) -> tuple[float, float]:
    """Test accuracy in percent, and the mean distance of the fitted concepts from the planted ones."""
    X, y, truth, _ = world
    concepts = Concepts([f"concept {row}" for row in range(CONCEPTS)], rows)
    coder = HardThreshold(length=ACTIVE, sign="both")
    model = ConceptClassifier(concepts, coder=coder, weights_per_class=None, random_state=0, **settings)
    model.fit(X[:IMAGES], y[:IMAGES])
    apart = np.linalg.norm(model.concepts_.embeddings - truth, axis=1).mean()
    return 100 * float(model.score(X[IMAGES:], y[IMAGES:])), float(apart)


def _print(name: str, found: list[tuple[float, float]]) -> None:
    accuracy, apart = np.mean(found, axis=0)
    print(f"| {name} | {accuracy:.1f} | {apart:.3f} |", flush=True)


if __name__ == "__main__":
    main()
