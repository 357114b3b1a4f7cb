"""Comparisons whose every choice is made on validation data."""

from ccr.study.experiments.gain import Gain, Part, linear_probe, refinement_gain

__all__ = ["Gain", "Part", "linear_probe", "refinement_gain"]
