"""Images that would start a program or take the machine's memory are refused before they are decoded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ccr.data.datasets import BadImage, decode, load_image, open_dataset
from ccr.data.datasets.sources import ArrayImage, CellImage, to_rgb
from ccr.data.store import embed_dataset
from ccr.errors import CCRError
from tests.data.helpers import PixelEncoder, encoded, picture, write_image

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n0 0 moveto 20 20 lineto stroke\n%%EOF\n"


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell script")
def test_postscript_starts_no_program_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "x.jpg").write_bytes(EPS)
    with pytest.raises(BadImage, match="not an image"):
        load_image(tmp_path / "x.jpg")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "ICO"])
def test_the_usual_formats_are_read(form: str) -> None:
    assert decode(encoded(picture(0, (16, 16)), form)).size == (16, 16)


def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "movie.jpg").open("wb") as stream:
        stream.truncate(4 << 30)
    with pytest.raises(BadImage, match=r"4,294,967,296 bytes, more than the limit of 268,435,456"):
        load_image(tmp_path / "movie.jpg")
    with pytest.raises(BadImage, match="limit of 10"):
        load_image(write_image(tmp_path / "a.png", 0), max_bytes=10)


def test_rows_of_arrays_and_tables_have_the_same_limit(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 5, 5, 3), np.uint8))
    assert ArrayImage(tmp_path / "x.npy", 0).read(75).shape == (5, 5, 3)
    with pytest.raises(BadImage, match="75 bytes"):
        ArrayImage(tmp_path / "x.npy", 0).read(74)
    table = pa.table({"image": [{"bytes": b"abcd", "path": None}, {"bytes": None, "path": "x"}, None]})
    pq.write_table(table, tmp_path / "t.parquet")
    cells = [CellImage(tmp_path / "t.parquet", 0, row, "image") for row in range(3)]
    assert cells[0].read(4) == b"abcd"
    with pytest.raises(BadImage, match="4 bytes"):
        cells[0].read(3)
    for cell in cells[1:]:
        with pytest.raises(BadImage, match="no image bytes"):
            cell.read()


def test_the_limits_of_a_store_are_part_of_its_plan(tmp_path: Path) -> None:
    for number in range(4):
        write_image(tmp_path / "images" / f"{number}.png", number)
    (tmp_path / "images" / "big.png").write_bytes(encoded(picture(9, (200, 200))))
    dataset, encoder = open_dataset(tmp_path / "images"), PixelEncoder()
    done = embed_dataset(dataset, encoder, tmp_path / "s", workers=0, max_bytes=10_000)
    assert [(item.path, "120," in item.reason) for item in done.skipped] == [("big.png", True)]
    with pytest.raises(CCRError, match="another byte limit"):
        embed_dataset(dataset, encoder, tmp_path / "s", workers=0)


MEASURE = """
import io, resource, sys
from PIL import Image
from ccr.data.datasets.sources import decode
stream = io.BytesIO()
Image.new(sys.argv[1], (9400, 9400)).save(stream, "PNG", compress_level=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert decode(stream.getvalue()).size == (9400, 9400)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
@pytest.mark.parametrize("mode", ["I;16", "RGBA"])
def test_the_largest_image_takes_ten_bytes_for_each_pixel(mode: str) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, mode], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10 * 9400**2


@pytest.mark.parametrize("mode", ["I;16", "I", "F", "LA", "RGBA", "P"])
def test_strips_change_no_pixel(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (30, 20, 4), dtype=np.uint8), "RGBA")
    if mode in ("I;16", "I"):
        image = Image.fromarray(rng.integers(0, 65536, (30, 20)).astype(np.uint16 if mode == "I;16" else np.int32))
    elif mode == "F":
        image = Image.fromarray(rng.random((30, 20)).astype(np.float32))
    elif mode != "RGBA":
        image = image.convert(mode)
    whole = np.asarray(to_rgb(image))
    monkeypatch.setattr(sys.modules["ccr.data.datasets.sources"], "_STRIP", 60)
    assert np.array_equal(np.asarray(to_rgb(image)), whole)
