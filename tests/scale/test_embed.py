"""`ccr.scale.embed` on two nodes: whatever is killed, the store has the bytes of the one-machine run."""

import subprocess
import sys

import numpy as np
import pytest

import ccr.scale.embedding as embedding
from ccr.data.datasets import open_samples
from ccr.data.encoders import load_encoder
from ccr.errors import CCRError
from ccr.scale import embed
from ccr.scale.parts import Part, Task
from tests.data.helpers import folder_files
from tests.scale.conftest import kill_driver, kill_node, kill_worker, wait_for

pytestmark = pytest.mark.scale
OPTIONS = {"batch_size": 4, "shard_size": 50}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(embedding, "PART", 8)


def test_a_lost_worker_and_a_lost_node_change_nothing(cluster, node, photos, encoder, expected, tmp_path):
    told, killed = [], []

    def progress(done, total):
        told.append((done, total))
        if len(told) == 3:
            killed.append(kill_worker("MapWorker"))
        if len(told) == 6:
            kill_node(cluster, node, ").submit")

    where = {"address": cluster.address, "workers": 3}
    summary = embed(open_samples(photos), encoder, tmp_path / "s", progress=progress, **where, **OPTIONS)
    assert killed == [1]
    assert node not in cluster.list_all_nodes()
    assert folder_files(tmp_path / "s") == expected
    assert told[0] == (0, 122)
    assert told[-1] == (122, 122)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert sorted(skipped.path for skipped in summary.skipped) == ["class 1/050-bad.png", "class 2/bad.png"]
    again = embed(open_samples(photos), encoder, tmp_path / "s", address=cluster.address, **OPTIONS)
    assert (again.rows, again.resumed, again.images_per_second) == (summary.rows, 122, 0.0)
    with pytest.raises(CCRError, match="another batch size"):
        embed(open_samples(photos), encoder, tmp_path / "s", address=cluster.address, batch_size=8, shard_size=50)
    with pytest.raises(CCRError, match=r"'class 1/050-bad\.png' cannot be embedded"):
        embed(open_samples(photos), encoder, tmp_path / "t", address=cluster.address, strict=True, workers=1, **OPTIONS)


PROGRAM = """
import sys
import ccr.scale.embedding as embedding
embedding.PART = 8
from ccr.cli import main
main()
"""


def test_a_killed_driver_goes_on(cluster, photos, encoder_folder, expected, tmp_path):
    out = tmp_path / "s"
    command = [
        sys.executable, "-c", PROGRAM, "embed", str(photos), "--out", str(out), "--encoder", f"hf:{encoder_folder}",
        "--batch-size", "4", "--workers", "1", "--ray", cluster.address, "--json",
    ]  # fmt: skip
    driver = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(out.glob("progress/part_*.npz"))) >= 3 or driver.poll() is not None)
    kill_driver(driver)
    assert not (out / "store.json").exists()
    encoder = load_encoder(f"hf:{encoder_folder}", batch_size=4)
    summary = embed(open_samples(photos), encoder, out, address=cluster.address, workers=1, batch_size=4)
    assert 0 < summary.resumed < 122
    metadata = "metadata/metadata_0.parquet"
    assert set(folder_files(out)) == {"store.json", "img_emb/img_emb_0.npy", metadata}
    whole = tmp_path / "whole"
    from ccr.data.datasets import open_dataset
    from ccr.data.store import embed_dataset

    embed_dataset(open_dataset(photos), encoder, whole, batch_size=4, workers=0)
    assert folder_files(out) == folder_files(whole)


def test_a_part_of_other_contents_is_made_again():
    rows = [{"image_path": str(row), "label": None, "split": None, "content": f"{row}"} for row in (4, 6)]
    part = Part(np.zeros((2, 3)), np.array([4, 6]), np.array([-1, 1]), rows, [], 1, 0)  # sample 5 cannot be read
    contents, firsts = np.array([b"4", b"", b"6"]), np.array([4, 5, 1])
    assert part.is_of(Task(4, [], contents, firsts, []))
    assert not part.is_of(Task(4, [], np.array([b"4", b"", b"7"]), firsts, []))
    assert not part.is_of(Task(4, [], contents, np.array([4, 5, 2]), []))
