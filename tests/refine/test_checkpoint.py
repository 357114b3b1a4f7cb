"""A training that was interrupted ends as if it had not been; damaged and foreign checkpoints are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from ccr import ConceptClassifier, HardThreshold
from ccr.errors import CCRError, FormatError
from ccr.refine import Refinement, Training, refine
from ccr.refine.measure import CheckpointFolder
from tests.conftest import Data


class Interrupt(Exception):
    pass


def run(data: Data, folder: Path | None, *, stop: int = 0, **changes: object) -> Refinement:
    settings = {"engine": "sparse", "max_iter": 6, "radius": 0.2, "seed": 4, **changes}
    engine, radius = settings.pop("engine"), settings.pop("radius")

    def callback(epoch: object, epochs: int) -> None:
        if epoch.epoch == stop:  # type: ignore[attr-defined]
            raise Interrupt

    return refine(
        data.concepts, data.X, data.y, coder=HardThreshold(length=4), radius=radius, engine=engine,  # type: ignore[arg-type]
        validation=np.arange(200), training=Training(**settings), callback=callback,  # type: ignore[arg-type]
        checkpoint=None if folder is None else CheckpointFolder(folder),
    )  # fmt: skip


def assert_same(one: Refinement, two: Refinement) -> None:
    for name in ("dictionary", "weights", "bias"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert (one.rule, one.history, one.best_epoch) == (two.rule, two.history, two.best_epoch)


@pytest.mark.parametrize("engine", ["sparse", "dense"])
@pytest.mark.parametrize("optimizer", ["adaptive", "sgd"])
@pytest.mark.parametrize("radius", [0.0, 0.2])
def test_an_interrupted_training_ends_the_same_to_the_bit(
    planted: Data, tmp_path: Path, engine: str, optimizer: str, radius: float
) -> None:
    settings = {"engine": engine, "optimizer": optimizer, "radius": radius}
    whole = run(planted, None, **settings)
    for stop in (2, 3, 5):
        with pytest.raises(Interrupt):
            run(planted, tmp_path / "run", stop=stop, **settings)
    assert_same(whole, run(planted, tmp_path / "run", **settings))
    assert_same(whole, run(planted, tmp_path / "run", **settings))  # finished: nothing is left to do
    assert len(list((tmp_path / "run").iterdir())) == 2


def test_a_crash_between_the_two_files_leaves_the_epoch_before(planted: Data, tmp_path: Path) -> None:
    whole = run(planted, None)
    with pytest.raises(Interrupt):
        run(planted, tmp_path, stop=2)
    (tmp_path / "epoch-00003.safetensors").write_bytes(b"half a fi")
    (tmp_path / "progress.json.tmp").write_text("{")
    assert_same(whole, run(planted, tmp_path))


def test_an_early_stop_is_an_early_stop_after_resuming(planted: Data, tmp_path: Path) -> None:
    noise = planted._replace(y=np.random.default_rng(0).integers(0, 4, len(planted.y)))
    settings = {"max_iter": 40, "n_iter_no_change": 3, "schedule": "constant"}
    whole = run(noise, None, **settings)
    assert len(whole.history) < 40
    with pytest.raises(Interrupt):
        run(noise, tmp_path, stop=len(whole.history) - 1, **settings)
    assert_same(whole, run(noise, tmp_path, **settings))
    assert_same(whole, run(noise, tmp_path, **settings))


def test_other_runs_and_damage_are_refused(planted: Data, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(planted, folder, max_iter=2)
    for change in ({"max_iter": 3}, {"seed": 5}, {"radius": 0.3}, {"engine": "dense"}):
        with pytest.raises(CCRError, match="other data or settings"):
            run(planted, folder, **{"max_iter": 2, **change})
    with pytest.raises(CCRError, match="other data or settings"):
        run(planted._replace(X=planted.X + 1e-3), folder, max_iter=2)
    tensors = folder / "epoch-00002.safetensors"
    blob = tensors.read_bytes()
    tensors.write_bytes(blob[:-4] + b"\0\0\0\1")
    with pytest.raises(FormatError, match="checksum"):
        run(planted, folder, max_iter=2)
    tensors.unlink()
    with pytest.raises(FormatError, match="to start again"):
        run(planted, folder, max_iter=2)
    progress = folder / "progress.json"
    progress.write_text(json.dumps({**json.loads(progress.read_text()), "format_version": 99}))
    with pytest.raises(FormatError, match="another version"):
        run(planted, folder, max_iter=2)
    progress.write_text("{")
    with pytest.raises(FormatError, match="to start again"):
        run(planted, folder, max_iter=2)
    progress.write_text("{}")
    with pytest.raises(FormatError, match="not of a ccr checkpoint"):
        run(planted, folder, max_iter=2)


HOW: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "long": lambda array: np.concatenate([array, array]),
    "flat": lambda array: array.reshape(1, -1, 1),
    "of another type": lambda array: array.astype(np.int8),
    "not finite": lambda array: array * np.nan if array.dtype.kind == "f" else -1 - array,
}
PARTS = (
    "engine.dictionary engine.weights engine.weight_moment engine.steps kept.dictionary kept.weights kept.bias "
    "history best rows"
)


@pytest.mark.parametrize("how", [*HOW, "gone"])
@pytest.mark.parametrize("name", PARTS.split())
def test_arrays_that_no_epoch_of_the_run_has_are_refused(planted: Data, tmp_path: Path, name: str, how: str) -> None:
    """With the checksum that belongs to them: they ended in a traceback, or in a model that predicts NaN."""
    if (name, how) == ("engine.steps", "not finite"):
        return  # a count of steps that is negative diverges, which is said
    with pytest.raises(Interrupt):
        run(planted, tmp_path, stop=2)
    arrays = load((tmp_path / "epoch-00002.safetensors").read_bytes())
    array = arrays.pop(name)
    blob = save({**arrays, name: HOW[how](array)} if how in HOW else arrays)
    (tmp_path / "epoch-00002.safetensors").write_bytes(blob)
    changed(tmp_path / "progress.json", tensors_sha256=hashlib.sha256(blob).hexdigest())
    with pytest.raises(FormatError, match=r"must hold an epoch of the run .*: delete it to start again"):
        run(planted, tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        {"number": -5},
        {"number": 10**12},
        {"number": "x"},
        {"rule": {}},
        {"rule": {"type": "TopRule", "length": 3}},
        {"rule": {"type": "ThresholdRule", "threshold": "x"}},
        {"kept_rule": {"type": "ThresholdRule", "threshold": -1.0}},
        {"kept_rule": None},
    ],
    ids=str,
)
def test_numbers_and_rules_that_no_epoch_of_the_run_has_are_refused(
    planted: Data, tmp_path: Path, values: dict[str, Any]
) -> None:
    with pytest.raises(Interrupt):
        run(planted, tmp_path, stop=2)
    changed(tmp_path / "progress.json", **values)
    with pytest.raises(FormatError):
        run(planted, tmp_path)


def changed(path: Path, **values: Any) -> None:
    """Write a file of JSON with these entries in the place of its own."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_folders_with_other_things_are_left_alone(planted: Data, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CCRError, match="left alone"):
        run(planted, tmp_path)
    with pytest.raises(CCRError, match="is a file"):
        run(planted, tmp_path / "thesis.txt")


def test_the_classifier_resumes(digits: Data, tmp_path: Path) -> None:
    def model() -> ConceptClassifier:
        return ConceptClassifier(digits.concepts, max_iter=5, random_state=0)

    def interrupt(epoch: object, epochs: int) -> None:
        if epoch.epoch == 2:  # type: ignore[attr-defined]
            raise Interrupt

    whole = model().fit(digits.X, digits.y)
    with pytest.raises(Interrupt):
        model().fit(digits.X, digits.y, checkpoint=tmp_path / "run", callback=interrupt)
    resumed = model().fit(digits.X, digits.y, checkpoint=str(tmp_path / "run"))
    assert np.array_equal(whole.coef_, resumed.coef_)
    assert np.array_equal(whole.concepts_.embeddings, resumed.concepts_.embeddings)
    assert whole.history_ == resumed.history_


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)], ids=["none", "generator"])
def test_a_run_without_a_seed_of_its_own_is_continued(
    planted: Data, tmp_path: Path, random_state: np.random.RandomState | None
) -> None:
    """What was drawn when it began is kept with it."""
    model = ConceptClassifier(planted.concepts, coder=HardThreshold(length=4), max_iter=5, random_state=random_state)

    def stop(epoch: object, epochs: int) -> None:
        if epoch.epoch == 3:  # type: ignore[attr-defined]
            raise Interrupt

    with pytest.raises(Interrupt):
        model.fit(planted.X, planted.y, checkpoint=tmp_path / "run", callback=stop)
    seen: list[int] = []
    model.fit(planted.X, planted.y, checkpoint=tmp_path / "run", callback=lambda epoch, _: seen.append(epoch.epoch))
    assert seen == [4, 5]
    seed = json.loads((tmp_path / "run" / "seed.json").read_text())["seed"]
    again = ConceptClassifier(planted.concepts, coder=HardThreshold(length=4), max_iter=5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "seed.json").write_text(json.dumps({"seed": seed}))
    again.fit(planted.X, planted.y, checkpoint=tmp_path / "other")
    assert np.array_equal(model.coef_, again.coef_)


def test_other_validation_images_are_another_run(planted: Data, tmp_path: Path) -> None:
    model = ConceptClassifier(planted.concepts, coder=HardThreshold(length=4), max_iter=3, random_state=0)
    fit = {"validation": (planted.X[:50], planted.y[:50]), "checkpoint": tmp_path / "run"}
    model.fit(planted.X, planted.y, **fit)
    model.fit(planted.X, planted.y, **fit)
    with pytest.raises(CCRError, match="a run with other data or settings"):
        model.fit(planted.X, planted.y, **{**fit, "validation": (-planted.X[:50], planted.y[:50])})
