"""Time to a validation accuracy: CIFAR-10 photos, concepts embedded by the bundled encoder."""

from __future__ import annotations

import time

import numpy as np
import torch

from benchmarks.measuring import Line, at_least
from benchmarks.opponents import DenseLoop
from benchmarks.private_data import SHARED, Skipped, require
from ccr import Angular, ConceptClassifier, Concepts, HardThreshold
from ccr.errors import CCRError
from ccr.space import Space, Symmetric

EPOCHS, LENGTH = 20, 11.0


def run(rounds: int = 1) -> list[Line]:
    X, y, validation = _photos()
    concepts = _concepts()
    return [
        _measure(X, y, validation, concepts, rounds, released=True),
        _measure(X, y, validation, concepts, rounds, released=False),
    ]


def _photos() -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    images = np.load(require(SHARED / "embeddings" / "cifar10.npz"))
    train = np.random.default_rng(0).permutation(np.flatnonzero(images["is_train"]))
    cut = len(train) // 10
    X, y = images["X"].astype(np.float32), images["y"].astype(np.int64)
    return X[train[cut:]], y[train[cut:]], (X[train[:cut]], y[train[:cut]])


def _concepts() -> Concepts:
    from ccr.encoders import load_encoder

    file = require(SHARED / "concepts" / "cifar10.txt")
    names = list(dict.fromkeys(line.strip() for line in file.read_text().splitlines() if line.strip()))
    try:
        return Concepts(names, load_encoder("bundled").embed_texts(names))
    except (CCRError, OSError) as error:
        raise Skipped(f"the bundled encoder cannot be used: {error}") from error


def _measure(X, y, validation, concepts, rounds, *, released) -> Line:  # type: ignore[no-untyped-def]
    best, reached, target, length = float("inf"), float("inf"), 0.0, 0.0
    for _ in range(rounds):
        for threads in sorted({1, torch.get_num_threads()}):
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            seconds, target, length = _dense(X, y, validation, concepts, released)
            torch.set_num_threads(before)
            best = min(best, seconds)
    for _ in range(2 * rounds + 1):
        reached = min(reached, _ours(X, y, validation, concepts, target))
    kind = "released settings" if released else "released steps on our preparation"
    other = f"plain dense loop, {kind}, {EPOCHS} epochs, length {length:.1f}: {best:.2f} s"
    work = f"time to {target:.1%} validation accuracy, CIFAR-10 photos"
    ratio = at_least(best / reached, 20.0) if released else (f"{best / reached:.1f} times faster", "", None)
    return Line(work, f"{reached:.2f} s, all of `fit`, in the ball, both signs, length {LENGTH:g}", other, *ratio)


def _dense(X, y, validation, concepts, released):  # type: ignore[no-untyped-def]
    """Seconds of training alone, final validation accuracy and length."""
    space = Space.fit(
        concepts.embeddings,
        X,
        center=None if released else "data",
        dispersion=Angular() if released else Symmetric(0.9),
    )
    D = space.texts(concepts.embeddings)
    rows, held_out = (space.images(part).make_resident() for part in (X, validation[0]))
    coder = HardThreshold(threshold=0.15, sign="positive") if released else HardThreshold(length=LENGTH, sign="both")
    rule = coder.rule(rows, D)
    loop = DenseLoop(torch.from_numpy(D), 10, rule.threshold, one_sided=released)
    tensor, labels = rows.span(0, len(rows)), torch.from_numpy(y)
    start = time.perf_counter()
    for _ in range(EPOCHS):
        loop.epoch(tensor, labels, torch.randperm(len(labels)))
    seconds = time.perf_counter() - start
    codes = loop.codes(tensor[:2000])
    accuracy = loop.accuracy(held_out.span(0, len(held_out)), torch.from_numpy(validation[1]))
    return seconds, accuracy, float((codes != 0).sum()) / len(codes)


class _Reached(Exception):
    pass


def _ours(X, y, validation, concepts, target) -> float:  # type: ignore[no-untyped-def]
    coder = HardThreshold(length=LENGTH, sign="both")
    model = ConceptClassifier(concepts, coder=coder, radius=0.1, weights_per_class=None, random_state=0)
    start = time.perf_counter()

    def check(epoch, epochs) -> None:  # type: ignore[no-untyped-def]
        if epoch.validation_accuracy >= target:
            raise _Reached

    try:
        model.fit(X, y, validation=validation, callback=check)
    except _Reached:
        return time.perf_counter() - start
    return float("inf")
