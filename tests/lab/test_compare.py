"""Comparisons: every method on one task, honest intervals, nothing lost, nothing done twice."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ccr import Concepts
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.knowledge import Knowledge
from ccr.labels import Part
from ccr.metrics import Interval
from ccr.refine.region import PAPER_RADIUS
from ccr_lab.experiments.cache import RunCache
from ccr_lab.experiments.compare import run_comparison, summarise
from ccr_lab.experiments.methods import (
    INFORMED,
    METHODS,
    PENALTIES,
    Method,
    all_methods,
    converged_head,
    methods_named,
    with_controls,
)
from ccr_lab.experiments.runs import MethodRun, resource_usage, run_method
from ccr_lab.experiments.table import as_csv, markdown
from ccr_lab.experiments.task import ComparisonTask
from ccr_lab.plots import experiment_plots
from tests.conftest import Data

QUICK = ("ccr", "baseline", "ip-omp", "probe")


def test_candidates_are_passed_on_and_said(task: ComparisonTask) -> None:
    asked = replace(task, weights=3, candidates=2.0)
    assert asked.settings["candidates"] == 2.0
    assert "3 weights per class, chosen among 2 times as many" in asked.described
    assert "candidates" not in task.settings


def test_least_probabilities_are_for_those_that_know_something(task: ComparisonTask, table: Knowledge) -> None:
    asked = replace(task, knowledge=table, min_probability=0.4)
    assert asked.informed == {"knowledge": table, "claims": "open", "min_probability": 0.4}
    assert replace(asked, knowledge=None).informed == {}
    names = ["ccr", "ccr-without", "ccr-ball", "ip-omp"]  # the ball has codes of both signs, which have no probability
    found = run_comparison(replace(asked, max_iter=2), methods_named(names), seeds=(0,))
    assert not found.failures
    plain = run_comparison(replace(asked, max_iter=2, min_probability=None), methods_named(names[:2]), seeds=(0,))
    assert found.row("ccr").length != plain.row("ccr").length
    assert found.row("ccr-without").accuracy == plain.row("ccr-without").accuracy


@pytest.fixture(scope="module")
def task(digits: Data) -> ComparisonTask:
    rng = np.random.default_rng(0)
    classes = sorted(set(digits.y.tolist()))
    means = np.array([digits.X[digits.y == name].mean(axis=0) for name in classes])
    words = Concepts([f"word {row}" for row in range(40)], rng.normal(size=(40, 64)))
    return ComparisonTask(
        digits.concepts,
        train=Part(digits.X[:600], digits.y[:600]),
        test=Part(digits.X_test[:300], digits.y_test[:300]),
        length=6,
        max_iter=8,
        class_texts=Concepts(classes, means),
        random_words=words,
    )


@pytest.fixture(scope="module")
def whole(task: ComparisonTask) -> Any:
    return run_comparison(task, METHODS, seeds=(0, 1))


def test_every_method_runs_at_the_asked_length(whole: Any, task: ComparisonTask) -> None:
    assert not whole.failures
    assert [row.method for row in whole.rows] == [method.name for method in METHODS]
    for row in whole.rows:
        assert row.worst <= row.accuracy <= row.best
        assert row.interval.low <= row.accuracy <= row.interval.high
        assert row.accuracy > 0.3, row  # ten classes: all are far from guessing
        assert row.fit_seconds > 0
        assert row.encode_seconds > 0
        if row.method in ("probe", "zero-shot"):
            assert row.length is None
            assert row.nec is None
        else:
            assert row.length == pytest.approx(6, rel=0.1), row
            assert row.sparsity == pytest.approx(row.length / 40)
            assert row.in_play >= row.length - 1e-9
            assert row.accuracy_at is not None
            assert len(row.accuracy_at) == 30


def test_what_each_row_says_about_fidelity_and_weights(whole: Any) -> None:
    for row in whole.rows:
        if row.method in ("probe", "zero-shot"):
            assert row.weights_per_class is None
        else:
            assert 0 < row.weights_per_class <= 40
        if row.method in ("probe", "zero-shot", "label-free"):
            assert row.fidelity is row.min_fidelity is None
        else:
            assert row.min_fidelity <= row.fidelity <= 1 + 1e-6
    # Concepts that neither moved nor were dispersed see what their texts see.
    assert whole.row("baseline-none").min_fidelity == pytest.approx(1.0, abs=1e-3)
    assert whole.row("ccr-none").fidelity > whole.row("ccr-unbound").fidelity


def test_the_meaning_gap_is_paired_and_against_each_control(whole: Any, task: ComparisonTask) -> None:
    gaps = {gap.control: gap for gap in whole.meaning_gaps}
    assert list(gaps) == ["random-words", "random-vectors"]
    for name, gap in gaps.items():
        right = {
            method: np.mean([run.correct() for run in whole.runs if run.method == method], axis=0)
            for method in ("ccr", name)
        }
        each = right["ccr"] - right[name]
        assert gap.gap == pytest.approx(each.mean())
        assert gap.interval.low <= gap.gap <= gap.interval.high
        # The normal interval of the paired differences, which the bootstrap is near.
        half = 1.96 * each.std() / np.sqrt(len(each))
        assert gap.interval == pytest.approx((gap.gap - half, gap.gap + half), abs=0.3 * half)
        assert f"{100 * gap.gap:+.1f} points" in markdown(whole)
    assert [gap["control"] for gap in json.loads(json.dumps(whole.to_dict()))["meaning_gaps"]] == list(gaps)
    alone = summarise(whole.runs, (), methods_named(["baseline", "random-words"]), task)
    assert alone.meaning_gaps == ()


def test_fidelity_and_weights_hold_for_ccr_its_baseline_and_its_controls(task: ComparisonTask) -> None:
    asked = replace(task, fidelity=0.9, weights=3)
    names = ("ccr", "baseline", "ccr-ball", "random-words", "random-vectors")
    found = run_comparison(asked, methods_named(names), seeds=(0,))
    assert not found.failures
    assert found.settings == "fidelity 0.9, 3 weights per class"
    assert all(found.row(name).weights_per_class <= 3 for name in names if name != "ccr-ball")
    assert found.row("ccr-ball").weights_per_class > 3  # as in the paper: all
    assert all(found.row(name).fidelity > 0.85 for name in names if name != "ccr-ball")
    assert found.row("baseline").fidelity == pytest.approx(1.0, abs=1e-3)
    assert found.row("ccr-ball").max_deviation <= PAPER_RADIUS + 1e-6


def test_a_ball_is_not_compared_with_itself(task: ComparisonTask) -> None:
    def names(of: ComparisonTask) -> list[str]:
        return [method.name for method in all_methods(of)]

    assert "ccr-ball" not in names(replace(task, radius=0.2))
    assert "ccr-ball" in names(replace(task, fidelity=0.9))
    assert with_controls(["probe", "ccr"]) == ["probe", "ccr", "random-words", "random-vectors"]
    assert with_controls(["probe"]) == ["probe"]


def test_what_each_row_says_about_moving(whole: Any) -> None:
    for name in ("baseline", "ip-omp", "omp", "splice"):
        assert whole.row(name).deviation == 0.0
        assert whole.row(name).retention == 1.0
    ball = whole.row("ccr-ball")
    assert 0 < ball.deviation <= ball.max_deviation <= PAPER_RADIUS + 1e-6
    assert whole.row("ccr-unbound").max_deviation > PAPER_RADIUS
    assert whole.row("label-free").deviation is None


def test_a_run_is_what_predict_says(task: ComparisonTask) -> None:
    """The bits of a run against scikit-learn's head on the same codes with the penalty that was chosen."""
    method = methods_named(["ip-omp"])[0]
    run = run_method(method, task, 0)
    train, validation = task.split(0)
    model = method.fit(task, train, validation, 0).model
    penalty = run.chosen["penalty"] or 3.0
    codes = model.transform(train.X)
    size = float(np.mean(codes.data.astype(np.float64) ** 2))
    oracle = LogisticRegression(C=1.0 / (penalty * size), max_iter=5000, tol=1e-8).fit(codes, train.y)
    agree = oracle.predict(model.transform(task.test.X)) == task.test.y
    assert np.mean(agree == run.correct()) > 0.99
    assert run.correct().mean() == run.accuracy
    assert len(run.correct()) == len(task.test.y)


def test_runs_survive_json(whole: Any) -> None:
    for run in whole.runs:
        assert MethodRun.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_the_last_cut_is_no_cut(whole: Any) -> None:
    for row in whole.rows:
        if row.accuracy_at is not None:
            # Thirty contributions are all that a code of six has; codes of single images may be longer.
            assert row.accuracy_at[-1] == pytest.approx(row.accuracy, abs=0.02), row.method


def test_one_failure_does_not_lose_the_others(task: ComparisonTask) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("on purpose")

    refused = Method("refused", "refused", "others", lambda *_: (_ for _ in ()).throw(CCRError("no such thing")))
    found = run_comparison(
        task, [Method("broken", "broken", "others", broken), refused, *methods_named(["baseline"])], seeds=(0,)
    )
    assert [row.method for row in found.rows] == ["baseline"]
    assert {failure.method: failure.reason for failure in found.failures} == {
        "broken": "ValueError: on purpose",
        "refused": "no such thing",
    }
    assert "on purpose" in markdown(found)
    with pytest.raises(CCRError, match=r"no method could be run.*on purpose"):
        run_comparison(task, [Method("broken", "broken", "others", broken)], seeds=(0,))


def test_finished_runs_are_not_run_again(task: ComparisonTask, tmp_path: Any) -> None:
    task, methods = replace(task, max_iter=2), methods_named(QUICK)
    first = run_comparison(task, methods, seeds=(0,), cache=RunCache(tmp_path))

    def never(*_: object) -> Any:
        raise AssertionError("run again")

    guarded = [replace(method, fit=never) for method in methods]
    second = run_comparison(task, guarded, seeds=(0,), cache=RunCache(tmp_path))
    assert second.to_dict() == first.to_dict()
    other = run_comparison(
        replace(task, length=5), guarded[:1] + list(methods[1:2]), seeds=(0,), cache=RunCache(tmp_path)
    )
    assert [failure.method for failure in other.failures] == ["ccr"]  # another length is another run


def test_a_converged_head_is_the_best_on_validation(task: ComparisonTask) -> None:
    rng = np.random.default_rng(3)
    codes, y = rng.normal(size=(300, 8)), rng.integers(0, 3, 300)
    y[codes[:, 0] > 0.5] = 2
    own = LinearHead(np.zeros((3, 8), np.float32), np.array([1.0, 0, 0], np.float32))
    held = Part(rng.normal(size=(200, 8)), np.zeros(200, int))
    held.y[held.X[:, 0] > 0.5] = 2
    found = converged_head(codes, y, held, classes=3, trained=own)
    size = float(np.mean(codes**2))
    oracle = {None: float(np.mean(held.y == 0))}
    for penalty in PENALTIES:
        head = LogisticRegression(C=1.0 / (penalty * size), max_iter=5000, tol=1e-9).fit(codes, y)
        oracle[penalty] = head.score(held.X, held.y)
    assert found.accuracy == pytest.approx(max(oracle.values()), abs=0.011)
    assert oracle[found.penalty] == pytest.approx(max(oracle.values()), abs=0.011)


def test_tables_say_what_was_found(whole: Any) -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(whole))))
    assert [line["method"] for line in lines] == [row.method for row in whole.rows]
    assert float(lines[0]["accuracy"]) == whole.rows[0].accuracy
    assert lines[[row.method for row in whole.rows].index("probe")]["length"] == ""
    text = markdown(whole)
    assert text.count("| CCR |") == 5
    first = text.split("\n\n")[0].splitlines()
    assert first[0] == "| method | accuracy, % (95 % interval) | concepts in play | seconds |"  # no table of knowledge
    assert "shown true" not in text
    assert f"{100 * whole.rows[0].accuracy:.1f}" in text


def test_a_method_that_predicts_the_same_is_no_reference_and_zero_has_no_minus(
    whole: Any, task: ComparisonTask
) -> None:
    ccr = [run for run in whole.runs if run.method == "ccr"]
    twins = [replace(run, method="random-words") for run in ccr]
    found = summarise([*ccr, *twins], (), methods_named(["ccr", "random-words"]), task)
    table, _, seeds, *_ = (part.splitlines() for part in markdown(found).split("\n\n"))
    (same,) = table[2:]
    assert same.startswith("| CCR = CCR, random words |")  # one row for both, in the first table
    first, second = ([cell.strip() for cell in line.split("|")] for line in seeds[2:])
    assert first[3:5] == ["-", "-"]
    assert second[3:5] == ["+0.0", "0.0 to 0.0"]
    assert [row["same_as"] for row in found.to_dict()["methods"]] == [None, "ccr"]
    assert "+0.0 points (0.0 to 0.0)" in markdown(found)
    assert "-0.0" not in json.dumps(found.to_dict()["meaning_gaps"])
    tiny = replace(found.rows[1], difference=-1e-6, apart=Interval(-1e-6, 0.2))
    assert "| +0.0 | 0.0 to 20.0 |" in markdown(replace(found, rows=(found.rows[0], tiny)))


def test_no_accuracy_above_100_percent_is_on_the_axis(whole: Any) -> None:
    (axes,) = experiment_plots.accuracies(whole).axes
    shown = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    assert len(shown) >= 2
    assert max(shown) <= 100 < axes.get_xlim()[1]  # there is room for numbers beyond it


def test_seeds_hold_out_other_images_but_never_all_of_a_class(task: ComparisonTask) -> None:
    first, second = task.split(0)[1], task.split(1)[1]
    assert not np.array_equal(first.X, second.X)
    for seed in range(3):
        train, held = task.split(seed)
        assert len(train.y) + len(held.y) == len(task.train.y)
        assert set(train.y) == set(task.train.y)
    kept = replace(task, validation=Part(task.test.X[:50], task.test.y[:50]))
    assert kept.split(0)[0] is task.train
    assert kept.split(1)[1] is kept.validation


def test_memory_and_time_of_a_block() -> None:
    with resource_usage() as usage:
        held = np.ones(30_000_000)  # 240 MB
        held[::512] += 1
        del held
    assert usage.seconds > 0
    assert usage.memory is None or usage.memory > 200_000_000


def test_bad_tasks_are_refused(task: ComparisonTask) -> None:
    with pytest.raises(CCRError, match="length from 1 to the number of concepts, 40, got 50"):
        replace(task, length=50)
    with pytest.raises(CCRError, match="give a fidelity or a radius"):
        replace(task, fidelity=0.9, radius=0.1)
    with pytest.raises(CCRError, match="class that the training images have not: 'digit 99'"):
        replace(task, test=Part(task.test.X, np.full(len(task.test.y), "digit 99")))
    with pytest.raises(CCRError, match="no method 'lasso'"):
        methods_named(["lasso"])
    with pytest.raises(CCRError, match="needs a method and a seed"):
        run_comparison(task, [], seeds=(0,))
    bare = replace(task, class_texts=None, random_words=None)
    found = run_comparison(bare, methods_named(["baseline", "zero-shot", "random-words"]), seeds=(0,))
    assert [failure.method for failure in found.failures] == ["zero-shot", "random-words"]


def test_two_classes_and_more_concepts_than_dimensions(digits: Data) -> None:
    rows, test = np.isin(digits.y, ("digit 0", "digit 1")), np.isin(digits.y_test, ("digit 0", "digit 1"))
    many = Concepts([f"stroke {row}" for row in range(80)], digits.X[:80] + 0.01)
    task = ComparisonTask(
        many, Part(digits.X[rows], digits.y[rows]), Part(digits.X_test[test], digits.y_test[test]), length=4
    )
    task = replace(task, weights="all")  # a few concepts of two classes leave many images without a code
    names = ("ccr", "baseline", "ip-omp", "omp", "label-free", "splice", "probe", "random-vectors")
    found = run_comparison(replace(task, max_iter=5), methods_named(names), seeds=(0,))
    assert not found.failures
    assert all(row.accuracy > 0.8 for row in found.rows)


@pytest.mark.filterwarnings("ignore::ccr.errors.CCRWarning")  # codes that are empty
@pytest.mark.parametrize("center", ["data", None])
def test_constant_images_give_the_largest_class_and_one_concept_a_clear_word(center: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 8)), np.where(np.arange(120) % 3 == 0, "a", "b")
    y_seen = np.where(X[:, 0] > 0, "a", "b")
    few = Concepts([f"concept {row}" for row in range(5)], rng.normal(size=(5, 8)))
    methods = methods_named(("ccr", "baseline", "ip-omp", "omp", "label-free", "splice", "probe"))
    options = {"center": center, "max_iter": 3, "radius": 0.1 if center is None else None}
    same = ComparisonTask(few, Part(np.ones((80, 8)), y[:80]), Part(np.ones((40, 8)), y[80:]), length=2, **options)
    found = run_comparison(same, methods, seeds=(0,))
    assert {row.accuracy for row in found.rows} == {float(np.mean(y[80:] == "b"))}
    assert not found.failures
    one = Concepts(["the only one"], np.eye(8)[:1])
    alone = ComparisonTask(one, Part(X[:80], y_seen[:80]), Part(X[80:], y_seen[80:]), length=1, **options)
    found = run_comparison(alone, methods, seeds=(0,))
    # Measured from their mean, a single concept has no direction; SpLiCE always measures so.
    lost = {"splice"} if center is None else {"ccr", "baseline", "ip-omp", "omp", "label-free", "splice"}
    assert {failure.method for failure in found.failures} == lost
    assert all("mean itself" in failure.reason for failure in found.failures)
    assert all(row.accuracy > 0.9 for row in found.rows if row.method != "probe")


@pytest.fixture(scope="module")
def table(digits: Data) -> Knowledge:
    """Which class shows which stroke: yes where its images have the highest scores, no where they have the lowest."""
    classes = sorted(set(digits.y.tolist()))
    scores = digits.X @ digits.concepts.embeddings.T
    means = np.array([scores[digits.y == name].mean(axis=0) for name in classes])
    ranks = means.argsort(axis=0).argsort(axis=0)
    return Knowledge(classes, digits.concepts.names, np.where(ranks >= 6, 1, np.where(ranks < 4, -1, 0)))


@pytest.mark.parametrize(("claims", "weights"), [("open", None), ("confirmed", "all")])
@pytest.mark.parametrize("name", INFORMED)
def test_no_method_has_a_weight_that_the_table_forbids(
    name: str, claims: Any, weights: Any, task: ComparisonTask, table: Knowledge
) -> None:
    told = replace(task, knowledge=table, claims=claims, weights=weights, max_iter=3)
    allowed = table.table == 1 if claims == "confirmed" else table.table != -1
    mixed = table.shuffled(0).table
    mixed_up = mixed == 1 if claims == "confirmed" else mixed != -1
    for asked, permitted in ((name, allowed), (f"{name}-shuffled", mixed_up)):
        found = methods_named([asked])[0].fit(told, *told.split(0), 0)
        columns = [table.concepts.index(concept) for concept in found.model.model_.names]
        used = found.head.coef != 0
        assert used.any()
        assert not (used & ~permitted[:, columns]).any(), asked
        # With another table it uses what this one forbids.
        assert permitted is not mixed_up or (used & ~allowed[:, columns]).any()


def test_knowledge_stands_beside_its_controls(task: ComparisonTask, table: Knowledge) -> None:
    told = replace(task, knowledge=table, claims="confirmed", max_iter=3)
    names = with_controls(["baseline", "ip-omp", "probe"], knowledge=True)
    assert names == [
        "baseline", "ip-omp", "probe", "baseline-without", "baseline-shuffled", "ip-omp-without", "ip-omp-shuffled"
    ]  # fmt: skip
    found = run_comparison(told, methods_named(names), seeds=(0,))
    assert not found.failures
    # Each control behind its method.
    assert [row.method for row in found.rows][:3] == ["baseline", "baseline-without", "baseline-shuffled"]
    for gain in found.knowledge_gains:
        with_, without, mixed = (found.row(gain.method + ending) for ending in ("", "-without", "-shuffled"))
        assert gain.gain == pytest.approx(with_.accuracy - without.accuracy)
        assert gain.shuffled == pytest.approx(mixed.accuracy - without.accuracy)
        assert gain.interval.low <= gain.gain <= gain.interval.high
        assert with_.truth > 0.95  # a confirmed claim is false only where the prediction is wrong
        assert 0 < mixed.truth < with_.truth
    assert [gain.method for gain in found.knowledge_gains] == ["baseline", "ip-omp"]
    assert found.row("probe").truth is None
    text = markdown(found)
    assert "shown true, %" in text.splitlines()[0]
    assert "shown true: " in text
    assert "points" in next(line for line in text.splitlines() if line.startswith("Knowledge is worth"))
    facts = json.loads(json.dumps(found.to_dict()))
    assert [gain["method"] for gain in facts["knowledge_gains"]] == ["baseline", "ip-omp"]
    refused = run_comparison(task, methods_named(["probe", "ccr-shuffled"]), seeds=(0,))
    assert "give --knowledge" in refused.failures[0].reason


def test_stand_ins_which_know_nothing_are_compared_with_ccr_that_knows_nothing(
    task: ComparisonTask, table: Knowledge
) -> None:
    names = with_controls(["ccr"], knowledge=True)
    found = run_comparison(replace(task, knowledge=table, max_iter=3), methods_named(names), seeds=(0,))
    for gap in found.meaning_gaps:
        apart = found.right("ccr-without") - found.right(gap.control)
        assert gap.gap == pytest.approx(apart.mean())
        assert gap.interval.low <= gap.gap <= gap.interval.high
    line = next(line for line in markdown(found).splitlines() if line.startswith("Meaning gap"))
    assert ", without knowledge), what" in line
    assert table.digest not in line


def test_a_cut_that_loses_nothing_says_so(task: ComparisonTask) -> None:
    """Of five weights per class, the five largest are all: only fewer are worth a number."""
    found = run_comparison(replace(task, weights=5, max_iter=3), methods_named(["ccr", "probe"]), seeds=(0,))
    headings, _, ccr, probe = next(
        part.splitlines() for part in markdown(found).split("\n\n") if part.startswith("| method") and "NEC 1" in part
    )
    assert "NEC 5" not in headings
    assert set(probe.split("|")[2:-1]) == {" - "}
    shown = dict(zip(headings.split("|")[1:-1], ccr.split("|")[1:-1], strict=True))
    row = found.row("ccr")
    for heading, curve in ((" NEC 1 ", row.nec), (" top 1 ", row.accuracy_at)):
        if heading in shown and shown[heading] != " = ":
            assert shown[heading].strip() == f"{100 * curve[0]:.1f}" != f"{100 * row.accuracy:.1f}"
