"""Comparisons whose every choice is made on validation data."""

from ccr.study.experiments.gain import Gain, one_thread_each, refinement_gain
from ccr.study.experiments.part import Part
from ccr.study.experiments.probe import probe_accuracy

__all__ = ["Gain", "Part", "one_thread_each", "probe_accuracy", "refinement_gain"]
