"""The map: principal components, UMAP where umap-learn is installed, both kept; what fails is said."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr_studio import layout
from ccr_studio.layout import MOST_FOR_UMAP, Layout
from ccr_studio.photos import Photos


@pytest.fixture(scope="module")
def photos(store: EmbeddingStore) -> Photos:
    return Photos(store)


def unit(photos: Photos) -> np.ndarray:
    rows = np.asarray(photos.store, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_map_is_the_principal_plane_and_a_lasso_finds_what_is_inside(photos: Photos, tmp_path: Path) -> None:
    made = Layout(photos, tmp_path, method="pca")
    places = made.wait()
    plane = PCA(2).fit_transform(unit(photos))
    inner = ((places > 0.021) & (places < 0.979)).all(axis=1)  # outliers are moved to the edge
    for axis in range(2):
        assert abs(np.corrcoef(plane[inner, axis], places[inner, axis])[0, 1]) > 0.999
    box = np.array([[0.3, 0.3], [0.7, 0.3], [0.7, 0.7], [0.3, 0.7]])
    inside = ((places > 0.3) & (places < 0.7)).all(axis=1)
    assert made.inside(box).tolist() == np.flatnonzero(inside).tolist()
    assert np.array_equal(Layout(photos, tmp_path, method="pca").wait(), places)
    with pytest.raises(CCRError, match="corners"):
        made.inside(np.zeros((2, 2)))


@pytest.mark.browser  # not that it needs one; UMAP compiles for half a minute
def test_umap_keeps_neighbours_together_and_is_computed_once(
    photos: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("umap", reason="umap-learn is not installed")
    made = Layout(photos, tmp_path)
    places = made.wait()
    assert (made.method, made.why_not) == ("umap", None)
    assert places.shape == (len(photos), 2)
    assert ((places >= 0) & (places <= 1)).all()
    shuffled = np.random.default_rng(0).permutation(places)
    kept, chance = (trustworthiness(unit(photos), at, n_neighbors=5, metric="cosine") for at in (places, shuffled))
    assert kept > 0.75 > 0.6 > chance
    monkeypatch.setattr(layout, "PROGRAM", "raise SystemExit('it is not asked again')")
    assert np.array_equal(Layout(photos, tmp_path).wait(), places)


def test_where_umap_fails_the_map_is_by_principal_components_and_says_why(
    photos: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "PROGRAM", "raise ValueError('no such neighbour')")
    made = Layout(photos, tmp_path, method="umap")
    assert np.array_equal(made.wait(), Layout(photos, tmp_path, method="pca").wait())
    assert made.method == "pca"
    assert "no such neighbour" in (made.why_not or "")


def test_closing_ends_the_process_that_lays_out(
    photos: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "PROGRAM", "import time; time.sleep(600)")
    made = Layout(photos, tmp_path, method="umap")
    assert made.places() is None
    while made._process is None:
        time.sleep(0.05)
    process = psutil.Process(made._process.pid)
    made.close()
    psutil.wait_procs([process], timeout=60)
    assert not process.is_running()


def test_many_photos_are_laid_out_by_principal_components(tmp_path: Path) -> None:
    class Many:
        def __len__(self) -> int:
            return MOST_FOR_UMAP + 1

    assert Layout(Many(), tmp_path).method == "pca"  # type: ignore[arg-type]
