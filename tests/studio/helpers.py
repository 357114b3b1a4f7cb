"""Small real parts for the tests of the studio: pictures, their store, a model, a workbench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.data.datasets import open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.data.store.layout import embeddings_path, metadata_path
from ccr.model import ConceptModel
from ccr_studio import serving
from ccr_studio.layout import Layout
from ccr_studio.service.guards import access_for
from ccr_studio.serving import NOBODY, POLICY, studio_app
from ccr_studio.work.refits import Folds
from ccr_studio.work.workbench import Workbench
from tests.data.helpers import PixelEncoder, encoded

#: A class and a concept whose names would do something, if anybody let them.
HOSTILE = "<img src=x onerror=alert(1)>"
CLASSES = {"apple": (200, 40, 40), "lime": (60, 180, 60), "plum": (110, 40, 130), HOSTILE: (60, 80, 200)}
CONCEPTS = [*(f"word {number}" for number in range(27)), HOSTILE]
COUNTS = {"train": 16, "val": 5, "test": 5}


def colour_picture(name: str, seed: int) -> Image.Image:
    """A noisy picture of a class's colour, with a stripe of another."""
    rng = np.random.default_rng([seed, len(name)])
    pixels = np.clip(np.array(CLASSES[name]) + rng.normal(0, 55, (40, 40, 3)), 0, 255)
    at = int(rng.integers(0, 30))
    pixels[at : at + 9] = rng.integers(0, 255, 3)
    return Image.fromarray(pixels.astype(np.uint8))


def make_store(folder: Path) -> EmbeddingStore:
    """Pictures of four classes in three splits, embedded."""
    for split, count in COUNTS.items():
        for name in CLASSES:
            place = folder / "pictures" / split / name
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                seed = number + 100 * list(COUNTS).index(split)
                (place / f"{number}.png").write_bytes(encoded(colour_picture(name, seed)))
    embed_dataset(open_dataset(folder / "pictures"), PixelEncoder(), folder / "store", workers=0)
    return EmbeddingStore.open(folder / "store")


def write_store(folder: Path, rows: np.ndarray, labels: np.ndarray) -> None:
    """A store of planted embeddings without pictures."""
    for path in (embeddings_path(folder, 0), metadata_path(folder, 0)):
        path.parent.mkdir(parents=True)
    np.save(embeddings_path(folder, 0), rows.astype(np.float32))
    names = [f"photos/{number}.jpg" for number in range(len(rows))]
    pq.write_table(pa.table({"image_path": names, "label": labels.tolist()}), metadata_path(folder, 0))


def fit_model(store: EmbeddingStore) -> ConceptModel:
    texts = Concepts(CONCEPTS, PixelEncoder().embed_texts(CONCEPTS))
    train = store.select("train")
    estimator = ConceptClassifier(texts, coder=HardThreshold(length=6), max_iter=12, random_state=0)
    return estimator.fit(train).model_


def make_bench(
    store: EmbeddingStore, model: ConceptModel | None, folder: Path, *, folds: bool = False, **options: Any
) -> Workbench:
    """A workbench with the encoder at hand; out-of-fold predictions, five refits, if they are asked for."""
    bench = serving.open_workbench(store, model, folder / "session", models=folder / "models", **options)
    bench.words._load = PixelEncoder
    bench.layout = Layout(bench.photos, folder, method="pca")  # UMAP compiles for a while: test_layout waits for it
    bench.folds = Folds(folder, compute=folds)
    bench.words.start()
    assert bench.words.encoder is not None
    return bench


def client_of(bench: Workbench) -> TestClient:
    """A browser of this machine that asks the studio on a workbench; errors of the studio are answers."""
    app = studio_app(bench, access=access_for("127.0.0.1", None, policy=POLICY + NOBODY))
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def start(*arguments: str, **environment: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """The command `ccr studio` in a process of its own, once it answers, and what it said."""
    command = [sys.executable, "-m", "ccr.start", "studio", *arguments, "--no-browser", "--json", "--port", "0"]
    if not (Path(sys.executable).parent / "ccr").exists():
        pytest.skip("the command ccr is not installed")
    command[:3] = [str(Path(sys.executable).parent / "ccr")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def ask(url: str, path: str = "", **headers: str) -> Any:
    request = urllib.request.Request(url + path, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def tell(url: str, path: str, body: Any) -> Any:
    """The answer to JSON that is posted."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """What the studio started, once it has started the process that refits."""
    for _ in range(600):
        if children := psutil.Process(process.pid).children(recursive=True):
            return children
        time.sleep(0.1)
    raise AssertionError("the process that refits is not there")


def children_end(children: list[psutil.Process]) -> None:
    """Wait until none of these processes runs."""
    _, left = psutil.wait_procs(children, timeout=60)
    running = [child for child in left if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not running, f"left behind: {running}"


def finish(bench: Workbench) -> None:
    """Wait for the running refit."""
    for _ in range(1200):
        if not bench.refits.running:
            return
        time.sleep(0.05)
    raise AssertionError("the refit does not end")
