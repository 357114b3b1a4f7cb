"""A store or cache from elsewhere cannot have this machine's files shown, emptied or trusted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ccr.data.datasets import open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import CCRError
from ccr.show.page import page
from tests.data.helpers import PixelEncoder, write_image
from tests.show import browser


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number in range(3):
        write_image(tmp_path / "images" / f"{number}.png", number)
    embed_dataset(open_dataset(tmp_path / "images"), PixelEncoder(), tmp_path / "store", workers=0)
    return tmp_path / "store"


def test_a_store_cannot_point_at_other_pictures(store: Path, tmp_path: Path) -> None:
    assert EmbeddingStore.open(store).image(0).size == (24, 20)
    write_image(tmp_path / "private" / "0.png", 77)
    description = json.loads((store / "store.json").read_text())
    description["source"]["path"] = str(tmp_path / "private")
    (store / "store.json").write_text(json.dumps(description))
    with pytest.raises(CCRError, match="not the image that was embedded"):
        EmbeddingStore.open(store).image(0)


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_the_lock_of_a_foreign_folder_is_not_followed(tmp_path: Path) -> None:
    write_image(tmp_path / "images" / "0.png", 0)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "store" / "progress").mkdir(parents=True)
    (tmp_path / "store" / "progress" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        embed_dataset(open_dataset(tmp_path / "images"), PixelEncoder(), tmp_path / "store", workers=0)
    assert (tmp_path / "precious").read_text() == "mine"


def test_pages_may_load_and_run_nothing() -> None:
    html = page("x", [])
    policy = html.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert html.index("Content-Security-Policy") < html.index("<title>")


def test_a_browser_runs_no_script_in_a_page(tmp_path: Path) -> None:
    browser.chromium()
    assert browser.measure(page("x", []), tmp_path, 600)["window"] == 600
    assert browser.measure(page("x", []), tmp_path, 600, obey=True) == {}
