"""Image files that change between two runs of `embed_dataset`."""

import pytest

from ccr.data.datasets import open_dataset
from ccr.data.store import embed_dataset
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
