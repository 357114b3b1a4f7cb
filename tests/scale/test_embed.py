"""`ccr.scale.embed` on two nodes: whatever is killed, the store has the bytes of the one-machine run."""

import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import ccr.scale.embedding as embedding
from ccr.cli import app
from ccr.data.datasets import open_dataset, open_samples
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import CCRError
from ccr.scale import embed
from ccr.scale.embedding import StorePart as Part
from ccr.scale.embedding import Task
from tests.data.helpers import folder_files, write_image
from tests.data.test_sharded import photos_of_trees
from tests.scale.conftest import kill_driver, kill_node, kill_worker, wait_for

pytestmark = pytest.mark.scale
OPTIONS = {"batch_size": 4, "shard_size": 50}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(embedding, "PART", 8)


PROGRAM = """
import sys
import ccr.scale.embedding as embedding
embedding.PART, embedding.embed.__kwdefaults__["shard_size"] = 8, 50
from ccr.cli import main
main()
"""


def test_a_lost_driver_a_lost_worker_and_a_lost_node_change_nothing(
    cluster, node, photos, encoder_folder, encoder, expected, tmp_path
):
    """One run: its driver is killed, and of the run that goes on, first a worker, then a node."""
    out, told, killed = tmp_path / "s", [], []
    command = [
        sys.executable, "-c", PROGRAM, "embed", str(photos), "--out", str(out), "--encoder", f"hf:{encoder_folder}",
        "--batch-size", "4", "--workers", "1", "--ray", cluster.address, "--json",
    ]  # fmt: skip
    driver = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(out.glob("progress/part_*.npz"))) >= 3 or driver.poll() is not None)
    kill_driver(driver)
    assert not (out / "store.json").exists()
    done = len(list(out.glob("progress/part_*.npz")))

    def progress(so_far, total):
        told.append((so_far, total))
        if len(told) == done + 2:
            # Of the head: those of the other node are at work when it is killed, and not about to start.
            killed.append(kill_worker("MapWorker", of=cluster.head_node))
        if len(told) == done + 5:
            kill_node(cluster, node, ").submit")

    where = {"address": cluster.address, "workers": 3}
    summary = embed(open_samples(photos), encoder, out, progress=progress, **where, **OPTIONS)
    assert killed == [1]
    assert node not in cluster.list_all_nodes()
    assert folder_files(out) == expected
    assert 0 < summary.resumed < 242
    assert told[0] == (0, 242)
    assert told[-1] == (242, 242)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert sorted(skipped.path for skipped in summary.skipped) == ["class 1/050-bad.png", "class 2/bad.png"]
    again = embed(open_samples(photos), encoder, out, address=cluster.address, **OPTIONS)
    assert (again.rows, again.resumed, again.images_per_second) == (summary.rows, 242, 0.0)
    with pytest.raises(CCRError, match="another batch size"):
        embed(open_samples(photos), encoder, out, address=cluster.address, batch_size=8, shard_size=50)
    with pytest.raises(CCRError, match=r"'class 1/050-bad\.png' cannot be embedded"):
        embed(open_samples(photos), encoder, tmp_path / "t", address=cluster.address, strict=True, workers=1, **OPTIONS)


@pytest.mark.parametrize("kind", ["folder", "json", "parquet"])
def test_groups_are_kept_together_as_on_one_machine(cluster, encoder, tmp_path, kind):
    group = "tree([0-9]+)_"
    for row in range(60) if kind == "folder" else ():
        write_image(tmp_path / "photos" / f"class {row % 2}" / f"tree{row // 6}_{row}.png", row)
    if kind != "folder":
        group = photos_of_trees(tmp_path / "photos", kind)
    dataset = open_dataset(tmp_path / "photos", group=group)
    embed_dataset(dataset, encoder, tmp_path / "here", workers=0, **OPTIONS)
    command = ["embed", tmp_path / "photos", "--out", tmp_path / "there", "--encoder", encoder.name, "--group", group]
    command += ["--batch-size", 4, "--workers", 1, "--ray", cluster.address, "--json"]
    done = CliRunner().invoke(app, [str(word) for word in command])
    assert done.exit_code == 0, done.output
    here, there = (EmbeddingStore.open(tmp_path / name) for name in ("here", "there"))
    assert np.array_equal(np.asarray(here), np.asarray(there))
    assert list(here.splits) == list(there.splits)
    assert list(here.groups) == list(there.groups)
    splits = {}
    for number, split in zip(there.groups.tolist(), there.splits, strict=True):
        splits.setdefault(number, set()).add(split)
    assert len(splits) == 10
    assert all(len(found) == 1 for found in splits.values())
    assert set(there.splits) == {"train", "val", "test"}


def test_a_part_of_other_contents_is_made_again():
    rows = [{"image_path": str(row), "label": None, "split": None, "content": f"{row}"} for row in (4, 6)]
    part = Part(np.zeros((2, 3)), rows, [], 1, 0, np.array([4, 6]), np.array([-1, 1]))  # sample 5 cannot be read
    contents, firsts = np.array([b"4", b"", b"6"]), np.array([4, 5, 1])
    assert part.is_of(Task(4, [], contents, firsts, []))
    assert not part.is_of(Task(4, [], np.array([b"4", b"", b"7"]), firsts, []))
    assert not part.is_of(Task(4, [], contents, np.array([4, 5, 2]), []))
