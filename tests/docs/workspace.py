"""A folder as readers of the documents have it: the demo's folder, photos of their own, lists, models.

The photos are the demo's. Their embeddings were made once by the bundled encoder and lie in `fruit`
(`python -m tests.docs.workspace` makes them again): embedding them for each run of the tests would take minutes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.data.datasets import Sample, open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.encoders.assets import CLIP_IMAGE_TOWER, DEMO_PHOTOS, MINILM, WORDNET, cache_folder, fetch, fetch_group
from ccr.encoders.bundled import BundledEncoder
from ccr.vocab import embed_concepts, read_concepts

FRUIT = Path(__file__).parents[2] / "src" / "ccr" / "data" / "demo_store"
LIST = Path(__file__).parents[2] / "src" / "ccr" / "data" / "demo_concepts.txt"
TABLE = LIST.with_name("demo_knowledge.csv")
#: The reader's own photos: kinds of fruit, and which of the demo's they are.
KINDS = {
    "apple": ("Golden-Delicious", "Granny-Smith", "Pink-Lady", "Red-Delicious", "Royal-Gala"),
    "melon": ("Cantaloupe", "Galia-Melon", "Honeydew-Melon", "Watermelon"),
    "orange": ("Orange", "Satsumas"),
    "pear": ("Anjou", "Conference", "Kaiser"),
}
PER_KIND = 40


class RememberedEncoder(BundledEncoder):
    """The bundled encoder, which has the rows of these images at hand already."""

    def __init__(self, samples: Iterable[Sample], rows: np.ndarray) -> None:
        super().__init__()
        images = (self.crop(sample.image()) for sample in samples)
        self._known = {_digest(image): np.asarray(row, np.float32) for image, row in zip(images, rows, strict=True)}

    def embed_images(self, images: Iterable[Any], *, batch_size: int | None = None) -> np.ndarray:
        return np.array([self._one(self.crop(image)) for image in images], np.float32).reshape(-1, self.dimension)

    def _one(self, image: Any) -> np.ndarray:
        known = self._known.get(_digest(image))
        return super().embed_images([image])[0] if known is None else known


def private_cache(folder: Path) -> Path:
    """A cache of its own for `CCR_CACHE`, with the fetched files of the real one."""
    real = cache_folder()
    fetch(DEMO_PHOTOS), fetch(CLIP_IMAGE_TOWER), fetch_group(MINILM), fetch_group(WORDNET)
    folder.mkdir(parents=True)
    for part in real.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def make_workspace(folder: Path) -> None:
    """Everything but the cache: what `ccr demo` leaves, and a reader's own photos, store, list and model."""
    encoder = BundledEncoder()
    demo = folder / "ccr-demo"
    shutil.copytree(FRUIT, demo / "store")
    store = EmbeddingStore.open(demo / "store")
    store.check_encoder(encoder.fingerprint)
    shutil.copy(LIST, demo / "concepts.txt")
    shutil.copy(LIST, folder / "concepts.txt")
    shutil.copy(TABLE, demo / "knowledge.csv")
    concepts = embed_concepts(read_concepts(LIST), encoder)
    _fit(concepts, store.select(rows=store.splits != "test"), demo / "model", validation_fraction=0.0)
    _fit(concepts, store.select(rows=store.splits != "test"), demo / "baseline", validation_fraction=0.0, fidelity=1.0)
    for part in ("store", "model"):  # for pages that are read inside ccr-demo
        copy_workspace(demo / part, folder / part)
    store.select("test").image(3).save(folder / "photo.png")
    _own_photos(folder, store)
    own = EmbeddingStore.open(folder / "photos-store")
    _fit(concepts, own.select("train"), folder / "photos-model")


def _fit(concepts: Concepts, rows: EmbeddingStore, out: Path, **settings: Any) -> None:
    ConceptClassifier(concepts, coder=HardThreshold(length=11), random_state=0, **settings).fit(rows).save(out)


def _own_photos(folder: Path, store: EmbeddingStore) -> None:
    """The folder `photos`, kind/photo.jpg, single photos beside it, and the store that `ccr embed photos/` makes."""
    samples = {sample.key: sample for sample in open_dataset("demo")}
    rows = [row for kind in KINDS for row in np.flatnonzero(np.isin(store.y, KINDS[kind]))[:: _step(store, kind)]]
    chosen = [samples[str(store.paths[row])] for row in rows]
    for sample in chosen:
        kind = next(kind for kind, names in KINDS.items() if sample.label in names)
        place = folder / "photos" / kind / f"{int(sample.key):04}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(sample.source.read(1 << 28))
        if not (folder / f"{kind}.jpg").exists():
            shutil.copy(place, folder / f"{kind}.jpg")
    for kind, name in {"orange": "worn", "pear": "intact", "melon": "new-photos"}.items():  # as pages call them
        for photo in sorted((folder / "photos" / kind).iterdir())[:6]:
            copied = folder / name / photo.name
            copied.parent.mkdir(exist_ok=True)
            shutil.copy(photo, copied)
    encoder = RememberedEncoder(chosen, store[rows])
    embed_dataset(open_dataset(folder / "photos"), encoder, folder / "photos-store", workers=0)


def _step(store: EmbeddingStore, kind: str) -> int:
    return max(1, int(np.isin(store.y, KINDS[kind]).sum()) // PER_KIND)


def copy_workspace(made: Path, folder: Path) -> None:
    """The same files again; ccr never writes into a file, so that both can share them."""
    shutil.copytree(made, folder, copy_function=os.link, dirs_exist_ok=True)


def _digest(image: Any) -> bytes:
    return hashlib.sha256(image.tobytes()).digest()


if __name__ == "__main__":
    embed_dataset(open_dataset("demo"), BundledEncoder(), FRUIT)
