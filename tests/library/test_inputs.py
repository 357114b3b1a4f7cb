from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ccr import inputs
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings, in_memory
from ccr.utils.threads import Workers, threads_for

X = np.random.default_rng(0).normal(size=(57, 6))


def _mapped(folder: Path) -> np.ndarray:
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int", "list", "torch", "memmap"])
def test_every_kind_of_source_gives_the_same_unit_rows(kind: str, tmp_path: Path) -> None:
    source: object = X
    if kind == "list":
        source = X.tolist()
    elif kind == "torch":
        source = torch.from_numpy(X)
    elif kind == "memmap":
        source = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=X.shape)
        source[:] = X
    elif kind == "int":
        source = np.round(X * 1000).astype(int)
    else:
        source = X.astype(kind)
    rows = torch.cat(list(Embeddings(source).chunks())).numpy()
    assert np.allclose(rows, unit_rows(X), atol=3e-3 if kind in ("float16", "int") else 1e-6)


def test_chunks_take_and_resident_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "CHUNK_VALUES", 60)
    mean = X.mean(axis=0).astype(np.float32)
    lazy, resident = Embeddings(X, mean=mean), Embeddings(X, mean=mean).make_resident()
    rows = np.array([3, 50, 3])
    assert len(list(lazy.chunks())) > 1
    assert torch.equal(torch.cat(list(lazy.chunks())), torch.cat(list(resident.chunks())))
    assert torch.allclose(lazy.take(rows), resident.take(rows), atol=1e-6)
    assert np.allclose(lazy.unit_mean(), unit_rows(X).mean(axis=0), atol=1e-6)


def test_a_large_memmap_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = _mapped(tmp_path)
    assert not in_memory(mapped)
    assert not in_memory(mapped[10:20])
    assert in_memory(X)
    monkeypatch.setattr(inputs, "MAPPED_BYTES", 4 * X.size - 1)
    assert Embeddings(mapped).make_resident().prepared is None


def test_a_small_memmap_is_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAPPED_BYTES", 4 * X.size)
    mapped = _mapped(tmp_path)
    prepared = Embeddings(mapped).make_resident().prepared
    assert prepared is not None
    assert torch.equal(prepared, Embeddings(X).span(0, len(X)))


@pytest.mark.parametrize("metric", [None, np.diag(np.linspace(0.5, 2.0, X.shape[1])).astype(np.float32)])
@pytest.mark.parametrize("from_file", [False, True])
def test_rows_taken_by_threads_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_file: bool, metric: np.ndarray | None
) -> None:
    monkeypatch.setattr(inputs, "SCATTERED_ROWS", 7)
    embeddings = Embeddings(_mapped(tmp_path) if from_file else X, mean=X.mean(axis=0), metric=metric)
    rows = np.random.default_rng(0).permutation(len(X))[:40]
    with Workers(3) as workers:
        taken = embeddings.take(rows, workers)
    assert torch.allclose(taken, embeddings.take(rows), atol=1e-6)
    assert torch.allclose(taken, embeddings.span(0, len(X))[rows], atol=1e-6)


def test_a_bad_row_is_named_whichever_thread_reads_it() -> None:
    bad = X.copy()
    bad[5, 2] = np.nan
    with Workers(2) as workers, pytest.raises(CCRError, match="in row 5"):
        Embeddings(bad).take(np.arange(len(X))[::-1].copy(), workers)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones(3), "must be \\(images, dimensions\\)"),
        (np.ones((0, 3)), "at least one row"),
        (np.array([["a"]]), "real numbers"),
        (np.ones((2, 2), complex), "real numbers"),
        (torch.ones(2, 2, dtype=torch.complex64), "real numbers"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(bad: object, message: str) -> None:
    with pytest.raises(CCRError, match=message):
        Embeddings(bad)


@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN or infinity in row 41"), (np.inf, "row 41")])
def test_the_bad_row_is_named(value: float, message: str) -> None:
    broken = X.copy()
    broken[41, 2] = value
    with pytest.raises(CCRError, match=message):
        list(Embeddings(broken).chunks())
    broken[41] = 0.0
    with pytest.raises(CCRError, match="row 41 of X is all zeros"):
        list(Embeddings(broken).chunks())


def test_threads_come_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for(10):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with threads_for(1e12):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_reversed_views_are_read_row_by_row_too(kind: type) -> None:
    given = np.random.default_rng(0).normal(size=(5, 8)).astype(kind)
    turned = Embeddings(given[::-1])
    assert torch.equal(turned.span(0, 1), Embeddings(given).span(4, 5))
    assert torch.equal(Embeddings(given[:, ::-1]).span(2, 3), Embeddings(given[:, ::-1].copy()).span(2, 3))
