"""Small real parts for the tests of the data room."""

import io
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ccr.data.store.layout import embeddings_path, metadata_path
from ccr.encoders.registry import ClipPreprocess, digest_of, fill_template, unit


class PixelEncoder:
    """A real, tiny encoder: a random projection of 8 x 8 pixels; texts by their letters. Made for speed."""

    name = "test:pixels"
    dimension = 16
    template = None

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.seen = 0  # how many images were embedded
        self._preprocess = ClipPreprocess(size=8)
        self._matrix = np.random.default_rng(seed).standard_normal((3 * 64, self.dimension)).astype(np.float32)

    @property
    def preprocessing(self) -> dict:
        return self._preprocess.describe()

    @property
    def fingerprint(self) -> str:
        return digest_of(kind="pixels", seed=self.seed)

    text_fingerprint = fingerprint

    @property
    def crop(self):
        return self._preprocess.crop

    def embed_images(self, images, *, batch_size=None) -> np.ndarray:
        pixels = np.concatenate([self._preprocess(image).reshape(1, -1) for image in images])
        self.seen += len(pixels)
        # One factor for the whole batch, as real encoders have in their last bits: batches must not shift.
        return unit(pixels @ self._matrix + 1e-4 * pixels.sum())

    def embed_texts(self, texts, *, template=None) -> np.ndarray:
        rows = []
        for text in fill_template(template or self.template, texts):
            rng = np.random.default_rng(list(text.encode()))
            rows.append(rng.standard_normal(self.dimension))
        return unit(np.array(rows))


def picture(seed: int, size: tuple[int, int] = (24, 20)) -> Image.Image:
    """A small picture of its own for every seed."""
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def encoded(image: Image.Image, form: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def write_image(path: Path, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(picture(seed)))
    return path


def bomb_png(width: int = 50_000, height: int = 50_000) -> bytes:
    """A tiny PNG file that says it is 50,000 pixels square."""

    def block(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1_000_000, 9)
    return b"\x89PNG\r\n\x1a\n" + block(b"IHDR", header) + block(b"IDAT", rows) + block(b"IEND", b"")


def folder_files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_store(
    folder: Path,
    X: np.ndarray,
    labels: Iterable[str | None],
    splits: Iterable[str | None] | None = None,
    **more: Iterable[str | None],
) -> None:
    """Embeddings (m, d), labels, splits and `more` columns of texts (m,), such as `group`, as a store that does not say
    which encoder made it."""
    names = [f"{row}.png" for row in range(len(X))]
    for path in (embeddings_path(folder, 0), metadata_path(folder, 0)):
        path.parent.mkdir(parents=True)
    np.save(embeddings_path(folder, 0), X.astype(np.float32))
    columns = {"image_path": names, "label": [None if label is None else str(label) for label in labels]}
    if splits is not None:
        columns["split"] = pa.array(splits, pa.string())
    columns |= {name: pa.array(values, pa.string()) for name, values in more.items()}
    pq.write_table(pa.table(columns), metadata_path(folder, 0))
