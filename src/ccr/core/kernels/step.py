"""One training step of METHOD 3 on sparse codes: O(b k (C + d)) beyond the product X D^T, and one pass over the
parameters."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import compiled, fused, summing
from ccr.core.kernels.exponential import exponentials
from ccr.core.kernels.llvm import LANES
from ccr.core.kernels.tiles import address, fetch_array
from ccr.core.kernels.vectors import add_rows, copy_into, dot, dot_and_add_rows, dot_rows

ZERO, ONE = np.float32(0.0), np.float32(1.0)
#: Decay of the running gradient size, the same as in `ccr.core.refine.dense`.
SIZE_DECAY = 0.99
#: The bias beyond the last class: no class has such a logit.
FAR_BELOW = np.float32(-3e38)


@fused
def slope_of(logits, y, share, total, extremes):  # type: ignore[no-untyped-def]
    """share * CE(logits, y); the logits become its derivatives by them, which are added to `total`. Their number is a
    multiple of LANES; those FAR_BELOW count nothing and become zero."""
    own = logits[y]
    exponentials(address(logits), len(logits) // LANES, address(extremes))
    top, mass = extremes[0], extremes[1]
    factor = share / mass
    for column in range(len(logits)):
        slope = logits[column] * factor - (share if column == y else ZERO)
        logits[column] = slope
        total[column] += slope
    return share * (np.log(np.float64(mass)) + np.float64(top) - np.float64(own))


@fused
def head_slopes(pointers, indices, codes, keep, y, share, weights, bias, refine, slopes, bias_slope, through):  # type: ignore[no-untyped-def]
    """Loss `sum_i share_i CE(S L + b, y_i)` of the codes S, and its derivatives: by the logits into `slopes` (b, W), by
    the bias added to `bias_slope` (W,), by the scores, of which codes are `keep` times as large, into `through`
    (entries,). The width W of all rows is a multiple of LANES; beyond the classes weights are zero and the bias is
    FAR_BELOW."""
    extremes, loss = np.empty(2, np.float32), 0.0
    for row in range(len(y)):
        start, stop = np.int64(pointers[row]), np.int64(pointers[row + 1])
        slope = slopes[row]
        copy_into(slope, bias)
        add_rows(slope, codes, weights, indices, start, stop)
        loss += slope_of(slope, y[row], share[row], bias_slope, extremes)
        if refine:
            dot_rows(slope, weights, indices, start, stop, keep, through)
    return loss


@fused
def logits(pointers, indices, data, weights, bias, out):  # type: ignore[no-untyped-def]
    """out = S L + b for the codes S (b, n) and the head's weights L (n, C)."""
    for row in range(len(out)):
        copy_into(out[row], bias)
        add_rows(out[row], data, weights, indices, np.int64(pointers[row]), np.int64(pointers[row + 1]))


@compiled
def count_concepts(indices, entries, counts):  # type: ignore[no-untyped-def]
    """counts[j] += how many of the first `entries` indices are j."""
    for entry in range(entries):
        counts[indices[entry]] += 1


@compiled
def by_concept(first, pointers, indices, data, through, sources, places, rows, x_rows, codes, slopes):  # type: ignore[no-untyped-def]
    """Sort a block's entries, whose first row is `first` of the batch, by concept: entry of concept j goes to
    places[j], which moves on. Row r of the block is row sources[r] of x."""
    for row in range(len(pointers) - 1):
        source = sources[row]
        for entry in range(pointers[row], pointers[row + 1]):
            concept = indices[entry]
            place = places[concept]
            places[concept] = place + 1
            rows[place] = first + row
            x_rows[place] = source
            codes[place] = data[entry]
            slopes[place] = through[entry]


@summing
def penalised(slope, weights, penalty):  # type: ignore[no-untyped-def]
    """slope += penalty * weights; the sum of its squares."""
    square = ZERO
    for column in range(len(slope)):
        slope[column] += penalty * weights[column]
        square += slope[column] * slope[column]
    return square


@fused
def advance(parameters, moment, slope, decay, fresh, step):  # type: ignore[no-untyped-def]
    """moment = decay * moment + fresh * slope; parameters -= step * moment."""
    for column in range(len(parameters)):
        moment[column] = decay * moment[column] + fresh * slope[column]
        parameters[column] -= step * moment[column]


@summing
def turn(row, moment, slope, along, decay, fresh, step):  # type: ignore[no-untyped-def]
    """moment = decay * moment + fresh * (slope - along * row); row -= step * moment; its new squared length."""
    square = ZERO
    for column in range(len(row)):
        own = row[column]
        new = decay * moment[column] + fresh * (slope[column] - along * own)
        moment[column] = new
        own -= step * new
        row[column] = own
        square += own * own
    return square


@fused
def stride(rate, size, square, adaptive, unbias, unbias_size):  # type: ignore[no-untyped-def]
    """What the moment is multiplied by, and the new running size of the slope (`DenseEngine._direction`)."""
    if not adaptive:
        return np.float32(rate), size
    size = np.float32(SIZE_DECAY) * size + np.float32(1.0 - SIZE_DECAY) * square
    return np.float32(rate / unbias / (np.sqrt(size / unbias_size) + 1e-12)), size


@summing
def beside(row, direction):  # type: ignore[no-untyped-def]
    """<row, direction>, and the squared length of what is left of the row without that part, direction a unit."""
    along, square = ZERO, ZERO
    for column in range(len(row)):
        along += row[column] * direction[column]
    for column in range(len(row)):
        rest = row[column] - along * direction[column]
        square += rest * rest
    return along, square


@summing
def scaled_from(row, factor, center):  # type: ignore[no-untyped-def]
    """row *= factor; then its squared distance from the center."""
    square = ZERO
    for column in range(len(row)):
        own = row[column] * factor
        row[column] = own
        square += (own - center[column]) * (own - center[column])
    return square


@fused
def mixed(row, a, center, b):  # type: ignore[no-untyped-def]
    """row = a * row + b * center."""
    for column in range(len(row)):
        row[column] = a * row[column] + b * center[column]


@compiled
def unit_length(row, center):  # type: ignore[no-untyped-def]
    """Divide a row, whose squares vanish or overflow, by its norm, in place; zeros become the center."""
    most = ZERO
    for column in range(len(row)):
        most = max(most, abs(row[column]))
    if most == ZERO:
        copy_into(row, center)
        return
    for column in range(len(row)):
        row[column] /= most
    mixed(row, ONE / np.sqrt(dot(row, row)), center, ZERO)


@compiled
def turned_beside(row, center):  # type: ignore[no-untyped-def]
    """Make a unit row, far from its center, the unit direction of what is beside the center, in place."""
    mixed(row, ONE, center, -dot(row, center))
    if np.sqrt(dot(row, row)) <= np.float32(4.8e-7):
        # Opposite to its center: toward the coordinate axis least like the center.
        row[:] = ZERO
        row[np.argmin(np.abs(center))] = ONE
    for _ in range(2):  # twice, because the first time rounding can leave much of the center
        mixed(row, ONE, center, -dot(row, center))
        mixed(row, ONE / np.sqrt(dot(row, row)), center, ZERO)


@compiled
def cap_row(row, center, radius, square):  # type: ignore[no-untyped-def]
    """Nearest unit vector to `row`, of squared length `square`, within chord distance `radius` of its unit center, in
    place (METHOD 5)."""
    if not (square > np.float32(1e-30) and square < np.float32(1e30)):
        unit_length(row, center)
        square = ONE
    apart = scaled_from(row, ONE / np.sqrt(square), center)
    if np.sqrt(apart) <= radius:
        return
    if len(row) == 1:
        copy_into(row, center)  # on a line the cap is the center alone, until the radius reaches 2
        return
    along = np.float32(1.0 - radius * radius / 2.0)
    across = np.float32(radius * np.sqrt(1.0 - radius * radius / 4.0))
    if apart > np.float32(2.0):
        turned_beside(row, center)
        mixed(row, across, center, along)
        return
    # Of unit rows at squared distance q the part along the center is 1 - q / 2, what is beside it has the length
    # sqrt(q (1 - q / 4)).
    across /= np.sqrt(apart * (ONE - apart / np.float32(4.0)))
    mixed(row, across, center, along - across * (ONE - apart / np.float32(2.0)))


@compiled
def move_concepts(  # type: ignore[no-untyped-def]
    start, stop, classes, adaptive, momentum, unbias, unbias_size,
    starts, rows, x_rows, codes, slopes, logit_slopes, x,
    weights, weight_moment, weight_size, penalty, head_rate,
    refine, through_first, keep, dictionary, dictionary_moment, dictionary_size, center, radius, dictionary_rate,
):  # fmt: skip
    """Step concepts start:stop: head row and dictionary row, each with gradient, momentum and constraint while it is
    in the cache. Entries of concept j, sorted, are at starts[j]:starts[j + 1]: their `rows` of the batch and `x_rows`
    of x, `codes`, and `slopes` by the score. `through_first`: the slopes are still to be found."""
    d = x.shape[1]
    decay = np.float32(momentum)
    fresh = np.float32(1.0 - momentum) if adaptive else ONE
    head_slope, slope = np.empty(weights.shape[1], np.float32), np.empty(d, np.float32)
    for concept in range(start, stop):
        first, last = np.int64(starts[concept]), np.int64(starts[concept + 1])
        head_slope[:] = ZERO
        if refine and through_first:
            dot_and_add_rows(weights[concept], codes, logit_slopes, rows, first, last, keep, slopes, head_slope)
        else:
            add_rows(head_slope, codes, logit_slopes, rows, first, last)
        square = penalised(head_slope, weights[concept], penalty) / np.float32(classes)
        step, weight_size[concept] = stride(head_rate, weight_size[concept], square, adaptive, unbias, unbias_size)
        advance(weights[concept], weight_moment[concept], head_slope, decay, fresh, step)
        if not refine:
            continue
        row = dictionary[concept]
        for needed in (row, dictionary_moment[concept], center[concept]):
            fetch_array(needed)
        slope[:] = ZERO
        add_rows(slope, slopes, x, x_rows, first, last)
        along, square = ZERO, ZERO
        if adaptive:
            along, square = beside(slope, row)  # along the row, normalising undoes every step
        step, size = stride(dictionary_rate, dictionary_size[concept], square, adaptive, unbias, unbias_size)
        dictionary_size[concept] = size
        square = turn(row, dictionary_moment[concept], slope, along, decay, fresh, step)
        cap_row(row, center[concept], radius, square)
