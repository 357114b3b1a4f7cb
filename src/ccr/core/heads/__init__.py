"""Linear heads on codes and their convex fits: ridge (L-BFGS) and the elastic-net path."""

from ccr.core.heads.elastic import ElasticNetPath, elastic_net_path, largest_alpha, optimality_violation
from ccr.core.heads.linear import LinearHead
from ccr.core.heads.softmax import fit_softmax, softmax_objective

__all__ = [
    "ElasticNetPath",
    "LinearHead",
    "elastic_net_path",
    "fit_softmax",
    "largest_alpha",
    "optimality_violation",
    "softmax_objective",
]
