"""The claims of Information pursuit and Algorithm 1 (docs/method.md) and those of `metric`, checked over random
instances, and what must fail when an assumption is broken."""

# ruff: noqa: RUF001 - the theorems' own Greek letters
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed

from threadpoolctl import threadpool_limits

from ccr.errors import CCRError
from ccr.utils.processes import Tell, no_progress
from ccr_lab.theory import pursuit, refinement
from ccr_lab.theory.judging import ClaimGroup, ClaimResult, TheoryClaim, any_size, check_group, square_size
from ccr_lab.theory.metric import METRIC_GROUPS


def run_claims(
    instances: int = 1000, seed: int = 0, tell: Tell = no_progress, *, workers: int = 2
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


_NECESSITY = "an orthonormal D at distance eps loses at least 81 {} eps² γ²/200"
_TAU = "many samples: |D(t+1) - D*| ≤ τ |D(t) - D*|"
_RATIO = "observed / allowed"

GROUPS: tuple[ClaimGroup, ...] = (
    ClaimGroup(
        pursuit.information,
        any_size(),
        (
            TheoryClaim(
                "information",
                "IP-OMP asks the most informative query",
                "Information pursuit",
                "missed squared correlation",
                1e-8,
            ),
        ),
    ),
    ClaimGroup(
        pursuit.monte_carlo,
        any_size(),
        (
            TheoryClaim(
                "loss",
                "closed-form loss of f_D = Monte Carlo over z",
                "Information pursuit",
                "standard errors apart",
                7.0,
            ),
            TheoryClaim(
                "surrogate", "closed-form loss of the surrogate = Monte Carlo", "Testbed", "standard errors apart", 7.0
            ),
        ),
    ),
    ClaimGroup(
        pursuit.gradient,
        any_size(),
        (
            TheoryClaim(
                "gradient", "gradient of the surrogate = finite differences", "Testbed", "relative difference", 1e-6
            ),
        ),
    ),
    ClaimGroup(
        pursuit.orthonormal_selection,
        any_size(),
        (TheoryClaim("top-k", "orthonormal D: IP-OMP = top-k", "Lemmas", "queries that differ", 0.0),),
    ),
    ClaimGroup(
        pursuit.truth_is_perfect,
        any_size(),
        (TheoryClaim("truth", "D = D*: the support is found, the loss is 0", "Lemmas", "loss / E y²", 1e-20),),
    ),
    ClaimGroup(
        pursuit.rotation,
        any_size(least_k=2),
        (
            TheoryClaim("rotated", "rotated D is orthonormal", "Lemmas", "departure", 1e-12),
            TheoryClaim("distance", "rotated D is at distance 2 sin(θ/2)", "Lemmas", "departure", 1e-12),
        ),
    ),
    ClaimGroup(
        pursuit.necessity,
        any_size(least_k=2, parity=0),
        (
            TheoryClaim("even", _NECESSITY.format("k") + " (k even)", "Necessity", "bound / loss", 1.0),
            TheoryClaim("even exact", "that loss is eps² Σβ² exactly (k even)", "Ours", "relative difference", 1e-8),
            TheoryClaim(
                "fooled",
                _NECESSITY.format("k"),
                "Information pursuit",
                "bound / loss",
                1.0,
                breaks="answers by D, not by D*",
            ),
        ),
    ),
    ClaimGroup(
        pursuit.necessity,
        any_size(least_k=3, parity=1),
        (
            TheoryClaim("odd", _NECESSITY.format("(k-1)") + " (k odd)", "Necessity", "bound / loss", 1.0),
            TheoryClaim("odd exact", "that loss is eps² Σβ² exactly (k odd)", "Ours", "relative difference", 1e-8),
            TheoryClaim(
                "fooled odd",
                _NECESSITY.format("(k-1)"),
                "Information pursuit",
                "bound / loss",
                1.0,
                breaks="answers by D, not by D*",
            ),
        ),
    ),
    ClaimGroup(
        pursuit.support_recovery,
        any_size(spare=1),
        (
            TheoryClaim(
                "support", "errors < γ/(4√k Γ): the support is found", "Support recovery", "score outside / inside", 1.0
            ),
            TheoryClaim("support half", "already below γ/(2√k Γ)", "Support recovery", "score outside / inside", 1.0),
            TheoryClaim(
                "no support",
                "the support is found",
                "Support recovery",
                "score outside / inside",
                1.0,
                breaks="errors along x",
            ),
        ),
    ),
    ClaimGroup(
        pursuit.position,
        any_size(),
        (
            TheoryClaim("position", "position lemma, with |a| ≤ |b|", "Lemmas", "|b - a| / |c - a|", 1.0),
            TheoryClaim(
                "printed", "position lemma, as printed", "Lemmas", "|b - a| / |c - a|", 1.0, breaks="a ≤ |b| only"
            ),
        ),
    ),
    ClaimGroup(
        refinement.one_sample,
        any_size(),
        (
            TheoryClaim("one sample", "one sample: loss(t+1) ≤ (1 - 2η|x|²)² loss(t)", "One sample", _RATIO, 1.0),
            TheoryClaim(
                "equality", "it is an equality: the ball never binds", "One sample", "difference / loss(0)", 1e-9
            ),
            TheoryClaim("unmoved", "rows outside the support never move", "One sample", "movement", 0.0),
            TheoryClaim(
                "limit", "row i tends to d_i + (β_i - <x,d_i>) x/|x|²", "One sample", "distance / radius", 1e-9
            ),
        ),
    ),
    ClaimGroup(
        refinement.overshooting,
        any_size(),
        (TheoryClaim("overshoot", "the same for η in (1/2, 1)/|x|², ball binding", "Ours", _RATIO, 1.0),),
    ),
    ClaimGroup(
        refinement.too_long_a_step,
        any_size(),
        (
            TheoryClaim(
                "step",
                "one sample: the loss falls",
                "One sample",
                "loss after / before",
                1.0,
                breaks="step beyond 1/|x|²",
            ),
        ),
    ),
    ClaimGroup(
        refinement.any_start,
        any_size(),
        (
            TheoryClaim(
                "any start", "|D - D*| never grows, however far D starts", "Ours", "growth / first distance", 1e-12
            ),
        ),
    ),
    ClaimGroup(
        refinement.too_few_samples,
        square_size(widest=64, spare=1),
        (TheoryClaim("few", _TAU, "Many samples", _RATIO, 1.0, breaks="too few samples"),),
    ),
    ClaimGroup(
        refinement.span_recovery,
        square_size(widest=20, share=0.3, extra=6),
        (
            TheoryClaim(
                "no recovery", "refinement recovers D*", "Many samples", "last / first distance", 1e-3, breaks="n < d"
            ),
            TheoryClaim(
                "outside", "n < d: D moves only inside the span of D*", "Many samples", "movement outside", 1e-12
            ),
        ),
    ),
    ClaimGroup(
        refinement.recovery,
        square_size(widest=20, share=0.3),
        (TheoryClaim("recovery", "n = d: refinement recovers D*", "Many samples", "last / first distance", 1e-3),),
    ),
    ClaimGroup(
        refinement.many_samples,
        square_size(widest=64, share=0.15),
        (
            TheoryClaim("tau", _TAU + " where the event holds", "Many samples", _RATIO, 1.0),
            TheoryClaim("accuracy", "many samples: loss ≤ (k/m) Σ|x|² |D(t) - D*|²", "Many samples", _RATIO, 1.0),
        ),
    ),
    *METRIC_GROUPS,
)

#: The groups that come last take longest: started first, no worker waits for them at the end.
_LONGEST_FIRST = tuple(reversed(range(len(GROUPS))))
