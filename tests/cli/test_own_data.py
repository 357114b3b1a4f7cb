"""The first minutes with one's own photos: what is said of folders, groups, near-duplicates, and progress in a log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ccr.cli import common
from ccr.data.datasets import open_dataset
from ccr.data.store import EmbeddingStore, near_copies
from ccr.data.store.workers import look_of
from tests.cli.conftest import as_json, exit_code, run
from tests.data.helpers import write_image, write_store


def refusal(typed: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_code(typed, monkeypatch) == 1
    return " ".join(capsys.readouterr().err.split())


def embed(photos: Path, workspace: Path, out: Path, *more: object) -> list[object]:
    return ["embed", photos, "--out", out, "--encoder", f"hf:{workspace / 'clip'}", "--workers", 0, *more]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["1.png", "2.png"], ["2 images and no classes", "1.png", "photos/CLASS/1.png", "--unlabelled"]),
        (["pear/1.png", "pear/2.png"], ["2 images of one class, pear", "photos/CLASS/1.png"]),
        (
            ["all/pear/1.png", "all/apple/2.png"],
            ["one class, all", "folders apple, pear", "did you mean", "photos/all"],
        ),
        (["train/1.png", "test/2.png"], ["no classes"]),
    ],
)
def test_photos_without_classes_are_noticed_before_they_are_embedded(
    keys: list[str],
    said: list[str],
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for seed, key in enumerate(keys):
        write_image(tmp_path / "photos" / key, seed)
    monkeypatch.chdir(tmp_path)
    text = refusal(embed(Path("photos"), workspace, tmp_path / "store"), monkeypatch, capsys)
    assert all(part in text for part in said), text
    assert not (tmp_path / "store").exists()
    found = as_json(*embed(Path("photos"), workspace, tmp_path / "store", "--unlabelled"))
    assert found["rows"] == len(keys)
    said = " ".join(run(*embed(Path("photos"), workspace, tmp_path / "store", "--unlabelled")).stdout.split())
    assert "ccr fit" not in said
    assert "Next: ccr predict MODEL" in said


def test_odd_folders_are_named(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, key in enumerate(["2023/pear/1.png", "2023/apple/2.png", "2024/pear/3.png", "2024/apple/4.png", "5.png"]):
        write_image(tmp_path / key, seed)
    (tmp_path / "2023" / "6.heic").write_bytes(b"a phone's")
    assert exit_code(embed(tmp_path, workspace, tmp_path.with_name("odd")), monkeypatch) == 0
    text = " ".join(capsys.readouterr().err.split())
    assert "1 of 5 images have no class, such as 5.png" in text
    assert "the classes are the folders 2023, 2024, and each has the folders apple, pear in it" in text
    assert "2 classes with fewer than 5 images: 2023 (2), 2024 (2)" in text
    assert "1 .heic; convert them" in text


def test_a_folder_one_level_too_high_is_named_also_where_its_folders_differ(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, key in enumerate(["fruit/pear/1.png", "fruit/apple/2.png", "roots/carrot/3.png", "roots/beet/4.png"]):
        write_image(tmp_path / "d" / key, seed)
    assert exit_code(embed(tmp_path / "d", workspace, tmp_path / "o"), monkeypatch) == 0
    text = " ".join(capsys.readouterr().err.split())
    assert "the classes are the folders fruit, roots, with apple, beet, carrot, pear in them: if those are your" in text


def test_pictures_of_unread_kinds_alone_are_refused_by_name(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pear").mkdir()
    (tmp_path / "pear" / "6.HEIC").write_bytes(b"a phone's")
    assert "(1 .heic): convert them" in refusal(embed(tmp_path, workspace, tmp_path / "o"), monkeypatch, capsys)


@pytest.mark.parametrize("how", ["pattern", "column"])
def test_photos_of_one_group_are_in_one_split(how: str, workspace: Path, tmp_path: Path) -> None:
    lines = ["path,label,tree"]
    for number in range(60):
        key = f"{'pear' if number % 2 else 'apple'}/{number // 6}_{number}.png"
        write_image(tmp_path / key, number)
        lines.append(f"{key},{key.split('/')[0]},{number // 6}")
    (tmp_path / "photos.csv").write_text("\n".join(lines), encoding="utf-8")
    data, group = (tmp_path, "/([0-9]+)_") if how == "pattern" else (tmp_path / "photos.csv", "tree")
    as_json(*embed(data, workspace, tmp_path / "store", "--group", group))
    store = EmbeddingStore.open(tmp_path / "store")
    splits = defaultdict(set)
    for path, split, number in zip(store.paths, store.splits, store.groups, strict=True):
        splits[path.split("/")[1].split("_")[0]].add((split, number))
    assert len(splits) == 10
    assert all(len(found) == 1 for found in splits.values())
    assert set(store.splits) == {"train", "val", "test"}
    alone = {sample.key.split("/")[1].split("_")[0] for sample in open_dataset(tmp_path).select("test")}
    assert len(alone) > 2  # without groups, test photos are of many trees


def test_groups_in_data_with_splits_of_its_own_are_named(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        split, label = ("train", "test")[number // 6], ("pear", "apple")[number % 2]
        write_image(tmp_path / "d" / split / label / f"{number % 4}_{number}.png", number)
    typed = embed(tmp_path / "d", workspace, tmp_path / "store", "--group", "/([0-9]+)_")
    assert exit_code(typed, monkeypatch) == 0
    text = " ".join(capsys.readouterr().err.split())
    assert "the data has splits of its own, which are kept; 4 of 4 groups are in more than one, such as '0'" in text


def test_a_group_that_matches_nothing_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for group, said in (("tree", "it matches none of the paths"), ("(", "a regular expression")):
        typed = embed(workspace / "photos", workspace, tmp_path / "o", "--group", group)
        assert said in refusal(typed, monkeypatch, capsys)


def scene(seed: int) -> Image.Image:
    """A picture of soft blobs, unlike every other seed's."""
    rough = np.random.default_rng(seed).uniform(0, 255, (12, 12, 3)).astype(np.uint8)
    return Image.fromarray(rough).resize((160, 160), Image.Resampling.BICUBIC)


def test_copies_saved_again_are_found_between_splits(workspace: Path, tmp_path: Path) -> None:
    for number in range(12):
        split = "train" if number < 8 else "test"
        path = tmp_path / "d" / split / ("pear" if number % 2 else "apple") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        scene(number).save(path)
    scene(3).resize((90, 90)).save(tmp_path / "d" / "test" / "pear" / "again.jpg", quality=60)
    found = as_json(*embed(tmp_path / "d", workspace, tmp_path / "store"))
    assert found["crossing"] == 0  # not the same file
    near = found["near_copies"]
    assert (near["compared"], near["found"]) == (5, 1)
    (example,) = near["examples"]
    assert (example["image"], example["training_image"]) == ("test/pear/again.jpg", "train/pear/3.png")
    assert example["bits"] <= near["most_bits"]


def disc(seed: int, size: int = 160) -> Image.Image:
    """A thing of one colour before white, as shops show it: its hash is that of all such things."""
    down, across = np.mgrid[:size, :size] / size - 0.5
    colour = np.random.default_rng(seed).integers(30, 200, 3)
    shade = 1 - 0.4 * (down + across + 1)[..., None] / 2
    inside = (down**2 + across**2 < 0.16)[..., None]
    return Image.fromarray(np.where(inside, colour * shade, 255).astype(np.uint8))


def test_a_finished_store_names_what_happened_and_nothing_else(workspace: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for number, key in enumerate(f"{label}/{number}.png" for label in "ab" for number in range(4)):
        write_image(photos / key, number)
    first = run(*embed(photos, workspace, tmp_path / "one")).stdout
    assert "an earlier run" not in first
    assert "copies of another" not in first
    (photos / "a" / "9.png").write_bytes((photos / "a" / "0.png").read_bytes())
    second = run(*embed(photos, workspace, tmp_path / "two")).stdout
    assert re.search(r"copies of another image\W+1\b", second), second
    again = run(*embed(photos, workspace, tmp_path / "two")).stdout
    assert re.search(r"done by an earlier run\W+9\b", again), again


def test_things_before_white_with_one_hash_are_copies_only_if_the_encoder_agrees(tmp_path: Path) -> None:
    """Each test picture has the hash of another thing's, a few bits apart; one is a training picture, saved again."""
    rng, words = np.random.default_rng(0), [int(look_of(disc(seed)), 16) for seed in range(6)]
    assert max((one ^ words[0]).bit_count() for one in words) <= 20  # alike to the hash
    looks = [f"{words[0]:032x}", *(f"{words[0] ^ ((1 << count) - 1):032x}" for count in (12, 12, 4))]
    own, other = rng.normal(size=(2, 16))
    X = np.array([own, other, own + 0.02 * rng.normal(size=16), other])
    splits = ["train", "test", "test", "test"]
    write_store(tmp_path / "s", X, ["ball"] * 4, splits, look=looks, content=list("abcd"))
    found = near_copies(EmbeddingStore.open(tmp_path / "s"))
    assert found is not None
    assert [(one.image, one.bits) for one in found.examples] == [("3.png", 4), ("2.png", 12)]
    assert (found.compared, found.found) == (3, 2)


def test_a_look_survives_what_leaves_a_picture_the_same() -> None:
    def apart(one: Image.Image, two: Image.Image) -> int:
        return (int(look_of(one), 16) ^ int(look_of(two), 16)).bit_count()

    one = scene(0)
    assert apart(one, one) == 0
    assert apart(one, one.resize((61, 61))) <= 20
    assert apart(one, one.point(lambda value: value * 0.8)) <= 20
    assert min(apart(one, scene(seed)) for seed in range(1, 30)) > 20


def test_pictures_of_one_colour_are_no_copies(workspace: Path, tmp_path: Path) -> None:
    for number, colour in enumerate(["red", "green", "blue", "white"]):
        path = tmp_path / "d" / ("train" if number < 2 else "test") / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), colour).save(path)
    as_json(*embed(tmp_path / "d", workspace, tmp_path / "store"))
    found = near_copies(EmbeddingStore.open(tmp_path / "store"))
    assert found is not None
    assert found.found == 0


def test_progress_through_a_pipe_is_a_line_every_ten_seconds_or_five_percent() -> None:
    program = (
        "import time; now = [0.0]; time.monotonic = lambda: now[0]\n"
        "from contextlib import nullcontext\n"
        "from ccr.cli import common\n"
        "common._reminded = nullcontext\n"  # the clock is not that of the machine
        "with common.bar() as tell:\n"
        "    for done in range(1001):\n"
        "        tell(done, 1000, 'embedding images')\n"
        "        now[0] += float(__import__('sys').argv[1])\n"
    )
    lines = {}
    for pace in (0.001, 0.125, 1.0):
        done = subprocess.run(
            [sys.executable, "-c", program, str(pace)], capture_output=True, text=True, check=True, env=os.environ
        )
        assert done.stdout == ""
        lines[pace] = done.stderr.splitlines()
    assert lines[0.001] == []  # a second of work
    assert len(lines[0.125]) == 20  # every five percent
    assert lines[0.125][9] == "embedding images: 500 of 1,000 (50%), 1 min 2 s so far, about 1 min 2 s left"
    assert len(lines[1.0]) == 100  # every ten seconds
    assert lines[1.0][30] == "embedding images: 310 of 1,000 (31%), 5 min 10 s so far, about 11 min left"


def test_the_same_work_begun_again_has_a_time_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(common, "_reminded", nullcontext)
    with common.bar() as tell:
        for done in (0, 1, 2, 0, 1):
            tell(done, 2, "fitting folds")
            now[0] += 20
    assert capsys.readouterr().err.splitlines()[-1] == "fitting folds: 1 of 2 (50%), 20 s so far, about 20 s left"


def test_work_that_does_not_tell_for_long_is_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, lines = [0.0], []
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    work = common._Lines()
    for now[0] in (9.0, 11.0, 20.0, 21.5):
        work.remind()
        lines.append(capsys.readouterr().err.strip())
    assert lines == ["", "starting: 11 s so far", "", "starting: 22 s so far"]
    work.tell(0, 10, "fitting models")
    now[0] = 40.0
    work.remind()
    assert capsys.readouterr().err.strip() == "fitting models: 0 of 10 (0%), 18 s so far"


def test_a_bar_without_a_terminal_reminds_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reminded = threading.Event()
    monkeypatch.setattr(common._Lines, "remind", lambda lines: reminded.set())
    before = set(threading.enumerate())
    with common.bar():
        assert reminded.wait(60)
    assert set(threading.enumerate()) <= before


def test_silent_work_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "SOONEST", 0.0)
    monkeypatch.setattr(common, "EVERY", 0.0)
    for silent in (False, True):
        monkeypatch.setattr(common.Quiet, "on", silent)
        with common.bar() as tell:
            tell(1, 2, "working")
        assert ("working" in capsys.readouterr().err) is not silent
