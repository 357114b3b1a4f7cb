"""Where arrays are, and memory asked for before it is needed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ccr.core.kernels.plain.arguments import LINE
from ccr.core.kernels.x86.compiling import compiled
from ccr.core.kernels.x86.llvm import BYTE, INT, LONG, at, called, counted


@intrinsic
def address(context, array):  # type: ignore[no-untyped-def]
    """Where the elements of an array begin."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return at(builder, data, BYTE, LONG(0))

    return types.voidptr(array), emit


@intrinsic
def lowest_bit(context, word):  # type: ignore[no-untyped-def]
    """Which bit of a word that is not zero is the lowest set one."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), emit


@intrinsic
def bit_count(context, word):  # type: ignore[no-untyped-def]
    """How many bits of a word are set."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), emit


@intrinsic
def fetch_ahead(context, start, lines):  # type: ignore[no-untyped-def]
    """Ask for memory that is needed soon, so many lines."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        start, lines = arguments

        def ask(line: Any, nothing: list[Any]) -> list[Any]:
            place = at(builder, start, BYTE, builder.mul(line, LONG(LINE)))
            called(builder, "llvm.prefetch.p0", ir.VoidType(), [place, INT(0), INT(3), INT(1)])
            return nothing

        counted(builder, LONG(0), lines, [], ask)
        return context.get_dummy_value()

    return types.void(types.voidptr, types.int64), emit


@compiled
def fetch_array(array):  # type: ignore[no-untyped-def]
    """Ask for a contiguous array that is needed soon."""
    fetch_ahead(address(array), (array.size * array.itemsize + LINE - 1) // LINE)
