"""Parquet with far more in its rows than in its bytes, and a memory map of a million rows: memory stays small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ccr.data.datasets import BadImage, open_dataset
from ccr.errors import CCRError, FormatError
from ccr.knowledge import Knowledge
from tests.data.helpers import encoded, picture

ROOT = Path(__file__).parents[2]


def peak_of(program: str, *arguments: str) -> int:
    """How many bytes a program's memory grew by while it called `work`, which it must define."""
    measure = (
        "import sys\n"
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(line.split()[1]) << 10 for line in lines if line.startswith('VmHWM'))\n"
    )
    end = "before = peak()\nwork(*sys.argv[1:])\nsys.stdout.write(str(peak() - before))\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{measure}\n{program}\n{end}", *arguments], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("struct", [False, True])
def test_a_value_that_is_repeated_is_not_in_memory_repeatedly(tmp_path: Path, struct: bool) -> None:
    """A row group of 2 GB in a file of 2 MB: a thousand times the same photo."""
    noise = np.random.default_rng(0).integers(0, 256, (900, 800, 3), dtype=np.uint8)
    photo = encoded(Image.fromarray(noise))
    kind: pa.DataType = pa.struct([("bytes", pa.binary())]) if struct else pa.binary()
    schema = pa.schema([("image", kind)])
    some = pa.table({"image": pa.array([{"bytes": photo} if struct else photo] * 250, kind)})
    with pq.ParquetWriter(
        tmp_path / "x.parquet", schema, use_dictionary=True, dictionary_pagesize_limit=8 << 20
    ) as out:
        out.write_table(pa.concat_tables([some] * 4), row_group_size=1000)
    assert (tmp_path / "x.parquet").stat().st_size < 3 * len(photo)
    program = (
        "from ccr.data.datasets import open_dataset\n"
        "def work(path):\n"
        "    samples = open_dataset(path).samples\n"
        "    assert len(samples) >= 200\n"
        "    for row in (0, 1, 150, 2, len(samples) - 1):\n"
        "        assert samples[row].image().size == (800, 900)\n"
    )
    assert peak_of(program, str(tmp_path / "x.parquet")) < 500 << 20


def test_more_rows_than_bytes_could_hold_are_refused(tmp_path: Path) -> None:
    """Nulls take no bytes: thirty million rows in a few kilobytes."""
    path = tmp_path / "x.parquet"
    schema = pa.schema([("image", pa.binary())])
    with pq.ParquetWriter(path, schema) as writer:
        nulls = pa.table({"image": pa.nulls(10_000_000, pa.binary())})
        for _ in range(3):
            writer.write_table(nulls)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FormatError, match=r"30,000,000 rows in [\d,]+ bytes"):
        open_dataset(path)
    table = pa.table({name: pa.nulls(3_000_000, pa.string()) for name in ("class", "concept", "answer")})
    pq.write_table(table, tmp_path / "k.parquet")
    with pytest.raises(CCRError, match=r"3,000,000 rows in [\d,]+ bytes"):
        Knowledge.read(tmp_path / "k.parquet")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[{"bytes": b"x"}]] * 3),
        pa.array([{"bytes": {"bytes": b"x"}}] * 3),
        pa.array([{"bytes": [b"x", b"y"]}] * 3),
        pa.array([{"path": "x"}] * 3),
    ],
)
def test_nested_columns_are_no_images(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"image": column}), tmp_path / "x.parquet")
    try:
        samples = open_dataset(tmp_path / "x.parquet")
    except CCRError:
        return
    for sample in samples:
        with pytest.raises(BadImage):
            sample.image()


def test_rows_of_a_group_are_read_in_any_order(tmp_path: Path) -> None:
    photos = [encoded(picture(number)) for number in range(23)]
    pq.write_table(pa.table({"image": pa.array(photos, pa.binary())}), tmp_path / "x.parquet", row_group_size=10)
    samples = open_dataset(tmp_path / "x.parquet").samples
    for row in (22, 0, 9, 10, 3, 19, 4, 11, 5):
        assert samples[row].source.read() == photos[row]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_memory_map_of_a_million_rows_is_not_copied(tmp_path: Path) -> None:
    """A million rows of 64 float32 are 256 MB; predictions and codes of them take a fraction."""
    rows = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(1_000_000, 64))
    rng = np.random.default_rng(0)
    for start in range(0, len(rows), 50_000):
        rows[start : start + 50_000] = rng.standard_normal((50_000, 64), dtype=np.float32)
    rows.flush()
    program = (
        "import numpy as np\n"
        "from ccr import ConceptClassifier, Concepts, HardThreshold\n"
        "rng = np.random.default_rng(0)\n"
        "concepts = Concepts([f'c{i}' for i in range(200)], rng.standard_normal((200, 64)))\n"
        "X = rng.standard_normal((400, 64)).astype(np.float32)\n"
        "model = ConceptClassifier(concepts, coder=HardThreshold(length=5), max_iter=1, random_state=0)\n"
        "model.fit(X, np.arange(400) % 4)\n"
        "model.predict(X)\n"
        "def work(path):\n"
        "    rows = np.load(path, mmap_mode='r')\n"
        "    labels = model.predict(rows)\n"
        "    assert labels.shape == (1_000_000,)\n"
        "    some = np.arange(0, 1_000_000, 99_991)\n"
        "    assert (labels[some] == model.predict(np.array(rows[some]))).all()\n"
    )
    # The pages of the map itself count as this process's while it reads them.
    assert peak_of(program, str(tmp_path / "x.npy")) < (256 << 20) + (300 << 20)
