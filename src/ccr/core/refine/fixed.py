"""Heads on fixed codes (docs/method.md): coders without a gradient make codes once, and the head, which alone is
convex, is fitted to them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ccr.core.coding import Coder, apply_rule, code_size
from ccr.core.heads import LinearHead, fit_softmax, softmax_objective
from ccr.core.refine.data import Labelled
from ccr.core.refine.measure import strongest, validate
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
    """The best head on the coder's codes, penalised as in training, solved again each time that weights are taken away;
    its history is one epoch."""
    rule = coder.rule(train.X, dictionary)
    codes = apply_rule(rule, train.X, dictionary)[train.rows]
    alpha = training.penalty(len(train.y)) * code_size(codes) ** 2
    size = np.sqrt(np.asarray(codes.multiply(codes).mean(axis=0)).ravel())
    solve = partial(fit_softmax, codes, train.y, classes=classes, alpha=alpha, sample_weight=train.weight)
    head = solve()
    for keep in training.fewer_weights(len(dictionary)):
        few = strongest(head.coef.T, size, keep).T
        head = solve(start=LinearHead(head.coef * few, head.intercept), fixed=~few)
    loss, _ = softmax_objective(head, codes.astype(np.float64), train.y, alpha=0.0, weight=train.weight)
    weights, bias = head.astype(np.float32).transposed()
    everything = np.arange(len(dictionary))
    fitted = Refinement(dictionary, weights, bias, rule, everything, (), 1, engine="head", stopped="solved")
    measured = validate(fitted, held_out)
    epoch = Epoch(1, loss, measured.loss, measured.accuracy, codes.nnz / len(train.y), 0.0, 0.0, rule.threshold)
    return replace(fitted, history=(epoch,))
