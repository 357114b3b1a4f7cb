"""Sweeps: grids in words, what is recommended and why, and fits that are never made twice."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr import Angular, ConceptClassifier, Concepts, HardThreshold, Symmetric
from ccr.errors import CCRError
from ccr.labels import Part, hold_out
from ccr.space import parse_dispersion
from ccr_lab.experiments.cache import RunCache, fingerprint_concepts, fingerprint_data
from ccr_lab.experiments.sweep import Axis, Outcome, Setting, SettingRun, Sweep, grid, parse_axis, run_sweep
from tests.conftest import Data

IMAGES = {"train": 200, "validation": 50, "test": 70}


def run(accuracy: float, length: float, *, seed: int = 0, fidelity: float | None = 0.9) -> SettingRun:
    measured = (accuracy, length, length, fidelity, fidelity), (1 - accuracy, length, length, fidelity, fidelity)
    return SettingRun(seed, *measured[0], *measured[1], 5.0, 0.0, 0.0, 1.0, 0.1, 3)


@st.composite
def sweeps(draw: st.DrawFn) -> Sweep:
    """Made-up outcomes on a coarse raster, so that ties in every order are common."""
    outcomes = []
    for number in range(draw(st.integers(1, 12))):
        asked = draw(st.sampled_from([None, 5.0, 10.0, 20.0]))
        setting = Setting(
            length=asked,
            threshold=0.001 * (number + 1) if asked is None else None,  # so that no two settings are the same
            radius=draw(st.sampled_from([None, 0.1, 0.2])),
            dispersion=f"symmetric:0.{number + 1}",
        )
        length = draw(st.sampled_from([4.0, 10.0, 10.1, 10.2, 10.3, 20.0]))
        fidelity = draw(st.sampled_from([None, 0.8, 0.9]))
        hits = draw(st.lists(st.integers(35, 50), min_size=1, max_size=2))
        runs = tuple(run(hit / 50, length, seed=seed, fidelity=fidelity) for seed, hit in enumerate(hits))
        outcomes.append(Outcome(setting, runs))
    return Sweep(tuple(outcomes), (), IMAGES)


def accuracy(outcome: Outcome) -> float:
    return float(np.mean([run.validation_accuracy for run in outcome.runs]))


def length(outcome: Outcome) -> float:
    return float(np.mean([run.validation_length for run in outcome.runs]))


@given(sweeps())
def test_the_front_is_what_nothing_beats(sweep: Sweep) -> None:
    def beats(one: Outcome, other: Outcome) -> bool:
        pair = (length(one), -accuracy(one)), (length(other), -accuracy(other))
        return pair[0] != pair[1] and pair[0][0] <= pair[1][0] and pair[0][1] <= pair[1][1]

    wanted = [o for o in sweep.outcomes if not any(beats(other, o) for other in sweep.outcomes)]
    front = sweep.front()
    assert {id(outcome) for outcome in front} == {id(outcome) for outcome in wanted}
    assert [length(outcome) for outcome in front] == sorted(length(outcome) for outcome in front)


@given(sweeps(), st.sampled_from([None, 4.0, 10.0, 20.0]))
def test_the_recommendation_is_the_best_on_validation(sweep: Sweep, at_most: float | None) -> None:
    allowed = [o for o in sweep.outcomes if at_most is None or length(o) <= 1.02 * at_most]
    found = sweep.recommended(at_most)
    if not allowed:
        assert found is None
        return
    assert found is not None
    for other in allowed:
        assert accuracy(found) >= accuracy(other)
        if accuracy(found) == accuracy(other):
            own, others = (outcome.runs[0].validation_fidelity or 0.0 for outcome in (found, other))
            assert own >= others
            if own == others:
                assert length(found) <= length(other)


def test_test_accuracy_chooses_nothing() -> None:
    made = [Outcome(Setting(length=5.0, radius=0.0), (run(0.9, 5.0),)), Outcome(Setting(length=9.0), (run(0.5, 9.0),))]
    sweep = Sweep(tuple(made), (), IMAGES)
    assert made[1].mean("test_accuracy") > made[0].mean("test_accuracy")
    assert sweep.recommended() is sweep.ranked()[0] is made[0]


def test_axes_and_grids() -> None:
    assert parse_axis(" length = 5, 10 ") == Axis("length", (5.0, 10.0))
    assert parse_axis("dispersion=none,angular,symmetric:.90,symmetric:1").values == (
        "none",
        "angular",
        "symmetric:0.9",
        "symmetric",
    )
    made = grid([parse_axis("radius=0,0.1"), parse_axis("center=none,data")])
    assert [(s.length, s.radius, s.center) for s in made] == [
        (12, 0, "none"),
        (12, 0, "data"),
        (12, 0.1, "none"),
        (12, 0.1, "data"),
    ]
    threshold = grid([parse_axis("threshold=0.1"), parse_axis("center=none")])[0]
    assert (threshold.length, threshold.threshold, threshold.center) == (None, 0.1, "none")
    assert threshold.name == "threshold 0.1, center none"  # the rest is the classifier's own


def test_fidelity_and_radius_are_alternatives() -> None:
    axes = [parse_axis("fidelity=0.9,1"), parse_axis("weights=3,all"), parse_axis("radius=0.1")]
    made = grid(axes)
    assert [(s.fidelity, s.radius, s.weights) for s in made] == [
        (0.9, None, 3), (0.9, None, "all"), (1.0, None, 3), (1.0, None, "all"), (None, 0.1, 3), (None, 0.1, "all")
    ]  # fmt: skip
    few, every = made[0].parameters(), made[1].parameters()
    assert (few["fidelity"], few["weights_per_class"], every["weights_per_class"]) == (0.9, 3, None)
    assert "radius" not in few
    assert "weights_per_class" not in grid(axes[:1])[0].parameters()
    assert shlex.join(made[0].arguments()) == "--length 12 --fidelity 0.9 --weights 3 --center"
    assert "--weights all" in shlex.join(made[1].arguments())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("length", "NAME=VALUE"),
        ("width=3", "length, threshold, fidelity, radius, weights, dispersion, center, sign, got 'width=3'"),
        ("=3", "NAME one of"),
        ("length=", "every value"),
        ("length=5,,10", "every value"),
        ("length=5,5.0", "once"),
        ("dispersion=symmetric,symmetric:1", "once"),
        ("length=ten", "length must be a number >= 1, got 'ten'"),
        ("length=0.5", "length must be a number >= 1, got '0.5'"),
        ("length=inf", "got 'inf'"),
        ("radius=-0.1", r"in \[0, 2\], got '-0.1'"),
        ("radius=2.1", r"in \[0, 2\], got '2.1'"),
        ("radius=nan", "got 'nan'"),
        ("fidelity=1.1", r"in \[0, 1\], got '1.1'"),
        ("weights=0", "per class >= 1, or all, got '0'"),
        ("weights=2.5", "per class >= 1, or all, got '2.5'"),
        ("weights=some", "per class >= 1, or all, got 'some'"),
        ("threshold=-1", ">= 0, got '-1'"),
        ("dispersion=wild", "got 'wild'"),
        ("dispersion=none:3", "got 'none:3'"),
        ("dispersion=symmetric:", "got 'symmetric:'"),
        ("dispersion=symmetric:1.5", "strength in"),
        ("dispersion=angular:wide", "got 'angular:wide'"),
        ("center=middle", "none or data, got 'middle'"),
        ("sign=negative", "both or positive, got 'negative'"),
    ],
)
def test_a_bad_axis_is_refused_with_its_remedy(text: str, said: str) -> None:
    with pytest.raises(CCRError, match=said):
        parse_axis(text)


def test_bad_grids_are_refused() -> None:
    with pytest.raises(CCRError, match="at least one axis"):
        grid([])
    with pytest.raises(CCRError, match="got radius 2 times"):
        grid([parse_axis("radius=0"), parse_axis("radius=0.1")])
    with pytest.raises(CCRError, match="got both"):
        grid([parse_axis("length=5"), parse_axis("threshold=0.1")])


def test_a_setting_is_the_same_in_python_and_for_the_shell() -> None:
    assert parse_dispersion("none") is None
    setting = Setting(length=7.5, radius=0.123456789, dispersion="angular:1.25", center="none")
    parameters = setting.parameters()
    assert isinstance(parameters["coder"], HardThreshold)
    assert isinstance(parameters["dispersion"], Angular)
    assert (parameters["coder"].length, parameters["radius"], parameters["dispersion"].factor) == (
        7.5,
        0.123456789,
        1.25,
    )
    assert shlex.join(setting.arguments()) == "--length 7.5 --radius 0.123456789 --dispersion angular:1.25 --no-center"
    other = Setting(threshold=0.2, dispersion="symmetric")
    strength = other.parameters()["dispersion"]
    assert isinstance(strength, Symmetric)
    assert strength.strength == 1.0
    assert other.arguments()[:2] == ["--threshold", "0.2"]
    assert other.arguments()[-1] == "--center"
    one_sided = grid([parse_axis("sign=both,positive")])[1]
    assert "--sign positive" in shlex.join(one_sided.arguments())
    assert one_sided.parameters()["coder"].sign == "positive"


@pytest.fixture(scope="module")
def parts(digits: Data) -> dict[str, Part]:
    train, val = hold_out(Part(digits.X[:400], digits.y[:400]))
    return {"train": train, "val": val, "test": Part(digits.X_test[:300], digits.y_test[:300])}


OPTIONS = {"max_iter": 2}


def test_the_held_out_images_are_a_part_of_every_class_and_always_the_same(digits: Data) -> None:
    whole = Part(np.arange(1160)[:, None], digits.y)
    train, val = hold_out(whole)
    assert sorted([*train.X[:, 0], *val.X[:, 0]]) == list(range(1160))
    for label in np.unique(digits.y):
        assert np.sum(val.y == label) == pytest.approx(0.1 * np.sum(digits.y == label), abs=1)
    assert np.array_equal(digits.y[val.X[:, 0]], val.y)
    assert np.array_equal(hold_out(whole)[1].X, val.X)
    with pytest.raises(CCRError, match="too few to hold some out"):
        hold_out(Part(np.eye(2), np.array([0, 1])))


def test_measures_are_those_of_the_model_itself(digits: Data, parts: dict[str, Part]) -> None:
    setting = Setting(length=6.0, radius=0.2, dispersion="none")
    found = run_sweep(digits.concepts, **parts, settings=[setting], options=OPTIONS, seeds=(3, 4))
    for seed, run in zip((3, 4), found.outcomes[0].runs, strict=True):
        model = ConceptClassifier(
            digits.concepts, coder=HardThreshold(length=6), radius=0.2, dispersion=None, max_iter=2, random_state=seed
        ).fit(*parts["train"], validation=parts["val"])
        validation, test = model.evaluate(*parts["val"]), model.evaluate(*parts["test"])
        assert (run.seed, run.validation_accuracy, run.test_accuracy) == (seed, validation.accuracy, test.accuracy)
        assert (run.validation_length, run.test_length) == (validation.length, test.length)
        assert (run.validation_in_play, run.test_in_play) == (validation.in_play, test.in_play)
        assert (run.validation_fidelity, run.validation_min_fidelity) == validation.fidelity
        assert (run.test_fidelity, run.test_min_fidelity) == test.fidelity
        assert run.weights_per_class == test.weights_per_class
        assert (run.mean_deviation, run.max_deviation) == test.deviation
        assert (run.retention, run.epochs) == (test.retention, 2)
    summary = found.outcomes[0].summary()["test_accuracy"]
    ends = sorted(run.test_accuracy for run in found.outcomes[0].runs)
    assert (summary["min"], summary["max"]) == (ends[0], ends[1])
    assert summary["mean"] == pytest.approx(sum(ends) / 2)
    assert found.images == {"train": len(parts["train"].y), "validation": len(parts["val"].y), "test": 300}


def test_a_failing_setting_is_listed_and_the_others_stay(digits: Data, parts: dict[str, Part]) -> None:
    told: list[tuple[int, int, str]] = []
    settings = grid([parse_axis("length=5,500"), parse_axis("radius=0,0.1")])
    found = run_sweep(
        digits.concepts, **parts, settings=settings, options=OPTIONS, tell=lambda *what: told.append(what)
    )
    assert [outcome.setting for outcome in found.outcomes] == settings[:2]
    assert [failure.setting for failure in found.failures] == settings[2:]
    assert "number of concepts, 40, got 500" in found.failures[0].reason
    assert found.varied() == ["length", "radius"]
    rows = found.rows()
    assert [row["length"] for row in rows] == [5, 5, 500, 500]
    assert all((row["error"] is None) == (row["length"] == 5) for row in rows)
    assert json.loads(json.dumps(found.to_dict()))["failed"][0]["error"] == found.failures[0].reason
    assert {total for _, total, _ in told} == {4}
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert told[-1] == (4, 4, "done")


class Refitted(Exception):
    """A fit that should have been remembered."""


def refuse(*_: Any, **__: Any) -> None:
    raise Refitted


def test_a_finished_fit_is_found_again_by_its_content(
    digits: Data, parts: dict[str, Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = grid([parse_axis("length=4,6")])
    work: dict[str, Any] = {**parts, "settings": settings, "options": OPTIONS, "cache": RunCache(tmp_path / "runs")}
    first = run_sweep(digits.concepts, **work, seeds=(0, 1))
    assert len(list((tmp_path / "runs").iterdir())) == 4
    monkeypatch.setattr(ConceptClassifier, "fit", refuse)
    assert run_sweep(digits.concepts, **work, seeds=(0, 1)).to_dict() == first.to_dict()

    names = list(digits.concepts.names)
    renamed = Concepts(["another", *names[1:]], digits.concepts.embeddings)
    moved = Concepts(names, np.roll(digits.concepts.embeddings, 1, axis=0))
    train, val, test = parts["train"], parts["val"], parts["test"]
    labels = train.y.copy()
    labels[0] = next(label for label in train.y if label != labels[0])
    changes: list[tuple[Concepts, dict[str, Any]]] = [
        (renamed, {}),
        (moved, {}),
        (digits.concepts, {"train": Part(train.X, labels)}),
        (digits.concepts, {"train": Part(train.X * np.linspace(1, 2, train.X.shape[1]), train.y)}),
        (digits.concepts, {"val": Part(val.X[1:], val.y[1:])}),
        (digits.concepts, {"test": Part(test.X[1:], test.y[1:])}),
        (digits.concepts, {"options": {"max_iter": 3}}),
        (digits.concepts, {"seeds": (2,)}),
        (digits.concepts, {"settings": grid([parse_axis("length=5")])}),
        (digits.concepts, {"settings": grid([parse_axis("length=4"), parse_axis("center=none")])}),
    ]
    for concepts, change in changes:
        with pytest.raises(Refitted):
            run_sweep(concepts, **{**work, **change})


def test_another_version_of_the_library_fits_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RunCache(tmp_path)
    cache.put({"seed": 1}, {"accuracy": 0.5})
    assert cache.get({"seed": 1}) == {"accuracy": 0.5}
    monkeypatch.setattr("ccr_lab.experiments.cache.__version__", "another")
    assert cache.get({"seed": 1}) is None


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"key": {}, "value": 3}'])
def test_a_damaged_run_is_made_again(tmp_path: Path, damage: bytes) -> None:
    cache = RunCache(tmp_path / "runs")
    assert cache.get({"a": 1}) is None
    cache.put({"a": 1}, {"b": [1, 2]})
    (file,) = (tmp_path / "runs").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage)
    assert cache.get({"a": 1}) is None
    file.write_bytes(whole.replace(b"[1, 2]", b"[1, 3]"))
    assert cache.get({"a": 1}) is None
    cache.put({"a": 1}, {"b": [1, 2]})
    assert cache.get({"a": 1}) == {"b": [1, 2]}
    assert list((tmp_path / "runs").iterdir()) == [file]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "runs")
    with pytest.raises(ValueError, match="JSON compliant"):
        cache.put({"a": 1}, {"b": math.nan})
    assert not (tmp_path / "runs").exists()
    (tmp_path / "file").write_text("here already")
    with pytest.raises(CCRError, match="choose another folder"):
        RunCache(tmp_path / "file").put({"a": 1}, {})
    RunCache(None).put({"a": 1}, {})
    assert RunCache(None).get({"a": 1}) is None


def test_fingerprints_are_of_content_not_of_form(digits: Data, tmp_path: Path) -> None:
    X, y = digits.X[:300].astype(np.float32), digits.y[:300]
    np.save(tmp_path / "x.npy", X)
    told = fingerprint_data(X, y)
    assert fingerprint_data(np.load(tmp_path / "x.npy", mmap_mode="r"), y.tolist()) == told
    assert fingerprint_data(np.asfortranarray(X.astype(np.float64)), y) == told
    others = [(X[::-1], y), (X, y[::-1]), (X.reshape(600, -1), np.repeat(y, 2)), (X[:-1], y[:-1])]
    assert len({told, *(fingerprint_data(*other) for other in others)}) == 5
    assert fingerprint_data(X, np.arange(300)) != fingerprint_data(X, np.arange(300).astype(str))
    same = Concepts(digits.concepts.names, digits.concepts.embeddings)
    assert fingerprint_concepts(same) == fingerprint_concepts(digits.concepts)
    assert fingerprint_concepts(same.subset([1, 0])) != fingerprint_concepts(same.subset([0, 1]))
