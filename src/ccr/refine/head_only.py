"""Heads on fixed codes (docs/method.md): coders without a gradient make codes once, and the head, which alone is
convex, is fitted to them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from scipy import sparse

from ccr.coding import Coder, apply_rule, code_size
from ccr.heads import LinearHead, fit_softmax, softmax_objective
from ccr.refine.data import Candidates, Labelled, Permitted, candidates_for
from ccr.refine.measure import Epoch, Refinement, strongest, validate
from ccr.refine.options import Training


def fit_head(
    dictionary: np.ndarray,
    train: Labelled,
    held_out: Labelled | None,
    *,
    coder: Coder,
    classes: int,
    training: Training,
    permitted: Permitted | None = None,
) -> Refinement:
    """The best head on the coder's codes, penalised as in training; its history is one epoch."""
    rule = coder.rule(train.X, dictionary)
    codes = apply_rule(rule, train.X, dictionary)[train.rows]
    head = solve_head(
        codes,
        train.y,
        classes=classes,
        training=training,
        sample_weight=train.weight,
        fixed=None if permitted is None else ~permitted.allowed.T,
        candidates=candidates_for(dictionary, train, classes, training, permitted=permitted),
    )
    loss, _ = softmax_objective(head, codes.astype(np.float64), train.y, alpha=0.0, weight=train.weight)
    weights, bias = head.astype(np.float32).transposed()
    everything = np.arange(len(dictionary))
    fitted = Refinement(dictionary, weights, bias, rule, everything, (), 1, engine="head", stopped="solved")
    measured = validate(fitted, held_out)
    epoch = Epoch(1, loss, measured.loss, measured.accuracy, codes.nnz / len(train.y), 0.0, 0.0, rule.threshold)
    return replace(fitted, history=(epoch,))


def solve_head(
    codes: sparse.csr_matrix,
    y: np.ndarray,
    *,
    classes: int,
    training: Training,
    sample_weight: np.ndarray | None = None,
    start: LinearHead | None = None,
    fixed: np.ndarray | None = None,
    candidates: Candidates | None = None,
) -> LinearHead:
    """The best head on these codes (m, n), penalised and with as many weights per class as in training, of its
    `candidates` if there are any: solved again each time that weights are taken away. Weights that are `fixed`
    (classes, n) stay as in `start`, not counted."""
    alpha = training.penalty(len(y)) * code_size(codes) ** 2
    size = np.sqrt(np.asarray(codes.multiply(codes).mean(axis=0)).ravel())
    one_sided = bool((codes.data >= 0).all())
    free = np.ones((classes, codes.shape[1]), bool) if fixed is None else ~fixed
    solve = partial(fit_softmax, codes, y, classes=classes, alpha=alpha, sample_weight=sample_weight)
    head = solve(start=start, fixed=~free)
    for keep in training.fewer_weights(codes.shape[1]):
        few = strongest((head.coef * free).T, size, keep, candidates, one_sided=one_sided).T
        head = solve(start=LinearHead(head.coef * (few | ~free), head.intercept), fixed=~few)
    return head
