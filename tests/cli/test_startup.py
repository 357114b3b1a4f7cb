"""Help is quick: neither `ccr --help` nor any command's own help loads what only the work itself needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "numba", "llvmlite", "sklearn", "scipy", "numpy", "matplotlib", "pyarrow", "PIL", "safetensors")
SCRIPT = """
import json, sys
import typer
from typer.testing import CliRunner
from ccr.cli import app

names = list(typer.main.get_command(app).commands)
helped = [CliRunner().invoke(app, [*words, "--help"]) for words in ([], *([name] for name in names))]
assert all(done.exit_code == 0 and "Usage" in done.output for done in helped)
print(json.dumps({"commands": names, "modules": list(sys.modules)}))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """The commands, and every module that a fresh Python has loaded after printing the help of each."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", HEAVY)
def test_help_does_not_import(name: str, loaded: dict[str, list[str]]) -> None:
    assert name not in loaded["modules"]


def test_every_commands_help_was_printed(loaded: dict[str, list[str]]) -> None:
    assert {"demo", "embed", "fit", "explain", "report", "sweep"} <= set(loaded["commands"])


def test_the_check_would_see_an_import() -> None:
    code = "import sys, ccr; ccr.Concepts; assert 'torch' in sys.modules and 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
