"""Exponentials of a row of logits, in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ccr.kernels.x86.vectors import (
    FLOAT,
    INT,
    LANES,
    LONG,
    called,
    constant,
    counted,
    load,
    multiply_add,
    shuffled,
    splat,
    store,
    totals,
    vector,
)

#: Constants of Cephes' exponential: coefficients, and the logarithm of 2 in two parts, the first exact in few bits.
POLYNOMIAL = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip
LOG_2, REST_OF_LOG_2 = 0.693359375, -2.12194440e-4


def _exponential(builder: Any, x: Any) -> Any:
    """exp(x) for x <= 0, to two units in the last place; below -87 it is 0. NaN stays, x > 0 gives no number that
    means anything."""

    def number(value: float) -> Any:
        return constant(FLOAT, float(np.float32(value)))

    vanishing = builder.fcmp_ordered("<", x, number(-87.0))
    x = builder.select(vanishing, number(-87.0), x)
    half = multiply_add(builder, number(0.5), x, number(1.44269504088896341))
    whole = called(builder, f"llvm.floor.v{LANES}f32", vector(FLOAT), [half])
    # Converting NaN, or a number beyond 32 bits, to an integer gives an undefined value in LLVM.
    exponent = builder.fptosi(
        builder.select(builder.fcmp_ordered("<=", x, number(0.0)), whole, number(0.0)), vector(INT)
    )
    x = multiply_add(builder, x, whole, number(-LOG_2))
    x = multiply_add(builder, x, whole, number(-REST_OF_LOG_2))
    y = number(POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        y = multiply_add(builder, number(coefficient), y, x)
    y = builder.fadd(multiply_add(builder, x, y, builder.fmul(x, x)), number(1.0))
    power = builder.shl(builder.add(exponent, constant(INT, 127)), constant(INT, 23))
    return builder.select(vanishing, number(0.0), builder.fmul(y, builder.bitcast(power, vector(FLOAT))))


@intrinsic
def exponentials(context, values, vectors):  # type: ignore[no-untyped-def]
    """values = exp(values - their largest), `vectors` * LANES of them; returns the largest, and the sum."""
    signature = types.UniTuple(types.float32, 2)(types.voidptr, types.int64)

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        values, vectors = arguments

        def larger(place: Any, held: list[Any]) -> list[Any]:
            found = load(builder, values, vector(FLOAT), place)
            return [builder.select(builder.fcmp_ordered(">", held[0], found), held[0], found)]

        first = [load(builder, values, vector(FLOAT), LONG(0))]
        (most,) = counted(builder, LONG(1), vectors, first, larger)
        lanes = LANES
        while lanes > 1:
            lanes //= 2
            low, high = (shuffled(builder, most, most, list(range(start, start + lanes))) for start in (0, lanes))
            most = builder.select(builder.fcmp_ordered(">", low, high), low, high)
        top = builder.extract_element(most, INT(0))
        shift = splat(builder, top)

        def body(place: Any, sums: list[Any]) -> list[Any]:
            power = _exponential(builder, builder.fsub(load(builder, values, vector(FLOAT), place), shift))
            store(builder, power, values, place)
            return [builder.fadd(sums[0], power)]

        sums = counted(builder, LONG(0), vectors, [constant(FLOAT, 0.0)], body)
        return context.make_tuple(builder, signature.return_type, [top, totals(builder, sums)[0]])

    return signature, emit
