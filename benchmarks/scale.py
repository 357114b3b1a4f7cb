"""Workers that share a fit at ImageNet's shape, on this machine, and a model of what clusters would take.

    python -m benchmarks.scale together [--rows 12811]   # steps by one process, by two that share them, and on Ray
    python -m benchmarks.scale model [--per-image ...]   # hours and node-hours of embed and fit, by size of the cluster
    python -m benchmarks.scale shards [--shards 5000]    # how long a store of many shards takes to open

Rows, concepts and classes are those of `benchmarks.whole_fit`, which measures the whole fit by one process: random,
float16 on disk, 512 dimensions; 4,523 concepts, about 47 of them active per image, 1,000 classes. Batches of 2,048, as
ImageNet's size has them, and all weights. `together` prints the inputs of `model`, and what the model says of two
workers beside what they took.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.whole_fit import CLASSES, CONCEPTS, DIMENSIONS, LENGTH, labels, write_rows

BATCH, EPOCHS = 2048, 5
#: Of the model's columns.
BATCHES = (2048, 16_384)
#: Members of a team whose steps are timed without the others, to tell what is shared from what everyone repeats.
PRETENDED = (1, 2, 4)
CONNECT = "tcp://127.0.0.1:"


def classifier(epochs: int):  # type: ignore[no-untyped-def]
    from ccr import ConceptClassifier, Concepts, HardThreshold

    texts = np.random.default_rng(3).standard_normal((CONCEPTS, DIMENSIONS), dtype=np.float32)
    concepts = Concepts([f"concept {row}" for row in range(CONCEPTS)], texts)
    return ConceptClassifier(
        concepts, coder=HardThreshold(length=LENGTH), max_iter=epochs, batch_size=BATCH, weights_per_class=None,
        validation_fraction=0, random_state=0,
    )  # fmt: skip


def step_seconds(X: Any, y: np.ndarray) -> float:
    """Seconds of a step in a fit on X: the median of its epochs but the first."""
    from ccr.core.refine.trainer import Trainer

    taken: list[float] = []
    plain = Trainer._epoch

    def timed(self: Trainer, number: int, epochs: int) -> float:
        start = time.perf_counter()
        loss = plain(self, number, epochs)
        taken.append((time.perf_counter() - start) / -(-self.m // BATCH))
        return loss

    Trainer._epoch = timed  # type: ignore[method-assign]
    try:
        classifier(EPOCHS).fit(X, y)
    finally:
        Trainer._epoch = plain  # type: ignore[method-assign]
    return float(np.median(taken[1:]))


class Pretended:
    """Member 0 of a team whose others are taken to find what it finds."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def sum(self, array: np.ndarray) -> np.ndarray:
        return array * array.dtype.type(self.size)

    def first(self, array: np.ndarray) -> np.ndarray:
        return array


class Parts(NamedTuple):
    """Seconds of a step: for each image that a worker has of the batch, and of what every worker repeats."""

    per_image: float
    per_step: float


def parts_of_a_step(X: np.ndarray, y: np.ndarray, threads: int) -> Parts:
    """The line through the steps of members with a whole batch, a half and a quarter of it."""
    import torch

    from ccr.scale.rows import SharedRows

    torch.set_num_threads(threads)
    seconds = [step_seconds(SharedRows(X, Pretended(size)), y) for size in PRETENDED]
    slope, rest = np.polyfit([BATCH / size for size in PRETENDED], seconds, 1)
    shown = ", ".join(f"{1000 * value:.0f} ms with 1/{size}" for size, value in zip(PRETENDED, seconds, strict=True))
    print(f"a worker's step on {threads} threads: {shown} of the batch", flush=True)
    return Parts(float(slope), float(rest))


def member(given: Namespace) -> None:
    """A process of the team: what its steps take, and sums as large as theirs on their own."""
    import torch
    from torch import distributed

    from ccr.scale.rows import SharedRows
    from ccr.scale.team import TorchTeam

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"{CONNECT}{given.port}", rank=given.rank, world_size=given.workers
    )
    X, team = np.load(given.file, mmap_mode="r"), TorchTeam()
    step = step_seconds(SharedRows(X, team), labels(len(X)))
    array, sums = np.zeros(summed_bytes(None) // 4, np.float32), []
    for _ in range(8):
        start = time.perf_counter()
        team.sum(array)
        sums.append(time.perf_counter() - start)
    print(json.dumps({"step": step, "sum": float(np.median(sums))}))


def by_processes(file: Path, workers: int) -> dict[str, float]:
    """Steps and sums of so many processes of one thread each; the slowest counts."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.scale", "member", "--file", str(file), "--port", str(port)]
    options = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "stdout": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen([*command, "--rank", str(rank), "--workers", str(workers)], **options)  # type: ignore[call-overload]
        for rank in range(workers)
    ]
    told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    return {name: max(one[name] for one in told) for name in ("step", "sum")}


def on_ray(X: np.ndarray, y: np.ndarray, folder: Path, workers: int) -> tuple[float, float]:
    """Seconds of the same fit on a Ray cluster of this machine: in all, and from the end of an epoch to the next."""
    import ccr.scale.fitting as fitting

    fitting.LOOK = 0.02
    ends: list[float] = []
    start = time.perf_counter()
    fitting.fit(
        classifier(EPOCHS), X, y, storage=folder / "kept", address="local", workers=workers,
        callback=lambda *_: ends.append(time.perf_counter()),
    )  # fmt: skip
    return time.perf_counter() - start, float(np.median(np.diff(ends)))


def together(rows: int, workers: int) -> None:
    """What sharing costs, measured, and what the model makes of it."""
    from benchmarks.measuring import machine

    print(machine())
    with tempfile.TemporaryDirectory(prefix="ccr-scale-") as name:
        folder, y = Path(name), labels(rows)
        write_rows(folder / "x.npy", rows)
        X = np.load(folder / "x.npy")
        one = step_seconds(X, y)
        print(f"{rows:,} rows, batches of {BATCH:,}: a step of one process on 2 cores {1000 * one:.0f} ms", flush=True)
        alone, node = parts_of_a_step(X, y, 1), parts_of_a_step(X, y, 2)
        shared = by_processes(folder / "x.npy", workers)
        print(
            f"a step of {workers} processes of one core each {1000 * shared['step']:.0f} ms, "
            f"{shared['step'] / one:.2f} times that of one process on 2 cores"
        )
        ring = 2 * (workers - 1) / workers * summed_bytes(None)
        print(
            f"each gives {summed_bytes(None):,} bytes to the sums of a step (five weights per class: "
            f"{summed_bytes(5):,}), which take {1000 * shared['sum']:.0f} ms on loopback, "
            f"{ring / shared['sum'] / 1e9:.2f} GB/s"
        )
        said = BATCH * alone.per_image / workers + alone.per_step + shared["sum"]
        print(f"the model says {1000 * said:.0f} ms, {said / shared['step']:.2f} of what was measured", flush=True)
        whole, epoch = on_ray(X, y, folder, workers)
    print(f"on Ray: {whole:.1f} s in all for {EPOCHS} epochs, {epoch:.2f} s from epoch to epoch with checkpoints")
    print(
        f"python -m benchmarks.scale model --alone {one / BATCH:.3g} --per-image {node.per_image:.3g} "
        f"--per-step {node.per_step:.3g}"
    )


def summed_bytes(weights: int | None) -> int:
    """Bytes that each worker gives to the sums of a step: bias, head and dictionary in float32, loss and length."""
    head = CONCEPTS * CLASSES if weights is None else weights * CLASSES
    return 4 * (CLASSES + head + CONCEPTS * DIMENSIONS) + 16


class Cluster(NamedTuple):
    """What a node does: images embedded a second; seconds per image of a fit by itself, and when it shares one, of a
    step's derivatives; seconds of the part of a step that every worker repeats; bytes of the network a second."""

    embedded: float
    alone: float
    per_image: float
    per_step: float
    network: float


def fit_hours(images: float, nodes: int, cluster: Cluster, *, batch: int, epochs: int = 10) -> float:
    """Hours of a fit: derivatives are shared, the step itself is not, sums take a ring twice around."""
    if nodes == 1:
        return epochs * images * cluster.alone / 3600
    steps = epochs * images / batch
    dense, sparse = (summed_bytes(weights) for weights in (None, 5))
    share = 2 * (nodes - 1) / nodes
    sums = share * (0.4 * dense + 0.6 * sparse) / cluster.network  # weights go between a tenth and a half of the epochs
    return steps * (batch * cluster.per_image / nodes + cluster.per_step + sums) / 3600


def embed_hours(images: float, nodes: int, cluster: Cluster) -> float:
    """Hours of an embedding: as long as nodes have images, nothing is shared."""
    return images / cluster.embedded / nodes / 3600


def model(given: Namespace) -> None:
    """The tables of docs/scale.md."""
    for gigabit in (10, 100):
        cluster = Cluster(given.embedded, given.alone, given.per_image, given.per_step, gigabit * 1e9 / 8)
        print(f"\n{gigabit} Gbit/s:\n")
        heads = " | ".join(f"fit, batches of {batch:,}" for batch in BATCHES)
        print(f"| images | nodes | embed | {heads} |\n|--:|--:|--:|{'--:|' * len(BATCHES)}")
        for images in (1.3e6, 50e6, 5e9):
            for nodes in (1, 4, 16, 64, 256):
                fits = [fit_hours(images, nodes, cluster, batch=batch) for batch in BATCHES]
                hours = embed_hours(images, nodes, cluster), *fits
                cells = " | ".join(f"{value:,.2f} ({value * nodes:,.0f})" for value in hours)
                print(f"| {images:,.0f} | {nodes} | {cells} |")


def shards(count: int) -> None:
    """Open a store of many shards, read a row of the last, and then all labels."""
    from ccr.data.store import EmbeddingStore
    from ccr.data.store.layout import DESCRIPTION
    from ccr.data.store.shards import write_shard

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
    parser.add_argument("what", choices=("together", "model", "shards", "member"))
    parser.add_argument("--rows", type=int, default=12_811, help="as many as whole batches have")
    parser.add_argument("--shards", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--embedded", type=float, default=1000.0, help="images per second and node (one GPU; assumed)")
    parser.add_argument("--alone", type=float, help="seconds per image of a fit by one process; `together` prints it")
    parser.add_argument("--per-image", type=float, help="seconds per image of a shared step on a node; likewise")
    parser.add_argument("--per-step", type=float, help="seconds of a step that every worker repeats; likewise")
    for name, kind in (("file", Path), ("port", int), ("rank", int)):
        parser.add_argument(f"--{name}", type=kind, help="of a process that `together` starts")
    given = parser.parse_args()
    if given.what == "model" and None in (given.alone, given.per_image, given.per_step):
        parser.error("`model` needs --alone, --per-image and --per-step, which `together` prints")
    {
        "together": lambda: together(given.rows // BATCH * BATCH, given.workers),
        "model": lambda: model(given),
        "shards": lambda: shards(given.shards),
        "member": lambda: member(given),
    }[given.what]()


if __name__ == "__main__":
    main()
