"""Layout: the photos in two dimensions, computed once and kept; by UMAP in a process of its own."""

from __future__ import annotations

import hashlib
import sys
import threading
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError, FormatError, WriteError
from ccr.inputs import Embeddings
from ccr.io.files import map_array, write_bytes
from ccr_studio.cache import Computation, npy, read_order
from ccr_studio.photos import Photos

#: UMAP takes minutes on more photos than this; then PCA it is.
MOST_FOR_UMAP = 30_000
#: Corners of a lasso.
MOST_CORNERS = 2_000
#: Fewer photos than this have no neighbourhoods to lay out.
FEWEST_FOR_UMAP = 10
PROGRAM = "from ccr_studio.layout import main; main()"

Method = Literal["umap", "pca"]


class Layout:
    """A place (m, 2) in [0, 1] for each photo: by UMAP where umap-learn is installed, else by PCA.

    `method` is how; where UMAP fails, PCA stands in and `why_not` says why. Without `keep` nothing is written, so that
    the map is by UMAP only if that was computed before.
    """

    def __init__(self, photos: Photos, folder: Path, *, method: Method | None = None, keep: bool = True) -> None:
        self.photos, self._folder, self._keep = photos, folder, keep
        fits = FEWEST_FOR_UMAP <= len(photos) <= MOST_FOR_UMAP
        self.method: Method = method or ("umap" if fits and find_spec("umap") is not None else "pca")
        self.why_not: str | None = None
        self._places: np.ndarray | None = None
        self._reason: str | None = None
        self._process: Computation | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def places(self) -> np.ndarray | None:
        """The places; None while they are being computed."""
        with self._lock:
            if self._places is None and self._thread is None:
                self._thread = threading.Thread(target=self._compute, daemon=True)
                self._thread.start()
                self._thread.join(0.5)  # a kept or a quick one is there at once
        if self._reason is not None:
            raise CCRError(f"the map could not be computed: {self._reason}")
        return self._places

    def wait(self) -> np.ndarray:
        """The places, however long they take."""
        while (places := self.places()) is None:
            if self._thread is not None:
                self._thread.join()
        return places

    def inside(self, corners: np.ndarray) -> np.ndarray:
        """Rows of the photos inside a polygon (k, 2)."""
        if corners.ndim != 2 or not 3 <= len(corners) <= MOST_CORNERS or not np.isfinite(corners).all():
            raise CCRError(f"a lasso has 3 to {MOST_CORNERS} corners with finite numbers, got shape {corners.shape}")
        from matplotlib.path import Path as Outline  # not before it is needed: the first page need not wait for it

        return np.flatnonzero(Outline(corners).contains_points(self.wait()))

    def close(self) -> None:
        """Stop computing."""
        if self._process is not None:
            self._process.stop()

    def _compute(self) -> None:
        try:
            if self.method == "umap":
                self._places = self._by_umap()
            if self._places is None:
                self.method = "pca"
                self._places = self._kept()
            if self._places is None:
                self._places = in_square(_pca(self.photos))
                if self._keep:
                    write_bytes(self._file, npy(self._places))
        except WriteError:
            return  # computed again next time
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"

    def _by_umap(self) -> np.ndarray | None:
        """The places by UMAP, kept or computed by another process; None, with the reason, where that fails."""
        kept = self._kept()
        if kept is not None:
            return kept
        if not self._keep:
            self.why_not = "a studio that only shows computes none; opened once without --read-only, the map is kept"
            return None
        order = {"store": str(self.photos.store.path.resolve()), "file": str(self._file)}
        self._process = Computation(PROGRAM, order)
        failure = self._process.wait()
        self.why_not = failure and failure[:300]
        return self._kept()

    @property
    def _file(self) -> Path:
        return self._folder / f"layout-{self.method}-{_digest(self.photos)}.npy"

    def _kept(self) -> np.ndarray | None:
        try:
            places = np.array(map_array(self._file, "be a map", "delete it"))
        except FormatError:
            return None
        return places if places.shape == (len(self.photos), 2) and np.isfinite(places).all() else None


def _pca(photos: Photos) -> np.ndarray:
    moments = photos.moments
    directions = np.linalg.eigh(moments.covariance)[1][:, ::-1][:, :2]
    for column in range(directions.shape[1]):  # the same picture whatever the solver's sign
        directions[:, column] *= np.sign(directions[np.abs(directions[:, column]).argmax(), column]) or 1.0
    directions, mean = directions.astype(np.float32), moments.mean.astype(np.float32)
    chunks = [(rows.numpy() - mean) @ directions for rows in Embeddings(photos.store).chunks()]
    places = np.concatenate(chunks)
    return places if places.shape[1] == 2 else np.hstack([places, np.zeros((len(places), 1), np.float32)])


def _digest(photos: Photos) -> str:
    """Digest of the photos that a map was made of: the shape of their embeddings, and a sample of 64 rows."""
    rows = np.linspace(0, len(photos) - 1, min(64, len(photos))).astype(np.int64)
    digest = hashlib.sha256(f"{photos.store.shape}".encode())
    digest.update(np.ascontiguousarray(photos.store[rows]).tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Read one order, write the places (m, 2) that it asks for, and say on stderr why not."""
    order = read_order()
    try:
        places = umap_places(np.asarray(EmbeddingStore.open(order["store"]), np.float32))
        write_bytes(Path(order["file"]), npy(in_square(places)))
    except Exception as error:  # whatever UMAP raises: the page says it
        sys.exit(f"{type(error).__name__}: {error}")


def umap_places(rows: np.ndarray) -> np.ndarray:
    """Places (m, 2) of embeddings (m, d), the same every time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        umap = import_module("umap")
        neighbours = min(15, len(rows) - 1)
        model = umap.UMAP(metric="cosine", n_neighbors=neighbours, random_state=0, n_jobs=1)
        return np.asarray(model.fit_transform(rows), np.float32)


def in_square(places: np.ndarray) -> np.ndarray:
    """Places (m, 2) moved and stretched into [0, 1]; the few farthest out stand at the edge."""
    low, high = np.percentile(places, [0.5, 99.5], axis=0)
    scaled = (places - low) / np.maximum(high - low, 1e-12)
    return np.clip(0.02 + 0.96 * scaled, 0.0, 1.0).astype(np.float32)
