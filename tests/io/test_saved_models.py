"""Models saved by the code of 2026-11-16 (tools/save_reference_models.py) load and say the same for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

from ccr import ConceptClassifier, kernels
from ccr.coding import FEW_ROWS

SAVED = Path(__file__).parent / "saved"
NAMES = sorted(path.name for path in SAVED.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def answers() -> dict[str, np.ndarray]:
    with np.load(SAVED / "answers.npz", allow_pickle=False) as archive:
        return dict(archive)


def test_every_coder_is_there() -> None:
    assert len(NAMES) == 8


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_predictions_and_codes_are_the_same(name: str, times: int, answers: dict[str, np.ndarray]) -> None:
    """To the bit by the kernels, which code many rows; to rounding where NumPy codes a few."""
    model, few = ConceptClassifier.load(SAVED / name), answers["rows"]
    rows, m = np.concatenate([few] * times), len(few)
    codes = model.transform(rows)[:m]
    assert np.array_equal(model.predict(rows)[:m], answers[f"{name}.predictions"])
    assert np.array_equal(codes.indptr, answers[f"{name}.pointers"])
    assert np.array_equal(codes.indices, answers[f"{name}.indices"])
    found = {
        "codes": codes.data,
        "logits": model.model_.logits(rows)[:m],
        "probabilities": model.predict_proba(rows)[:m],
        "contributions": np.array([term.contribution for term in model.explain_many(rows)[0].contributions]),
    }
    for what, values in found.items():
        expected = answers[f"{name}.{what}"]
        as_written = binding.get_host_cpu_name() == str(answers["cpu"]) and kernels.TIER == "x86"
        if as_written and len(rows) > FEW_ROWS:
            assert np.array_equal(values, expected), what
        assert np.allclose(values, expected, rtol=1e-5, atol=1e-6), what


@pytest.mark.parametrize("name", NAMES)
def test_saved_again_it_is_the_same_model(name: str, answers: dict[str, np.ndarray], tmp_path: Path) -> None:
    ConceptClassifier.load(SAVED / name).save(tmp_path / name)
    model, rows = ConceptClassifier.load(tmp_path / name), answers["rows"]
    assert np.array_equal(model.predict(rows), answers[f"{name}.predictions"])
    assert model.radius in (0.0, 0.1)
    assert (model.fidelity, model.weights_per_class, model.candidates) == (
        None,
        None,
        None,
    )  # as it was made, not today's defaults
    assert (tmp_path / name / "model.safetensors").read_bytes() == (SAVED / name / "model.safetensors").read_bytes()
