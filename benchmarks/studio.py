"""`python -m benchmarks.studio [--demo ccr-demo]`: how quickly the studio answers on 100,000 photos, beside a bare
request to the same server, and how long refits take."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import machine
from benchmarks.private_data import Skipped, add_shared_option, require
from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.data.store import EmbeddingStore
from ccr.data.store.layout import embeddings_path, metadata_path
from ccr.encoders import load_encoder
from ccr.geometry import unit_rows
from ccr.vocab.lists import random_words
from ccr_studio import serving
from ccr_studio.work.workbench import Workbench

PHOTOS, DIMENSION, CLASSES, CONCEPTS = 100_000, 512, 100, 500
#: Questions of each kind; the first few are not counted.
QUESTIONS, WARM = 100, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=Path("ccr-demo"), help="folder that `ccr demo` left")
    parser.add_argument("--photos", type=int, default=PHOTOS)
    add_shared_option(parser)
    options = parser.parse_args()
    print(machine(), "\n")
    with tempfile.TemporaryDirectory() as folder:
        answers(Path(folder), options.photos)
        refits(Path(folder), options.demo, options.shared)


def answers(folder: Path, photos: int) -> None:
    """Times of the pages of a store of planted photos."""
    make_store(folder, photos)
    started = time.perf_counter()
    asked = ["studio", str(folder / "store"), str(folder / "model"), "--session", str(folder / "session")]
    asked += ["--encoder", "bundled", "--port", "0", "--no-browser", "--json"]
    program = [sys.executable, "-c", "from ccr.start import main; main()"]
    server = subprocess.Popen([*program, *asked], stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(server.stdout.readline())["url"] if server.stdout else ""
        client = httpx.Client(base_url=url, timeout=60)
        client.get("/").raise_for_status()
        client.get("/api/photos", params={"counts": True, "limit": 60}).raise_for_status()
        first, spent = time.perf_counter() - started, sum(psutil.Process(server.pid).cpu_times()[:2])
        while client.get("/api/state").json()["encoder"] == "loading":
            time.sleep(0.2)
        print(
            f"{photos:,} photos x {DIMENSION}, {CONCEPTS} concepts, {CLASSES} classes; milliseconds, client and server"
        )
        print(
            f"on one machine. From starting the process to the first page with its photos and counts: {first:.2f} s,\n"
            f"{spent:.2f} s of them on a processor (other work on the machine makes the difference)\n"
        )
        measure(client)
    finally:
        server.terminate()
        server.wait()


def measure(client: httpx.Client) -> None:
    """One line for each kind of question; all kinds take turns."""
    rng = random.Random(0)
    names = [line["name"] for line in client.get("/api/concepts").json()["concepts"]]
    words = random_words(QUESTIONS + WARM, seed=7)
    fresh = _new_words(words)
    known = words[:3]
    kinds: dict[str, Callable[[], httpx.Response]] = {
        "bare request (/health)": lambda: client.get("/health"),
        "filter, with all counts": lambda: client.get("/api/photos", params=_filters(rng, names)),
        "sort by a concept": lambda: client.get("/api/photos", params=_sorted_by(rng.choice(names))),
        "photo page": lambda: client.get(f"/api/photos/{rng.randrange(PHOTOS // 2)}"),
        "slider": lambda: client.post(
            f"/api/photos/{rng.randrange(1000)}/intervene", json={"codes": {rng.choice(names): rng.random()}}
        ),
        "word search, words seen before": lambda: client.get("/api/search", params={"words": rng.choice(known)}),
        "word search, new words": lambda: client.get("/api/search", params={"words": next(fresh)}),
    }
    for word in known:
        client.get("/api/search", params={"words": word})
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(QUESTIONS + WARM):
        for name, ask in kinds.items():
            start = time.perf_counter()
            ask().raise_for_status()
            if number >= WARM:
                times[name].append(1000 * (time.perf_counter() - start))
    print("| question | p50 | p95 |\n|---|--:|--:|")
    for name, taken in times.items():
        print(f"| {name} | {np.percentile(taken, 50):.1f} | {np.percentile(taken, 95):.1f} |")


def _new_words(words: Sequence[str]) -> Iterator[str]:
    """Words with a number that no earlier run had: what an encoder embedded once it keeps on disk."""
    return (f"{word} {time.time_ns() % 10**9}" for word in words)


def _filters(rng: random.Random, names: Sequence[str]) -> dict[str, Any]:
    wish: dict[str, Any] = {"counts": True, "limit": 120, "classes": f"class {rng.randrange(CLASSES):03d}"}
    wish |= {"right": rng.choice(["right", "wrong"]), "low": rng.randrange(50) / 100}
    return wish | {"concept": rng.choice(names), "above": round(rng.random() / 10, 3)}


def _sorted_by(name: str) -> dict[str, Any]:
    return {"sort": "concept", "by": name, "descending": True, "limit": 120}


def refits(folder: Path, demo: Path, shared: Path) -> None:
    """Seconds of refits: of everything, and of the head alone; the worker is warm from the second on."""
    print("\n| refit, seconds until the new model answers | first | again | weights only |\n|---|--:|--:|--:|")
    for name, make in (("demo", lambda: _demo(folder, demo)), ("CIFAR-10", lambda: _cifar(folder, shared))):
        try:
            bench = make()
        except Skipped as reason:
            print(f"| {name} | skipped: {reason} | | |")
            continue
        bench.refits.start()
        taken = [refit(bench, kind) for kind in ("full", "full", "head")]
        print(f"| {name}, {len(bench.photos.training):,} photos | {taken[0]:.2f} | {taken[1]:.2f} | {taken[2]:.2f} |")
        bench.close()


def refit(bench: Workbench, kind: Any) -> float:
    start = time.perf_counter()
    job = bench.refit(kind, {})
    while bench.refits.running:
        time.sleep(0.01)
    if job.state != "done":
        raise RuntimeError(job.message)
    return time.perf_counter() - start


def _demo(folder: Path, demo: Path) -> Workbench:
    store = EmbeddingStore.open(require(demo / "store"))
    model = ConceptModel.load(require(demo / "model"))
    return _bench(store, model, folder / "demo-session", lambda: load_encoder("bundled"))


def _cifar(folder: Path, shared: Path) -> Workbench:
    data, texts = (
        np.load(require(shared / "embeddings" / f"{name}.npz")) for name in ("cifar10", "text_vit_b16_names")
    )
    splits = np.where(data["is_train"], "train", "test")
    splits[np.flatnonzero(data["is_train"])[::10]] = "val"
    store = write_store(folder / "cifar", data["X"], data["names"][data["y"]], splits)
    concepts = Concepts([str(name) for name in texts["names"]], texts["X"])
    return _bench(store, serving.first_model(store, concepts), folder / "cifar-session", lambda: Listed(concepts))


class Listed:
    """An encoder that knows the texts of a list: theirs were made by one that is not on this machine."""

    def __init__(self, concepts: Concepts) -> None:
        self._rows = dict(zip(concepts.names, concepts.embeddings, strict=True))

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([self._rows.get(text, np.zeros(DIMENSION)) for text in texts], np.float32)


def _bench(store: EmbeddingStore, model: ConceptModel, session: Path, load: Callable[[], Any]) -> Workbench:
    bench = Workbench(store, model, folder=session, models=session.parent, load_encoder=load)
    bench.words.start()
    return bench


def make_store(folder: Path, photos: int) -> None:
    """Photos around the centres of their classes, concepts around the same, and a model of them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, DIMENSION), dtype=np.float32)
    y = rng.integers(0, CLASSES, photos)
    X = unit_rows(centres[y] + 2.2 * rng.standard_normal((photos, DIMENSION), dtype=np.float32)).astype(np.float16)
    labels = np.array([f"class {number:03d}" for number in y])
    splits = rng.choice(["train", "val", "test"], photos, p=[0.8, 0.1, 0.1])
    store = write_store(folder / "store", X, labels, splits)
    mixed = centres[rng.integers(0, CLASSES, CONCEPTS)] + rng.standard_normal((CONCEPTS, DIMENSION), dtype=np.float32)
    concepts = Concepts([f"concept {number}" for number in range(CONCEPTS)], mixed)
    estimator = ConceptClassifier(concepts, coder=HardThreshold(length=12), max_iter=3, random_state=0)
    rows = np.flatnonzero(splits == "train")[:20_000]
    model = estimator.set_params(weights_per_class=None).fit(store[rows].astype(np.float32), labels[rows]).model_
    model.save(folder / "model")


def write_store(folder: Path, X: np.ndarray, labels: np.ndarray, splits: np.ndarray) -> EmbeddingStore:
    """A folder in clip-retrieval's layout."""
    for path in (embeddings_path(folder, 0), metadata_path(folder, 0)):
        path.parent.mkdir(parents=True, exist_ok=True)
    np.save(embeddings_path(folder, 0), X)
    names = [f"photos/{number:06d}.jpg" for number in range(len(X))]
    table = pa.table({"image_path": names, "label": labels.tolist(), "split": splits.tolist()})
    pq.write_table(table, metadata_path(folder, 0))
    return EmbeddingStore.open(folder)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
