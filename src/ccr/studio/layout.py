"""Layout: the photos in two dimensions, computed once and kept."""

from __future__ import annotations

import hashlib
import io
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.path import Path as Outline

from ccr.core.inputs import Embeddings
from ccr.errors import CCRError, FormatError, WriteError
from ccr.files import write_bytes
from ccr.reading import map_array
from ccr.studio.photos import Photos

#: UMAP takes minutes on more photos than this; then PCA it is.
MOST_FOR_UMAP = 30_000
#: Corners of a lasso.
MOST_CORNERS = 2_000


class Layout:
    """A place (m, 2) in [0, 1] for each photo: by UMAP where umap-learn is installed, else by PCA."""

    def __init__(self, photos: Photos, folder: Path) -> None:
        self.photos = photos
        self.method: Literal["umap", "pca"] = (
            "umap" if find_spec("umap") is not None and len(photos) <= MOST_FOR_UMAP else "pca"
        )
        self._file = folder / f"layout-{self.method}-{_digest(photos)}.npy"
        self._places: np.ndarray | None = None
        self._reason: str | None = None
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
        return np.flatnonzero(Outline(corners).contains_points(self.wait()))

    def _compute(self) -> None:
        try:
            self._places = self._kept()
            if self._places is None:
                self._places = _fitted_to_square(_umap(self.photos) if self.method == "umap" else _pca(self.photos))
                stream = io.BytesIO()
                np.save(stream, self._places, allow_pickle=False)
                write_bytes(self._file, stream.getvalue())
        except WriteError:
            return  # computed again next time
        except Exception as error:  # UMAP may fail in many ways: the page says which
            self._reason = f"{type(error).__name__}: {error}"

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


def _umap(photos: Photos) -> np.ndarray:
    umap = import_module("umap")
    return np.asarray(umap.UMAP(metric="cosine", random_state=0).fit_transform(np.asarray(photos.store, np.float32)))


def _fitted_to_square(places: np.ndarray) -> np.ndarray:
    low, high = np.percentile(places, [0.5, 99.5], axis=0)
    scaled = (places - low) / np.maximum(high - low, 1e-12)
    return np.clip(0.02 + 0.96 * scaled, 0.0, 1.0).astype(np.float32)


def _digest(photos: Photos) -> str:
    """Of which photos it is a map: a sample of their embeddings, and how many there are."""
    rows = np.linspace(0, len(photos) - 1, min(64, len(photos))).astype(np.int64)
    digest = hashlib.sha256(f"{photos.store.shape}".encode())
    digest.update(np.ascontiguousarray(photos.store[rows]).tobytes())
    return digest.hexdigest()[:16]
