"""The sparse engine against the dense one: the same steps to rounding, the same models, on one thread and on two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccr import ConceptClassifier, HardThreshold, TopK, kernels
from ccr.coding import Rule, ThresholdRule, TopRule
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.kernels import StepSettings
from ccr.refine import Training, refine
from ccr.refine.data import Labelled, Window
from ccr.refine.engines import DenseEngine, Engine, Report, SparseEngine, State
from ccr.utils.threads import Workers
from tests.conftest import Data
from tests.kernels.kernel_tiers import TIERS, bytes_only, module, using

RULES = {
    "two-sided": ThresholdRule(0.2),
    "one-sided": ThresholdRule(0.2, positive=True),
    "held length": ThresholdRule(0.25, length=9.0),
    "few": ThresholdRule(0.42, length=2.0),
    "top": TopRule(5),
}
N, D, CLASSES = 60, 24, 7


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    with using(request.param):
        yield request.param


def start(rule: Rule, seed: int = 0) -> State:
    rng = np.random.default_rng(seed)
    dictionary = unit_rows(rng.normal(size=(N, D))).astype(np.float32)
    return State(
        dictionary, (0.3 * rng.normal(size=(N, CLASSES))).astype(np.float32), np.zeros(CLASSES, np.float32), rule
    )


def options(**changes: object) -> StepSettings:
    usual = {"radius": 0.3, "adaptive": True, "momentum": 0.9, "dropout": 0.0, "alpha": 1e-3, "scale": 0.3, "seed": 5}
    return StepSettings.of(**(usual | changes))  # type: ignore[arg-type]


def batch(rng: np.random.Generator, engine: DenseEngine, rows: int = 150) -> tuple[torch.Tensor, ...]:
    """Rows whose scores keep clear of where the engine's rule decides, with labels and weights."""
    x = torch.from_numpy(unit_rows(rng.normal(size=(2 * rows, D)))).float()
    sizes = (x @ engine.dictionary.T).abs()
    if isinstance(engine.rule, TopRule):
        best = sizes.topk(engine.rule.length + 1, dim=1).values
        clear = best[:, -2] - best[:, -1] > 1e-4
    else:
        clear = ((sizes - engine.rule.threshold).abs() > 1e-4).all(dim=1)
    x = x[clear][:rows]
    assert len(x) > rows // 2
    y, weight = torch.from_numpy(rng.integers(0, CLASSES, len(x))), torch.from_numpy(rng.uniform(0, 2, len(x)))
    return x, y, weight.float()


def step(
    engine: Engine, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, head_rate: float, dictionary_rate: float
) -> Report:
    window = Window(x, np.arange(len(x)), y.numpy(), weight.numpy())
    return engine.steps(window, len(x), np.array([[head_rate, dictionary_rate]]))


def assert_same_path(dense: DenseEngine, sparse: SparseEngine, steps: int, seed: int, rate: float = 0.05) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        x, y, weight = batch(rng, dense)
        one, two = (step(engine, x, y, weight, rate, rate / 5) for engine in (dense, sparse))
        assert two.losses[0] == pytest.approx(one.losses[0], abs=1e-5)
        assert two.lengths[0] == one.lengths[0]
        assert sparse.rule.threshold == pytest.approx(dense.rule.threshold, nan_ok=True)
        for name in ("dictionary", "weights", "bias"):
            assert np.allclose(getattr(sparse.state(), name), getattr(dense.state(), name), atol=1e-5), name


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("radius", [0.0, 0.05, 2.0])
@pytest.mark.parametrize("rule", list(RULES))
def test_every_step_is_the_dense_engines(tier: str, rule: str, radius: float, dropout: float, adaptive: bool) -> None:
    settings = options(radius=radius, dropout=dropout, adaptive=adaptive)
    dense = DenseEngine(start(RULES[rule]), settings, torch.device("cpu"))
    with Workers() as workers:
        sparse = SparseEngine(start(RULES[rule]), settings, workers)
        assert_same_path(dense, sparse, steps=15, seed=3)
    if rule == "few":
        assert sparse._panels is not None
        assert sparse._panels.screened == kernels.SCREENS


def test_rows_that_bytes_cannot_tell_apart_are_scored_in_floats(tier: str) -> None:
    """One large number leaves little of the others in bytes: then most scores would be computed twice."""
    rng, settings = np.random.default_rng(0), options()
    made = rng.normal(size=(300, D))
    made[:, 0] = 60.0
    x, y = torch.from_numpy(unit_rows(made)).float(), torch.from_numpy(rng.integers(0, CLASSES, 300))
    first = start(RULES["few"])
    first.dictionary[:, 0] = 0.0
    first = replace(first, dictionary=unit_rows(first.dictionary), rule=ThresholdRule(0.03, length=2.0))
    dense = DenseEngine(first, settings, torch.device("cpu"))
    with Workers() as workers:
        sparse = SparseEngine(first, settings, workers)
        for number in range(4):
            one, two = (step(engine, x, y, torch.ones(300), 0.05, 0.01) for engine in (dense, sparse))
            assert sparse._panels is not None
            assert sparse._panels.screened == (kernels.SCREENS and number == 0)
            assert two.losses[0] == pytest.approx(one.losses[0], abs=1e-4)
            assert two.lengths[0] == pytest.approx(one.lengths[0], abs=0.05)
        other = SparseEngine(first, settings, workers)
        other.load_state_dict(sparse.state_dict())
        other.rule = sparse.rule
        for engine in (sparse, other):
            step(engine, x, y, torch.ones(300), 0.05, 0.01)
    assert np.array_equal(other.state().dictionary, sparse.state().dictionary)


def test_two_threads_and_several_blocks_take_the_same_steps(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("WORTH_A_BATCH", "WORTH_A_WINDOW"):
        monkeypatch.setattr(f"ccr.refine.engines.{bound}", 0)
    settings = options(dropout=0.2)
    dense = DenseEngine(start(RULES["held length"]), settings, torch.device("cpu"))
    with Workers(2) as workers:
        sparse = SparseEngine(start(RULES["held length"]), settings, workers)
        assert_same_path(dense, sparse, steps=15, seed=4)


@bytes_only
@pytest.mark.parametrize("classes", [7, 70])
@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_a_wide_head_is_trained_a_few_classes_at_a_time(
    classes: int, radius: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.refine.test_sparse_engine.CLASSES", classes)
    monkeypatch.setattr("ccr.kernels.x86.training.WIDE_HEAD", 0)
    settings = options(radius=radius, dropout=0.2)
    dense = DenseEngine(start(RULES["held length"]), settings, torch.device("cpu"))
    with Workers() as workers:
        sparse = SparseEngine(start(RULES["held length"]), settings, workers)
        assert_same_path(dense, sparse, steps=10, seed=5)
        assert len(sparse._kernels.workspace.logits) > 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_a_head_of_few_weights_is_trained_as_the_masked_one(
    tier: str, radius: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when weights are taken away on the way, and when a run goes on from its state."""
    for bound in ("WORTH_A_BATCH", "WORTH_A_WINDOW"):
        monkeypatch.setattr(f"ccr.refine.engines.{bound}", 0)
    if tier == "x86":
        monkeypatch.setattr("ccr.kernels.x86.training.FEW_WEIGHTS", 0.5)
    settings, rng = options(radius=radius, dropout=0.2, sparse_head=True), np.random.default_rng(1)
    dense = DenseEngine(start(RULES["held length"]), settings, torch.device("cpu"))
    with Workers(threads) as workers:
        sparse = SparseEngine(start(RULES["held length"]), settings, workers)
        for part in (0.9, 0.4, 0.05):
            allowed = rng.random((N, CLASSES)) < part
            allowed[3] = False
            for engine in (dense, sparse):
                engine.restrict(allowed)
            assert_same_path(dense, sparse, steps=5, seed=6)
            assert not sparse.state().weights[~allowed].any()
            if tier == "x86":
                assert (len(sparse._kernels.workspace.sparse.starts) > 0) == (part < 0.5)
        again = SparseEngine(start(RULES["held length"]), settings, workers)
        again.load_state_dict(sparse.state_dict())
        again.rule = sparse.rule
        assert_same_path(dense, again, steps=3, seed=7)


@pytest.mark.parametrize("wide", [0, 10**9])
@pytest.mark.parametrize("rule", ["few", "held length", "top"])
def test_the_number_of_threads_changes_no_bit(tier: str, rule: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("WORTH_A_BATCH", "WORTH_A_WINDOW"):
        monkeypatch.setattr(f"ccr.refine.engines.{bound}", 0)
    if tier == "x86":
        monkeypatch.setattr("ccr.kernels.x86.training.WIDE_HEAD", wide)
    rng = np.random.default_rng(8)
    x = torch.from_numpy(unit_rows(rng.normal(size=(700, D)))).float()
    window = Window(x, rng.permutation(700), rng.integers(0, CLASSES, 700), np.ones(700, np.float32))
    found = []
    for threads, owners in ((1, 1), (2, 1), (2, 2), (5, 2), (5, 5)):
        if tier == "x86":
            monkeypatch.setattr(
                "ccr.kernels.x86.training.Division.owners", lambda _, most, owners=owners: min(most, owners)
            )
        with Workers(threads) as workers:
            engine = SparseEngine(start(RULES[rule]), options(dropout=0.1), workers)
            report = engine.steps(window, 96, np.tile([0.05, 0.01], (8, 1)))
            found.append((*engine.state_dict().values(), *report))
    assert all(np.array_equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@bytes_only
def test_both_ways_to_divide_the_work_are_tried_and_the_faster_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a real training; what they took is made up."""
    for bound in ("WORTH_A_BATCH", "WORTH_A_WINDOW"):
        monkeypatch.setattr(f"ccr.refine.engines.{bound}", 0)
    division, seen = module("x86", "training"), []
    chosen, took = division.Division.owners, division.Division.took

    def noted(self: object, most: int) -> int:
        seen.append(chosen(self, most))
        return seen[-1]

    monkeypatch.setattr(division.Division, "owners", noted)
    rng = np.random.default_rng(8)
    x = torch.from_numpy(unit_rows(rng.normal(size=(300, D)))).float()
    window = Window(x, np.arange(300), rng.integers(0, CLASSES, 300), np.ones(300, np.float32))
    for seconds, faster in (({1: 2.0, 2: 1.0}, 2), ({1: 1.0, 2: 2.0}, 1), ({1: 1.0, 2: 0.97}, 1)):
        seen.clear()
        monkeypatch.setattr(
            division.Division,
            "took",
            lambda self, most, owners, _, made_up=seconds: took(self, most, owners, made_up[owners]),
        )
        with Workers(2) as workers:
            engine = SparseEngine(start(RULES["few"]), options(), workers)
            for _ in range(2 * division.TRIALS + 2):
                engine.steps(window, 100, np.tile([0.05, 0.01], (3, 1)))
            assert seen == [1, 2] * division.TRIALS + [faster] * 2


@bytes_only
@given(st.integers(1, 40), st.integers(1, 700))
def test_owners_have_whole_panels_and_together_all_concepts(owners: int, n: int) -> None:
    panel = module("x86", "tiles").PANEL
    owners = min(owners, -(-n // panel))
    first = module("x86", "training").first_concepts(owners, n)
    sizes = -(-np.diff(first) // panel)
    assert (first[0], first[-1], len(first)) == (0, n, owners + 1)
    assert np.all(first[:-1] % panel == 0)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


@bytes_only
def test_the_noise_changes_no_bit_of_a_training() -> None:
    rng = np.random.default_rng(8)
    x = torch.from_numpy(unit_rows(rng.normal(size=(700, D)))).float()
    window = Window(x, rng.permutation(700), rng.integers(0, CLASSES, 700), np.ones(700, np.float32))
    states, looked = [], []
    for seed in (1, 2):  # without dropout the seed is that of the noise alone
        with Workers() as workers:
            engine = SparseEngine(start(RULES["few"]), options(dropout=0.0, seed=seed), workers)
            report = engine.steps(window, 96, np.tile([0.05, 0.01], (8, 1)))
            state = engine.state_dict()
            looked.append(float(state.pop("looked")[0]))
            states.append((*state.values(), *report))
    assert looked[0] != looked[1]
    assert all(np.array_equal(one, two) for one, two in zip(*states, strict=True))


@bytes_only
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_that_keep_their_bytes_change_no_bit(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in memory are rounded once; all steps read those bytes."""
    for bound in ("WORTH_A_BATCH", "WORTH_A_WINDOW"):
        monkeypatch.setattr(f"ccr.refine.engines.{bound}", 0)
    rng = np.random.default_rng(2)
    x = torch.from_numpy(unit_rows(rng.normal(size=(700, D)))).float()
    x[5] = 0.0
    y, ones, rates = rng.integers(0, CLASSES, 700), np.ones(700, np.float32), np.tile([0.05, 0.01], (5, 1))
    windows = [rng.permutation(700)[:450] for _ in range(4)]
    found = []
    with Workers(threads) as workers:
        for lasting in (False, True):
            engine = SparseEngine(start(RULES["few"]), options(dropout=0.1), workers)
            reports = [engine.steps(Window(x, rows, y[rows], ones[rows], lasting), 96, rates) for rows in windows]
            found.append((*engine.state_dict().values(), *(part for report in reports for part in report)))
        assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
        quads, about = engine._kernels.rounded[1]
        seen = np.isin(np.arange(700), np.concatenate(windows))
        assert np.array_equal(about[:, module("x86", "arguments").SCALE] > 0, seen)
        # Bytes of zeros: now no score of a unit row could be active.
        quads.view(np.uint8)[:] = module("x86", "tiles").SHIFT
        rows = windows[0][windows[0] != 5]
        assert engine.steps(Window(x, rows, y[rows], ones[rows], True), 96, rates).lengths.max() < 0.5
        assert engine.steps(Window(x.clone(), rows, y[rows], ones[rows], True), 96, rates).lengths.min() > 0.5


@pytest.mark.parametrize("tier", TIERS)
@given(st.integers(0, 1000), st.floats(0.0, 2.0), st.booleans(), st.floats(0.0, 5.0), st.integers(1, 5))
def test_rows_stay_unit_and_in_their_ball(
    tier: str, seed: int, radius: float, adaptive: bool, rate: float, steps: int
) -> None:
    rng = np.random.default_rng(seed)
    with Workers() as workers, using(tier):
        engine = SparseEngine(start(ThresholdRule(0.2), seed), options(radius=radius, adaptive=adaptive), workers)
        for _ in range(steps):
            x = torch.from_numpy(unit_rows(rng.normal(size=(20, D)))).float()
            y = torch.from_numpy(rng.integers(0, CLASSES, 20))
            step(engine, x, y, torch.ones(20), rate, rate)
    dictionary = engine.state().dictionary
    moved = np.linalg.norm(dictionary - start(ThresholdRule(0.2), seed).dictionary, axis=1)
    assert np.allclose(np.linalg.norm(dictionary, axis=1), 1.0, atol=1e-5)
    assert moved.max() <= radius + 1e-5


def test_a_batch_without_any_active_concept(tier: str) -> None:
    settings = options(alpha=0.0)
    dense = DenseEngine(start(ThresholdRule(5.0)), settings, torch.device("cpu"))
    with Workers() as workers:
        sparse = SparseEngine(start(ThresholdRule(5.0)), settings, workers)
        assert_same_path(dense, sparse, steps=3, seed=0)
        assert np.array_equal(sparse.state().weights, start(ThresholdRule(5.0)).weights)


@pytest.mark.parametrize("what", ["weights", "bias", "dictionary"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("rule", ["few", "top"])
def test_a_training_that_diverged_reports_a_loss_that_is_not_finite(
    tier: str, rule: str, bad: float, what: str
) -> None:
    first = start(RULES[rule])
    rng = np.random.default_rng(0)
    x = torch.from_numpy(unit_rows(rng.normal(size=(150, D)))).float()
    y = torch.from_numpy(rng.integers(0, CLASSES, 150))
    with Workers() as workers:
        engine = SparseEngine(first, options(), workers)
        step(engine, x, y, torch.ones(150), 0.05, 0.01)
        state = engine.state_dict()
        state[what][1] = bad
        engine.load_state_dict(state)
        report = step(engine, x, y, torch.ones(150), 0.05, 0.01)
    # Scores of a row that is not finite are not numbers, and never active: the other concepts go on.
    assert np.isfinite(report.losses[0]) == (what == "dictionary")


@pytest.mark.parametrize("coder", [HardThreshold(length=5), HardThreshold(threshold=0.3, sign="positive"), TopK(3)])
@pytest.mark.parametrize("training", [{}, {"optimizer": "sgd", "head_rate": 1.0, "dictionary_rate": 0.01}])
def test_whole_trainings_agree(
    tier: str, planted: Data, coder: HardThreshold | TopK, training: dict[str, object]
) -> None:
    one, two = (
        refine(
            planted.concepts, planted.X, planted.y, coder=coder, radius=0.3, validation=np.arange(300), engine=engine,
            training=Training(max_iter=4, seed=2, **training),  # type: ignore[arg-type]
        )
        for engine in ("dense", "sparse")
    )  # fmt: skip
    for mine, theirs in zip(two.history, one.history, strict=True):
        assert mine.validation_accuracy == pytest.approx(theirs.validation_accuracy, abs=0.02)
        assert mine.length == pytest.approx(theirs.length, rel=0.02)
        assert mine.train_loss == pytest.approx(theirs.train_loss, rel=0.02)
        assert mine.mean_deviation == pytest.approx(theirs.mean_deviation, rel=0.02)


def test_class_weights_and_samples_reach_the_sparse_engine(tier: str, digits: Data) -> None:
    settings = {"max_iter": 3, "random_state": 1, "class_weight": {"digit 3": 4.0, "digit 8": 0.25}}
    weight = np.linspace(0.5, 1.5, len(digits.y))
    one, two = (
        ConceptClassifier(digits.concepts, engine=engine, **settings).fit(digits.X, digits.y, weight)  # type: ignore[arg-type]
        for engine in ("dense", "sparse")
    )
    assert np.allclose(one.decision_function(digits.X_test), two.decision_function(digits.X_test), atol=0.1)
    assert (one.predict(digits.X_test) == two.predict(digits.X_test)).mean() > 0.98


def test_auto_is_sparse_on_a_cpu(planted: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[type[Engine]] = []

    def watch(kind: type) -> None:
        original = kind.steps
        monkeypatch.setattr(kind, "steps", lambda self, *a, **k: (used.append(kind), original(self, *a, **k))[1])

    for kind in (DenseEngine, SparseEngine):
        watch(kind)

    def run(**settings: object) -> None:
        used.clear()
        refine(
            planted.concepts, planted.X, planted.y, coder=TopK(3), radius=0.1, training=Training(max_iter=1),
            **settings,  # type: ignore[arg-type]
        )  # fmt: skip

    run()
    assert set(used) == {SparseEngine}
    run(engine="dense")
    assert set(used) == {DenseEngine}


def test_what_the_sparse_engine_cannot_do_is_said(planted: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        differentiable = True
        rule, encode = TopK(3).rule, TopK(3).encode

    run = {"radius": 0.1, "engine": "sparse"}
    with pytest.raises(CCRError, match="sparse engine knows HardThreshold and TopK"):
        refine(planted.concepts, planted.X, planted.y, coder=Foreign(), **run)  # type: ignore[arg-type]
    monkeypatch.setattr("ccr.refine.engines.resolve_device", lambda name: torch.device("cuda"))
    with pytest.raises(CCRError, match="works on the CPU, not on cuda"):
        refine(planted.concepts, planted.X, planted.y, coder=TopK(3), **run)  # type: ignore[arg-type]


def read_order(X: Embeddings, m: int, size: int, seed: int = 0) -> Iterator[np.ndarray]:
    rows = np.arange(10, 10 + m)
    data = Labelled(X, rows, rows.copy(), rows.astype(np.float32))
    for window in data.shuffled(np.random.default_rng(seed), size):
        for x, y, weight in window.batches(size):
            assert np.array_equal(x[:, 0].numpy(), y.numpy())
            assert np.array_equal(weight.numpy(), y.numpy())
            yield y.numpy()


@pytest.mark.parametrize("m", [5, 1000, 40_003])
def test_every_row_is_read_once_in_the_same_order_from_memory_and_from_a_file(m: int, tmp_path: Path) -> None:
    source = np.repeat(np.arange(m + 20, dtype=np.float32)[:, None], 2, axis=1)
    np.save(tmp_path / "x.npy", source)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    one, two = (list(read_order(Embeddings(X, normalize=False), m, 96)) for X in (source, mapped))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert np.array_equal(np.sort(np.concatenate(one)), np.arange(10, 10 + m))
    assert {len(part) for part in one[:-1]} <= {96}
    if m > 1000:
        # Neighbours, which in a file are often of one class, do not meet in a batch more than a few at a time.
        close = [int((np.diff(np.sort(part)) < 8).sum()) for part in one]
        assert np.mean(close) < 20


@pytest.mark.parametrize("sparse", [False, True])
def test_batches_may_grow_from_window_to_window(tier: str, sparse: bool) -> None:
    """By a few rows: those that a chunk would still have space for, but nothing else."""
    rng = np.random.default_rng(4)
    x = torch.from_numpy(unit_rows(rng.normal(size=(200, D)))).float()
    y, ones = rng.integers(0, CLASSES, 200), np.ones(200, np.float32)
    allowed = np.zeros((N, CLASSES), bool)
    allowed[np.arange(CLASSES), np.arange(CLASSES)] = True
    with Workers(1) as workers:
        one, afresh = (SparseEngine(start(RULES["few"]), options(sparse_head=sparse), workers) for _ in range(2))
        if sparse:
            one.restrict(allowed)
            afresh.restrict(allowed)
        for size in (61, 62, 66, 90, 61):
            window = Window(x, np.arange(size), y[:size], ones[:size])
            reports = [engine.steps(window, size, np.array([[0.05, 0.01]])) for engine in (one, afresh)]
            afresh.load_state_dict(afresh.state_dict())  # lets go of its memory
            assert np.allclose(reports[0].losses, reports[1].losses, rtol=1e-6)  # chunks may be others
            if tier == "x86":
                assert len(one._kernels.workspace.entries.rows) >= size * N
                assert sparse or len(one._kernels.workspace.grad_logits) >= size
