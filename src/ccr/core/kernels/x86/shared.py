"""Words that threads share: what one writes, the others see, and what it wrote before."""

from __future__ import annotations

import os
from typing import Any

from numba import types
from numba.extending import intrinsic

from ccr.core.kernels.x86.llvm import INT, LONG, at, called


def _word(context: Any, builder: Any, signature: Any, array: Any, place: Any) -> Any:
    return at(builder, context.make_array(signature.args[0])(context, builder, array).data, LONG, place)


@intrinsic
def shared_add(context, words, place, value):  # type: ignore[no-untyped-def]
    """words[place] += value, at once for all threads; what was there before."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place, value = arguments
        return builder.atomic_rmw("add", _word(context, builder, signature, array, place), value, "seq_cst")

    return types.int64(words, types.int64, types.int64), emit


@intrinsic
def shared_read(context, words, place):  # type: ignore[no-untyped-def]
    """words[place] as it was written last."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place = arguments
        return builder.load_atomic(_word(context, builder, signature, array, place), "seq_cst", 8, typ=LONG)

    return types.int64(words, types.int64), emit


@intrinsic
def shared_write(context, words, place, value):  # type: ignore[no-untyped-def]
    """words[place] = value."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, place, value = arguments
        # An exchange: what an atomic store is on x86; llvmlite's `store_atomic` wants a pointer that knows its type.
        builder.atomic_rmw("xchg", _word(context, builder, signature, array, place), value, "seq_cst")
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), emit


@intrinsic
def let_others_run(context):  # type: ignore[no-untyped-def]
    """Give up the rest of this thread's turn, where the system has a word for it."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        if os.name == "posix":
            called(builder, "sched_yield", INT, [])
        return context.get_dummy_value()

    return types.void(), emit
