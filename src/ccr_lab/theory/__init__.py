"""The generative testbed of Algorithm 1 (docs/method.md), and the theorems as checks that can fail."""

from ccr_lab.theory.claims import GROUPS, run_claims
from ccr_lab.theory.metric import check_embeddings, isotropy_table
from ccr_lab.theory.pursuit import estimator_loss
from ccr_lab.theory.refinement import refine_worlds
from ccr_lab.theory.testbed import Testbed

__all__ = ["GROUPS", "Testbed", "check_embeddings", "estimator_loss", "isotropy_table", "refine_worlds", "run_claims"]
