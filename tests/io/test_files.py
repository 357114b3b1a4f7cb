"""Files and folders are written whole or not at all, wherever the writing breaks off."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccr.errors import CCRError, WriteError
from ccr.io import files
from ccr.io.files import (
    ASIDE,
    check_writable,
    recover_folder,
    remove_leftovers,
    replace_folder,
    write_bytes,
    write_json,
    write_text,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="folders are exchanged in one step on Linux alone")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int, error: BaseException) -> None:
    """The `call`-th use of `os.name` raises; the others work."""
    real, calls = getattr(os, name), iter(range(1_000_000))

    def failing(*args: object, **options: object) -> object:
        if next(calls) == call:
            raise error
        return real(*args, **options)

    monkeypatch.setattr(os, name, failing)


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def writes(**contents: str):
    def write(folder: Path) -> None:
        for name, text in contents.items():
            (folder / name).write_text(text)

    return write


def test_a_file_is_written_with_its_parents_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_bytes(path, b"old and longer")
    write_bytes(str(path), b"\x00new")
    assert path.read_bytes() == b"\x00new"
    assert tree(tmp_path).keys() == {"a", "a/b", "a/b/file"}


def test_texts_keep_their_line_ends_and_are_utf8(tmp_path: Path) -> None:
    write_text(tmp_path / "t", "a\r\nb\nü")
    assert (tmp_path / "t").read_bytes() == b"a\r\nb\n\xc3\xbc"


@pytest.mark.parametrize("content", [{"ü": [1, 0.1, None]}, ["\udcff of a file's name"], "text"])
def test_json_comes_back(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "j", content)
    assert json.loads((tmp_path / "j").read_text(encoding="utf-8")) == content
    assert (tmp_path / "j").read_bytes().endswith(b"\n")


@pytest.mark.parametrize("content", [float("nan"), {"a": float("inf")}, object()])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "j", 1)
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "j", content)
    assert tree(tmp_path) == {"j": "1\n"}


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
@pytest.mark.parametrize(("name", "call"), [("fsync", 0), ("replace", 0)])
def test_a_file_that_breaks_off_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int, error: BaseException
) -> None:
    write_text(tmp_path / "f", "old")
    fail_at(monkeypatch, name, call, error)
    with pytest.raises((WriteError, KeyboardInterrupt)):
        write_text(tmp_path / "f", "new")
    assert tree(tmp_path) == {"f": "old"}


def test_a_file_that_breaks_off_leaves_none_where_none_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(monkeypatch, "replace", 0, OSError(errno.EIO, "broken"))
    with pytest.raises(WriteError):
        write_text(tmp_path / "f", "new")
    assert tree(tmp_path) == {}


def test_file_and_folder_are_synced_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda handle: (steps.append(stat.S_IFMT(os.fstat(handle).st_mode)), fsync(handle))
    )
    monkeypatch.setattr(os, "replace", lambda *names: (steps.append("rename"), replace(*names)))
    write_bytes(tmp_path / "f", b"x")
    assert steps == [stat.S_IFREG, "rename", stat.S_IFDIR]
    steps.clear()
    write_bytes(tmp_path / "a" / "b" / "f", b"x")  # the entries of `a` and `b` too
    assert steps == [stat.S_IFDIR, stat.S_IFDIR, stat.S_IFREG, "rename", stat.S_IFDIR]


def test_a_file_system_that_cannot_sync_folders_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(monkeypatch, "fsync", 1, OSError(errno.EINVAL, "invalid"))
    write_text(tmp_path / "f", "new")
    assert tree(tmp_path) == {"f": "new"}


def test_errors_name_the_file_the_reason_and_a_remedy(tmp_path: Path) -> None:
    write_text(tmp_path / "f", "a file")
    with pytest.raises(WriteError, match=r"f/g cannot be written \(Not a directory\): .*choose") as caught:
        write_text(tmp_path / "f" / "g", "x")
    assert isinstance(caught.value, CCRError)
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ENOTDIR
    (tmp_path / "d").mkdir()
    with pytest.raises(WriteError, match="Is a directory"):
        write_text(tmp_path / "d", "x")
    assert tree(tmp_path) == {"d": "folder", "f": "a file"}


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    code = """
import os
from ccr.io.files import WriteError, replace_folder, write_text
os.getuid() or os.setuid(65534)  # root may write everywhere
for write in (lambda: write_text("f", "x"), lambda: replace_folder("d", print)):
    try:
        write()
    except WriteError as error:
        print(error)
"""
    tmp_path.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    first, second = done.stdout.splitlines()
    assert first.startswith("f cannot be written (Permission denied)")
    assert second.startswith("d cannot be written (Permission denied)")
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("umask")
def test_new_files_and_folders_get_the_permissions_that_open_gives(tmp_path: Path) -> None:
    write_text(tmp_path / "f", "x")
    replace_folder(tmp_path / "d", writes(g="x"))
    (tmp_path / "by_open").write_text("x")
    (tmp_path / "by_mkdir").mkdir()
    assert mode(tmp_path / "f") == mode(tmp_path / "by_open") == 0o640
    assert mode(tmp_path / "d") == mode(tmp_path / "by_mkdir") == 0o750


@pytest.mark.parametrize("permissions", [0o600, 0o444, 0o777])
def test_what_is_replaced_keeps_its_permissions(tmp_path: Path, permissions: int) -> None:
    write_text(tmp_path / "f", "old")
    replace_folder(tmp_path / "d", writes(g="old"))
    for name in ("f", "d"):
        (tmp_path / name).chmod(permissions | 0o700 * (name == "d"))
    write_text(tmp_path / "f", "new")
    replace_folder(tmp_path / "d", writes(g="new"))
    assert mode(tmp_path / "f") == permissions
    assert mode(tmp_path / "d") == permissions | 0o700
    assert tree(tmp_path) == {"d": "folder", "d/g": "new", "f": "new"}


def test_private_content_is_never_readable_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "f", "old")
    (tmp_path / "f").chmod(0o600)
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (seen.append(mode(Path(names[0]))), replace(*names)))
    write_text(tmp_path / "f", "new")
    assert seen == [0o600]


def test_a_link_lying_at_the_name_aside_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / f"{ASIDE}guessed").symlink_to(victim)
    with pytest.raises(WriteError, match="File exists"):
        write_text(tmp_path / "f", "x")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "f").exists()


def test_names_aside_differ_and_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda one, other: (names.append(Path(one).name), replace(one, other)))
    longest = "n" * 255
    for _ in range(5):
        write_text(tmp_path / longest, "x")  # so that the name aside is not made from it
    assert len(set(names)) == 5
    assert all(name.startswith(ASIDE) and len(name) >= len(ASIDE) + 16 for name in names)


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "g").write_text("mine")
    for link, target in (("l", "file"), ("m", "folder"), ("n", "nowhere")):
        (tmp_path / link).symlink_to(tmp_path / target)
    write_text(tmp_path / "l", "new")
    replace_folder(tmp_path / "m", writes(g="new"))
    replace_folder(tmp_path / "n", writes(g="new"))
    assert not any((tmp_path / link).is_symlink() for link in "lmn")
    assert tree(tmp_path) == {
        "file": "mine", "folder": "folder", "folder/g": "mine", "l": "new", "m": "folder", "m/g": "new",
        "n": "folder", "n/g": "new",
    }  # fmt: skip


@pytest.fixture(params=["exchange", "rename"])
def exchanging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to replace a folder: in one step, and by two renames where the system has no such step."""
    if request.param == "rename":
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    return str(request.param)


@pytest.mark.usefixtures("exchanging")
def test_a_folder_is_replaced_with_all_that_was_in_it(tmp_path: Path) -> None:
    target = tmp_path / "a" / "model"
    replace_folder(target, writes(x="1", y="2"))
    (target / "deep").mkdir()
    replace_folder(target, writes(y="3"))
    assert tree(tmp_path) == {"a": "folder", "a/model": "folder", "a/model/y": "3"}


@pytest.mark.usefixtures("exchanging")
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ZeroDivisionError()])
def test_a_folder_whose_writing_fails_leaves_the_old_one(tmp_path: Path, error: BaseException) -> None:
    replace_folder(tmp_path / "d", writes(x="old"))

    def write(folder: Path) -> None:
        write_text(folder / "y", "half")
        raise error

    with pytest.raises(WriteError if isinstance(error, OSError) else type(error)):
        replace_folder(tmp_path / "d", write)
    assert tree(tmp_path) == {"d": "folder", "d/x": "old"}


@pytest.mark.parametrize(("name", "call"), [("fsync", 0), ("fsync", 1), ("rename", 0), ("rename", 1)])
def test_a_folder_that_breaks_off_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    replace_folder(tmp_path / "d", writes(x="old"))
    monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    fail_at(monkeypatch, name, call, OSError(errno.EIO, "broken"))
    with pytest.raises(WriteError, match=r"d cannot be written \(Input/output error\)"):
        replace_folder(tmp_path / "d", writes(x="new"))
    assert tree(tmp_path) == {"d": "folder", "d/x": "old"}


def test_a_process_killed_between_the_two_renames_leaves_the_old_folder_to_be_recovered(tmp_path: Path) -> None:
    replace_folder(tmp_path / "d", writes(x="old"))
    code = """
import os
from ccr.io import files
rename = os.rename
os.rename = lambda one, other: rename(one, other) if one.name == "d" else os._exit(9)
files._exchange = lambda one, other: False
files.replace_folder("d", lambda folder: files.write_text(folder / "x", "new"))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path).returncode == 9
    remove_leftovers(tmp_path)
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith(".ccr-old-")
    os.utime(kept, (0, 0))
    write_text(tmp_path / "other", "")  # collects what is abandoned, but not the only one
    recover_folder(tmp_path / "other-d")
    recover_folder(tmp_path / "d")
    assert tree(tmp_path) == {"d": "folder", "d/x": "old", "other": ""}


def test_a_replaced_folder_whose_process_was_killed_late_is_collected(tmp_path: Path) -> None:
    replace_folder(tmp_path / "d", writes(x="new"))
    for name in (f"{files.OLD}0123-d", f"{ASIDE}0123", f"{ASIDE}fresh"):
        (tmp_path / name).mkdir()
        if not name.endswith("fresh"):
            os.utime(tmp_path / name, (0, 0))
    files._collect_abandoned.cache_clear()
    replace_folder(tmp_path / "d", writes(x="newer"))
    assert tree(tmp_path) == {f"{ASIDE}fresh": "folder", "d": "folder", "d/x": "newer"}


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for good in (tmp_path, tmp_path / "new" / "deep", tmp_path / "file"):
        check_writable(good)
    for bad in (tmp_path / "file" / "x", Path("/proc/nothing/x")):
        with pytest.raises(WriteError, match="cannot be written"):
            check_writable(bad)
    assert tree(tmp_path) == {"file": "mine"}


def test_the_files_of_a_folder_are_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append(os.fstat(handle).st_ino), fsync(handle)))
    monkeypatch.setattr(os, "rename", lambda *names: (steps.append("rename"), rename(*names)))
    replace_folder(tmp_path / "d", writes(x="1", y="2"))
    inodes = {(tmp_path / name).stat().st_ino for name in ("d", "d/x", "d/y")}
    assert set(steps[:3]) == inodes
    assert steps[3:] == ["rename", tmp_path.stat().st_ino]


def test_a_nested_error_names_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(WriteError) as caught:
        replace_folder(tmp_path / "d", lambda folder: write_text(tmp_path / "f" / "g", "x"))
    assert str(tmp_path / "d") in str(caught.value)
    assert ASIDE not in str(caught.value)


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    write_text(tmp_path / "f", "mine")
    with pytest.raises(CCRError, match="must be a folder"):
        replace_folder(tmp_path / "f", writes(x="1"))
    assert tree(tmp_path) == {"f": "mine"}


@LINUX
def test_readers_see_one_of_the_two_folders_at_any_moment(tmp_path: Path) -> None:
    target = tmp_path / "d"
    replace_folder(target, writes(number="0"))
    if not files._exchange(target, target):
        pytest.skip("the file system of the temporary folder cannot exchange two folders")
    stop, missing, reads = threading.Event(), [], [0]

    def read() -> None:
        while not stop.is_set():
            reads[0] += 1
            if not target.is_dir():
                missing.append(reads[0])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 200):
            replace_folder(target, writes(number=str(number)))
    finally:
        stop.set()
        reader.join()
    assert reads[0] > 200
    assert not missing
    assert tree(tmp_path) == {"d": "folder", "d/number": "199"}


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / f"{ASIDE}0123" / "deep").mkdir(parents=True)
    (tmp_path / f"{ASIDE}4567").write_text("half")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / f"{ASIDE}89ab").symlink_to(tmp_path)
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    remove_leftovers(tmp_path / "deep")
    assert tree(tmp_path) == {"deep": "folder"}
    remove_leftovers(tmp_path / "nowhere")


def test_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    texts = [str(number) * 100_000 for number in range(4)]
    writers = [threading.Thread(target=write_text, args=(tmp_path / "f", text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (tmp_path / "f").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
