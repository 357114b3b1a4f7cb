"""Google's object store: gcp-storage-emulator in a process of its own, spoken to by pyarrow's client."""

import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import ccr.io.remote
from ccr.data.datasets import open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import MissingPlaceError
from ccr.io.remote import as_place
from tests.data.failing_proxy import upload
from tests.data.helpers import PixelEncoder, folder_files, write_image
from tests.data.test_sharded import img2dataset

pytest.importorskip("gcp_storage_emulator", reason="needs the dev extra")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.fixture(scope="module")
def bucket():
    """The bucket `bucket` of an emulator. Not in this process: pyarrow holds Python's lock while it opens an object."""
    port = free_port()
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen([*command, "--in-memory", "--default-bucket", "bucket"], stderr=subprocess.DEVNULL)
    try:
        wait_until_it_answers(server, port)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
            ccr.io.remote.filesystem.cache_clear()
            yield as_place("gs://bucket")
    finally:
        ccr.io.remote.filesystem.cache_clear()
        server.kill()
        server.wait()


def wait_until_it_answers(server, port):
    for _ in range(600):
        assert server.poll() is None
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the emulator did not start")


def test_objects(bucket):
    place = bucket / "a" / "b c.bin"
    place.write_bytes(bytes(range(256)))
    assert place.is_file()
    assert place.parent.is_dir()
    assert (place.size(), place.read_bytes(), place.ranges().read(3, 9)) == (256, bytes(range(256)), bytes(range(3, 9)))
    with place.open() as stream:
        stream.seek(250)
        assert stream.read() == bytes(range(250, 256))
    assert [(entry.name, entry.size) for entry in bucket.list()] == [("a/b c.bin", 256)]
    place.unlink()
    place.unlink()
    assert not place.exists()
    with pytest.raises(MissingPlaceError, match=r"there is no gs://bucket/a/b c\.bin"):
        place.read_bytes()


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_data_and_store_there_have_the_bytes_of_those_here(bucket, tmp_path, kind):
    if kind == "tar":
        here = img2dataset(tmp_path / "data")
    else:
        here = tmp_path / "data"
        for row in range(12):
            write_image(here / f"class {row % 3}" / f"{row:02}.png", row)
    place, options = bucket / kind, {"workers": 0, "batch_size": 2, "shard_size": 5, "dtype": "float32"}
    upload(here, place / "data")
    embed_dataset(open_dataset(str(place / "data")), PixelEncoder(), str(place / "store"), **options)
    embed_dataset(open_dataset(here), PixelEncoder(), tmp_path / "store", **options)
    ours = {entry.name: (place / "store" / entry.name).read_bytes() for entry in (place / "store").list()}
    theirs = folder_files(tmp_path / "store")
    assert set(ours) == set(theirs)
    assert {name for name in ours if ours[name] != theirs[name]} == {"store.json"}  # which says where the images are
    there, local = EmbeddingStore.open(str(place / "store")), EmbeddingStore.open(tmp_path / "store")
    assert np.array_equal(there[[7, 0, 4]], local[[7, 0, 4]])
    assert list(there.y) == list(local.y)
