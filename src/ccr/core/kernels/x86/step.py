"""One training step of Algorithm 2 on sparse codes, with rows added up in registers; what each function does is said in
`ccr.core.kernels.plain.step`."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.plain.moving import move_concept, move_weights, multiply
from ccr.core.kernels.plain.vectors import copy_into
from ccr.core.kernels.x86.compiling import compiled, fused
from ccr.core.kernels.x86.exponential import exponentials
from ccr.core.kernels.x86.llvm import LANES
from ccr.core.kernels.x86.memory import address, fetch_array
from ccr.core.kernels.x86.vectors import add_rows, dot_and_add_rows, dot_rows

ZERO = np.float32(0.0)


@fused
def slope_of(logits, y, share, total):  # type: ignore[no-untyped-def]
    """Their number is a multiple of LANES; those FAR_BELOW count nothing and become zero."""
    own = logits[y]
    top, mass = exponentials(address(logits), len(logits) // LANES)
    factor = share / mass
    for column in range(len(logits)):
        slope = logits[column] * factor - (share if column == y else ZERO)
        logits[column] = slope
        total[column] += slope
    return share * (np.log(np.float64(mass)) + np.float64(top) - np.float64(own))


@fused
def head_slopes(codes, y, share, parameters, settings, slopes, bias_slope, through):  # type: ignore[no-untyped-def]
    pointers, indices, data = codes
    # Taken out once: numba counts references each time that an array is taken out of a tuple.
    weights, bias, keep, loss = parameters.weights, parameters.bias, np.float32(settings.keep), 0.0
    for row in range(len(y)):
        start, stop = np.int64(pointers[row]), np.int64(pointers[row + 1])
        slope = slopes[row]
        copy_into(slope, bias)
        add_rows(slope, data, weights, indices, start, stop)
        loss += slope_of(slope, y[row], share[row], bias_slope)
        if settings.refine:
            dot_rows(slope, weights, indices, start, stop, keep, through)
    return loss


@fused
def logits(pointers, indices, data, weights, bias, out):  # type: ignore[no-untyped-def]
    for row in range(len(out)):
        copy_into(out[row], bias)
        add_rows(out[row], data, weights, indices, np.int64(pointers[row]), np.int64(pointers[row + 1]))


@fused
def sparse_head_slopes(codes, y, share, bias, sparse, keep, chunk, bias_slope, through):  # type: ignore[no-untyped-def]
    """`head_slopes` of a head of few weights, whose gradient by this chunk goes to sparse.slopes[chunk]."""
    pointers, indices, data = codes
    starts, columns, values, own_slopes = sparse.starts, sparse.columns, sparse.values, sparse.slopes[chunk]
    slope, loss = np.empty(len(bias), np.float32), 0.0
    own_slopes[:] = ZERO
    for row in range(len(y)):
        copy_into(slope, bias)
        for entry in range(pointers[row], pointers[row + 1]):
            concept = indices[entry]
            for place in range(starts[concept], starts[concept + 1]):
                slope[columns[place]] += data[entry] * values[place]
        loss += slope_of(slope, y[row], share[row], bias_slope)
        for entry in range(pointers[row], pointers[row + 1]):
            concept, total = indices[entry], ZERO
            for place in range(starts[concept], starts[concept + 1]):
                own = slope[columns[place]]
                total += own * values[place]
                own_slopes[place] += data[entry] * own
            through[entry] = keep * total
    return loss


@compiled
def move_sparse_weights(concept, chunks, sparse, size, settings, pace):  # type: ignore[no-untyped-def]
    """Step a concept's few weights; its new running size."""
    first, last = sparse.starts[concept], sparse.starts[concept + 1]
    slope = np.zeros(last - first, np.float32)
    for chunk in range(chunks):
        for place in range(first, last):
            slope[place - first] += sparse.slopes[chunk, place]
    return move_weights(sparse.values[first:last], sparse.moments[first:last], size, slope, settings, pace)


@compiled
def count_concepts(indices, entries, counts):  # type: ignore[no-untyped-def]
    """counts[j] += how many of the first `entries` indices are j."""
    for entry in range(entries):
        counts[indices[entry]] += 1


@compiled
def by_concept(concept, row, codes, through, sources, positions, entries):  # type: ignore[no-untyped-def]
    """Put those of a chunk's codes that are of the len(positions) concepts from `concept` on among the batch's sorted
    `entries`: one of concept + j goes to positions[j], which moves on. Row r of the chunk is row + r of the batch and
    sources[r] of x."""
    pointers, indices, data = codes
    _, sorted_rows, sorted_sources, sorted_codes, sorted_through = entries
    for own in range(len(pointers) - 1):
        source = sources[own]
        for entry in range(pointers[own], pointers[own + 1]):
            place = indices[entry] - concept
            if 0 <= place < len(positions):
                position = positions[place]
                positions[place] = position + 1
                sorted_rows[position] = row + own
                sorted_sources[position] = source
                sorted_codes[position] = data[entry]
                sorted_through[position] = through[entry]


@compiled
def move_concepts(first, last, chunks, workspace, x, parameters, settings, pace):  # type: ignore[no-untyped-def]
    """With a wide head the derivatives by the scores are still to be found."""
    keep, wide = np.float32(settings.keep), len(workspace.logits) > 0
    head_slope, slope = np.empty(len(parameters.bias), np.float32), np.empty(x.shape[1], np.float32)
    starts, rows, sources, codes, through = workspace.entries
    slopes, sparse = workspace.slopes, workspace.sparse
    weights, weight_moment, weight_size = parameters.weights, parameters.weight_moment, parameters.weight_size
    dictionary, moment, size = parameters.dictionary, parameters.dictionary_moment, parameters.dictionary_size
    center, allowed = parameters.center, parameters.allowed
    for concept in range(first, last):
        start, stop = np.int64(starts[concept]), np.int64(starts[concept + 1])
        if len(sparse.starts) > 0:
            weight_size[concept] = move_sparse_weights(concept, chunks, sparse, weight_size[concept], settings, pace)
        else:
            head_slope[:] = ZERO
            if settings.refine and wide:
                dot_and_add_rows(weights[concept], codes, slopes, rows, start, stop, keep, through, head_slope)
            else:
                add_rows(head_slope, codes, slopes, rows, start, stop)
            if len(allowed) > 0:
                multiply(head_slope, allowed[concept])
            weight_size[concept] = move_weights(
                weights[concept], weight_moment[concept], weight_size[concept], head_slope, settings, pace
            )
        if not settings.refine:
            continue
        for needed in (dictionary, moment, center):
            fetch_array(needed[concept])
        slope[:] = ZERO
        add_rows(slope, through, x, sources, start, stop)
        size[concept] = move_concept(
            dictionary[concept], moment[concept], size[concept], center[concept], slope, settings, pace
        )
