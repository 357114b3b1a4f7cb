"""Algorithm 2 (docs/method.md): gradients against autograd, invariants of the constraint, what refinement does on
planted data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccr import HardThreshold, TopK
from ccr.coding import ThresholdRule
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.kernels import StepSettings
from ccr.refine import Training, refine
from ccr.refine.engines import DenseEngine, State, dropped, gradients
from ccr.refine.measure import BestEpoch
from tests.conftest import Data


def small(seed: int, m: int = 40, n: int = 9, d: int = 6, classes: int = 3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return {
        "x": unit_rows(normal(m, d)),
        "y": torch.randint(classes, (m,), generator=generator),
        "weight": torch.rand(m, generator=generator, dtype=torch.float64) * 2,
        "dictionary": unit_rows(normal(n, d)),
        "weights": normal(n, classes),
        "bias": normal(classes),
    }


def engine(seed: int, *, radius: float, adaptive: bool, dropout: float = 0.0, alpha: float = 0.0) -> DenseEngine:
    parts = small(seed)
    start = State(
        parts["dictionary"].float().numpy(),
        parts["weights"].float().numpy(),
        parts["bias"].float().numpy(),
        ThresholdRule(0.2),
    )
    options = StepSettings.of(
        radius=radius, adaptive=adaptive, momentum=0.9, dropout=dropout, alpha=alpha, scale=0.5, seed=7
    )
    return DenseEngine(start, options, torch.device("cpu"))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_against_autograd(dropout: float) -> None:
    parts = small(0)
    leaves = [parts[name].requires_grad_() for name in ("dictionary", "weights", "bias")]
    _, weights, bias = leaves
    scores = parts["x"] @ parts.pop("dictionary").T
    keep = dropped(scores.detach().abs() >= 0.2, dropout, seed=1, step=0).double()
    logits = (scores * keep) @ weights + bias
    loss = (torch.nn.functional.cross_entropy(logits, parts["y"], reduction="none") * parts["weight"]).mean()
    expected = torch.autograd.grad(loss, leaves)
    with torch.no_grad():
        found = gradients(**parts, keep=keep, scores=scores, refine=True)
    assert float(found.loss) == pytest.approx(float(loss.detach()))
    for mine, theirs in zip((found.dictionary, found.weights, found.bias), expected, strict=True):
        assert mine is not None
        assert torch.allclose(mine, theirs, atol=1e-12)


def test_dictionary_gradient_against_finite_differences() -> None:
    parts = small(1, m=15, n=4, d=3)
    D = parts.pop("dictionary")

    def loss(dictionary: torch.Tensor, keep: torch.Tensor) -> float:
        return float(gradients(**parts, keep=keep, scores=parts["x"] @ dictionary.T, refine=False).loss)

    keep = ((parts["x"] @ D.T).abs() >= 0.2).double()
    found = gradients(**parts, keep=keep, scores=parts["x"] @ D.T, refine=True).dictionary
    assert found is not None
    step = 1e-6
    for row in range(4):
        for column in range(3):
            up, down = D.clone(), D.clone()
            up[row, column] += step
            down[row, column] -= step
            grad = (loss(up, keep) - loss(down, keep)) / (2 * step)
            assert float(found[row, column]) == pytest.approx(grad, abs=1e-7)


def test_sgd_step_is_torch_sgd_then_normalise() -> None:
    mine = engine(3, radius=2.0, adaptive=False)
    parts = small(3)
    x, y, weight = parts["x"].float(), parts["y"], parts["weight"].float()
    leaves = [tensor.clone().requires_grad_() for tensor in (mine.dictionary, mine.weights, mine.bias)]
    reference = torch.optim.SGD(
        [{"params": leaves[:1], "lr": 0.05}, {"params": leaves[1:], "lr": 0.3}], lr=0.3, momentum=0.9
    )
    for _ in range(5):
        reference.zero_grad()
        scores = x @ leaves[0].T
        logits = (scores * (scores.detach().abs() >= 0.2)) @ leaves[1] + leaves[2]
        (torch.nn.functional.cross_entropy(logits, y, reduction="none") * weight).mean().backward()
        reference.step()
        with torch.no_grad():
            leaves[0].copy_(unit_rows(leaves[0]))
        mine._step(x, y, weight, 0.3, 0.05)
    assert torch.allclose(mine.dictionary, leaves[0].detach(), atol=1e-5)
    assert torch.allclose(mine.weights, leaves[1].detach(), atol=1e-5)
    assert torch.allclose(mine.bias, leaves[2].detach(), atol=1e-5)


@given(st.integers(0, 1000), st.floats(0.0, 2.0), st.booleans(), st.floats(0.0, 1.0), st.integers(1, 8))
def test_rows_stay_unit_and_in_their_ball(seed: int, radius: float, adaptive: bool, rate: float, steps: int) -> None:
    mine = engine(seed, radius=radius, adaptive=adaptive, dropout=0.3)
    parts = small(seed)
    for _ in range(steps):
        mine._step(parts["x"].float(), parts["y"], parts["weight"].float(), rate, rate)
    distance = (mine.dictionary - mine.center).norm(dim=1)
    assert torch.allclose(mine.dictionary.norm(dim=1), torch.ones(9), atol=1e-5)
    assert float(distance.max()) <= radius + 1e-5
    if radius == 0.0:
        assert torch.equal(mine.dictionary, mine.center)


def test_dropout_keeps_the_right_share_and_is_fixed_by_key_and_step() -> None:
    active = torch.ones(400, 500, dtype=torch.bool)
    keep = dropped(active, 0.3, seed=5, step=2)
    assert float((keep > 0).float().mean()) == pytest.approx(0.7, abs=0.005)
    assert float(keep.max()) == pytest.approx(1 / 0.7)
    assert float(keep.mean(dim=0).std()) < 0.05
    assert torch.equal(keep, dropped(active, 0.3, seed=5, step=2))
    assert not torch.equal(keep, dropped(active, 0.3, seed=5, step=3))
    assert not torch.equal(keep, dropped(active, 0.3, seed=6, step=2))
    assert not dropped(torch.zeros(3, 3, dtype=torch.bool), 0.3, seed=0, step=0).any()


def fitted(data: Data, radius: float, seed: int = 0, **options: object) -> tuple[float, object]:
    coder = options.pop("coder", TopK(3))
    training = Training(seed=seed, dropout=0.0, alpha=0.0, **options)  # type: ignore[arg-type]
    found = refine(
        data.concepts,
        data.X,
        data.y,
        coder=coder,
        radius=radius,
        validation=np.arange(300),
        training=training,  # type: ignore[arg-type]
    )
    X = unit_rows(data.X_test.astype(np.float32))
    codes = TopK(3).encode(X, found.dictionary)
    logits = codes @ found.weights + found.bias
    return float((logits.argmax(axis=1) == data.y_test).mean()), found


def test_refinement_beats_the_baseline_and_finds_the_truth(planted: Data, true_dictionary: np.ndarray) -> None:
    baseline, frozen = fitted(planted, 0.0)
    accuracy, refined = fitted(planted, 0.5)
    assert accuracy > baseline + 0.01
    assert np.array_equal(frozen.dictionary, planted.concepts.embeddings)  # type: ignore[attr-defined]

    def distance(dictionary: np.ndarray) -> float:
        return float(np.linalg.norm(dictionary - true_dictionary, axis=1).mean())

    assert distance(refined.dictionary) < 0.8 * distance(frozen.dictionary)  # type: ignore[attr-defined]


def test_a_seed_fixes_the_result_exactly(planted: Data) -> None:
    one, two, other = (fitted(planted, 0.2, seed=seed, max_iter=3)[1] for seed in (1, 1, 2))
    assert np.array_equal(one.dictionary, two.dictionary)  # type: ignore[attr-defined]
    assert np.array_equal(one.weights, two.weights)  # type: ignore[attr-defined]
    assert one.history == two.history  # type: ignore[attr-defined]
    assert not np.array_equal(one.weights, other.weights)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("length", "sign"), [(2.0, "both"), (5.0, "both"), (12.0, "both"), (5.0, "positive")])
def test_length_is_held_while_the_dictionary_moves(planted: Data, length: float, sign: Any) -> None:
    found = fitted(planted, 0.3, coder=HardThreshold(length=length, sign=sign), max_iter=8)[1]
    for epoch in found.history:  # type: ignore[attr-defined]
        assert epoch.length == pytest.approx(length, rel=0.02)
    assert found.history[-1].mean_deviation > 0.1  # type: ignore[attr-defined]


def test_history_says_what_happened(planted: Data) -> None:
    found = fitted(planted, 0.2, coder=HardThreshold(threshold=0.3, sign="both"), max_iter=4)[1]
    history = found.history  # type: ignore[attr-defined]
    assert [epoch.epoch for epoch in history] == [1, 2, 3, 4]
    assert history[-1].train_loss < history[0].train_loss
    assert all(epoch.threshold == 0.3 for epoch in history)
    assert all(epoch.mean_deviation <= epoch.max_deviation <= 0.2 + 1e-5 for epoch in history)
    best = max(epoch.validation_accuracy for epoch in history)
    assert history[found.best_epoch - 1].validation_accuracy >= best - (best * (1 - best) / 300) ** 0.5  # type: ignore[attr-defined]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), st.integers(1, 1000))
def test_the_kept_epoch_is_the_latest_that_cannot_be_told_from_the_best(scores: list[float], n: int) -> None:
    exact, default = BestEpoch(Training(tol=0.0), n), BestEpoch(Training(), n)
    for number, score in enumerate(scores, start=1):
        exact.offer(number, score)
        default.offer(number, score)
    best = max(scores)
    equal = [number for number, score in enumerate(scores, start=1) if score == best]
    assert exact.epoch == equal[-1]
    assert exact.improved == default.improved == equal[0]
    near = [number for number, score in enumerate(scores, start=1) if score >= best - (best * (1 - best) / n) ** 0.5]
    assert default.epoch in near
    assert default.epoch >= equal[-1]


def test_training_stops_early_and_keeps_the_best_epoch(planted: Data) -> None:
    rng = np.random.default_rng(0)
    noise = planted._replace(y=rng.integers(0, 4, len(planted.y)))
    found = fitted(noise, 0.3, max_iter=60, n_iter_no_change=4, schedule="constant", tol=0.0)[1]
    assert len(found.history) < 60  # type: ignore[attr-defined]
    accuracies = [epoch.validation_accuracy for epoch in found.history]  # type: ignore[attr-defined]
    assert accuracies[found.best_epoch - 1] == max(accuracies)  # type: ignore[attr-defined]


def test_without_validation_the_last_epoch_is_kept(planted: Data) -> None:
    found = refine(planted.concepts, planted.X, planted.y, coder=TopK(3), radius=0.1, training=Training(max_iter=3))
    assert found.best_epoch == 3
    assert np.isnan(found.history[-1].validation_accuracy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iter": 0}, "max_iter must be a whole number"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"optimizer": "adam"}, "optimizer must be one of"),
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"momentum": -0.1}, "momentum must be in"),
        ({"alpha": -1.0}, "alpha must be a number >= 0"),
        ({"head_rate": float("nan")}, "head_rate must be a number >= 0"),
        ({"n_iter_no_change": 0}, "n_iter_no_change"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(CCRError, match=message):
        Training(**options)  # type: ignore[arg-type]


def test_divergence_is_said(planted: Data) -> None:
    training = Training(optimizer="sgd", head_rate=1e38, max_iter=3)
    with pytest.raises(CCRError, match="diverged"):
        refine(planted.concepts, planted.X, planted.y, coder=TopK(3), radius=0.0, training=training)


def test_unknown_engine_and_device(planted: Data) -> None:
    with pytest.raises(CCRError, match="engine must be"):
        refine(planted.concepts, planted.X, planted.y, coder=TopK(3), radius=0.0, engine="fast")  # type: ignore[arg-type]
    with pytest.raises(CCRError, match="device must be"):
        refine(planted.concepts, planted.X, planted.y, coder=TopK(3), radius=0.0, training=Training(device="abacus"))
