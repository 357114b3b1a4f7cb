"""Kernels on rows: copies and products, embeddings as unit rows, parameter updates of Algorithm 2."""

from __future__ import annotations

import numpy as np

from ccr.kernels.compiling import compiled, fused, inlined, summing
from ccr.kernels.plain.arguments import SIZE_DECAY, SIZE_FLOOR, Pace


@compiled
def copy_into(target, source):  # type: ignore[no-untyped-def]
    """The first len(source) elements; numba's own assignment brings half a second of compiling for its errors."""
    for column in range(len(source)):
        target[column] = source[column]


@summing
def dot(left, right):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for column in range(len(left)):
        total += left[column] * right[column]
    return total


@fused
def add_row(total, factor, row):  # type: ignore[no-untyped-def]
    """total += factor * row."""
    for column in range(len(total)):
        total[column] += factor * row[column]


# Preparation of embeddings in one pass: validated, normalised, centred.

#: Defects of a row.
NOT_FINITE, ALL_ZERO = 1, 2


@compiled
def _to_unit(row):  # type: ignore[no-untyped-def]
    """Divide a row by its norm, in place; zeros stay. What is wrong with it, 0 for nothing."""
    square = dot(row, row)
    if not (square > np.float32(1e-30) and square < np.float32(1e30)):
        # Scaled first, so that squares neither vanish nor overflow.
        largest = np.float32(0.0)
        for column in range(len(row)):
            if not np.isfinite(row[column]):
                return NOT_FINITE
            largest = max(largest, abs(row[column]))
        if largest == np.float32(0.0):
            return ALL_ZERO
        for column in range(len(row)):
            row[column] /= largest
        square = dot(row, row)
    norm = np.sqrt(square)
    for column in range(len(row)):
        row[column] /= norm
    return 0


@compiled
def prepare_rows(rows, mean, out):  # type: ignore[no-untyped-def]
    """out = the unit directions of the unit rows from `mean` (d,), of the rows themselves if `mean` has no entries.

    Returns the first row that is not finite or only zeros, and which of both; (-1, 0) when all is well. A unit row
    equal to the mean becomes zero.
    """
    for number in range(len(rows)):
        row = out[number]
        copy_into(row, rows[number])
        wrong = _to_unit(row)
        if wrong != 0:
            return number, wrong
        if len(mean) > 0:
            for column in range(len(row)):
                row[column] -= mean[column]
            _to_unit(row)
    return -1, 0


ZERO, ONE = np.float32(0.0), np.float32(1.0)


@summing
def penalised(grad, weights, penalty):  # type: ignore[no-untyped-def]
    """grad += penalty * weights; the sum of its squares."""
    square = ZERO
    for column in range(len(grad)):
        grad[column] += penalty * weights[column]
        square += grad[column] * grad[column]
    return square


@compiled
def multiply(grad, factors):  # type: ignore[no-untyped-def]
    """grad *= factors."""
    for column in range(len(grad)):
        grad[column] *= factors[column]


@fused
def advance(parameters, moment, grad, decay, fresh, step):  # type: ignore[no-untyped-def]
    """moment = decay * moment + fresh * grad; parameters -= step * moment."""
    for column in range(len(parameters)):
        moment[column] = decay * moment[column] + fresh * grad[column]
        parameters[column] -= step * moment[column]


@summing
def turn(row, moment, grad, along, decay, fresh, step):  # type: ignore[no-untyped-def]
    """moment = decay * moment + fresh * (grad - along * row); row -= step * moment; its new squared length."""
    square = ZERO
    for column in range(len(row)):
        value = row[column]
        new = decay * moment[column] + fresh * (grad[column] - along * value)
        moment[column] = new
        value -= step * new
        row[column] = value
        square += value * value
    return square


@fused
def multiplied_added(left, right, rest):  # type: ignore[no-untyped-def]
    """left * right + rest, rounded once where the CPU can; written apart so that no other product is fused instead."""
    return left * right + rest


@compiled
def stride(rate, size, square, adaptive, unbias, unbias_size):  # type: ignore[no-untyped-def]
    """Factor of the moment in an update, and the new running size of the grad (`DenseEngine._direction`)."""
    if not adaptive:
        return np.float32(rate), size
    size = multiplied_added(np.float32(1.0 - SIZE_DECAY), square, np.float32(SIZE_DECAY) * size)
    return np.float32(rate / unbias / (np.sqrt(size / unbias_size) + SIZE_FLOOR)), size


@summing
def along_and_rest(row, direction):  # type: ignore[no-untyped-def]
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
        value = row[column] * factor
        row[column] = value
        square += (value - center[column]) * (value - center[column])
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
def turned_orthogonal(row, center):  # type: ignore[no-untyped-def]
    """Make a unit row, far from its center, the unit direction of its part orthogonal to the center, in place."""
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
    place (Algorithm 4, docs/method.md)."""
    if not (square > np.float32(1e-30) and square < np.float32(1e30)):
        unit_length(row, center)
        square = ONE
    square_distance = scaled_from(row, ONE / np.sqrt(square), center)
    if np.sqrt(square_distance) <= radius:
        return
    if len(row) == 1:
        copy_into(row, center)  # on a line the cap is the center alone, until the radius reaches 2
        return
    # The nearest point of the cap lies on its edge, in the plane of row and center: `along` the center, `across` in the
    # direction orthogonal to it. Clipping the chord and normalising again would leave the cap.
    along = np.float32(1.0 - radius * radius / 2.0)
    across = np.float32(radius * np.sqrt(1.0 - radius * radius / 4.0))
    if square_distance > np.float32(2.0):
        turned_orthogonal(row, center)
        mixed(row, across, center, along)
        return
    # A unit row at squared distance q of the center has the part 1 - q / 2 along it, and an orthogonal part of
    # length sqrt(q (1 - q / 4)).
    across /= np.sqrt(square_distance * (ONE - square_distance / np.float32(4.0)))
    mixed(row, across, center, along - across * (ONE - square_distance / np.float32(2.0)))


@compiled
def pace_of(rates, parameters, settings):  # type: ignore[no-untyped-def]
    """`Pace` of the step that `parameters.steps` counted last, at the rates of head and dictionary."""
    steps = parameters.steps[0]
    head_rate = rates[0] / (settings.scale if settings.adaptive else 1.0)
    return Pace(head_rate, rates[1], 1.0 - settings.momentum**steps, 1.0 - SIZE_DECAY**steps)


@inlined
def update_weights(weights, moment, size, grad, settings, pace):  # type: ignore[no-untyped-def]
    """Step a concept's row of the head, against the gradient `grad`, which is written over; its new running size."""
    decay, fresh = np.float32(settings.momentum), np.float32(1.0 - settings.momentum) if settings.adaptive else ONE
    square = penalised(grad, weights, np.float32(settings.penalty)) / np.float32(settings.classes)
    step, size = stride(pace.head_rate, size, square, settings.adaptive, pace.unbias, pace.unbias_size)
    advance(weights, moment, grad, decay, fresh, step)
    return size


@inlined
def update_concept(row, moment, size, center, grad, settings, pace):  # type: ignore[no-untyped-def]
    """Step a concept's row of the dictionary, against the gradient `grad`, and back into its cap; its new running
    size."""
    decay, fresh = np.float32(settings.momentum), np.float32(1.0 - settings.momentum) if settings.adaptive else ONE
    along, square = ZERO, ZERO
    if settings.adaptive:
        along, square = along_and_rest(grad, row)  # along the row, normalising undoes every step
    step, size = stride(pace.dictionary_rate, size, square, settings.adaptive, pace.unbias, pace.unbias_size)
    square = turn(row, moment, grad, along, decay, fresh, step)
    cap_row(row, center, settings.radius, square)
    return size


@compiled
def update_bias(grad, rate, parameters, settings):  # type: ignore[no-untyped-def]
    """Count a step, and step the bias against its gradient `grad`."""
    parameters.steps[0] += 1
    beta, steps = settings.momentum, parameters.steps[0]
    moment, square = parameters.bias_moment, 0.0
    for column in range(len(grad)):
        fresh = (1.0 - beta) * grad[column] if settings.adaptive else grad[column]
        moment[column] = beta * moment[column] + fresh
        square += np.float64(grad[column]) ** 2
    if settings.adaptive:
        size = SIZE_DECAY * parameters.bias_size[0] + (1.0 - SIZE_DECAY) * square / settings.classes
        parameters.bias_size[0] = size
        rate = rate / (1.0 - beta**steps) / (np.sqrt(size / (1.0 - SIZE_DECAY**steps)) + SIZE_FLOOR)
    for column in range(len(grad)):
        parameters.bias[column] -= np.float32(rate * moment[column])


@compiled
def update_threshold(length, parameters, settings):  # type: ignore[no-untyped-def]
    """After a batch of this mean length, move the threshold toward the length that it is held to, if any."""
    if settings.refine and settings.target_length > 0.0:
        excess = min(length / settings.target_length, 2.0) - 1.0
        parameters.threshold[0] *= 1.0 + settings.nudge * excess
