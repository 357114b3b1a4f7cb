"""The light runtime: the full model's numbers with NumPy and safetensors alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest
import torch

import ccr.runtime
from ccr import ConceptClassifier, ConceptModel, HardThreshold, TopK
from ccr.coding import FEW_ROWS
from ccr.errors import CCRError, FormatError
from tests.conftest import Data

SAVED = Path(__file__).parents[1] / "io" / "saved"
EXPORTABLE = ("threshold-both", "threshold-positive", "threshold-fixed", "threshold-fixed-positive", "top")
HEAVY = ("torch", "numba", "llvmlite", "sklearn", "scipy", "PIL", "pyarrow", "matplotlib", "typer", "rich", "pandas")
SCRIPT = """
import json, sys
import numpy as np
import ccr.runtime

model = ccr.runtime.load(sys.argv[1])
X = np.load(sys.argv[2])["rows"]
why = model.explain(X[0])
html = why._repr_html_()
print(json.dumps({
    "modules": list(sys.modules),
    "predictions": model.predict(X).tolist(),
    "probabilities": model.predict_proba(X).tolist(),
    "explanation": why.to_dict(),
}))
"""


@pytest.mark.parametrize("name", EXPORTABLE)
def test_a_fresh_process_loads_nothing_heavy_and_says_the_same(name: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(SAVED / name), str(SAVED / "answers.npz")]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert not set(HEAVY) & set(said["modules"])
    assert {"numpy", "safetensors"} <= set(said["modules"])
    model, X = ConceptModel.load(SAVED / name), np.load(SAVED / "answers.npz")["rows"]
    assert said["predictions"] == model.predict(X).tolist()
    assert np.allclose(said["probabilities"], model.predict_proba(X), atol=1e-6)
    full = model.explain(X[0]).to_dict()
    assert [term["concept"] for term in said["explanation"]["contributions"]] == [
        term["concept"] for term in full["contributions"]
    ]
    assert said["explanation"]["logit"] == pytest.approx(full["logit"], abs=1e-5)
    assert said["explanation"].keys() == full.keys()


def test_on_real_embeddings_it_is_the_full_model(clip: Data, tmp_path: Path) -> None:
    for name, coder in {"threshold": HardThreshold(length=8), "top": TopK(6)}.items():
        fitted = ConceptClassifier(clip.concepts, coder=coder, max_iter=3, random_state=0).fit(clip.X, clip.y)
        fitted.save(tmp_path / name)
        light = ccr.runtime.load(tmp_path / name)
        assert np.array_equal(light.predict(clip.X_test), fitted.predict(clip.X_test))
        assert np.abs(light.logits(clip.X_test) - fitted.model_.logits(clip.X_test)).max() < 1e-5
        assert np.abs(light.encode(clip.X_test) - fitted.transform(clip.X_test).toarray()).max() < 1e-6
        mine, theirs = light.explain(clip.X_test[3]), fitted.explain(clip.X_test[3])
        assert [term.concept for term in mine.contributions] == [term.concept for term in theirs.contributions]
        other = str(next(label for label in fitted.classes_ if label != mine.prediction))
        assert mine.contrast(other).difference == pytest.approx(theirs.contrast(other).difference, abs=1e-5)
        assert mine.bias + sum(term.contribution for term in mine.contributions) == pytest.approx(mine.logit)


def test_few_rows_have_the_active_concepts_that_they_have_among_many(clip: Data) -> None:
    for coder in (HardThreshold(length=8), HardThreshold(length=8, sign="both"), TopK(6)):
        model = ConceptClassifier(clip.concepts, coder=coder, max_iter=2, random_state=0).fit(clip.X, clip.y).model_
        many, logits = model.encode(clip.X_test), model.logits(clip.X_test)
        assert len(clip.X_test) > FEW_ROWS
        for size in (1, 7, FEW_ROWS):
            rows = slice(0, size)
            few = model.encode(clip.X_test[rows])
            assert np.array_equal(few.indices, many[rows].indices)
            assert np.array_equal(few.indptr, many[rows].indptr)
            assert np.abs(few.data - many[rows].data).max() < 1e-6
            assert np.abs(model.logits(clip.X_test[rows]) - logits[rows]).max() < 1e-5
            assert np.array_equal(few[0].toarray(), model.encode(clip.X_test[:1]).toarray())  # to the bit


@pytest.mark.parametrize("name", ["omp", "ip-omp", "lasso"])
def test_codes_that_need_a_solver_are_refused(name: str) -> None:
    with pytest.raises(CCRError, match=r"threshold or the top k.*load it with ccr\.ConceptModel"):
        ccr.runtime.load(SAVED / name)


def test_rows_that_point_nowhere_are_refused() -> None:
    light, X = ccr.runtime.load(SAVED / "top"), np.load(SAVED / "answers.npz")["rows"].copy()
    for value, why in ((np.nan, "finite, got NaN or infinity in row 2"), (0.0, "row 2 of X is all zeros")):
        X[2] = value
        with pytest.raises(CCRError, match=why):
            light.predict(X)
    for bad, why in ((X[0], "one embedding is X"), (X[:, :5], "64 dimensions, got 5"), ([["a"] * 64], "real numbers")):
        with pytest.raises(CCRError, match=why):
            light.predict(bad)
    with pytest.raises(CCRError, match=r"explain takes one embedding, got 2"):
        light.explain(X[:2])


def test_tensors_and_tables_are_read_as_the_full_model_reads_them() -> None:
    light, full = ccr.runtime.load(SAVED / "top"), ConceptModel.load(SAVED / "top")
    X = np.load(SAVED / "answers.npz")["rows"]
    table = pandas.DataFrame(X)
    halves = torch.from_numpy(X).bfloat16().requires_grad_()
    for given in (halves, torch.from_numpy(X), table, table.convert_dtypes(), polars.DataFrame(X), X.tolist()):
        assert np.abs(light.logits(given) - full.logits(given)).max() < 1e-5
    for one in (halves[0], table.iloc[0], table.convert_dtypes().iloc[0], X[0].tolist()):
        assert light.explain(one).prediction == full.explain(one).prediction
    missing = table.convert_dtypes()
    missing.iloc[2, 3] = pandas.NA
    for bad, why in ((missing, "NaN or infinity in row 2"), ([[1.0], [1.0, 2.0]], "must be a matrix of numbers")):
        for model in (light, full):
            with pytest.raises(CCRError, match=why):
                model.predict(bad)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_only_the_direction_of_a_row_counts(scale: float) -> None:
    light, X = ccr.runtime.load(SAVED / "threshold-both"), np.load(SAVED / "answers.npz")["rows"]
    assert np.allclose(light.logits(X.astype(np.float64) * scale), light.logits(X), atol=1e-5)


def test_damage_is_named(tmp_path: Path) -> None:
    for change in ({"rule": {"type": "TopRule", "length": 99}}, {"classes": [1]}, {"model": "LinearProbe"}):
        folder = tmp_path / next(iter(change))
        shutil.copytree(SAVED / "top", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(FormatError, match=folder.name):
            ccr.runtime.load(folder)
    (folder / "model.safetensors").write_bytes(b"x")
    with pytest.raises(FormatError, match="damaged"):
        ccr.runtime.load(folder)
