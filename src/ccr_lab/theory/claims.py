"""The claims of Information pursuit and Algorithm 1 (docs/method.md) and those of `metric`, checked over random
instances, and what must fail when an assumption is broken."""

# ruff: noqa: RUF001 - the theorems' own Greek letters
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed

from threadpoolctl import threadpool_limits

from ccr.errors import CCRError
from ccr.utils.processes import OnProgress, no_progress
from ccr_lab.theory import pursuit, refinement
from ccr_lab.theory.judging import ClaimGroup, ClaimResult, any_size, check_group, claim_group, square_size
from ccr_lab.theory.metric import METRIC_GROUPS


def run_claims(
    instances: int = 1000, seed: int = 0, tell: OnProgress = no_progress, *, workers: int = 2
) -> tuple[ClaimResult, ...]:
    """Check every claim and every control on `instances` random worlds each, at least 1; the same for the same seed.

    `workers` threads, at least 1, share the groups; BLAS keeps to one thread, since on matrices this small its own
    threads only wait.
    """
    if instances < 1 or workers < 1:
        raise CCRError(f"instances and workers must be at least 1, got {instances} and {workers}: try 1000 and 2")
    with threadpool_limits(1), ThreadPoolExecutor(workers) as pool:
        jobs = {number: pool.submit(check_group, GROUPS[number], instances, seed) for number in _LONGEST_FIRST}
        for done, job in enumerate(as_completed(jobs.values()), start=1):
            tell(done, len(GROUPS), job.result()[0].claim)
    results = [result for number in range(len(GROUPS)) for result in jobs[number].result()]
    return tuple(sorted(results, key=lambda result: bool(result.breaks)))


# Measures and sections that several claims share.
_RATIO, _APART, _SCORES = "observed / allowed", "standard errors apart", "score outside / inside"
_PURSUIT, _LEMMAS, _RECOVERY, _ONE, _MANY = (
    "Information pursuit", "Lemmas", "Support recovery", "One sample", "Many samples"
)  # fmt: skip
_NECESSITY = "an orthonormal D at distance eps loses at least 81 {} eps² γ²/200"
_EXACT = "that loss is eps² Σβ² exactly (k {})"
_TAU = "many samples: |D(t+1) - D*| ≤ τ |D(t) - D*|"
_FOOLED = "answers by D, not by D*"

# fmt: off
GROUPS: tuple[ClaimGroup, ...] = (
    claim_group(pursuit.information, any_size(),
        ("information", "IP-OMP asks the most informative query", _PURSUIT, "missed squared correlation", 1e-8)),
    claim_group(pursuit.monte_carlo, any_size(),
        ("loss", "closed-form loss of f_D = Monte Carlo over z", _PURSUIT, _APART, 7.0),
        ("surrogate", "closed-form loss of the surrogate = Monte Carlo", "Testbed", _APART, 7.0)),
    claim_group(pursuit.gradient, any_size(),
        ("gradient", "gradient of the surrogate = finite differences", "Testbed", "relative difference", 1e-6)),
    claim_group(pursuit.orthonormal_selection, any_size(),
        ("top-k", "orthonormal D: IP-OMP = top-k", _LEMMAS, "queries that differ", 0.0)),
    claim_group(pursuit.truth_is_perfect, any_size(),
        ("truth", "D = D*: the support is found, the loss is 0", _LEMMAS, "loss / E y²", 1e-20)),
    claim_group(pursuit.rotation, any_size(least_k=2),
        ("rotated", "rotated D is orthonormal", _LEMMAS, "departure", 1e-12),
        ("distance", "rotated D is at distance 2 sin(θ/2)", _LEMMAS, "departure", 1e-12)),
    claim_group(pursuit.necessity, any_size(least_k=2, parity=0),
        ("even", _NECESSITY.format("k") + " (k even)", "Necessity", "bound / loss", 1.0),
        ("even exact", _EXACT.format("even"), "Ours", "relative difference", 1e-8),
        ("fooled", _NECESSITY.format("k"), _PURSUIT, "bound / loss", 1.0, _FOOLED)),
    claim_group(pursuit.necessity, any_size(least_k=3, parity=1),
        ("odd", _NECESSITY.format("(k-1)") + " (k odd)", "Necessity", "bound / loss", 1.0),
        ("odd exact", _EXACT.format("odd"), "Ours", "relative difference", 1e-8),
        ("fooled odd", _NECESSITY.format("(k-1)"), _PURSUIT, "bound / loss", 1.0, _FOOLED)),
    claim_group(pursuit.support_recovery, any_size(spare=1),
        ("support", "errors < γ/(4√k Γ): the support is found", _RECOVERY, _SCORES, 1.0),
        ("support half", "already below γ/(2√k Γ)", _RECOVERY, _SCORES, 1.0),
        ("no support", "the support is found", _RECOVERY, _SCORES, 1.0, "errors along x")),
    claim_group(pursuit.position, any_size(),
        ("position", "position lemma, with |a| ≤ |b|", _LEMMAS, "|b - a| / |c - a|", 1.0),
        ("printed", "position lemma, as printed", _LEMMAS, "|b - a| / |c - a|", 1.0, "a ≤ |b| only")),
    claim_group(refinement.one_sample, any_size(),
        ("one sample", "one sample: loss(t+1) ≤ (1 - 2η|x|²)² loss(t)", _ONE, _RATIO, 1.0),
        ("equality", "it is an equality: the ball never binds", _ONE, "difference / loss(0)", 1e-9),
        ("unmoved", "rows outside the support never move", _ONE, "movement", 0.0),
        ("limit", "row i tends to d_i + (β_i - <x,d_i>) x/|x|²", _ONE, "distance / radius", 1e-9)),
    claim_group(refinement.overshooting, any_size(),
        ("overshoot", "the same for η in (1/2, 1)/|x|², ball binding", "Ours", _RATIO, 1.0)),
    claim_group(refinement.too_long_a_step, any_size(),
        ("step", "one sample: the loss falls", _ONE, "loss after / before", 1.0, "step beyond 1/|x|²")),
    claim_group(refinement.any_start, any_size(),
        ("any start", "|D - D*| never grows, however far D starts", "Ours", "growth / first distance", 1e-12)),
    claim_group(refinement.too_few_samples, square_size(widest=64, spare=1),
        ("few", _TAU, _MANY, _RATIO, 1.0, "too few samples")),
    claim_group(refinement.span_recovery, square_size(widest=20, share=0.3, extra=6),
        ("no recovery", "refinement recovers D*", _MANY, "last / first distance", 1e-3, "n < d"),
        ("outside", "n < d: D moves only inside the span of D*", _MANY, "movement outside", 1e-12)),
    claim_group(refinement.recovery, square_size(widest=20, share=0.3),
        ("recovery", "n = d: refinement recovers D*", _MANY, "last / first distance", 1e-3)),
    claim_group(refinement.many_samples, square_size(widest=64, share=0.15),
        ("tau", _TAU + " where the event holds", _MANY, _RATIO, 1.0),
        ("accuracy", "many samples: loss ≤ (k/m) Σ|x|² |D(t) - D*|²", _MANY, _RATIO, 1.0)),
    *METRIC_GROUPS,
)
# fmt: on

#: The groups that come last take longest: started first, no worker waits for them at the end.
_LONGEST_FIRST = tuple(reversed(range(len(GROUPS))))
