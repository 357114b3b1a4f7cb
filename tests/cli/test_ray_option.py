"""--ray with and without an address, and without Ray."""

import sys

import pytest
from typer.testing import CliRunner

from ccr.cli import app
from ccr.cli.common import check_extra, with_address
from ccr.errors import MissingExtraError


@pytest.mark.parametrize(
    ("words", "full"),
    [
        ("embed d --out o --ray", "embed d --out o --ray auto"),
        ("embed --ray photos --out o", "embed --ray auto photos --out o"),
        ("fit s --ray head:6379 --out m", "fit s --ray head:6379 --out m"),
        ("fit s --ray ray://head:10001", "fit s --ray ray://head:10001"),
        ("fit s --ray local --cpus 2", "fit s --ray local --cpus 2"),
        ("fit s --ray --cpus 2", "fit s --ray auto --cpus 2"),
        ("fit s --out m", "fit s --out m"),
    ],
)
def test_an_address_may_follow(words, full):
    assert with_address(words.split()) == full.split()


def test_without_the_extra_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    with pytest.raises(MissingExtraError, match=r"ccr-xai\[scale\]"):
        check_extra()
    for words in (["embed", tmp_path, "--out", tmp_path / "s"], ["predict", tmp_path, tmp_path, "--out", "p.csv"]):
        result = CliRunner().invoke(app, [*map(str, words), "--ray"])
        assert isinstance(result.exception, MissingExtraError)
