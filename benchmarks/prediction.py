"""`predict` and `transform` against the bare product X D^T."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.measuring import Line, bare_products, least, take_turns
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.core.geometry import unit_rows

SHAPES = (("ImageNet", 4523, 1000, 47, 8192), ("CIFAR-100", 824, 100, 20, 32_768))


def run(rounds: int = 12) -> list[Line]:
    return [line for shape in SHAPES for line in _measure(*shape, rounds)]


def _measure(name: str, n: int, classes: int, length: int, rows: int, rounds: int) -> list[Line]:
    rng = np.random.default_rng(0)
    X = unit_rows(rng.standard_normal((rows, 512), dtype=np.float32))
    concepts = Concepts([str(number) for number in range(n)], rng.standard_normal((n, 512), dtype=np.float32))
    coder = HardThreshold(length=length, sign="both")
    model = ConceptClassifier(concepts, coder=coder, radius=0.0, weights_per_class=None, max_iter=1, random_state=0)
    model.fit(X[: 2 * classes], np.arange(2 * classes) % classes)
    works = {"predict": lambda: model.predict(X), "transform": lambda: model.transform(X)}
    works |= bare_products(torch.from_numpy(X), torch.tensor(model.concepts_.embeddings))
    seconds = take_turns(works, rounds=rounds)
    floor = least(seconds, "floor")
    lines = []
    for kind in ("predict", "transform"):
        share, ours = floor / seconds[kind], f"{seconds[kind] / rows * 1e6:.2f} us"
        against = f"bare X D^T: {floor / rows * 1e6:.2f} us"
        lines.append(
            Line(
                f"{kind}, {name} shape, per image",
                ours,
                against,
                f"{share:.2f} of its speed",
                "at least 0.7",
                share >= 0.7,
            )
        )
    return lines
