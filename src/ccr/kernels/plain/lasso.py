"""Non-negative lasso by the Gram matrix: coordinate descent on the few entries that matter, then a look at all.

Coordinate descent is slow where concepts are nearly the same; there, steps of all positive entries at once help.
"""

from __future__ import annotations

import numpy as np

from ccr.kernels.compiling import compiled, fused

#: A joint step follows every so many sweeps; it takes at most so many entries.
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
    """How far the worst entry is from optimal: rest = alpha where the code is positive, rest <= alpha elsewhere."""
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
            # What stopped the step is zero exactly, whatever rounding says.
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
