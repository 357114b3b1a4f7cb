"""Concepts that a sparse head gave no weight are kept beside the model: fitting it again starts from the whole list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from ccr import ConceptClassifier, ConceptModel, HardThreshold
from ccr.errors import CCRError, FormatError
from ccr.io.format import ModelFolder, load_folder, save_folder, unpack
from ccr.io.provenance import whole_list
from tests.conftest import Data


@pytest.fixture(scope="module")
def short(digits: Data) -> ConceptClassifier:
    return ConceptClassifier(digits.concepts, weights_per_class=1, max_iter=3, random_state=0).fit(digits.X, digits.y)


def as_older_versions_wrote_it(model: Path, to: Path) -> Path:
    """The same model in a folder that has the names of what was left out, and nothing else of it."""
    config, tensors = load_folder(model)
    del config["tensors_sha256"]  # written anew
    save_folder(to, ModelFolder(config, {k: v for k, v in tensors.items() if not k.startswith("left_out")}), unpack)
    return to


def test_a_loaded_model_is_fitted_again_from_the_whole_list(
    short: ConceptClassifier, digits: Data, tmp_path: Path
) -> None:
    short.save(tmp_path / "model")
    again = ConceptClassifier.load(tmp_path / "model")
    assert short.model_.provenance.left_out
    assert again.concepts == digits.concepts
    refitted = clone(again).fit(digits.X, digits.y)
    assert np.array_equal(refitted.coef_, short.coef_)
    assert np.array_equal(refitted.concepts_.embeddings, short.concepts_.embeddings)


def test_the_whole_list_follows_edits(short: ConceptClassifier, digits: Data) -> None:
    names, gone = short.concepts_.names, short.model_.provenance.left_out
    edited = short.edit().rename(names[0], "another name").suppress(names[1]).add(gone[0]).model()
    found = whole_list(edited.provenance)
    assert found is not None
    expected = {*digits.concepts.names, "another name"} - {names[0], names[1]}
    assert sorted(found.names) == sorted(expected)
    for name in expected - {"another name"}:
        row = digits.concepts.embeddings[digits.concepts.index(name)]
        assert np.array_equal(found.embeddings[found.index(name)], row)


def test_edits_down_to_one_concept_keep_the_list_whole(short: ConceptClassifier) -> None:
    session = short.edit()
    for name in short.concepts_.names[:-1]:
        session.suppress(name)
    found = whole_list(session.model().provenance)
    assert found is not None
    assert sorted(found.names) == sorted([short.concepts_.names[-1], *short.model_.provenance.left_out])


def test_what_was_left_out_comes_back_without_an_encoder(short: ConceptClassifier, digits: Data) -> None:
    gone = short.model_.provenance.left_out[-1]
    model = short.edit().add(f" {gone} ").model()
    text = digits.concepts.embeddings[digits.concepts.index(gone)]
    assert model.names[-1] == gone
    assert np.array_equal(model.concepts.embeddings[-1], short.space_.texts(text[None])[0])
    with pytest.raises(CCRError, match="needs its text embedding"):
        short.edit().add(gone, text="other words")


def test_what_comes_back_is_left_out_no_longer(short: ConceptClassifier, tmp_path: Path) -> None:
    before = short.model_.provenance
    one, *others = before.left_out
    session = short.edit().add(one)
    origin = session.model().provenance
    assert origin.left_out == tuple(others)
    assert np.array_equal(origin.left_out_texts, before.left_out_texts[1:])
    assert np.array_equal(origin.left_out_places, before.left_out_places[1:])
    assert sorted(whole_list(origin).names) == sorted(whole_list(before).names)
    for name in others:
        session.add(name)
    session.model().save(tmp_path / "model")
    loaded = ConceptModel.load(tmp_path / "model")
    assert loaded.provenance.left_out == ()
    assert whole_list(loaded.provenance).names == loaded.names
    assert session.undo(len(others) + 1).model().provenance.left_out == before.left_out


def test_a_name_changes_no_fidelity(short: ConceptClassifier) -> None:
    name = short.concepts_.names[0]
    assert np.array_equal(short.edit().rename(name, "another name").model().provenance.fidelity, short.fidelity_)
    assert short.edit().pin(name).model().provenance.fidelity is None


def test_a_model_of_an_older_version_knows_only_its_own(short: ConceptClassifier, digits: Data, tmp_path: Path) -> None:
    short.save(tmp_path / "model")
    older = ConceptClassifier.load(as_older_versions_wrote_it(tmp_path / "model", tmp_path / "older"))
    assert np.array_equal(older.predict(digits.X_test), short.predict(digits.X_test))
    assert older.model_.provenance.left_out == short.model_.provenance.left_out
    assert older.concepts == short.model_.provenance.texts
    with pytest.raises(CCRError, match="needs its text embedding"):
        older.edit().add(older.model_.provenance.left_out[0])


def test_a_model_of_an_older_version_that_kept_too_few_says_so(digits: Data, tmp_path: Path) -> None:
    model = ConceptClassifier(
        digits.concepts, coder=HardThreshold(length=20, sign="both"), weights_per_class=1, max_iter=2, random_state=0
    ).fit(digits.X, digits.y)
    assert len(model.concepts_) < 20
    model.save(tmp_path / "model")
    older = ConceptClassifier.load(as_older_versions_wrote_it(tmp_path / "model", tmp_path / "older"))
    with pytest.raises(CCRError, match=rf"length is 20, and of this model's concepts {len(model.concepts_)} were kept"):
        older.fit(digits.X, digits.y)
    older.set_params(concepts=digits.concepts).fit(digits.X, digits.y)
    assert np.array_equal(older.coef_, model.coef_)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"left_out_places": lambda places: -places - 1}, "places"),
        ({"left_out_places": lambda places: places[::-1] + np.arange(len(places))[::-1]}, "places"),
        ({"left_out_places": lambda places: places + 0.5}, "places"),
        ({"left_out_places": lambda places: places[1:]}, "places"),
        ({"left_out": lambda rows: rows[1:]}, "left_out"),
        ({"left_out": lambda rows: rows * np.nan}, "left_out"),
        ({"left_out": lambda rows: rows * 2}, "unit vectors"),
    ],
)
def test_damage_is_refused(
    short: ConceptClassifier, tmp_path: Path, damage: dict[str, Callable[[np.ndarray], np.ndarray]], named: str
) -> None:
    short.save(tmp_path / "model")
    config, tensors = load_folder(tmp_path / "model")
    del config["tensors_sha256"]  # written anew
    changed = {name: change(tensors[name]) for name, change in damage.items()}
    save_folder(tmp_path / "broken", ModelFolder(config, {**tensors, **changed}), lambda _: None)
    with pytest.raises(FormatError, match=named):
        ConceptModel.load(tmp_path / "broken")


def test_no_concept_takes_the_name_of_one_that_was_left_out(short: ConceptClassifier) -> None:
    gone = short.model_.provenance.left_out[0]
    with pytest.raises(CCRError, match="left out, and it would be lost"):
        short.edit().rename(short.concepts_.names[0], gone)


def test_sparsity_is_of_the_whole_list(short: ConceptClassifier, digits: Data) -> None:
    found = short.evaluate(digits.X_test, digits.y_test)
    assert found.sparsity == pytest.approx(found.length / len(digits.concepts))
