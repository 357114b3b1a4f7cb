"""Multinomial elastic-net path, on which the rival Label-free CBM trains its head."""

from ccr_lab.elastic_net.path import ElasticNetPath, elastic_net_path, largest_alpha, optimality_violation

__all__ = ["ElasticNetPath", "elastic_net_path", "largest_alpha", "optimality_violation"]
