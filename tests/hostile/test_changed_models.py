"""A model whose parts do not fit together, checksum and all, is refused before a kernel reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from tools.fuzz.seeds import DIMENSION, make_model, make_signed_model

import ccr.runtime
from ccr import ConceptClassifier
from ccr.errors import FormatError

Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "made")


@pytest.fixture(scope="module")
def in_ball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "in_ball", radius=0.1)


def changed(
    made: Path, folder: Path, config: dict[str, Any] | None = None, change: Callable[[Tensors], Any] = id
) -> Path:
    """A copy with other entries in config.json and other tensors, and with the checksum that belongs to them."""
    tensors = load((made / "model.safetensors").read_bytes())
    change(tensors)
    blob = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    facts = {**json.loads((made / "config.json").read_text()), **(config or {})}
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(blob)
    (folder / "config.json").write_text(json.dumps({**facts, "tensors_sha256": hashlib.sha256(blob).hexdigest()}))
    return folder


def test_an_unchanged_copy_loads(made: Path, tmp_path: Path) -> None:
    ConceptClassifier.load(changed(made, tmp_path / "m")).predict(np.ones((1, DIMENSION)))


@pytest.mark.parametrize(
    "name",
    [
        "image_mean", "concept_mean", "dispersion_matrix", "metric_whiten", "metric_color", "concepts", "initial",
        "refined", "coef", "fidelity",
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["short", "long", "flat", "nan", "half", "gone"])
def test_tensors_must_have_their_shape_and_type_and_be_finite(
    made: Path, in_ball: Path, tmp_path: Path, name: str, how: str
) -> None:
    def change(tensors: Tensors) -> None:
        array = tensors.pop(name)
        ways = {"short": array[:1], "long": np.concatenate([array, array]), "flat": array.reshape(1, -1, 1)}
        ways |= {"nan": array * np.nan, "half": array.astype(np.float16)}
        tensors.update({name: ways[how]} if how in ways else {})

    if how == "gone" and name in ("image_mean", "concept_mean", "dispersion_matrix", "fidelity"):
        return  # a model may have none
    if (how, name) == ("nan", "fidelity"):
        return  # a concept that scores all images alike has none
    folder = changed(in_ball if name == "dispersion_matrix" else made, tmp_path / "m", change=change)
    with pytest.raises(FormatError, match=str(folder)):
        ConceptClassifier.load(folder)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_signed_model(tmp_path_factory.mktemp("models") / "signed")


SHOWN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "short": lambda array: array[..., :1],
    "classes and concepts exchanged": lambda array: array.swapaxes(-1, 0)[..., :2],
    "nan": lambda array: array * np.nan,
    "infinite": lambda array: array + np.inf,
    "so large that sums overflow": lambda array: np.full_like(array, 1e308),
    "integers": lambda array: array.astype(np.int32),
    "one number": lambda array: array.reshape(-1)[0],
}


@pytest.mark.parametrize("name", ["shown_by_class", "shown_intercepts", "shown_answers"])
@pytest.mark.parametrize("how", SHOWN)
def test_the_map_from_scores_to_probabilities_is_checked(signed: Path, tmp_path: Path, name: str, how: str) -> None:
    if name == "shown_answers" and how in ("nan", "infinite"):
        return  # no integers

    def change(tensors: Tensors) -> None:
        with np.errstate(invalid="ignore"):
            tensors[name] = np.asarray(SHOWN[how](tensors[name]))

    with pytest.raises(FormatError, match="save it again"):
        ConceptClassifier.load(changed(signed, tmp_path / "m", change=change))


@pytest.mark.parametrize("slopes", [0.0, -1.0])
def test_slopes_by_class_are_above_zero(signed: Path, tmp_path: Path, slopes: float) -> None:
    def change(tensors: Tensors) -> None:
        tensors["shown_by_class"][1, 0, 0] = slopes

    with pytest.raises(FormatError, match="map from scores to probabilities is damaged"):
        ConceptClassifier.load(changed(signed, tmp_path / "m", change=change))


@pytest.mark.parametrize(
    "facts",
    [{"stated": 5.0}, {"stated": 0.0}, {"slope": 1e308}, {"slope": -1.0}, {"error": 7.0}, {"source": "x"}, 3, []],
    ids=str,
)
def test_what_goes_with_the_map_is_checked(signed: Path, tmp_path: Path, facts: Any) -> None:
    known = json.loads((signed / "config.json").read_text())["shown"]
    given = {**known, **facts} if isinstance(facts, dict) else facts
    with pytest.raises(FormatError):
        ConceptClassifier.load(changed(signed, tmp_path / "m", {"shown": given}))


@pytest.mark.parametrize("forged", ["by", "digest", "may", "never", "without"])
def test_a_signature_that_was_changed_is_none(signed: Path, tmp_path: Path, forged: str) -> None:
    """Also one whose digest is that of another model: it is of the model and of all that the signature says."""
    told = json.loads((signed / "config.json").read_text())["signature"]
    change: dict[str, Any] = {"by": "somebody else", "digest": "0" * 64, "may": told["may"][1:], "without": "right"}
    change |= {"never": [told["may"][0]]}
    assert ConceptClassifier.load(signed).model_.is_signed
    if forged == "without" and told["without"] == "right":
        change["without"] = "left"
    model = ConceptClassifier.load(
        changed(signed, tmp_path / "m", {"signature": {**told, forged: change[forged]}})
    ).model_
    assert not model.is_signed


#: Changes to what a model says: of a class, of a photo, and whether it answers.
OTHER_WORDS: dict[str, dict[str, Any] | Callable[[Tensors], Any]] = {
    **{
        f"tensor {name}": lambda tensors, name=name: tensors.update({name: tensors[name] * 1.5})
        for name in ("coef", "intercept", "image_mean", "shown_intercepts", "shown_by_class", "typical")
    },
    "tensor knowledge_value": lambda tensors: tensors.update(knowledge_value=-tensors["knowledge_value"]),
    "concepts": {"concepts": list("abcd")},
    "encoder": {"encoder": "hf:another/encoder"},
    "encoder_fingerprint": {"encoder_fingerprint": "another"},
    "rule": {"rule": {"threshold": 0.2}},
    "shown": {"shown": {"stated": 0.01}},
    "slope": {"shown": {"slope": 0.1}},
    "calibration": {"calibration": {"least_probability": 0.01}},
}


@pytest.mark.parametrize("change", OTHER_WORDS)
def test_a_signature_does_not_go_over_to_a_model_that_says_something_else(
    signed: Path, tmp_path: Path, change: str
) -> None:
    """What the map of probabilities names of a photo, and who had confirmed a claim, could be changed behind it."""
    how = OTHER_WORDS[change]
    known = json.loads((signed / "config.json").read_text())
    config = {} if callable(how) else how
    config = {name: {**known[name], **part} if isinstance(part, dict) else part for name, part in config.items()}
    folder = changed(signed, tmp_path / "m", config, how if callable(how) else id)
    assert not ConceptClassifier.load(folder).model_.is_signed


CONFIGURATIONS: list[dict[str, Any]] = [
    {"classes": ["left", "left"]},
    {"classes": ["right", "left"]},
    {"classes": ["left", "right\x1b[2J"], "class_type": "<U20"},
    {"class_type": "<U1"},
    {"class_type": "|O"},
    {"class_type": "<f4"},
    {"concepts": ["a"] * 8},
    {"concepts": [f"\x9b{number}" for number in range(8)]},
    {"rule": {"type": "ThresholdRule", "threshold": -1.0}},
    {"rule": {"type": "ThresholdRule", "threshold": "0.1"}},
    {"rule": {"type": "ThresholdRule", "threshold": 0.1, "length": 0}},
    {"rule": {"type": "TopRule", "length": 9}},
    {"rule": {"type": "TopRule", "length": 2.5}},
    {"rule": {"type": "TopRule", "length": 0}},
    {"rule": {"type": "ThresholdRule", "threshold": True}},
    {"rule": {"type": "ThresholdRule", "threshold": 0.1, "positive": "no"}},
    {"rule": {"type": "ThresholdRule", "threshold": 0.1, "positive": 1}},
    {"left_out": ["a\n\n# b"]},
    {"left_out": "ab"},
    {"left_out": [3]},
    {"encoder": ["hf:x"]},
    {"encoder_fingerprint": 3},
    {"history": 3},
    {"best_epoch": "x"},
    {"parameters": []},
    {"claim_images": {"classes": [30, 30], "right": 10**400}},
    {"claim_images": {"classes": [30, 30], "right": 61}},
    {"claim_images": {"classes": [-1, 30], "right": 3}},
    {"edits": [{}]},
    {"edits": [{"action": "suppress"}]},
    {"edits": [{"action": "set_weight", "concept": "x"}]},
    {"edits": [{"action": "merge", "first": "x", "second": []}]},
    {"edits": [{"action": "add", "name": "x", "weights": 3}]},
    {"edits": [{"action": "rename", "concept": [], "to": "x"}]},
    {"edits": [{"action": "teach", "name": {}}]},
    {"edits": [{"action": "teach", "name": "x", "shows": 3.5}]},
]


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=str)
def test_configurations_that_make_no_model(made: Path, tmp_path: Path, config: dict[str, Any]) -> None:
    folder = changed(made, tmp_path / "m", config)
    with pytest.raises(FormatError, match=str(folder)):
        ConceptClassifier.load(folder)


#: What the light runtime does not read.
ELSEWHERE = {"left_out", "history", "best_epoch", "parameters"}


@pytest.mark.parametrize(
    "config",
    [
        {"concepts": list(range(8))},
        {"concepts": "abcdefgh"},
        {"concepts": ["a", " ", "c", "d", "e", "f", "g", "h"]},
        {"rule": {"type": "ThresholdRule", "threshold": 0.1, "other": 1}},
        *(config for config in CONFIGURATIONS if not ELSEWHERE & set(config)),
    ],
    ids=str,
)
def test_the_runtime_refuses_what_the_library_refuses(made: Path, tmp_path: Path, config: dict[str, Any]) -> None:
    folder = changed(made, tmp_path / "m", config)
    for load_model in (ccr.runtime.load, ConceptClassifier.load):
        with pytest.raises(FormatError, match=str(folder)):
            load_model(folder)


def test_a_wide_type_takes_no_memory(made: Path, tmp_path: Path) -> None:
    """Labels of 20 million characters each: the classes are as wide as the longest of them."""
    folder = changed(made, tmp_path / "m", {"class_type": "<U20000000"})
    known = ConceptClassifier.load(made).classes_
    for classes in (ConceptClassifier.load(folder).classes_, ccr.runtime.load(folder).classes):
        assert classes.tolist() == known.tolist()
        assert classes.dtype.itemsize == 4 * max(len(name) for name in known.tolist())


def test_a_length_that_nothing_can_have_is_only_a_wish(made: Path, tmp_path: Path) -> None:
    rule = json.loads((made / "config.json").read_text())["rule"]
    assert rule["type"] == "ThresholdRule"
    folder = changed(made, tmp_path / "m", {"rule": {**rule, "length": 1e30}})
    X = np.random.default_rng(0).normal(size=(50, ConceptClassifier.load(made).n_features_in_))
    assert np.array_equal(
        ConceptClassifier.load(folder).predict_proba(X), ConceptClassifier.load(made).predict_proba(X)
    )


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": NaN}', "3", "", "\x00", '{"format": "ccr-model"'])
def test_json_that_no_model_has(made: Path, tmp_path: Path, text: str) -> None:
    folder = changed(made, tmp_path / "m")
    (folder / "config.json").write_text(text)
    with pytest.raises(FormatError, match=r"config\.json must be the JSON of a model"):
        ConceptClassifier.load(folder)
