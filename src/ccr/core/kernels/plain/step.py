"""One training step of Algorithm 2 on sparse codes: O(b k (C + d)) beyond the product X D^T, and one pass over the
parameters."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled, fused
from ccr.core.kernels.plain.moving import move_concept, move_weights, multiply
from ccr.core.kernels.plain.vectors import add_row, copy_into, dot

ZERO = np.float32(0.0)


@fused
def slope_of(logits, y, share, total):  # type: ignore[no-untyped-def]
    """share * CE(logits, y); the logits become its derivatives by them, which are added to `total`."""
    top, own, mass = logits[0], logits[y], ZERO
    for column in range(len(logits)):
        top = max(top, logits[column])
    for column in range(len(logits)):
        power = np.exp(logits[column] - top)
        logits[column] = power
        mass += power
    factor = share / mass
    for column in range(len(logits)):
        slope = logits[column] * factor - (share if column == y else ZERO)
        logits[column] = slope
        total[column] += slope
    return share * (np.log(np.float64(mass)) + np.float64(top) - np.float64(own))


@compiled
def logits(pointers, indices, data, weights, bias, out):  # type: ignore[no-untyped-def]
    """out = S L + b for the codes S (b, n) and the head's weights L (n, C)."""
    for row in range(len(out)):
        copy_into(out[row], bias)
        for entry in range(pointers[row], pointers[row + 1]):
            add_row(out[row], data[entry], weights[indices[entry]])


@compiled
def head_slopes(codes, y, share, parameters, settings, slopes, bias_slope, through):  # type: ignore[no-untyped-def]
    """Loss `sum_i share_i CE(S L + b, y_i)` of the codes S, and its derivatives: by the logits into `slopes` (b, W), by
    the bias added to `bias_slope` (W,), by the scores, of which codes are `settings.keep` times as large, into
    `through` (entries,)."""
    pointers, indices, data = codes
    loss = 0.0
    logits(pointers, indices, data, parameters.weights, parameters.bias, slopes)
    for row in range(len(y)):
        loss += slope_of(slopes[row], y[row], share[row], bias_slope)
        if settings.refine:
            for entry in range(pointers[row], pointers[row + 1]):
                through[entry] = np.float32(settings.keep) * dot(slopes[row], parameters.weights[indices[entry]])
    return loss


@compiled
def move_concepts(first, last, entries, slopes, x, parameters, settings, pace):  # type: ignore[no-untyped-def]
    """Step the concepts first:last, each row of the head and, if it is refined, of the dictionary, by the batch's
    sorted entries, its derivatives by the logits `slopes` (b, W) and the rows x that it was made of."""
    head_slope, slope = np.empty(slopes.shape[1], np.float32), np.empty(x.shape[1], np.float32)
    weights, weight_moment, weight_size = parameters.weights, parameters.weight_moment, parameters.weight_size
    dictionary, moment, size = parameters.dictionary, parameters.dictionary_moment, parameters.dictionary_size
    center, allowed = parameters.center, parameters.allowed
    for concept in range(first, last):
        start, stop = entries.starts[concept], entries.starts[concept + 1]
        head_slope[:], slope[:] = ZERO, ZERO
        for entry in range(start, stop):
            add_row(head_slope, entries.codes[entry], slopes[entries.rows[entry]])
        if len(allowed) > 0:
            multiply(head_slope, allowed[concept])
        weight_size[concept] = move_weights(
            weights[concept], weight_moment[concept], weight_size[concept], head_slope, settings, pace
        )
        if settings.refine:
            for entry in range(start, stop):
                add_row(slope, entries.through[entry], x[entries.sources[entry]])
            size[concept] = move_concept(
                dictionary[concept], moment[concept], size[concept], center[concept], slope, settings, pace
            )
