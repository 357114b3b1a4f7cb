import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from ccr.data.datasets import BadImage, open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.data.store.workers import Chunk
from ccr.errors import CCRError
from tests.data.helpers import PixelEncoder, bomb_png, encoded, folder_files, picture, write_image

ROOT = Path(__file__).parents[2]
QUICK = {"workers": 0, "batch_size": 4, "shard_size": 10}


def make_images(root, count, *, copies=5):
    """Pictures in three classes; the last `copies` have the contents of the first ones."""
    for row in range(count):
        write_image(root / f"c{row % 3}" / f"{row:03}.png", row if row < count - copies else row - count + copies)
    return root


@pytest.fixture
def images(tmp_path):
    return make_images(tmp_path / "images", 40)


def test_summary_and_rows(images, tmp_path):
    encoder = PixelEncoder()
    calls = []
    summary = embed_dataset(
        open_dataset(images),
        encoder,
        tmp_path / "s",
        progress=lambda *call: calls.append(call),
        dtype="float32",
        **QUICK,
    )
    assert (summary.rows, summary.skipped, summary.reused, summary.resumed) == (40, (), 5, 0)
    assert encoder.seen == 35
    assert calls == [(done, 40) for done in range(41)]
    json.dumps(summary.to_dict())
    store = EmbeddingStore.open(tmp_path / "s")
    whole = np.asarray(store)
    by_name = {path.split("/")[1]: row for row, path in enumerate(store.paths)}
    for copy in range(5):
        assert np.array_equal(whole[by_name[f"{copy:03}.png"]], whole[by_name[f"{copy + 35:03}.png"]])
    assert summary.crossing == 0  # our own splits keep copies together


def test_float16_and_workers_give_the_same_as_none(images, tmp_path):
    dataset = open_dataset(images)
    for workers in (0, 2):
        embed_dataset(
            dataset, PixelEncoder(), tmp_path / f"s{workers}", dtype="float16", **{**QUICK, "workers": workers}
        )
    assert folder_files(tmp_path / "s0") == folder_files(tmp_path / "s2")
    assert EmbeddingStore.open(tmp_path / "s0").dtype == np.float16


def test_a_finished_store_is_left_alone(images, tmp_path):
    dataset = open_dataset(images)
    embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **QUICK)
    before = folder_files(tmp_path / "s")
    encoder = PixelEncoder()
    summary = embed_dataset(dataset, encoder, tmp_path / "s", **QUICK)
    assert encoder.seen == 0
    assert (summary.rows, summary.resumed, summary.images_per_second) == (40, 40, 0.0)
    assert folder_files(tmp_path / "s") == before


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop", [0, 1, 8, 17, 39, 40])
def test_interrupted_runs_give_the_same_store(images, tmp_path, stop):
    dataset = open_dataset(images)
    embed_dataset(dataset, PixelEncoder(), tmp_path / "clean", **QUICK)

    def interrupt(done, total):
        if done >= stop:
            raise Interrupted

    with pytest.raises(Interrupted):
        embed_dataset(dataset, PixelEncoder(), tmp_path / "s", progress=interrupt, **QUICK)
    with pytest.raises(CCRError, match="begun but not finished"):
        EmbeddingStore.open(tmp_path / "s")
    summary = embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **QUICK)
    assert summary.resumed == max(0, stop - 1) // 8 * 8
    assert folder_files(tmp_path / "s") == folder_files(tmp_path / "clean")


def test_a_chunk_that_was_compressed_is_made_again(tmp_path):
    """It may hold any size in few bytes; `save` never compresses."""
    row = {"image_path": "x", "label": None, "split": None, "content": "c", "look": None}
    chunk, path = Chunk(np.zeros((9_000, 4), np.float32), [row] * 9_000, [], 0, 0), tmp_path / "chunk.npz"
    chunk.save(path)
    assert Chunk.load(path, 4, "float32") is not None
    with np.load(path) as archive:
        np.savez_compressed(tmp_path / "compressed.npz", **archive)
    assert Chunk.load(tmp_path / "compressed.npz", 4, "float32") is None


def test_damaged_chunks_and_torn_files_are_made_again(images, tmp_path):
    dataset = open_dataset(images)
    embed_dataset(dataset, PixelEncoder(), tmp_path / "clean", **QUICK)
    with pytest.raises(Interrupted):
        embed_dataset(dataset, PixelEncoder(), tmp_path / "s", progress=_raise_at(30), **QUICK)
    chunk = tmp_path / "s/progress/chunk_1.npz"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 255
    chunk.write_bytes(data)
    (tmp_path / "s/progress/.ccr-aside-0123").write_bytes(b"torn")
    (tmp_path / "s/img_emb").mkdir()
    (tmp_path / "s/img_emb/.ccr-aside-4567").write_bytes(b"torn")
    (tmp_path / "s/.ccr-aside-89ab").write_bytes(b"torn")
    assert embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **QUICK).resumed == 8
    assert folder_files(tmp_path / "s") == folder_files(tmp_path / "clean")


def _raise_at(stop):
    def interrupt(done, total):
        if done >= stop:
            raise Interrupted

    return interrupt


CHILD = """
import sys, time
sys.path.insert(0, {tests!r})
from tests.data.helpers import PixelEncoder
from ccr.data.datasets import open_dataset
from ccr.data.store import embed_dataset

class Slow(PixelEncoder):
    def embed_images(self, images, *, batch_size=None):
        time.sleep(0.02)
        return super().embed_images(images, batch_size=batch_size)

if __name__ == "__main__":
    say = lambda done, total: print(done, flush=True)
    embed_dataset(open_dataset({data!r}), Slow(), {out!r}, workers={workers}, batch_size=4, shard_size=10, progress=say)
"""


def run_and_kill(script, after):
    """Start the script, SIGKILL it once it has told `after` steps (None: let it finish). The children it had."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment, text=True) as child:
        children = []
        for told, _ in enumerate(child.stdout):
            if told == after:
                children = psutil.Process(child.pid).children(recursive=True)
                child.send_signal(signal.SIGKILL)
                break
        child.stdout.close()
        assert child.wait(60) == (0 if after is None else -signal.SIGKILL)
    return children


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has SIGKILL")
@pytest.mark.parametrize("workers", [0, 1])
def test_killed_runs_give_the_same_store(tmp_path, workers):
    data = make_images(tmp_path / "images", 120, copies=20)
    (data / "c0/003.png").write_bytes(b"not an image")
    embed_dataset(open_dataset(data), PixelEncoder(), tmp_path / "clean", **QUICK)
    script = tmp_path / "child.py"
    facts = {"tests": str(ROOT), "data": str(data), "out": str(tmp_path / "s"), "workers": workers}
    script.write_text(CHILD.format(**facts))
    rng = random.Random(workers)
    for _ in range(2 - workers):
        children = run_and_kill(script, rng.randrange(5, 30))
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    run_and_kill(script, None)
    assert folder_files(tmp_path / "s") == folder_files(tmp_path / "clean")


def test_two_runs_at_once_are_refused(images, tmp_path):
    dataset = open_dataset(images)
    refused = []

    def second(done, total):
        if done == 20:
            with pytest.raises(CCRError, match="another run is embedding") as error:
                embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **QUICK)
            refused.append(error)

    embed_dataset(dataset, PixelEncoder(), tmp_path / "s", progress=second, **QUICK)
    assert len(refused) == 1


def test_another_plan_is_refused_by_name(images, tmp_path):
    dataset = open_dataset(images)
    embed_dataset(dataset, PixelEncoder(), tmp_path / "s", **QUICK)
    with pytest.raises(CCRError, match="another encoder"):
        embed_dataset(dataset, PixelEncoder(1), tmp_path / "s", **QUICK)
    with pytest.raises(CCRError, match=r"another dtype \('float16', now 'float32'\)"):
        embed_dataset(dataset, PixelEncoder(), tmp_path / "s", dtype="float32", **QUICK)
    write_image(images / "c0/new.png", 99)
    with pytest.raises(CCRError, match=r"number of images \(40, now 41\)"):
        embed_dataset(open_dataset(images), PixelEncoder(), tmp_path / "s", **QUICK)


def test_a_folder_with_other_things_is_refused(images, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with pytest.raises(CCRError, match="is not a store begun by ccr"):
        embed_dataset(open_dataset(images), PixelEncoder(), tmp_path / "mine", **QUICK)
    assert sorted(folder_files(tmp_path / "mine")) == ["thesis.tex"]


@pytest.mark.parametrize("options", [{"dtype": "int8"}, {"batch_size": 0}, {"shard_size": 0}])
def test_bad_options_are_refused(images, tmp_path, options):
    with pytest.raises(CCRError):
        embed_dataset(open_dataset(images), PixelEncoder(), tmp_path / "s", **{**QUICK, **options})
    assert not (tmp_path / "s").exists()


@pytest.fixture
def hostile(images):
    """A folder with every kind of bad image, and good ones with bad names."""
    jpeg = encoded(picture(1, (64, 64)), "JPEG")
    (images / "c0/truncated.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (images / "c0/text.jpg").write_text("<script>alert('I am no image')</script>")
    (images / "c0/empty.png").write_bytes(b"")
    (images / "c0/bomb.png").write_bytes(bomb_png())
    (images / "c0/folder.png").mkdir()
    (images / "c0/dangling.png").symlink_to(images / "nowhere.png")
    for seed, name in enumerate(["line\nbreak.png", "quo\"te's.png", "<b>bold<b>.png", "..png", "tab\t.png"]):
        write_image(images / "c1" / name, 1000 + seed)
    return images


@pytest.mark.parametrize("workers", [0, 1])
def test_bad_images_are_skipped_with_their_reasons(hostile, tmp_path, workers):
    summary = embed_dataset(open_dataset(hostile), PixelEncoder(), tmp_path / "s", **{**QUICK, "workers": workers})
    reasons = {item.path.split("/")[1]: item.reason for item in summary.skipped}
    assert reasons.keys() == {"truncated.jpg", "text.jpg", "empty.png", "bomb.png", "dangling.png"}
    assert "truncated" in reasons["truncated.jpg"]
    assert "not an image" in reasons["text.jpg"]
    assert "limit" in reasons["bomb.png"]
    assert "no such file" in reasons["dangling.png"]
    store = EmbeddingStore.open(tmp_path / "s")
    assert len(store) == summary.rows == 40 + 4  # "..png" is hidden
    odd = [row for row, path in enumerate(store.paths) if path == "c1/line\nbreak.png"]
    assert np.array_equal(np.asarray(store.image(odd[0])), np.asarray(picture(1000)))
    assert {"c1/quo\"te's.png", "c1/<b>bold<b>.png", "c1/tab\t.png"} < set(store.paths)


def test_strict_makes_a_bad_image_an_error(hostile, tmp_path):
    with pytest.raises(BadImage, match="cannot be embedded"):
        embed_dataset(open_dataset(hostile), PixelEncoder(), tmp_path / "s", strict=True, **QUICK)
    embed_dataset(open_dataset(hostile), PixelEncoder(), tmp_path / "s", **QUICK)
    with pytest.raises(BadImage, match="cannot be embedded"):
        embed_dataset(open_dataset(hostile), PixelEncoder(), tmp_path / "s", strict=True, **QUICK)


def test_nothing_readable_is_an_error_that_can_be_mended(tmp_path):
    data = tmp_path / "images"
    data.mkdir()
    (data / "1.png").write_bytes(b"no")
    with pytest.raises(CCRError, match="none of the 1 images can be read"):
        embed_dataset(open_dataset(data), PixelEncoder(), tmp_path / "s", **QUICK)
    write_image(data / "1.png", 1)
    assert embed_dataset(open_dataset(data), PixelEncoder(), tmp_path / "s", **QUICK).rows == 1


@pytest.mark.skipif(os.name != "posix", reason="file names are text elsewhere")
def test_a_name_that_is_not_utf8_is_skipped_with_a_reason(images, tmp_path):
    with open(os.path.join(os.fsencode(images), b"c0", b"\xff.png"), "wb") as stream:
        stream.write(encoded(picture(1)))
    summary = embed_dataset(open_dataset(images), PixelEncoder(), tmp_path / "s", **QUICK)
    assert [item.reason for item in summary.skipped] == ["its name is not valid UTF-8"]
    json.dumps(summary.to_dict()).encode()


def test_copies_across_given_splits_are_counted(tmp_path):
    for split, seeds in (("train", range(6)), ("test", range(4, 8))):
        for seed in seeds:
            write_image(tmp_path / "d" / split / "a" / f"{seed}.png", seed)
    summary = embed_dataset(open_dataset(tmp_path / "d"), PixelEncoder(), tmp_path / "s", **QUICK)
    assert (summary.reused, summary.crossing) == (2, 2)


def test_arrays_and_saved_rows_come_back_through_the_store(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 12, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    embed_dataset(open_dataset(tmp_path / "x.npy"), PixelEncoder(), tmp_path / "s", **QUICK)
    store = EmbeddingStore.open(tmp_path / "s")
    assert np.array_equal(np.asarray(store.image(7)), pixels[7])
    shutil.move(tmp_path / "x.npy", tmp_path / "y.npy")
    again = EmbeddingStore.open(tmp_path / "s", data=tmp_path / "y.npy")
    assert np.array_equal(np.asarray(again.image(7)), pixels[7])


def test_a_script_needs_no_main_guard_for_workers(tmp_path):
    data = make_images(tmp_path / "images", 6)
    script = tmp_path / "bare.py"
    facts = {"tests": str(ROOT), "data": str(data), "out": str(tmp_path / "s"), "workers": 1}
    script.write_text(CHILD.format(**facts).replace('if __name__ == "__main__":', "if True:"))
    run_and_kill(script, None)
    assert len(EmbeddingStore.open(tmp_path / "s")) == 6


class Elsewhere(PixelEncoder):
    """Its crop cannot be found by another process."""

    @property
    def crop(self):
        return _a_crop


def _a_crop(image):
    return image


_a_crop.__module__, _a_crop.__qualname__ = "__main__", "pytest_raises_nothing"


def test_a_worker_that_cannot_go_on_is_an_error_with_a_remedy(images, tmp_path, monkeypatch):
    monkeypatch.setattr("__main__.pytest_raises_nothing", _a_crop, raising=False)
    with pytest.raises(CCRError, match="workers=0 decodes without processes"):
        embed_dataset(open_dataset(images), Elsewhere(), tmp_path / "s", **{**QUICK, "workers": 1})
