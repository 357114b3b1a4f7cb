"""What is printed on streams that are not in UTF-8, as on Windows; and photos that no encoder could take."""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from ccr.cli.common import print_json, replace_unprintable, warnings_as_notes
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRWarning
from tests.cli.conftest import HOSTILE, as_json, exit_code, named, run


def test_a_stream_of_few_letters_gets_question_marks(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.txt").write_text("\n".join(HOSTILE), encoding="utf-8")
    options = ["--length", 6, "--sign", "both", "--weights", "all", "--no-baseline", "--epochs", 1]
    as_json("fit", workspace / "store", "--concepts", tmp_path / "c.txt", "--out", tmp_path / "m", *options)
    image, there = workspace / "photos" / "red fruit" / "0.png", io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(there, encoding="cp1252"))
    assert exit_code(["explain", tmp_path / "m", image, *named(workspace)], monkeypatch) == 0
    sys.stdout.flush()
    assert b"?? right to left" in there.getvalue()


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_json_has_escapes_where_letters_would_be_lost(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    there = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(there, encoding=encoding))
    replace_unprintable()
    print_json({"concepts": HOSTILE})
    sys.stdout.flush()
    assert json.loads(there.getvalue().decode(encoding)) == {"concepts": HOSTILE}
    assert (b"\\u" in there.getvalue()) == (encoding != "utf-8")


def test_a_thread_of_pixels_is_refused_in_words(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (60_000, 1)).save(tmp_path / "thread.png")
    assert exit_code(["explain", model, tmp_path / "thread.png"], monkeypatch) == 1
    assert "1,000 times as long as wide" in " ".join(capsys.readouterr().err.split())


def test_embed_says_what_the_folders_were_taken_for(workspace: Path) -> None:
    encoder = ["--encoder", f"hf:{workspace / 'clip'}"]
    done = run("embed", workspace / "photos", "--out", workspace / "store", *encoder)
    text = " ".join(done.stdout.replace("│", " ").split())
    assert "classes 3: blue <b>fruit, green fruit, red fruit" in text
    splits = Counter(EmbeddingStore.open(workspace / "store").splits)
    assert f"train / val / test {splits['train']} / {splits['val']} / {splits['test']}" in text


def test_what_many_fits_warn_of_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_as_notes():
        for reached in (3.1, 3.2):
            for length in (12, 20):
                warnings.warn(f"length {length} cannot be reached: images have {reached}", CCRWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == [
        "note: length 12 cannot be reached: images have 3.1",
        "note: length 20 cannot be reached: images have 3.1",
    ]
