"""Kernels of the pursuits, OMP and IP-OMP (Information pursuit, docs/method.md), and of the non-negative lasso, by the
Gram matrix.

Pursuits grow an orthonormal basis of the selected rows by one a step. What is left of a row after projection is a
difference of near-equal numbers: `pursue_fast` works in float32 and gives up an image as soon as that could change a
choice; `pursue` works in float64.
"""

from __future__ import annotations

import numpy as np

from ccr.kernels.compiling import comparing, compiled, fused

# Non-negative lasso by the Gram matrix: coordinate descent on an active set, then a check of all entries. Coordinate
# descent is slow where concepts are nearly the same; there, joint steps of all positive entries help.

#: Sweeps between two joint steps, and the largest number of entries of a joint step.
SWEEPS, MOST_JOINT = 4, 256
#: Added to the Gram matrix's diagonal in joint steps, as a part of it: duplicates make it singular.
JITTER = 1e-12


@fused
def _residuals(gram, line, active, count, code, rest):  # type: ignore[no-untyped-def]
    """rest[i] = <d_i, x - s D>, from the scores `line` and the active entries of the code s."""
    rest[:] = line
    for place in range(count):
        row = active[place]
        value, products = code[row], gram[row]
        for column in range(len(rest)):
            rest[column] -= value * products[column]


@compiled
def _violation(rest, code, alpha):  # type: ignore[no-untyped-def]
    """Violation of optimality by the worst entry: rest = alpha where the code is positive, rest <= alpha elsewhere."""
    worst = 0.0
    for row in range(len(rest)):
        miss = rest[row] - alpha
        if code[row] > 0.0:
            miss = abs(miss)
        worst = max(worst, miss)
    return worst


@compiled
def _sweep(gram, active, count, alpha, code, rest):  # type: ignore[no-untyped-def]
    """Set every active entry to its best value given the others; the largest violation found on the way."""
    worst = 0.0
    for place in range(count):
        row = active[place]
        square = gram[row, row]
        before = code[row]
        after = max(0.0, before + (rest[row] - alpha) / square)
        step = after - before
        if step != 0.0:
            code[row] = after
            worst = max(worst, abs(step) * square)
            for other in range(count):
                rest[active[other]] -= step * gram[row, active[other]]
    return worst


@compiled
def _solve(gram, chosen, count, factor, step):  # type: ignore[no-untyped-def]
    """step = solution of the chosen part of the Gram matrix times step = `step`, by Cholesky's factor."""
    for row in range(count):
        for column in range(row + 1):
            value = gram[chosen[row], chosen[column]]
            for inner in range(column):
                value -= factor[row, inner] * factor[column, inner]
            if row > column:
                factor[row, column] = value / factor[column, column]
            else:
                least = JITTER * gram[chosen[row], chosen[row]]
                factor[row, row] = np.sqrt(max(value + least, least))
    for row in range(count):
        for inner in range(row):
            step[row] -= factor[row, inner] * step[inner]
        step[row] /= factor[row, row]
    for row in range(count - 1, -1, -1):
        for inner in range(row + 1, count):
            step[row] -= factor[inner, row] * step[inner]
        step[row] /= factor[row, row]


@compiled
def _together(gram, active, count, alpha, code, rest, chosen, factor, step):  # type: ignore[no-untyped-def]
    """Move all positive entries toward their joint optimum until one becomes zero, and on without it."""
    stopped = True
    while stopped:
        size = 0
        for place in range(count):
            if code[active[place]] > 0.0:
                if size == len(chosen):
                    return
                chosen[size] = active[place]
                step[size] = rest[active[place]] - alpha
                size += 1
        _solve(gram, chosen, size, factor, step)
        part, stopped = 1.0, False
        for place in range(size):
            if code[chosen[place]] + part * step[place] < 0.0:
                part, stopped = -code[chosen[place]] / step[place], True
        for place in range(size):
            row = chosen[place]
            before = code[row]
            after = before + part * step[place]
            # The entry that stopped the step becomes exactly zero, despite rounding.
            code[row] = after if after > 1e-15 * before else 0.0
            for other in range(count):
                rest[active[other]] -= (code[row] - before) * gram[row, active[other]]


@compiled
def _grow(rest, code, alpha, active, count):  # type: ignore[no-untyped-def]
    """Active entries: those that are positive, and zeros that violate the optimality half as much as the worst or
    more."""
    kept, most = 0, 0.0
    for place in range(count):
        if code[active[place]] > 0.0:
            active[kept] = active[place]
            kept += 1
    for row in range(len(rest)):
        if code[row] == 0.0:
            most = max(most, rest[row] - alpha)
    for row in range(len(rest)):
        if code[row] == 0.0 and most > 0.0 and rest[row] - alpha >= 0.5 * most:
            active[kept] = row
            kept += 1
    return kept


@compiled
def nonnegative_lasso(gram, scores, alpha, tol, max_iter):  # type: ignore[no-untyped-def]
    """Codes argmin_{s >= 0} |x - s D|^2 / 2 + alpha |s|_1, alpha > 0, of rows with these `scores` = <d_i, x> (b, n);
    they overwrite the scores. All in float64.

    A row is done when no optimality condition is violated by more than `tol` times its largest score, or after
    `max_iter` sweeps. Returns how many rows were not done.
    """
    n = len(gram)
    active, code, rest = np.empty(n, np.int64), np.empty(n), np.empty(n)
    joint = min(n, MOST_JOINT)
    chosen, factor, step = np.empty(joint, np.int64), np.empty((joint, joint)), np.empty(joint)
    unfinished = 0
    for item in range(len(scores)):
        line = scores[item]
        code[:] = 0.0
        rest[:] = line
        top = line[0]
        for row in range(n):
            top = max(top, line[row])
        allowed, sweeps, count = tol * top, 0, 0
        while top > alpha and _violation(rest, code, alpha) > allowed:
            if sweeps >= max_iter:
                unfinished += 1
                break
            count = _grow(rest, code, alpha, active, count)
            while sweeps < max_iter:
                sweeps += 1
                if _sweep(gram, active, count, alpha, code, rest) <= 0.25 * allowed:
                    break
                if sweeps % SWEEPS == 0:
                    _together(gram, active, count, alpha, code, rest, chosen, factor, step)
            # Computed afresh, so that rounding does not add up over the sweeps.
            _residuals(gram, line, active, count, code, rest)
        line[:] = code
    return unfinished


#: Stop when this part of |x| is left; never select a row of which less than this part is left (Information pursuit,
#: docs/method.md).
SMALLEST_REST = 1e-6
#: A gain below this part of |x| is rounding.
SMALLEST_GAIN = 1e-12
#: In float32, least part of |x|^2 and of |d|^2 that may be left.
LEAST_FAST = np.float32(1e-3)
#: Entries worked on at once.
WIDE = 64


@fused
def _gains(scores, left, floor, information, gains):  # type: ignore[no-untyped-def]
    """Selection gain of each row: <P d, P x>^2, for IP-OMP divided by |P d|^2; 0 for rows that are used up."""
    if information:
        for row in range(len(scores)):
            gain = scores[row] * scores[row] / left[row]
            gains[row] = gain if left[row] > floor[row] else 0.0
    else:
        for row in range(len(scores)):
            gains[row] = scores[row] * scores[row] if left[row] > floor[row] else 0.0


@comparing
def _largest(values):  # type: ignore[no-untyped-def]
    best = values[0]
    for place in range(len(values)):
        best = max(best, values[place])
    return best


@compiled
def _first(values, wanted):  # type: ignore[no-untyped-def]
    for place in range(len(values)):
        if values[place] == wanted:
            return place
    return 0


@fused
def _project(basis, step, chosen, line):  # type: ignore[no-untyped-def]
    """line[i] = <P d_chosen, d_i>: the Gram row without its part in the first `step` basis vectors."""
    n = len(line)
    done = 0
    while done + 4 <= step:
        a, b, c, d = basis[done, chosen], basis[done + 1, chosen], basis[done + 2, chosen], basis[done + 3, chosen]
        ra, rb, rc, rd = basis[done], basis[done + 1], basis[done + 2], basis[done + 3]
        for row in range(n):
            line[row] -= (a * ra[row] + b * rb[row]) + (c * rc[row] + d * rd[row])
        done += 4
    while done < step:
        a, ra = basis[done, chosen], basis[done]
        for row in range(n):
            line[row] -= a * ra[row]
        done += 1


@fused
def _deflate(line, scale, part, scores, left):  # type: ignore[no-untyped-def]
    """line *= scale (a basis vector's products with all rows); take it out of the scores and lengths."""
    for row in range(len(line)):
        value = line[row] * scale
        line[row] = value
        scores[row] -= part * value
        left[row] -= value * value


@fused
def _deflate_fast(line, scale, part, scores, left, information, gains):  # type: ignore[no-untyped-def]
    """`_deflate` and the gains after it in one pass."""
    for row in range(len(line)):
        value = line[row] * scale
        line[row] = value
        score = scores[row] - part * value
        rest = left[row] - value * value
        scores[row] = score
        left[row] = rest
        gains[row] = score * score / rest if information else score * score


@compiled
def _largest_bits(bits):  # type: ignore[no-untyped-def]
    """Largest of numbers >= 0 that are given as their bits: these are ordered alike, and as integers vectorised."""
    best = np.int32(0)
    for place in range(len(bits)):
        best = bits[place] if bits[place] > best else best
    return best


@compiled
def _smallest_bits(bits):  # type: ignore[no-untyped-def]
    """Smallest of such numbers; rounding below zero counts as below all."""
    best = bits[0]
    for place in range(len(bits)):
        best = bits[place] if bits[place] < best else best
    return best


@compiled
def _first_fast(values, wanted):  # type: ignore[no-untyped-def]
    """The first place of a value, WIDE at a time."""
    n = len(values)
    for start in range(0, n - WIDE + 1, WIDE):
        piece = values[start : start + WIDE]
        hit = np.uint8(0)
        for place in range(WIDE):
            hit |= np.uint8(piece[place] == wanted)
        if hit:
            return start + _first(piece, wanted)
    for place in range(n // WIDE * WIDE, n):
        if values[place] == wanted:
            return place
    return 0


@compiled
def _coefficients(basis, chosen, parts, count, out):  # type: ignore[no-untyped-def]
    """Least squares on the chosen rows: back substitution of R c = parts with R[t, s] = basis[t, chosen[s]]."""
    for step in range(count - 1, -1, -1):
        rest = parts[step]
        for later in range(step + 1, count):
            rest -= basis[step, chosen[later]] * out[later]
        out[step] = rest / basis[step, chosen[step]]


@compiled
def pursue(gram, scores, squares, information, length, indices, data, counts):  # type: ignore[no-untyped-def]
    """Codes of rows with these `scores` = <d_i, x> (b, n), overwritten, and `squares` = |x|^2 (b,).

    Row r's columns, rising, are written at r * length of `indices` and its coefficients to `data`; counts[r] says
    how many.
    """
    n = len(gram)
    floor, left, gains = np.empty(n), np.empty(n), np.empty(n)
    basis = np.empty((length, n))
    chosen, parts, values = np.empty(length, np.int64), np.empty(length), np.empty(length)
    for row in range(n):
        floor[row] = gram[row, row] * SMALLEST_REST**2
    for item in range(len(scores)):
        line, rest, count = scores[item], squares[item], 0
        for row in range(n):
            left[row] = gram[row, row]
        while count < length and rest > squares[item] * SMALLEST_REST**2:
            _gains(line, left, floor, information, gains)
            best = _largest(gains)
            pick = _first(gains, best)
            if not best > 0.0 or line[pick] ** 2 / left[pick] <= squares[item] * SMALLEST_GAIN**2:
                break
            basis[count] = gram[pick]
            _project(basis, count, pick, basis[count])
            scale = 1.0 / np.sqrt(left[pick])
            parts[count], chosen[count] = line[pick] * scale, pick
            _deflate(basis[count], scale, parts[count], line, left)
            basis[count, pick] = 1.0 / scale
            rest -= parts[count] ** 2
            line[pick], left[pick] = 0.0, 0.0
            count += 1
        _coefficients(basis, chosen, parts, count, values)
        _write(chosen, values, count, item * length, indices, data)
        counts[item] = count


@compiled
def pursue_fast(gram, scores, squares, information, length, indices, data, counts):  # type: ignore[no-untyped-def]
    """`pursue` in float32, for rows of norm 1; counts[r] = -1 for images that need float64, because too little of them
    or of some row is left."""
    n = len(gram)
    left, gains = np.empty(n, np.float32), np.empty(n, np.float32)
    basis = np.empty((length, n), np.float32)
    chosen, parts, values = np.empty(length, np.int64), np.empty(length, np.float32), np.empty(length, np.float32)
    nothing, gain_bits, left_bits = np.zeros(n, np.float32), gains.view(np.int32), left.view(np.int32)
    least = np.full(1, LEAST_FAST, np.float32).view(np.int32)[0]
    for item in range(len(scores)):
        line, rest, count = scores[item], squares[item], 0
        left[:] = np.float32(1.0)
        _deflate_fast(nothing, np.float32(1.0), np.float32(0.0), line, left, information, gains)
        while count < length:
            best = _largest_bits(gain_bits)
            if best == 0:
                break
            if _smallest_bits(left_bits) < least or rest < squares[item] * LEAST_FAST:
                count = -1
                break
            pick = _first_fast(gain_bits, best)
            basis[count] = gram[pick]
            _project(basis, count, pick, basis[count])
            root = np.sqrt(left[pick])
            parts[count], chosen[count] = line[pick] / root, pick
            # A row that is used up has no score and is, for the division, infinitely long.
            line[pick], left[pick] = np.float32(0.0), np.float32(1e30)
            basis[count, pick] = np.float32(0.0)
            _deflate_fast(basis[count], np.float32(1.0) / root, parts[count], line, left, information, gains)
            basis[count, pick] = root
            rest -= parts[count] * parts[count]
            count += 1
        counts[item] = count
        if count > 0:
            _coefficients(basis, chosen, parts, count, values)
            _write(chosen, values, count, item * length, indices, data)


@compiled
def _write(chosen, values, count, place, indices, data):  # type: ignore[no-untyped-def]
    """Columns, rising, and coefficients of one image."""
    for step in np.argsort(chosen[:count]):
        indices[place], data[place] = chosen[step], values[step]
        place += 1
