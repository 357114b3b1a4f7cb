"""Numbers that are none, and names that nobody has, get a sentence."""

# ruff: noqa: F811 - fixtures are imported
from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_commands import exit_code, workspace  # noqa: F401


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--seed", "-1", "greater than or equal to 0"),
        ("--seed", "one", "--seed"),
        ("--radius", "nan", "radius must be in [0, 2], got nan"),
        ("--fidelity", "high", "--fidelity"),
        ("--length", "nan", "length must be between 1 and"),
        ("--threshold", "inf", "threshold must be a number >= 0, got inf"),
        ("--device", "meta", "device must be"),
        ("--epochs", "0", "greater than or equal to 1"),
    ],
)
def test_numbers_that_are_none(
    workspace: Path,
    tmp_path: Path,
    option: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["fit", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", tmp_path / "model"]
    arguments += ["--encoder", f"hf:{workspace / 'clip'}", option, value]
    assert exit_code(arguments, monkeypatch) in (1, 2)
    assert said in " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert not (tmp_path / "model").exists()
