from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ccr.core import inputs
from ccr.core.geometry import unit_rows
from ccr.core.inputs import Embeddings, in_memory
from ccr.core.threads import threads_for
from ccr.errors import CCRError

X = np.random.default_rng(0).normal(size=(57, 6))


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


def test_a_memmap_stays_one(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not in_memory(mapped)
    assert not in_memory(mapped[10:20])
    assert in_memory(X)
    assert Embeddings(mapped).make_resident().prepared is None


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
    with pytest.raises(CCRError, match="only zeros in row 41"):
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
