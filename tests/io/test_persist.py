"""A model is a folder: round trips are exact, damage is named, nothing half-written stays."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ccr import Angular, ConceptClassifier, Concepts, HardThreshold, Symmetric, TopK
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError, FormatError
from ccr.io import format as persist
from ccr_lab.rivals import LinearProbe
from tests.conftest import Data


def fitted(data: Data, **options: object) -> ConceptClassifier:
    settings: dict[str, object] = {"max_iter": 2, "random_state": 0, **options}
    return ConceptClassifier(data.concepts, **settings).fit(data.X, data.y)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(digits: Data) -> ConceptClassifier:
    return fitted(digits)


@pytest.fixture
def folder(model: ConceptClassifier, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights_per_class": None},
        {"coder": TopK(7), "dispersion": Angular()},
        {
            "coder": HardThreshold(threshold=0.2, sign="both"),
            "radius": 0.1,
            "weights_per_class": None,
            "center": None,
            "dispersion": None,
        },
        {"radius": 0.1, "dispersion": Symmetric(0.3), "class_weight": {f"digit {n}": 1.0 + n for n in range(10)}},
    ],
)
def test_round_trip_is_exact(digits: Data, tmp_path: Path, options: dict[str, object]) -> None:
    model = fitted(digits, **options)
    model.save(tmp_path / "a" / "model")
    again = ConceptClassifier.load(tmp_path / "a" / "model")
    assert np.array_equal(again.decision_function(digits.X_test), model.decision_function(digits.X_test))
    assert np.array_equal(again.predict(digits.X_test), model.predict(digits.X_test))
    assert np.array_equal(again.concepts_.embeddings, model.concepts_.embeddings)
    assert again.concepts == model.concepts
    assert again.model_.provenance.left_out == model.model_.provenance.left_out
    assert again.history_ == model.history_ or np.isnan(model.threshold_)
    assert again.evaluate(digits.X_test, digits.y_test) == model.evaluate(digits.X_test, digits.y_test)
    texts = digits.concepts.embeddings[:3]
    assert np.array_equal(again.space_.texts(texts), model.space_.texts(texts))
    mine, theirs = model.get_params() | {"concepts": again.concepts}, again.get_params()
    assert {key: str(value) for key, value in mine.items()} == {key: str(value) for key, value in theirs.items()}
    again.fit(digits.X, digits.y)
    assert np.array_equal(again.coef_, model.coef_)


@pytest.mark.parametrize(
    "labels", [np.arange(10), np.arange(10) * 0.5, np.array([True, False]), np.array(["é", "<b>", "'", " ", "猫"])]
)
def test_labels_of_every_kind_come_back(digits: Data, tmp_path: Path, labels: np.ndarray) -> None:
    y = labels[np.unique(digits.y, return_inverse=True)[1] % len(labels)]
    model = ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(digits.X, y)
    model.save(tmp_path / "model")
    again = ConceptClassifier.load(tmp_path / "model")
    assert again.classes_.dtype == model.classes_.dtype
    assert np.array_equal(again.predict(digits.X), model.predict(digits.X))


def test_hostile_names_survive(digits: Data, tmp_path: Path) -> None:
    names = ["../../etc", "a / b", '"quoted"', "<script>", "\u05d0\u05d1 right to left", "x" * 200]
    concepts = Concepts(names, digits.concepts.embeddings[:6])
    model = ConceptClassifier(concepts, coder=TopK(3), max_iter=1, random_state=0).fit(digits.X, digits.y)
    model.save(tmp_path / "model")
    assert ConceptClassifier.load(tmp_path / "model").concepts_.names == tuple(names)


def test_the_folder_is_plain(model: ConceptClassifier, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text())
    assert config["format"] == "ccr-model"
    assert config["format_version"] == 1
    assert config["concepts"] == list(model.concepts_.names)
    assert config["parameters"]["radius"] is None


def test_saving_again_replaces_and_leaves_nothing_else(model: ConceptClassifier, folder: Path) -> None:
    model.save(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_other_folders_and_files_are_left_alone(model: ConceptClassifier, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("mine")
    with pytest.raises(CCRError, match="left alone"):
        model.save(tmp_path / "photos")
    (tmp_path / "note").write_text("mine")
    with pytest.raises(CCRError, match="is a file"):
        model.save(tmp_path / "note")
    assert (tmp_path / "photos" / "a.jpg").read_text() == "mine"


@pytest.mark.parametrize("at", ["write", "swap"])
def test_a_failure_leaves_the_old_model(
    model: ConceptClassifier, folder: Path, digits: Data, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    before = ConceptClassifier.load(folder).predict(digits.X_test)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(persist if at == "write" else os, "write_bytes" if at == "write" else "fsync", fail)
    with pytest.raises(CCRError, match="cannot be written"):
        model.save(folder)
    monkeypatch.undo()
    assert np.array_equal(ConceptClassifier.load(folder).predict(digits.X_test), before)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such folder"):
        ConceptClassifier.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match=r"config\.json must be the JSON of a model \(No such file"):
        ConceptClassifier.load(tmp_path / "empty")
    blob = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(blob[: len(blob) // 2])
    with pytest.raises(FormatError, match="damaged: its checksum"):
        ConceptClassifier.load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FormatError, match="not a whole model"):
        ConceptClassifier.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "not a ccr model"),
        ({"format_version": 99}, "model format 99, this ccr reads format 1"),
        ({"concepts": ["too", "few"]}, r"must be float32 \(2, 64\), got float32 \(\d+, 64\)"),
        ({"classes": ["one"]}, "classes are not what"),
        ({"rule": {"type": "Evil"}}, "a rule is one of"),
        ({"parameters": {"coder": {"type": "os.system"}}}, "fit together"),
        ({"parameters": {"no_such_option": 1}}, "does not know: no_such_option"),
    ],
)
def test_a_changed_configuration_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    edit(folder, **changes)
    with pytest.raises(FormatError, match=message):
        ConceptClassifier.load(folder)


def test_truncated_json(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text[:100])
    with pytest.raises(FormatError, match="must be the JSON of a model"):
        ConceptClassifier.load(folder)


def test_a_model_moves_with_its_folder(folder: Path, tmp_path: Path, digits: Data) -> None:
    shutil.move(folder, tmp_path / "elsewhere")
    assert ConceptClassifier.load(tmp_path / "elsewhere").predict(digits.X_test[:1]).shape == (1,)


def test_settings_that_came_out_of_numpy_or_torch_are_saved(digits: Data, tmp_path: Path) -> None:
    settings = {
        "coder": HardThreshold(length=np.int64(6)), "dispersion": Symmetric(np.float32(0.5)),
        "coverage": np.float32(0.7), "device": torch.device("cpu"),
    }  # fmt: skip
    model = fitted(digits, **settings)
    model.save(tmp_path / "m")
    loaded = ConceptClassifier.load(tmp_path / "m")
    assert loaded.coder.length == 6
    assert loaded.device == "cpu"
    assert np.array_equal(loaded.predict_proba(digits.X), model.predict_proba(digits.X))
    probe = LinearProbe(alphas=np.logspace(0, 1, 2)).fit(digits.X, digits.y)
    probe.save(tmp_path / "probe")
    assert LinearProbe.load(tmp_path / "probe").alphas == (1.0, 10.0)


def test_a_concept_that_scores_all_images_alike_can_be_saved(digits: Data, tmp_path: Path) -> None:
    """It has no fidelity: nothing correlates with a constant."""
    X = np.hstack([digits.X, np.zeros((len(digits.X), 1))])
    rows = np.hstack([digits.concepts.embeddings, np.zeros((len(digits.concepts), 1))])
    rows[0] = np.eye(rows.shape[1])[-1]
    concepts = Concepts(digits.concepts.names, rows)
    options = {"radius": 0.1, "center": None, "dispersion": None, "weights_per_class": None, "max_iter": 1}
    model = ConceptClassifier(concepts, random_state=0, **options).fit(X, digits.y)
    assert np.isnan(model.fidelity_[0])
    model.save(tmp_path / "m")
    assert np.array_equal(ConceptClassifier.load(tmp_path / "m").fidelity_, model.fidelity_, equal_nan=True)


def test_a_model_that_could_not_be_loaded_does_not_replace_one(model: ConceptClassifier, folder: Path) -> None:
    head = LinearHead(np.full_like(model.coef_, np.inf), model.intercept_)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CCRError, match=f"so it is not saved at {folder}: the model's 'coef' holds NaN or infinity"):
        replace(model.model_, head=head).save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
