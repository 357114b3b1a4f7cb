"""Comparisons whose every choice is made on validation data."""

from ccr.study.experiments.gain import Gain, Part, linear_probe, one_thread_each, refinement_gain

__all__ = ["Gain", "Part", "linear_probe", "one_thread_each", "refinement_gain"]
