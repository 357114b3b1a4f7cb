"""`ccr evaluate`: what is mistaken for what, cross-validation that keeps groups together, and stability over refits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.controls import cross_validate, stability
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from tests.cli.conftest import as_json, run
from tests.conftest import Data


def test_confusions_precision_and_recall_agree_with_the_predictions(workspace: Path, model: Path) -> None:
    found = as_json("evaluate", model, workspace / "store", "--split", "train")
    wrong = sum(pair["images"] for pair in found["confusions"])
    assert wrong == round((1 - found["accuracy"]) * found["n"])
    assert [pair["images"] for pair in found["confusions"]] == sorted(
        (pair["images"] for pair in found["confusions"]),
        reverse=True,
    )
    assert found["recall"] == pytest.approx(found["per_class"])
    for name, precision in found["precision"].items():
        right = found["per_class"][name] * found["class_images"][name]
        stray = sum(pair["images"] for pair in found["confusions"] if pair["predicted"] == name)
        assert precision == (None if right + stray == 0 else pytest.approx(right / (right + stray)))


def test_evaluate_prints_classes_pairs_folds_and_stability(workspace: Path, model: Path) -> None:
    done = run("evaluate", model, workspace / "store", "--folds", 2, "--stability")
    text = " ".join(done.stdout.split())
    assert done.exit_code == 0
    for said in ("recall", "precision", "Cross-validation:", "of the 42 images", "Stability over 5 refits"):
        assert said in text
    assert "top-5" not in text


def test_folds_and_stability_are_in_the_json(workspace: Path, model: Path) -> None:
    found = as_json("evaluate", model, workspace / "store", "--folds", 3, "--stability")
    crossed, steady = found["cross_validation"], found["stability"]
    assert len(crossed["by_fold"]) == crossed["folds"] == 3
    low, high = crossed["interval"]
    assert 0 <= low <= crossed["accuracy"] <= high <= 1
    assert all(0 <= steady[name] <= 1 for name in ("overlap", "same_class", "lasting_claims"))


def small(data: Data) -> ConceptClassifier:
    options = {"coder": HardThreshold(length=6), "max_iter": 4, "random_state": 0}
    return ConceptClassifier(data.concepts, **options).fit(data.X[:400], data.y[:400])


def test_copies_in_other_folds_flatter_and_groups_prevent_it() -> None:
    """Labels are noise: only a copy of an image can tell its label."""
    rng = np.random.default_rng(0)
    own = unit_rows(rng.normal(size=(60, 24)))
    X, y = np.repeat(own, 6, axis=0) + rng.normal(0, 0.01, (360, 24)), np.repeat(rng.permutation(["a", "b"] * 30), 6)
    concepts = Concepts([f"c{row}" for row in range(60)], own)
    fitted = ConceptClassifier(concepts, coder=HardThreshold(length=4), weights_per_class=None).fit(X, y)
    loose = cross_validate(fitted, X, y, folds=3)
    grouped = cross_validate(fitted, X, y, groups=np.repeat(np.arange(60), 6), folds=3)
    assert loose.accuracy > 0.9
    assert grouped.accuracy < 0.7
    assert (loose.groups, grouped.groups) == (360, 60)
    assert grouped.interval.high - grouped.interval.low > loose.interval.high - loose.interval.low


def test_folds_are_refused_where_a_class_has_fewer_images(digits: Data) -> None:
    y = np.where(np.arange(400) < 2, "rare", digits.y[:400])
    with pytest.raises(CCRError, match=r"the rarest class, which is 2 \('rare'\), got 5"):
        cross_validate(small(digits), digits.X[:400], y)


def test_stability_is_lower_for_concepts_that_say_the_same(digits: Data) -> None:
    """Each concept twice, a little apart: which of the two is shown is left to chance."""
    rng = np.random.default_rng(0)
    rows = np.asarray(digits.concepts.embeddings)
    near = unit_rows(rows + 0.01 * unit_rows(rng.normal(size=rows.shape)))
    names = [*digits.concepts.names, *(f"{name} again" for name in digits.concepts.names)]
    twice, X, y = Concepts(names, np.vstack([rows, near])), digits.X[:600], digits.y[:600]
    found = {}
    for name, concepts in (("once", digits.concepts), ("twice", twice)):
        fitted = ConceptClassifier(concepts, coder=HardThreshold(length=6), max_iter=6).fit(X, y)
        found[name] = stability(fitted, X, y, digits.X_test, refits=3)
    assert 0 < found["twice"].overlap < found["once"].overlap <= 1
    assert found["once"].overlap_same_class >= found["once"].overlap
    with pytest.raises(CCRError, match="at least 2 refits"):
        stability(fitted, X, y, digits.X_test, refits=1)
