"""Claims about refinement in the images' own metric: on made-up images, and on embeddings that a user brings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ccr_lab.theory import observe_metric as metric
from ccr_lab.theory.isotropy import centred_rows, halves_span, observe_embeddings
from ccr_lab.theory.judging import Claim, ClaimResult, Group, check_group
from ccr_lab.theory.sampling import any_size

SECTION = "The images' metric"
#: Differences of float32 numbers that were computed in two ways.
FLOAT32 = 1e-5
#: Claims on embeddings whose halves are compared.
OF_HALVES = ("real dimensions", "real condition")

METRIC_GROUPS: tuple[Group, ...] = (
    Group(
        metric.cap,
        any_size(least_k=2),
        (
            Claim("cap", "on and in the cap, the shrunk correlation is <w, w0>", SECTION, "difference", FLOAT32),
            Claim("fidelity", "so the cap of √(2(1-c)) is fidelity ≥ c", SECTION, "c - fidelity", FLOAT32),
            Claim(
                "plain correlation",
                "shrinkage a → 0: the plain correlation is <w, w0>, to 2ε/(1-ε)",
                SECTION,
                "observed / allowed",
                1.0,
            ),
        ),
    ),
    Group(
        metric.encoder_cap,
        any_size(least_k=2),
        (
            Claim(
                "encoder's cap",
                "the cap of √(2(1-c)) is fidelity ≥ c",
                SECTION,
                "c - fidelity",
                FLOAT32,
                breaks="cap in the encoder's space",
            ),
        ),
    ),
    Group(
        metric.same_fit,
        any_size(least_k=2, widest=24),
        (
            Claim("same concepts", "a fit with fidelity c is CCR on transformed data", SECTION, "difference", 1e-4),
            Claim("same logits", "it predicts the same", SECTION, "difference / largest logit", 1e-4),
            Claim(
                "other logits",
                "a fit with fidelity c is CCR",
                SECTION,
                "difference / largest logit",
                1e-4,
                breaks="data not transformed",
            ),
        ),
        most=10,  # every one is three fits
    ),
)


def check_embeddings(X: Any, instances: int = 10, seed: int = 0) -> tuple[ClaimResult, ...]:
    """The claims on embeddings X (m, d), at least four rows, with random concepts, bounds, shrinkages and halves.

    How images spread cannot be told where half of them do not fill the dimensions that all of them fill.
    """
    claims = (
        Claim("real cap", "real images: the shrunk correlation is <w, w0>", SECTION, "difference", FLOAT32),
        Claim("real fidelity", "real images: the cap is fidelity ≥ c", SECTION, "c - fidelity", FLOAT32),
        Claim("real dimensions", "held-out images fill more dimensions", SECTION, "before / after", 1.0),
        Claim("real condition", "their eigenvalues are less spread", SECTION, "after / before", 1.0),
    )
    rows = centred_rows(X)
    results = check_group(Group(partial(observe_embeddings, rows), any_size(), claims), instances, seed)
    if halves_span(rows):
        return results
    return tuple(replace(result, complete=False) if result.key in OF_HALVES else result for result in results)
