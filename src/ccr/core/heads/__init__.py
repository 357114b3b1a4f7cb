"""Linear heads on codes and their convex fits: ridge (L-BFGS, sparse and dense) and the elastic-net path."""

from ccr.core.heads.dense_softmax import DenseSoftmax
from ccr.core.heads.elastic import ElasticNetPath, elastic_net_path, largest_alpha, optimality_violation
from ccr.core.heads.linear import LinearHead, entry_logits
from ccr.core.heads.softmax import fit_softmax, softmax_objective

__all__ = [
    "DenseSoftmax",
    "ElasticNetPath",
    "LinearHead",
    "elastic_net_path",
    "entry_logits",
    "fit_softmax",
    "largest_alpha",
    "optimality_violation",
    "softmax_objective",
]
