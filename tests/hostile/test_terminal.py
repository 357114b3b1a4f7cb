"""Text from outside is shown on a terminal and does nothing there; names that could do more are refused."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from ccr import Concepts
from ccr.cli import common, main
from ccr.data.datasets import open_dataset
from ccr.edit import rename
from ccr.errors import CCRError, CCRWarning, FormatError, MissingPlaceError, WriteError
from ccr.labels import number_labels
from ccr.utils.texts import check_name, has_control, visible
from ccr_studio.encoder import Words
from tests.conftest import Data
from tests.data.helpers import write_image
from tests.io.test_persist import fitted

EVIL = ["\x1b]0;owned\x07", "\x9b2J", "a\rb", "\u202egnp.exe", "\u2066x", "x\x08y", "\x7f", "a\nb", "\u2028", "\x00"]


@given(st.text())
def test_what_is_visible_has_no_control_and_json_reads_it_back(text: str) -> None:
    assert not has_control(visible(text))
    assert visible(visible(text)) == visible(text)
    assert json.loads(visible(json.dumps({"name": text}, ensure_ascii=False))) == {"name": text}
    assert visible(text) == text or has_control(text)


@pytest.mark.parametrize("name", EVIL)
def test_names_with_control_characters_are_refused_everywhere(name: str, digits: Data, tmp_path: Path) -> None:
    assert has_control(name)
    name = f"x{name}x"  # spaces at the ends are trimmed
    with pytest.raises(CCRError, match="control characters"):
        check_name(name, "it")
    with pytest.raises(CCRError, match="control characters"):
        Concepts([name], [[1.0]])
    with pytest.raises(CCRError, match="control characters"):
        number_labels(np.array([name, "b"]), 2)


def test_rename_and_folders_of_classes_refuse_them_too(digits: Data, tmp_path: Path) -> None:
    with pytest.raises(CCRError, match="control characters"):
        rename(fitted(digits, max_iter=1).model_, "stroke 1", "x\x1b[2Jx")
    write_image(tmp_path / "class \x1b[2J" / "a.png", 0)
    with pytest.raises(CCRError, match=r"control characters in 'class \\u001b\[2J'"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("name", ["é", "猫", "🏳️‍🌈", "שלום", "عربي", "a\u00adb", "ก็"])
def test_names_of_every_script_stay(name: str) -> None:
    assert visible(name) == name
    assert Concepts([name], [[1.0]]).names == (name,)


@pytest.mark.parametrize("text", [text for text in EVIL if text != "a\nb"])
def test_nothing_that_is_printed_holds_control_characters(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    for console in (common.console, common.errors):
        monkeypatch.setattr(console, "_file", out)
    table = Table(title=text, caption=text)
    table.add_column(text)
    table.add_row(text)
    common.console.print(table)
    common.console.print(f"in {text}")
    common.note(text)
    common.fail(text, as_json=False)
    common._Notes().emit(logging.LogRecord("ccr", 20, "", 0, text, None, None))
    with warnings.catch_warnings():
        common.show_warnings()
        warnings.simplefilter("always")
        warnings.warn(text, CCRWarning, stacklevel=1)
    with common.bar() as tell:
        tell(1, 2, text)
    assert not has_control(out.getvalue().replace("\n", ""))
    assert out.getvalue().count(visible(text)) >= 8


def test_json_and_arguments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    common.print_json({"name": "\x9b2J\u202e"})
    assert capsys.readouterr().out == '{"name": "\\u009b2J\\u202e"}\n'
    monkeypatch.setattr("sys.argv", ["ccr", "evaluate", "a", "b", "\x1b[2J.jpg"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert not has_control(capsys.readouterr().err.replace("\n", ""))


@pytest.mark.parametrize("kind", [CCRError, FormatError, MissingPlaceError, lambda text: WriteError(5, text), OSError])
def test_no_error_repeats_the_credentials_of_an_address(
    kind: Callable[[str], Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers said where it could not connect to: `ccr embed` printed the password in HF_ENDPOINT."""
    error = kind("no answer of 'http://me:s3cret@127.0.0.1:9/x' and s3://key:s3cret@bucket")
    if isinstance(error, CCRError):
        assert str(error) == "no answer of 'http://127.0.0.1:9/x' and s3://bucket"
    assert common.fail(str(error), as_json=True) == 1
    assert "s3cret" not in capsys.readouterr().out
    words = Words(lambda: (_ for _ in ()).throw(error))
    words.start()
    assert not words.available
    assert "s3cret" not in words.status
