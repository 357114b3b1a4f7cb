"""Coders without a gradient (METHOD 1): codes are made once, and the head, which alone is convex, is fitted to them."""

from __future__ import annotations

import numpy as np

from ccr.core.coding import Coder, apply_rule
from ccr.core.heads import fit_softmax, softmax_objective
from ccr.core.refine.data import Labelled
from ccr.core.refine.engine import State
from ccr.core.refine.measure import validate
from ccr.core.refine.options import Training
from ccr.core.refine.progress import Epoch, Refinement


def fit_head(
    dictionary: np.ndarray,
    train: Labelled,
    held_out: Labelled | None,
    *,
    coder: Coder,
    classes: int,
    training: Training,
) -> Refinement:
    """The best head on the coder's codes, penalised as in training; its history is one epoch."""
    rule = coder.rule(train.X, dictionary)
    codes = apply_rule(rule, train.X, dictionary)[train.rows]
    scale = float(np.sqrt(np.mean(codes.data.astype(np.float64) ** 2))) if codes.nnz else 1.0
    alpha = training.penalty(len(train.y)) * scale**2
    head = fit_softmax(codes, train.y, classes=classes, alpha=alpha, sample_weight=train.weight)
    loss, _ = softmax_objective(head, codes.astype(np.float64), train.y, alpha=0.0, weight=train.weight)
    state = State(dictionary, np.ascontiguousarray(head.coef.T, np.float32), head.intercept.astype(np.float32), rule)
    missed, accuracy = validate(state, held_out)
    length = codes.nnz / len(train.y)
    history = (Epoch(1, loss, missed, accuracy, length, 0.0, 0.0, rule.threshold),)
    return Refinement(state.dictionary, state.weights, state.bias, rule, history, 1)
