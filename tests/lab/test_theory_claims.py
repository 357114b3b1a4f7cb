"""The claims as run by `ccr theory`: they hold, their controls fail, and a false claim is caught."""

from dataclasses import replace

import numpy as np
import pytest

from ccr.errors import CCRError
from ccr_lab.theory import GROUPS, Testbed, refinement, run_claims
from ccr_lab.theory.judging import ClaimGroup, ClaimResult, TheoryClaim, any_size, check_group, square_size, sweep
from ccr_lab.theory.scenes import event_frequency, necessity_curve, paper_runs, phase_diagram


@pytest.fixture(scope="module")
def results() -> tuple[ClaimResult, ...]:
    return run_claims(50, seed=3)


def test_claims_hold_and_controls_fail(results: tuple[ClaimResult, ...]) -> None:
    assert [(result.key, result.verdict) for result in results if not result.ok] == []
    most = {claim.key: group.most for group in GROUPS for claim in group.claims}
    assert all(result.instances == min(50, most[result.key] or 50) for result in results)


def test_every_assumption_the_issue_names_is_broken_once(results: tuple[ClaimResult, ...]) -> None:
    broken = {result.breaks for result in results}
    assert {"n < d", "errors along x", "too few samples", "step beyond 1/|x|²", "a ≤ |b| only"} <= broken
    assert {"cap in the encoder's space", "data not transformed"} <= broken


def test_keys_are_unique_and_claims_come_before_controls(results: tuple[ClaimResult, ...]) -> None:
    assert len({result.key for result in results}) == len(results)
    flags = [bool(result.breaks) for result in results]
    assert flags == sorted(flags)


def test_same_seed_same_answer_whatever_the_workers_and_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    one = run_claims(2, 5, lambda done, total, name: seen.append((done, total)), workers=1)
    assert one == run_claims(2, 5)
    assert seen == [(done, len(GROUPS)) for done in range(1, len(GROUPS) + 1)]


def _group(values: np.ndarray, **claim) -> ClaimGroup:
    full = TheoryClaim("key", "claim", "2", "measure", 1.0, **claim)
    return ClaimGroup(lambda bed, count, rng: np.resize(values, (1, count)), any_size(), (full,))


@pytest.mark.parametrize(
    ("value", "breaks", "verdict"),
    [
        (0.9, "", "holds"),
        (1.1, "", "violated"),
        (np.nan, "", "violated"),
        (1.1, "an assumption", "fails, as it must"),
        (0.9, "an assumption", "cannot tell"),
    ],
)
def test_verdicts(value: float, breaks: str, verdict: str) -> None:
    (result,) = check_group(_group(np.array([value]), breaks=breaks), 60, 0)
    assert result.verdict == verdict
    assert result.ok == (verdict in ("holds", "fails, as it must"))


def test_too_few_instances_cannot_tell() -> None:
    (result,) = check_group(_group(np.array([0.5])), 60, 0)
    assert replace(result, complete=False).verdict == "cannot tell"


def test_a_wrong_theorem_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contraction promised too strong, or a step rule off by the factor 2 of the released code."""
    (group,) = [group for group in GROUPS if group.claims[0].key == "tau"]
    true_tau = refinement.contraction
    monkeypatch.setattr(refinement, "contraction", lambda bed, rate: true_tau(bed, 100 * rate))
    assert check_group(group, 50, 0)[0].verdict == "violated"


def test_half_the_gradient_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    (group,) = [group for group in GROUPS if group.claims[0].key == "one sample"]
    run = refinement.refine_worlds
    monkeypatch.setattr(
        refinement, "refine_worlds", lambda *args, rate, **options: run(*args, rate=rate / 2, **options)
    )
    verdicts = {result.key: result.verdict for result in check_group(group, 50, 0)}
    assert verdicts["one sample"] == verdicts["equality"] == "violated"


def test_sizes_reach_64_and_more_and_the_small_end() -> None:
    seen: list[tuple[int, int, int]] = []

    def watch(bed: Testbed, count: int, rng: np.random.Generator) -> np.ndarray:
        seen.append((bed.n, bed.d, bed.k))
        return np.zeros((1, count))

    for sizes in (any_size(), square_size(widest=64)):
        seen.clear()
        assert sweep(watch, sizes, np.random.default_rng(0), 1000).shape == (1, 1000)
        assert max(n for n, _, _ in seen) >= 64
        assert all(1 <= k <= n <= d for n, d, k in seen)
        assert len(set(seen)) > 20
    assert {k % 2 for _, _, k in (any_size(least_k=3, parity=1)(np.random.default_rng(s), s) for s in range(99))} == {1}


def test_bad_counts_are_refused() -> None:
    with pytest.raises(CCRError, match="instances"):
        run_claims(0)
    with pytest.raises(CCRError, match="workers"):
        run_claims(1, workers=0)


# ---- the scenes behind the figures


def test_paper_runs_show_what_the_paper_shows() -> None:
    one, deficient, full = paper_runs(worlds=3, shorten=4)
    assert all(run.losses[-1].max() < 1e-3 * run.losses[0].min() for run in (one, deficient, full))
    assert one.distances[-1].min() > 0.1
    assert one.support_distances[-1].min() > 0.1
    assert deficient.distances[-1].min() > 0.03
    assert full.distances[-1].max() < 0.05
    assert one.losses.shape == (251, 3)
    assert one.radius > 5 * one.testbed.theorem_radius  # outside the theorems, and said so


def test_necessity_curve_is_above_its_bound() -> None:
    curve = necessity_curve(points=8, worlds=5)
    covered = curve.eps <= curve.limit
    assert covered.any()
    assert not covered.all()
    assert (curve.losses[covered] >= curve.bound[covered, None]).all()


def test_event_frequency_grows_with_samples() -> None:
    event = event_frequency(10, 5, (30, 100, 600), worlds=20)
    assert event.shares[0] == 0
    assert event.shares[-1] == 1
    assert event.to_dict()["samples"] == [30, 100, 600]


def test_phase_diagram_recovers_with_samples_and_not_with_one_concept_per_sample() -> None:
    steps: list[int] = []
    diagram = phase_diagram(
        n=5, samples=120, worlds=3, radii=(0.05, 1.0), tell=lambda done, total, what: steps.append(done)
    )
    assert diagram.remaining.shape == (5, 2)
    assert (diagram.remaining[0] > 0.5).all()  # k = 1: rows move along one direction only
    assert (diagram.remaining[2:] < 1e-3).all()
    assert steps == [1, 2, 3, 4, 5]
    assert diagram.to_dict()["radii"] == [0.05, 1.0]
