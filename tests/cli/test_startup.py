"""Help is quick: neither `ccr --help` nor any command's own help loads what only the work itself needs. And what only
reads a model does without what fits or draws."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    code = (
        "import sys, numpy; from ccr.geometry import coherence; coherence(numpy.eye(2)); "
        "assert 'torch' in sys.modules and 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


#: Each takes half a second or more, before the first answer.
SLOW = ("sklearn", "matplotlib", "scipy.stats", "scipy.optimize", "transformers", "onnxruntime")
READING = """
import sys
from pathlib import Path
from typer.testing import CliRunner
import ccr_studio.service.app, ccr_studio.serving
from ccr.cli import app
from ccr_studio.commands import _ready

model, store, out = sys.argv[1:]
for words in (["evaluate", model, store], ["audit", model, store], ["edit", model, "--log"],
              ["predict", model, store, "--out", out]):
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    print(words[0], *(name for name in SLOW if name in sys.modules))
_ready(Path(model), None)  # with the model's encoder, which is one of transformers
print("serve", *(name for name in ("sklearn", "matplotlib") if name in sys.modules))
"""


def test_what_only_reads_a_model_does_not_import_what_fits_or_draws(
    model: Path, workspace: Path, tmp_path: Path
) -> None:
    program = READING.replace("SLOW", repr(SLOW))
    arguments = [str(model), str(workspace / "store"), str(tmp_path / "predicted.csv")]
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["evaluate", "audit", "edit", "predict", "serve"]


def test_a_model_predicts_and_explains_one_row_without_torch_and_numba() -> None:
    code = """
import sys
import numpy as np
from ccr import ConceptModel

X = np.load(sys.argv[2])["rows"]
model = ConceptModel.load(sys.argv[1])
model.predict(X[:1]), model.predict_proba(X), model.explain(X[0]).to_dict(), str(model.explain(X[0]))
assert not {"torch", "numba", "llvmlite", "sklearn", "scipy", "PIL", "pyarrow"} & set(sys.modules)
"""
    saved = Path(__file__).parents[1] / "io" / "saved"
    for name in ("threshold-both", "threshold-fixed-positive", "top"):
        subprocess.run([sys.executable, "-c", code, str(saved / name), str(saved / "answers.npz")], check=True)


def test_stores_and_data_sets_are_opened_without_torch() -> None:
    """It takes two seconds, and every process that reads photos would wait for it."""
    code = "import sys, ccr.data.datasets, ccr.data.store; assert not {'torch', 'numba', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
