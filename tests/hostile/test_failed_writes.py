"""A command whose results cannot be written says so: before the work where it can be known, in words in any case."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from ccr.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["ccr", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


@pytest.mark.parametrize(
    "command",
    [
        ["embed", "photos", "--out"],
        ["fit", "store", "--concepts", "concepts.txt", "--out"],
        ["edit", "model", "--suppress", "x", "--out"],
        ["report", "model", "store", "--out"],
        ["explain", "model", "a.jpg", "--out"],
        ["theory", "--out"],
        ["demo", "--out"],
        ["compare", "store", "--concepts", "concepts.txt", "--out"],
    ],
    ids=lambda command: command[0],
)
def test_out_is_checked_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    for out, words in (("file/x.html", "cannot be written"), ("/proc/no/x.html", "cannot be written")):
        assert run(monkeypatch, *command, out, "--json") == 1
        assert words in json.loads(capsys.readouterr().out)["error"]
    wrong = "." if command[0] in ("report", "explain") else "file"
    assert run(monkeypatch, *command, wrong) == 1
    assert "--out must be a" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_that_nobody_expected_is_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/some/disk")

    monkeypatch.setattr("ccr.data.store.EmbeddingStore.open", fail)
    arguments = ["fit", tmp_path, "--concepts", "c", "--out", tmp_path / "m"]
    assert run(monkeypatch, *arguments) == 1
    assert "error: /some/disk: Input/output error: check the path" in capsys.readouterr().err
    assert run(monkeypatch, *arguments, "--json") == 1
    assert "Input/output error" in json.loads(capsys.readouterr().out)["error"]


def test_a_folder_that_is_no_model_is_known_before_the_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    assert run(monkeypatch, "fit", "no-store", "--concepts", "c", "--out", tmp_path / "mine") == 1
    assert "left alone" in capsys.readouterr().err
