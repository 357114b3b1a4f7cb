"""Killed before any call to the system, or on a full disk, a process leaves what was there, or what was to be."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ccr.data.datasets import open_dataset
from ccr.data.store import embed_dataset
from ccr.io import files
from ccr.io.files import ASIDE, OLD, write_bytes
from ccr.io.format import ModelFolder, load_folder, save_folder
from tests.data.helpers import PixelEncoder, folder_files, write_image

if os.name != "posix":
    pytest.skip("processes are forked", allow_module_level=True)

from tests.hostile.dying import dies_at, with_full_disk

MOST = 400  # calls; a loop that never ended would be no test


def saved(path: Path, number: int) -> None:
    folder = ModelFolder({"model": "x", "number": number}, {"x": np.full(300, number, np.float32)})
    save_folder(path, folder, lambda read: read)


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith((ASIDE, OLD))]


@pytest.mark.parametrize("at_once", [True, False], ids=["exchange", "two renames"])
def test_a_model_is_the_old_or_the_new_one_at_every_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
        monkeypatch.setattr(files.time, "sleep", lambda seconds: None)
    seen = set()
    for call in range(MOST):
        path = tmp_path / str(call) / "model"
        saved(path, 1)
        killed = dies_at(call, lambda path=path: saved(path, 2))
        folder = load_folder(path)
        number = folder.config["number"]
        assert (folder.tensors["x"] == number).all()
        seen.add(number)
        saved(path, 3)
        assert load_folder(path).config["number"] == 3
        if not killed:
            break
    assert seen == {1, 2}
    assert 20 < call < MOST - 1
    for leftover in tmp_path.rglob(".ccr-*"):
        os.utime(leftover, (0, 0))
    files._collect_abandoned.cache_clear()
    for number in range(call + 1):
        saved(tmp_path / str(number) / "model", 4)
    assert hidden(tmp_path) == []


def test_a_file_is_the_old_or_the_new_one_at_every_kill(tmp_path: Path) -> None:
    path, seen = tmp_path / "file", set()
    for _call in range(MOST):
        write_bytes(path, b"old" * 1000)
        killed = dies_at(_call, lambda: write_bytes(path, b"new" * 2000))
        seen.add(path.read_bytes())
        if not killed:
            break
    assert seen == {b"old" * 1000, b"new" * 2000}


def test_a_store_is_the_same_whenever_its_run_is_killed(tmp_path: Path) -> None:
    for number in range(7):
        write_image(tmp_path / "images" / f"{number}.png", number)
    dataset, encoder, options = open_dataset(tmp_path / "images"), PixelEncoder(), {"workers": 0, "batch_size": 2}
    embed_dataset(dataset, encoder, tmp_path / "whole", **options)
    for call in range(0, MOST, 7):
        out = tmp_path / f"store {call}"
        killed = dies_at(call, lambda out=out: embed_dataset(dataset, encoder, out, **options))
        embed_dataset(dataset, encoder, out, **options)
        assert folder_files(out) == folder_files(tmp_path / "whole")
        if not killed:
            break
    assert 30 < call < MOST - 7


@pytest.mark.parametrize("size", [0, 10, 700, 1200])
def test_a_full_disk_is_an_error_in_words_and_leaves_the_old_model(tmp_path: Path, size: int) -> None:
    saved(tmp_path / "model", 1)
    assert with_full_disk(size, lambda: saved(tmp_path / "model", 2)) == 3
    assert load_folder(tmp_path / "model").config["number"] == 1
    assert hidden(tmp_path) == []


def test_a_full_disk_stops_a_run_that_goes_on_later(tmp_path: Path) -> None:
    for number in range(5):
        write_image(tmp_path / "images" / f"{number}.png", number)
    dataset, options = open_dataset(tmp_path / "images"), {"workers": 0, "batch_size": 1}
    embed_dataset(dataset, PixelEncoder(), tmp_path / "whole", **options)
    assert with_full_disk(600, lambda: embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **options)) == 3
    embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **options)
    assert folder_files(tmp_path / "s") == folder_files(tmp_path / "whole")
