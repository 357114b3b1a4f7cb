"""Words of LLVM for what numba has none for: loops that hold many vectors in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir

from ccr.core.kernels.x86.variants import VARIANT

#: Numbers of 32 bits in a vector register.
LANES = VARIANT.lanes
BYTE, SHORT, INT, LONG, FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
POINTER = ir.PointerType()


def vector(element: Any, lanes: int = LANES) -> Any:
    return ir.VectorType(element, lanes)


def constant(element: Any, value: Any, lanes: int = LANES) -> Any:
    return ir.Constant(vector(element, lanes), [value] * lanes)


def shuffled(builder: Any, left: Any, right: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(left, right, ir.Constant(vector(INT, len(places)), places))


def splat(builder: Any, value: Any, lanes: int = LANES) -> Any:
    """A vector of one value."""
    nothing = ir.Constant(vector(value.type, lanes), ir.Undefined)
    return shuffled(builder, builder.insert_element(nothing, value, INT(0)), nothing, [0] * lanes)


def at(builder: Any, pointer: Any, kind: Any, place: Any) -> Any:
    """Pointer to a `kind`, `place` of them after an address."""
    target = builder.gep(pointer, [place], source_etype=kind)
    target.type = POINTER  # numba's own pointers still know what they point to, as long as llvmlite lets them
    return target


def load(builder: Any, pointer: Any, kind: Any, place: Any) -> Any:
    return builder.load(at(builder, pointer, kind, place), typ=kind, align=4)


def store(builder: Any, value: Any, pointer: Any, place: Any, align: int = 4) -> None:
    builder.store(value, at(builder, pointer, value.type, place), align=align)


def multiply_add(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """total + left * right, in one instruction where there is one."""
    return builder.fadd(total, builder.fmul(left, right, ("contract",)), ("contract",))


def called(builder: Any, name: str, result: Any, arguments: list[Any], fastmath: tuple[str, ...] = ()) -> Any:
    """Call a function by its name, one of LLVM's own or of the C library."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [value.type for value in arguments]), name)
    return builder.call(function, arguments, fastmath=fastmath)


def multiplied_bytes(builder: Any, sums: Any, positive: Any, signed: Any) -> Any:
    """sums + products of bytes, four of them together, all given as 32-bit integers (vpdpbusd)."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * sums.type.count}"
    return called(builder, name, sums.type, [sums, positive, signed])


def multiplied_pairs(builder: Any, positive: Any, signed: Any) -> Any:
    """Sums of products of neighbours, of bytes, as 16-bit integers, into which they fit (vpmaddubsw)."""
    pairs = positive.type.count // 2
    name = "llvm.x86.avx2.pmadd.ub.sw" if pairs == 16 else "llvm.x86.avx512.pmaddubs.w.512"
    return called(builder, name, vector(SHORT, pairs), [positive, signed])


def counted(
    builder: Any, start: Any, stop: Any, values: list[Any], body: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """values = body(place, values) for place in start:stop, none if there are none; what they are then."""
    before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed("<", start, stop), loop, after)
    builder.position_at_end(loop)
    place, held = builder.phi(LONG), [builder.phi(value.type) for value in values]
    place.add_incoming(start, before)
    new = body(place, list(held))
    following, last = builder.add(place, LONG(1)), builder.block  # another block than `loop` if a loop is inside
    place.add_incoming(following, last)
    for phi, first, later in zip(held, values, new, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, last)
    builder.cbranch(builder.icmp_signed("<", following, stop), loop, after)
    builder.position_at_end(after)
    final = []
    for first, later in zip(values, new, strict=True):
        phi = builder.phi(first.type)
        phi.add_incoming(first, before)
        phi.add_incoming(later, last)
        final.append(phi)
    return final


def totals(builder: Any, sums: list[Any]) -> list[Any]:
    """The sum of each vector's numbers, neighbours first, of one, four or eight vectors: four take little more than
    one, and the order is always the same."""
    if len(sums) == 8:
        return totals(builder, sums[:4]) + totals(builder, sums[4:])
    run = 1
    if len(sums) == 1:
        while run < LANES:
            others = shuffled(builder, sums[0], sums[0], [lane ^ run for lane in range(LANES)])
            sums, run = [builder.fadd(sums[0], others)], 2 * run
        return [builder.extract_element(sums[0], INT(0))]
    while len(sums) > 1:
        sums = [_merged(builder, left, right, run) for left, right in zip(sums[::2], sums[1::2], strict=True)]
        run *= 2
    merged, lanes = sums[0], LANES
    while lanes > 4:
        lanes //= 2
        low, high = (shuffled(builder, merged, merged, list(range(first, first + lanes))) for first in (0, lanes))
        merged = builder.fadd(low, high)
    return [builder.extract_element(merged, INT(lane)) for lane in range(4)]


def _merged(builder: Any, left: Any, right: Any, run: int) -> Any:
    """Runs of `run` numbers added to the next run: of left, of right, of left again, and so on."""
    first, second = (
        [side + group + lane for group in range(shift, LANES, 2 * run) for side in (0, LANES) for lane in range(run)]
        for shift in (0, run)
    )
    return builder.fadd(shuffled(builder, left, right, first), shuffled(builder, left, right, second))


def _check() -> None:
    """Fail when this module is imported, not in the first step, if llvmlite or LLVM no longer knows these words."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, LONG]), "check")
    builder, (pointer, count) = ir.IRBuilder(function.append_basic_block()), function.args

    def body(place: Any, held: list[Any]) -> list[Any]:
        values = load(builder, pointer, vector(FLOAT), place)
        held = [multiply_add(builder, total, values, splat(builder, FLOAT(2.0))) for total in held]
        return [builder.select(builder.fcmp_ordered("<", total, values), total, values) for total in held]

    for place, total in enumerate(totals(builder, counted(builder, LONG(0), count, [constant(FLOAT, 0.0)] * 4, body))):
        store(builder, total, pointer, LONG(place))
    if VARIANT.dots:
        sums = multiplied_bytes(builder, *[constant(INT, 1)] * 3)
    else:
        bytes_ = [constant(BYTE, 1, 4 * LANES)] * 2
        sums = builder.bitcast(multiplied_pairs(builder, *bytes_), vector(INT))
    store(builder, builder.bitcast(sums, vector(BYTE, 4 * LANES)), pointer, LONG(1))
    builder.atomic_rmw("add", at(builder, pointer, LONG, LONG(2)), count, "seq_cst")
    builder.load_atomic(pointer, "seq_cst", 8, typ=LONG)
    builder.ret_void()
    binding.parse_assembly(str(module)).verify()


_check()
