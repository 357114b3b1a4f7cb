"""`predict` and `transform` of one row, of a hundred and of many against the bare product X D^T."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.measuring import Line, bare_products, least, take_turns
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.geometry import unit_rows

#: Of the bare product's speed.
WANTED = 0.7
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
    dictionary = torch.tensor(model.concepts_.embeddings)
    return [line for count in (1, 100, rows) for line in _compared(name, model, X[:count], dictionary, rounds)]


def _compared(name: str, model: ConceptClassifier, X: np.ndarray, dictionary: torch.Tensor, rounds: int) -> list[Line]:
    works = {"predict": lambda: model.predict(X), "transform": lambda: model.transform(X)}
    works |= bare_products(torch.from_numpy(X), dictionary)
    seconds = take_turns(works, rounds=rounds)
    floor, lines = least(seconds, "floor"), []
    for kind in ("predict", "transform"):
        share = floor / seconds[kind]
        ours, against = (f"{value / len(X) * 1e6:.2f} us" for value in (seconds[kind], floor))
        work = f"{kind} of {len(X):,} row{'s' * (len(X) > 1)}, {name} shape, per image"
        bare, ratio = f"bare X D^T: {against}", f"{share:.2f} of its speed"
        lines.append(Line(work, ours, bare, ratio, f"at least {WANTED}", share >= WANTED))
    return lines
