"""The generative testbed of Algorithm 1 (docs/method.md), and the theorems as checks that can fail."""

from ccr_lab.theory.anisotropy import AnisotropyDiagram, anisotropy_diagrams
from ccr_lab.theory.claims import GROUPS, run_claims
from ccr_lab.theory.isotropy import Isotropy, isotropy_table
from ccr_lab.theory.judging import Claim, ClaimResult, Group, check_group
from ccr_lab.theory.losses import (
    Surrogate,
    believed_codes,
    drawn_loss,
    estimator_loss,
    expected_loss,
    surrogate,
    surrogate_codes,
)
from ccr_lab.theory.metric_claims import check_embeddings
from ccr_lab.theory.necessity import eps_limit, loss_bound, rotated
from ccr_lab.theory.pursuit import Pursuit, information_gain, ip_omp, top_k
from ccr_lab.theory.refinement import (
    Spectrum,
    Trajectory,
    contraction,
    one_sample_limit,
    rate_limit,
    refine_worlds,
    spectral_event,
    spectrum,
)
from ccr_lab.theory.scenes import (
    EventFrequency,
    NecessityCurve,
    PhaseDiagram,
    Run,
    event_frequency,
    necessity_curve,
    paper_runs,
    phase_diagram,
)
from ccr_lab.theory.testbed import MappedWorlds, Testbed, Worlds, orthonormal_rows, row_distance

__all__ = [
    "GROUPS",
    "AnisotropyDiagram",
    "Claim",
    "ClaimResult",
    "EventFrequency",
    "Group",
    "Isotropy",
    "MappedWorlds",
    "NecessityCurve",
    "PhaseDiagram",
    "Pursuit",
    "Run",
    "Spectrum",
    "Surrogate",
    "Testbed",
    "Trajectory",
    "Worlds",
    "anisotropy_diagrams",
    "believed_codes",
    "check_embeddings",
    "check_group",
    "contraction",
    "drawn_loss",
    "eps_limit",
    "estimator_loss",
    "event_frequency",
    "expected_loss",
    "information_gain",
    "ip_omp",
    "isotropy_table",
    "loss_bound",
    "necessity_curve",
    "one_sample_limit",
    "orthonormal_rows",
    "paper_runs",
    "phase_diagram",
    "rate_limit",
    "refine_worlds",
    "rotated",
    "row_distance",
    "run_claims",
    "spectral_event",
    "spectrum",
    "surrogate",
    "surrogate_codes",
    "top_k",
]
