"""Honest comparison: every method on the same data, concepts and length, choices made on validation data."""

from ccr_lab.experiments.compare.by_epoch import curves_by_epoch
from ccr_lab.experiments.compare.comparison import Comparison, Failure, MeaningGap, Row, run_comparison
from ccr_lab.experiments.compare.methods import METHODS, Method, all_methods, methods_named, with_controls
from ccr_lab.experiments.compare.run import KEPT, Run, run_method
from ccr_lab.experiments.compare.task import Task, store_task

__all__ = [
    "KEPT",
    "METHODS",
    "Comparison",
    "Failure",
    "MeaningGap",
    "Method",
    "Row",
    "Run",
    "Task",
    "all_methods",
    "curves_by_epoch",
    "methods_named",
    "run_comparison",
    "run_method",
    "store_task",
    "with_controls",
]
