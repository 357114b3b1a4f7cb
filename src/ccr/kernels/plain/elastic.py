"""Coordinate descent for a small quadratic with an elastic-net penalty, by its matrix."""

from __future__ import annotations

from ccr.kernels.compiling import compiled


@compiled
def _sweep(gram, scale, l1, l2, everywhere, x, grad):  # type: ignore[no-untyped-def]
    """Minimise over each entry in turn, all of them or those that are not zero; the largest change of the gradient."""
    largest = 0.0
    for j in range(len(x)):
        before = x[j]
        if not everywhere and before == 0.0:
            continue
        curvature = scale * gram[j, j]
        if curvature + l2 <= 0.0:
            continue
        aim = curvature * before - grad[j]
        size = abs(aim) - l1
        after = 0.0
        if size > 0.0:
            after = size / (curvature + l2)
            if aim < 0.0:
                after = -after
        step = after - before
        if step != 0.0:
            x[j] = after
            scaled, line = scale * step, gram[j]
            for i in range(len(x)):
                grad[i] += scaled * line[i]
            largest = max(largest, abs(step) * (curvature + l2))
    return largest


@compiled
def descend(gram, scale, l1, l2, tol, sweeps, x, grad):  # type: ignore[no-untyped-def]
    """Minimise <grad, d> + scale/2 d' gram d + l1 |x + d|_1 + l2/2 |x + d|^2; x becomes x + d, `grad` its gradient.

    `gram` (n, n) float64, symmetric. Ends when a sweep over all entries changes no gradient by more than `tol`, or
    after `sweeps` sweeps; between two of those it works on the entries that are not zero. Returns the sweeps made.
    """
    made = 0
    while made < sweeps:
        made += 1
        if _sweep(gram, scale, l1, l2, True, x, grad) <= tol:
            break
        while made < sweeps:
            made += 1
            if _sweep(gram, scale, l1, l2, False, x, grad) <= tol:
                break
    return made
