"""Image files that change between two runs of `embed_dataset`."""

import json
import shutil
import time

import pytest

from ccr.data.datasets import open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import CCRError
from tests.data.helpers import PixelEncoder, folder_files, write_image
from tests.data.test_embedding import QUICK, Interrupted, _raise_at


def test_files_that_changed_since_a_store_was_made_are_refused_by_name(tmp_path):
    data = tmp_path / "images"
    for split in ("train", "test"):
        for row in range(6):
            write_image(data / split / f"c{row % 2}" / f"{row}.png", row if split == "train" else 10 + row)
    (data / "train/c0/0.png").write_bytes(b"no image")
    embed_dataset(open_dataset(data), PixelEncoder(), tmp_path / "s", **QUICK)
    before = folder_files(tmp_path / "s")
    for path in data.rglob("*.png"):
        path.write_bytes(path.read_bytes())  # touched, but the same
    assert embed_dataset(open_dataset(data), PixelEncoder(), tmp_path / "s", **QUICK).resumed == 12
    write_image(data / "train/c0/0.png", 99)
    with pytest.raises(CCRError, match=r"'train/c0/0.png' was left out when the store .* delete"):
        embed_dataset(open_dataset(data), PixelEncoder(), tmp_path / "s", **QUICK)
    (data / "train/c0/0.png").write_bytes(b"still no image")
    write_image(data / "test/c1/3.png", 98)
    with pytest.raises(CCRError, match=r"'test/c1/3.png' was another file when"):
        embed_dataset(open_dataset(data), PixelEncoder(), tmp_path / "s", **QUICK)
    assert folder_files(tmp_path / "s") == before


@pytest.mark.parametrize("mended", ["c0/003.png", "c1/013.png"])
def test_a_file_that_changes_before_a_run_goes_on_is_embedded_again(tmp_path, mended):
    for row in range(40):
        write_image(tmp_path / "d/train" / f"c{row % 3}" / f"{row:03}.png", row)
    (tmp_path / "d/train/c0/003.png").write_bytes(b"no image")
    with pytest.raises(Interrupted):
        embed_dataset(open_dataset(tmp_path / "d"), PixelEncoder(), tmp_path / "s", progress=_raise_at(38), **QUICK)
    write_image(tmp_path / "d/train" / mended, 99)
    dataset = open_dataset(tmp_path / "d")
    assert embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **QUICK).resumed < 32
    embed_dataset(dataset, PixelEncoder(), tmp_path / "clean", **QUICK)
    assert folder_files(tmp_path / "s") == folder_files(tmp_path / "clean")


@pytest.fixture
def versions(tmp_path):
    """Two folders of the same names with other pictures, both older than any run."""
    for version, first in (("v1", 0), ("v2", 100)):
        for row in range(40):
            last = write_image(tmp_path / version / "train" / f"c{row % 3}" / f"{row:03}.png", first + row)
    while time.time() <= last.stat().st_ctime + 0.02:  # the clock of files moves in steps
        time.sleep(0.01)
    return tmp_path


@pytest.mark.parametrize("older", [False, True])
def test_a_run_over_another_folder_takes_nothing_of_the_first(versions, older):
    with pytest.raises(Interrupted):
        embed_dataset(open_dataset(versions / "v1"), PixelEncoder(), versions / "s", progress=_raise_at(38), **QUICK)
    if older:  # begun by a version that did not note where the data are
        plan = versions / "s/progress/plan.json"
        plan.write_text(json.dumps({k: v for k, v in json.loads(plan.read_text()).items() if k != "origin"}))
    with pytest.raises(Interrupted):
        embed_dataset(open_dataset(versions / "v2"), PixelEncoder(), versions / "s", progress=_raise_at(9), **QUICK)
    dataset = open_dataset(versions / "v2")
    assert embed_dataset(dataset, PixelEncoder(), versions / "s", **QUICK).resumed == 8
    embed_dataset(dataset, PixelEncoder(), versions / "clean", **QUICK)
    assert folder_files(versions / "s") == folder_files(versions / "clean")


def test_data_that_moved_are_resumed_and_other_data_refused(versions):
    shutil.copytree(versions / "v1", versions / "moved")
    with pytest.raises(Interrupted):
        embed_dataset(open_dataset(versions / "v1"), PixelEncoder(), versions / "s", progress=_raise_at(38), **QUICK)
    assert embed_dataset(open_dataset(versions / "moved"), PixelEncoder(), versions / "s", **QUICK).resumed == 32
    assert embed_dataset(open_dataset(versions / "v1"), PixelEncoder(), versions / "s", **QUICK).resumed == 40
    with pytest.raises(CCRError, match=r"'train/c0/000.png' was another file when the store .* was made from .*moved"):
        embed_dataset(open_dataset(versions / "v2"), PixelEncoder(), versions / "s", **QUICK)


def test_a_file_that_changes_while_a_run_is_at_work_is_noticed_by_the_next(versions):
    changed = versions / "v1/train/c0/000.png"

    def change(done, _):
        if done == 20:
            write_image(changed, 999)

    embed_dataset(open_dataset(versions / "v1"), PixelEncoder(), versions / "s", progress=change, **QUICK)
    with pytest.raises(CCRError, match=r"'train/c0/000.png' was another file when"):
        embed_dataset(open_dataset(versions / "v1"), PixelEncoder(), versions / "s", **QUICK)


def test_shards_of_a_run_that_was_killed_at_its_end_do_not_stay(versions):
    data = versions / "v1"
    embed_dataset(open_dataset(data), PixelEncoder(), versions / "whole", **QUICK)
    with pytest.raises(Interrupted):
        embed_dataset(open_dataset(data), PixelEncoder(), versions / "s", progress=_raise_at(38), **QUICK)
    for part in ("img_emb", "metadata"):  # as if all shards had been written, and store.json not
        shutil.copytree(versions / "whole" / part, versions / "s" / part)
    for path in sorted(data.rglob("*.png"))[:15]:
        path.write_bytes(b"no image any more")
    assert embed_dataset(open_dataset(data), PixelEncoder(), versions / "s", **QUICK).rows == 25
    assert len(EmbeddingStore.open(versions / "s").labels) == 25
    assert sorted(path.name for path in (versions / "s/metadata").iterdir()) == [
        f"metadata_{number}.parquet" for number in range(3)
    ]
