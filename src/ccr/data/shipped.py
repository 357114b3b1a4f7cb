"""The embeddings of the demo's photos that come with the package, checked against photos embedded here."""

from __future__ import annotations

import shutil
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ccr.data.datasets import Dataset
from ccr.data.datasets.sources import MAX_BYTES, content_hash, decode
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder
from ccr.geometry import unit_rows

#: Photos that are embedded here and compared.
LIVE = 8
#: Least cosine of a photo's embedding with the shipped one. Other CPUs round the encoder's 8-bit products differently;
#: the two most alike of the demo's photos have a cosine of 0.982.
AGREE = 0.99


class Checked(NamedTuple):
    """The comparison of shipped embeddings with photos that were embedded here: how many, and their least cosine."""

    photos: int
    cosine: float

    @property
    def agrees(self) -> bool:
        return self.cosine >= AGREE

    @property
    def sentence(self) -> str:
        verdict = "agree" if self.agrees else "do not agree"
        return (
            f"{self.photos} photos embedded here {verdict} with those of the package (least cosine {self.cosine:.4f})"
        )


def shipped_store() -> EmbeddingStore:
    """The demo's store as it comes with the package."""
    with as_file(files("ccr.data").joinpath("demo_store")) as folder:
        return EmbeddingStore.open(folder)


def check_shipped(dataset: Dataset, encoder: Encoder) -> Checked:
    """Compare the shipped embeddings with `LIVE` photos of the `dataset`, spread over it, that are embedded here.

    The cosine is 0 where the comparison makes no sense: another encoder, or photos with another content.
    """
    store = shipped_store()
    same_rows = [sample.key for sample in dataset] == store.paths.tolist()
    if encoder.fingerprint != store.fingerprint or not same_rows:
        return Checked(0, 0.0)
    rows = np.linspace(0, len(dataset) - 1, LIVE).astype(int)
    contents = [dataset.samples[int(row)].source.read(MAX_BYTES) for row in rows]
    if [content_hash(content) for content in contents] != store.contents[rows].tolist():
        return Checked(len(rows), 0.0)
    images = [decode(content) for content in contents]
    embedded = unit_rows(encoder.embed_images(images).astype(np.float64))
    cosines = (embedded * unit_rows(store.select(rows=rows).X.astype(np.float64))).sum(axis=1)
    return Checked(len(rows), float(cosines.min()))


def copy_shipped(out: Path) -> None:
    """Copy the shipped store to the new folder `out`, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        as_file(files("ccr.data").joinpath("demo_store")) as folder,
        tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch,
    ):
        made = Path(shutil.copytree(folder, Path(scratch) / out.name))
        made.rename(out)
