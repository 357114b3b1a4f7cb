"""A model of what clusters would take, how much a sample is worth, and stores of many shards.

    python -m benchmarks.scale model --one-core US --two-cores US   # hours of embed and of fit, by nodes and cores
    python -m benchmarks.scale samples [--seeds 3]                  # accuracy by the number of training images
    python -m benchmarks.scale shards [--shards 5000]               # how long a store of many shards takes to open

The microseconds per image and epoch of a fit are printed by `python -m benchmarks.whole_fit`; OMP_NUM_THREADS=1 gives
it one core. `samples` fits CLIP's real words (`benchmarks.real_words`) on samples of CIFAR-10's training images, the
same number of each class; test images choose nothing.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

import numpy as np

from benchmarks.private_data import add_shared_option
from benchmarks.whole_fit import DIMENSIONS

NODES, CORES, EPOCHS = (1, 16, 256), (2, 16, 64), 10
#: Training images per class of `samples`.
PER_CLASS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def model(one_core: float, two_cores: float, embedded: float) -> None:
    """The table of docs/scale.md: embedding is divided by the nodes; a fit is on one of them, and its cores share what
    Amdahl's law leaves them, with the serial share that the second core was measured to have."""
    serial = max(0.0, 2 * two_cores / one_core - 1)
    print(f"A second core makes steps {one_core / two_cores:.2f} times as fast: {100 * serial:.1f} % are serial.\n")
    heads = [f"embed, nodes: {nodes}" for nodes in NODES] + [f"fit, cores: {cores}" for cores in CORES]
    print(f"| images | {' | '.join(heads)} |\n|--:|{'--:|' * len(heads)}")
    for images in (1.3e6, 50e6, 5e9):
        hours = [images / embedded / nodes / 3600 for nodes in NODES]
        alone = EPOCHS * images * one_core / 1e6 / 3600
        hours += [alone * (serial + (1 - serial) / cores) for cores in CORES]
        print(f"| {images:,.0f} | {' | '.join(f'{value:,.2f}' for value in hours)} |")


def samples(shared: Path, seeds: int) -> None:
    """Accuracy on CIFAR-10's test images, by how many of the training images are fitted on."""
    from benchmarks.defaults import measured
    from benchmarks.real_words import SETS, real_words, task

    one = task("cifar10", real_words(shared), shared)
    X, y, train = one.images
    print("| images per class | accuracy, % | least and most of the seeds |\n|--:|--:|--:|")
    for count in PER_CLASS:
        found = []
        for seed in range(seeds):
            rng, mask = np.random.default_rng(seed), np.zeros(len(y), bool)
            for label in np.unique(y):
                own = rng.permutation(np.flatnonzero(train & (y == label)))
                mask[own[:count]] = True
            used = mask | ~train
            images = one.images._replace(X=X[used], y=y[used], train=train[used])
            found.append(100 * measured(one.listed, SETS["cifar10"], {}, seed, images)[0])
        print(f"| {count:,} | {np.mean(found):.1f} | {min(found):.1f} to {max(found):.1f} |", flush=True)


def shards(count: int) -> None:
    """Open a store of many shards, read a row of the last, and then all labels."""
    from ccr.data.store import EmbeddingStore
    from ccr.data.store.layout import DESCRIPTION
    from ccr.data.store.matrix import write_shard

    rows = 4
    with tempfile.TemporaryDirectory(prefix="ccr-shards-") as name:
        folder = Path(name)
        about = [{"image_path": str(row), "label": "a", "split": "train", "content": ""} for row in range(rows)]
        made = [
            write_shard(folder, shard, np.full((rows, DIMENSIONS), shard, np.float16), about) for shard in range(count)
        ]
        encoder = {"spec": "bundled", "fingerprint": "none", "dimension": DIMENSIONS, "preprocessing": ""}
        source = {"kind": "folder", "path": "none"}
        description = {"format": "ccr-store", "version": 1, "encoder": encoder, "dtype": "float16", "source": source}
        (folder / DESCRIPTION).write_text(json.dumps({**description, "classes": ["a"], "shards": made}))
        times = [time.perf_counter()]
        store = EmbeddingStore.open(folder)
        times.append(time.perf_counter())
        assert float(store[rows * (count - 1)][0]) == np.float16(count - 1)
        times.append(time.perf_counter())
        assert len(store.y) == rows * count
        times.append(time.perf_counter())
    opened, row, y = np.diff(times)
    print(f"{count:,} shards: opened in {opened:.2f} s, a row of the last in {1000 * row:.1f} ms, labels in {y:.1f} s")


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("model", "samples", "shards"))
    parser.add_argument("--shards", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--embedded", type=float, default=1000.0, help="images per second and node (one GPU; assumed)")
    parser.add_argument("--one-core", type=float, help="microseconds of a fit per image and epoch on one core")
    parser.add_argument("--two-cores", type=float, help="the same on two cores")
    add_shared_option(parser)
    given = parser.parse_args()
    if given.what == "shards":
        shards(given.shards)
    elif given.what == "samples":
        samples(given.shared, given.seeds)
    elif given.one_core is None or given.two_cores is None:
        parser.error("`model` needs --one-core and --two-cores: the microseconds that `benchmarks.whole_fit` prints")
    else:
        model(given.one_core, given.two_cores, given.embedded)


if __name__ == "__main__":
    main()
