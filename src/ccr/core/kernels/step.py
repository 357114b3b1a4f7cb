"""One training step of METHOD 3 on sparse codes: O(b k (C + d)) beyond the product X D^T, and one pass over the
parameters."""

from __future__ import annotations

import numpy as np

from ccr.core.kernels.compiling import comparing, compiled, fused, summing

ZERO, ONE = np.float32(0.0), np.float32(1.0)


@fused
def add_rows(total, factors, matrix, rows, start, stop):  # type: ignore[no-untyped-def]
    """total += sum over entries e in start:stop of factors[e] * matrix[rows[e]], four rows at a time so that `total`
    is read and written a quarter as often."""
    width = len(total)
    entry = start
    while entry + 4 <= stop:
        a, b, c, d = factors[entry], factors[entry + 1], factors[entry + 2], factors[entry + 3]
        ra, rb, rc, rd = matrix[rows[entry]], matrix[rows[entry + 1]], matrix[rows[entry + 2]], matrix[rows[entry + 3]]
        for column in range(width):
            total[column] += (a * ra[column] + b * rb[column]) + (c * rc[column] + d * rd[column])
        entry += 4
    while entry < stop:
        a, ra = factors[entry], matrix[rows[entry]]
        for column in range(width):
            total[column] += a * ra[column]
        entry += 1


@summing
def dot(left, right):  # type: ignore[no-untyped-def]
    total = ZERO
    for column in range(len(left)):
        total += left[column] * right[column]
    return total


@summing
def dot_rows(vector, matrix, rows, start, stop, factor, out):  # type: ignore[no-untyped-def]
    """out[e] = factor * <vector, matrix[rows[e]]> for entries e in start:stop, four at a time."""
    width = len(vector)
    entry = start
    while entry + 4 <= stop:
        ra, rb, rc, rd = matrix[rows[entry]], matrix[rows[entry + 1]], matrix[rows[entry + 2]], matrix[rows[entry + 3]]
        a, b, c, d = ZERO, ZERO, ZERO, ZERO
        for column in range(width):
            value = vector[column]
            a += value * ra[column]
            b += value * rb[column]
            c += value * rc[column]
            d += value * rd[column]
        out[entry], out[entry + 1], out[entry + 2], out[entry + 3] = factor * a, factor * b, factor * c, factor * d
        entry += 4
    while entry < stop:
        out[entry] = factor * dot(vector, matrix[rows[entry]])
        entry += 1


@comparing
def largest(values):  # type: ignore[no-untyped-def]
    best = values[0]
    for column in range(len(values)):
        best = max(best, values[column])
    return best


@summing
def total(values):  # type: ignore[no-untyped-def]
    result = ZERO
    for column in range(len(values)):
        result += values[column]
    return result


@fused
def exponentials(values, shift, powers, scales):  # type: ignore[no-untyped-def]
    """values = exp(values - shift) for values <= shift, to two units in the last place (Cephes' polynomial, written
    out because numba's own exp is not vectorised). `scales` is the memory of `powers` read as floats."""
    for column in range(len(values)):
        x = max(values[column] - shift, np.float32(-87.0))
        whole = np.floor(x * np.float32(1.44269504088896341) + np.float32(0.5))
        # The logarithm of 2 in two parts, the first exact in few bits.
        x = x - whole * np.float32(0.693359375)
        x = x - whole * np.float32(-2.12194440e-4)
        y = np.float32(1.9875691500e-4)
        y = y * x + np.float32(1.3981999507e-3)
        y = y * x + np.float32(8.3334519073e-3)
        y = y * x + np.float32(4.1665795894e-2)
        y = y * x + np.float32(1.6666665459e-1)
        y = y * x + np.float32(5.0000001201e-1)
        values[column] = y * (x * x) + x + ONE
        powers[column] = (np.int32(whole) + np.int32(127)) << np.int32(23)
    for column in range(len(values)):
        values[column] *= scales[column]


@fused
def head_slopes(pointers, indices, data, keep, y, share, weights, bias, refine, slopes, bias_slope, through):  # type: ignore[no-untyped-def]
    """Loss `sum_i share_i CE(S L + b, y_i)` of the codes S = keep * data, and its derivatives: by the logits into
    `slopes` (b, C), by the bias added to `bias_slope` (C,), by the scores into `through` (entries,).

    `data` becomes keep * data, the codes.
    """
    classes = len(bias)
    powers = np.empty(classes, np.int32)
    scales = powers.view(np.float32)
    loss = 0.0
    for row in range(len(y)):
        start, stop = pointers[row], pointers[row + 1]
        for entry in range(start, stop):
            data[entry] *= keep
        slope = slopes[row]
        slope[:] = bias
        add_rows(slope, data, weights, indices, start, stop)
        top, own = largest(slope), slope[y[row]]
        exponentials(slope, top, powers, scales)
        mass = total(slope)
        loss += share[row] * (np.log(np.float64(mass)) + np.float64(top) - np.float64(own))
        factor = share[row] / mass
        for column in range(classes):
            slope[column] *= factor
        slope[y[row]] -= share[row]
        for column in range(classes):
            bias_slope[column] += slope[column]
        if refine:
            dot_rows(slope, weights, indices, start, stop, keep, through)
    return loss


@fused
def logits(pointers, indices, data, weights, bias, out):  # type: ignore[no-untyped-def]
    """out = S L + b for the codes S (b, n) and the head's weights L (n, C)."""
    for row in range(len(out)):
        out[row] = bias
        add_rows(out[row], data, weights, indices, pointers[row], pointers[row + 1])


@compiled
def count_concepts(indices, entries, counts):  # type: ignore[no-untyped-def]
    """counts[j] += how many of the first `entries` indices are j."""
    for entry in range(entries):
        counts[indices[entry]] += 1


@compiled
def by_concept(first, pointers, indices, data, through, places, rows, codes, slopes):  # type: ignore[no-untyped-def]
    """Sort a block's entries, whose first row is `first` of the batch, by concept: entry of concept j goes to
    places[j], which moves on."""
    for row in range(len(pointers) - 1):
        for entry in range(pointers[row], pointers[row + 1]):
            concept = indices[entry]
            place = places[concept]
            places[concept] = place + 1
            rows[place] = first + row
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


@fused
def stride(rate, size, square, adaptive, unbias, unbias_size):  # type: ignore[no-untyped-def]
    """What the moment is multiplied by, and the new running size of the slope (`DenseEngine._direction`)."""
    if not adaptive:
        return np.float32(rate), size
    size = np.float32(0.99) * size + np.float32(1.0 - 0.99) * square
    return np.float32(rate / unbias / (np.sqrt(size / unbias_size) + 1e-12)), size


@summing
def chord(left, right):  # type: ignore[no-untyped-def]
    """Distance of two rows."""
    square = ZERO
    for column in range(len(left)):
        difference = left[column] - right[column]
        square += difference * difference
    return np.sqrt(square)


@summing
def scaled(row, factor):  # type: ignore[no-untyped-def]
    for column in range(len(row)):
        row[column] *= factor


@summing
def without(row, direction, out):  # type: ignore[no-untyped-def]
    """out = the part of `row` orthogonal to the unit `direction`; its squared length."""
    along, square = dot(row, direction), ZERO
    for column in range(len(row)):
        out[column] = row[column] - along * direction[column]
        square += out[column] * out[column]
    return square


@compiled
def normalise(row, center):  # type: ignore[no-untyped-def]
    """Divide a row by its norm, in place; zeros become the center."""
    square = dot(row, row)
    if not (square > np.float32(1e-30) and square < np.float32(1e30)):
        # Scaled first, so that squares neither vanish nor overflow.
        most = ZERO
        for column in range(len(row)):
            most = max(most, abs(row[column]))
        if most == ZERO:
            row[:] = center
            return
        for column in range(len(row)):
            row[column] /= most
        square = dot(row, row)
    scaled(row, ONE / np.sqrt(square))


@compiled
def cap_row(row, center, radius, across):  # type: ignore[no-untyped-def]
    """Nearest unit vector to `row` within chord distance `radius` of its unit center, in place (METHOD 5)."""
    normalise(row, center)
    if chord(row, center) <= radius:
        return
    if len(row) == 1:
        row[:] = center  # on a line the cap is the center alone, until the radius reaches 2
        return
    square = without(row, center, across)
    if np.sqrt(square) <= np.float32(4.8e-7):
        # Opposite to its center: toward the coordinate axis least like the center.
        across[:] = ZERO
        across[np.argmin(np.abs(center))] = ONE
        square = without(across, center, across)
    scaled(across, ONE / np.sqrt(square))
    square = without(across, center, across)
    out = np.float32(radius * np.sqrt(1.0 - radius * radius / 4.0)) / np.sqrt(square)
    along = np.float32(1.0 - radius * radius / 2.0)
    for column in range(len(row)):
        row[column] = along * center[column] + out * across[column]


@compiled
def move_concepts(  # type: ignore[no-untyped-def]
    start, stop, adaptive, momentum, unbias, unbias_size,
    starts, rows, codes, slopes, logit_slopes, x,
    weights, weight_moment, weight_size, penalty, head_rate,
    refine, dictionary, dictionary_moment, dictionary_size, center, radius, dictionary_rate,
):  # fmt: skip
    """Step concepts start:stop: head row and dictionary row, each with gradient, momentum and constraint while it is
    in the cache. Entries of concept j, sorted, are at starts[j]:starts[j + 1] of `rows`, `codes`, `slopes`."""
    classes, d = weights.shape[1], x.shape[1]
    decay = np.float32(momentum)
    fresh = np.float32(1.0 - momentum) if adaptive else ONE
    head_slope, slope = np.empty(classes, np.float32), np.empty(d, np.float32)
    for concept in range(start, stop):
        first, last = starts[concept], starts[concept + 1]
        head_slope[:] = ZERO
        add_rows(head_slope, codes, logit_slopes, rows, first, last)
        square = penalised(head_slope, weights[concept], penalty) / np.float32(classes)
        step, weight_size[concept] = stride(head_rate, weight_size[concept], square, adaptive, unbias, unbias_size)
        advance(weights[concept], weight_moment[concept], head_slope, decay, fresh, step)
        if not refine:
            continue
        row = dictionary[concept]
        slope[:] = ZERO
        add_rows(slope, slopes, x, rows, first, last)
        square = ZERO
        if adaptive:
            square = without(slope, row, slope)  # along the row, normalising undoes every step
        step, size = stride(dictionary_rate, dictionary_size[concept], square, adaptive, unbias, unbias_size)
        dictionary_size[concept] = size
        advance(row, dictionary_moment[concept], slope, decay, fresh, step)
        cap_row(row, center[concept], radius, slope)
