"""What is damaged: small, whole things of every kind, made once in a folder."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.data.datasets import open_dataset
from ccr.data.store import embed_dataset
from ccr.knowledge import Answer, Knowledge
from ccr.review import Decisions, Review, sign

DIMENSION = 16


class SmallEncoder:
    """A real encoder of the simplest kind: a fixed random projection of 8 x 8 pixels, and of a text's hash."""

    name, template, crop, dimension = "bundled", None, None, DIMENSION
    fingerprint = text_fingerprint = "fuzz"
    preprocessing: dict[str, object] = {}  # noqa: RUF012 (part of the protocol)

    def embed_images(self, images: list[Image.Image], *, batch_size: int | None = None) -> np.ndarray:
        matrix = np.random.default_rng(0).standard_normal((64, DIMENSION))
        pixels = np.stack([np.asarray(image.convert("L").resize((8, 8)), float).reshape(64) for image in images])
        return _unit((pixels - 100.0) @ matrix)

    def embed_texts(self, texts: list[str], *, template: str | None = None) -> np.ndarray:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        return _unit(np.stack([np.random.default_rng(seed).standard_normal(DIMENSION) for seed in seeds]))


def _unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def make_photos(folder: Path) -> Path:
    """Twelve small photos of two classes, in different formats."""
    rng = np.random.default_rng(0)
    for number in range(12):
        path = folder / f"class {number % 2}" / f"{number}.{('png', 'jpg', 'gif', 'bmp', 'webp', 'tif')[number % 6]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (12, 10, 3), dtype=np.uint8)).save(path)
    return folder


def make_shards(photos: Path, folder: Path) -> Path:
    """The photos in two tar shards, with their classes beside them."""
    folder.mkdir()
    paths = sorted(photos.rglob("*.*"))
    for shard in range(2):
        members = {}
        for number, path in enumerate(paths[shard::2]):
            members[f"{number}{path.suffix}"] = path.read_bytes()
            members[f"{number}.cls"] = path.parent.name.encode()
        write_tar(folder / f"{shard:05}.tar", members)
    return folder


def write_tar(path: Path, members: Mapping[str, bytes], *, kind: bytes = tarfile.REGTYPE) -> None:
    """A tar of these members, the first of them of this kind."""
    with tarfile.open(path, "w", errors="surrogateescape") as archive:
        for number, (name, content) in enumerate(members.items()):
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), tarfile.REGTYPE if number else kind
            member.linkname = "" if member.isreg() else "0.png"
            archive.addfile(member, io.BytesIO(content))


def make_store(photos: Path, folder: Path) -> Path:
    embed_dataset(open_dataset(photos), SmallEncoder(), folder, workers=0, batch_size=2, shard_size=5)
    return folder


def make_signed_model(folder: Path) -> Path:
    """A model fitted with answers about photos, calibrated, and signed: with everything that a folder may hold."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((120, DIMENSION)).astype(np.float32), np.repeat(["left", "right"], 60)
    X[y == "left"] += 0.5
    names = [f"concept {number}" for number in range(8)]
    texts = Concepts(names, rng.standard_normal((8, DIMENSION)))
    about = [
        Answer("", name, rng.choice(("yes", "no")), "person", "me", photo=str(row))
        for name in names[:5]
        for row in rng.choice(80, 6, replace=False).tolist()
    ]
    known = Knowledge.of([*about, *(Answer(label, "concept 1", "yes") for label in ("left", "right"))])
    settings: dict[str, Any] = {"coder": HardThreshold(length=3), "weights_per_class": 4, "max_iter": 2}
    fitted = ConceptClassifier(texts, knowledge=known, random_state=0, **settings).fit(X[:80], y[:80]).model_
    calibrated, decisions = fitted.calibrated(X[80:], y[80:]), Decisions()
    review = Review(calibrated, decisions)
    for claim in calibrated.claims():
        review.decide(claim.label, claim.concept, "yes", by="me")
    sign(calibrated, decisions, by="me").save(folder)
    return folder


def make_model(folder: Path, **settings: Any) -> Path:
    """A model with means, metric, fidelity and a history; with a `radius`, dispersion instead of the metric."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, DIMENSION)), np.repeat(["left", "right"], 30)
    X[y == "left"] += 0.5
    concepts = Concepts([f"concept {number}" for number in range(8)], rng.standard_normal((8, DIMENSION)))
    options: dict[str, Any] = {
        "coder": HardThreshold(length=3),
        "weights_per_class": None,
        "max_iter": 1,
        "random_state": 0,
        **settings,
    }
    ConceptClassifier(concepts, **options).fit(X, y).save(folder)
    return folder
