"""How many scores must be computed in floats when all were computed in bytes first, and how long both ways take.

    python -m benchmarks.screening [--shared ../shared]

Random rows, and CLIP embeddings of images with the published concepts (bundled encoder), centred as they are by default
and as they come. On one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import take_turns
from benchmarks.private_data import add_shared_option, require
from ccr import HardThreshold, kernels
from ccr.coding import Panels
from ccr.encoders import load_encoder
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.space import Space
from ccr.vocab import embed_concepts, read_concepts

ROWS, ROUNDS = 2000, 7
RANDOM = ((4523, 47), (824, 20), (128, 11))
#: Embeddings, concepts, length.
SETS = (("tiny_imagenet", "imagenet", 47), ("cub", "cub", 20), ("cifar10", "cifar10", 11))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_option(parser)
    shared = parser.parse_args().shared
    if not kernels.SCREENS:
        parser.error("scores in bytes are a part of the x86 kernels, and these are the plain ones")
    kernels.warm_up(print)
    print("| rows | concepts | active | computed in floats | us per row | all in floats, us per row | faster |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, X, dictionary, length in _cases(shared):
        print(f"| {name} | {len(dictionary)} | {_measure(X, dictionary, length)} |", flush=True)


def _cases(shared: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray, int]]:
    rng = np.random.default_rng(0)
    for n, length in RANDOM:
        x, rows = (unit_rows(rng.standard_normal((count, 512), dtype=np.float32)) for count in (ROWS, n))
        yield "random", x, rows, length
    encoder = load_encoder("bundled")
    for data, words, length in SETS:
        images = np.load(require(shared / "embeddings" / f"{data}.npz"))["X"].astype(np.float32)
        images = unit_rows(images[:: len(images) // ROWS][:ROWS])
        concepts = embed_concepts(read_concepts(require(shared / "concepts" / f"{words}.txt")), encoder)
        for center in ("data", None):
            space = Space.fit(concepts.embeddings, images, center=center, dispersion=None)  # type: ignore[arg-type]
            x = space.images(images)
            title = f"{data}, {'centred' if center else 'as they come'}"
            yield title, x.take(np.arange(len(x))).numpy(), space.texts(concepts.embeddings), length


def _measure(X: np.ndarray, dictionary: np.ndarray, length: int) -> str:
    rule = HardThreshold(length=length, sign="both").rule(Embeddings.ready(torch.from_numpy(X)), dictionary)
    criterion = rule.criterion()
    bytes_first = Panels(dictionary, rule, n_exact=0.0)
    floats = Panels(dictionary, rule, n_exact=float(len(dictionary)))
    found, looked = bytes_first.examined(X, criterion)
    seconds = take_turns(
        {"bytes": lambda: bytes_first.entries(X, criterion), "floats": lambda: floats.entries(X, criterion)},
        rounds=ROUNDS,
    )
    one, two = (1e6 * value / len(X) for value in seconds.values())
    return f"{len(found.indices) / len(X):.1f} | {looked / len(X):.1f} | {one:.2f} | {two:.2f} | {two / one:.1f} times"


if __name__ == "__main__":
    main()
