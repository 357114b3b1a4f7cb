"""LLVM instructions that numba cannot express: loops over vectors in registers, sums of rows, dot products."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from ccr.kernels.plain.arguments import LINE
from ccr.kernels.x86.variants import VARIANT, compiled

#: Kinds of arguments, beside floats.
ADDRESS, COUNT = types.voidptr, types.int64


def emitting(result: Any, *kinds: Any) -> Callable[[Any], Any]:
    """Decorator that makes a function for kernels of one that emits its instructions. This one is called with LLVM's
    builder and the values of the arguments, of these kinds, and returns the value of the result, if there is one."""

    def decorate(emit: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = emit(builder, *arguments)
            return context.get_dummy_value() if value is None else value

        @wraps(emit)  # numba reads the names of arguments there
        def typed(context: Any, *given: Any) -> Any:
            return result(*kinds), lower

        return intrinsic(typed)

    return decorate


# Addresses of arrays, and prefetching.
@intrinsic
def address(context, array):  # type: ignore[no-untyped-def]
    """Address of the first element of an array."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return at(builder, data, BYTE, LONG(0))

    return types.voidptr(array), emit


@emitting(types.int64, COUNT)
def lowest_bit(builder, word):  # type: ignore[no-untyped-def]
    """Index of the lowest set bit of a nonzero word."""
    return builder.cttz(word, ir.Constant(ir.IntType(1), 1))


@emitting(types.int64, COUNT)
def bit_count(builder, word):  # type: ignore[no-untyped-def]
    """Number of set bits of a word."""
    return builder.ctpop(word)


@emitting(types.void, ADDRESS, COUNT)
def fetch_ahead(builder, start, lines):  # type: ignore[no-untyped-def]
    """Ask for memory that is needed soon, so many lines."""

    def ask(line: Any, nothing: list[Any]) -> list[Any]:
        place = at(builder, start, BYTE, builder.mul(line, LONG(LINE)))
        called(builder, "llvm.prefetch.p0", ir.VoidType(), [place, INT(0), INT(3), INT(1)])
        return nothing

    counted(builder, LONG(0), lines, [], ask)


@compiled
def fetch_array(array):  # type: ignore[no-untyped-def]
    """Ask for a contiguous array that is needed soon."""
    fetch_ahead(address(array), (array.size * array.itemsize + LINE - 1) // LINE)


# LLVM instructions that numba cannot express: loops that keep many vectors in registers.

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


#: Rows that `dot_rows` multiplies at once: so many sums keep the multipliers busy; fewer where fewer are left.
GROUP, HALF = 8, 4
#: Numbers from which on rows are better read from end to end than a few columns at a time.
WIDE = 128


def _row(builder: Any, matrix: Any, stride: Any, rows: Any, entry: Any) -> Any:
    """Pointer to row rows[entry] of a matrix."""
    row = builder.sext(load(builder, rows, INT, entry), LONG)
    return at(builder, matrix, FLOAT, builder.mul(row, stride))


def _adding(vectors: int, lanes: int = LANES) -> Any:
    @emitting(types.void, ADDRESS, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT, COUNT)
    def add(builder, total, factors, matrix, stride, rows, start, stop):  # type: ignore[no-untyped-def]
        """total[:w] += sum over e in start:stop of factors[e] * matrix[rows[e], :w], w = vectors * lanes."""
        places = [LONG(number) for number in range(vectors)]

        def body(entry: Any, sums: list[Any]) -> list[Any]:
            factor = splat(builder, load(builder, factors, FLOAT, entry), lanes)
            row = _row(builder, matrix, stride, rows, entry)
            return [
                multiply_add(builder, held, factor, load(builder, row, vector(FLOAT, lanes), place))
                for held, place in zip(sums, places, strict=True)
            ]

        before = [load(builder, total, vector(FLOAT, lanes), place) for place in places]
        for place, value in zip(places, counted(builder, start, stop, before, body), strict=True):
            store(builder, value, total, place)

    return add


def _adding_whole(count: int) -> Any:
    @emitting(types.void, ADDRESS, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT)
    def add(builder, total, factors, matrix, stride, rows, vectors):  # type: ignore[no-untyped-def]
        """total[:w] += sum over e in 0:count of factors[e] * matrix[rows[e], :w], w = vectors * LANES, with rows read
        from end to end, as memory likes it."""
        entries = [LONG(entry) for entry in range(count)]
        lines = [_row(builder, matrix, stride, rows, entry) for entry in entries]
        shares = [splat(builder, load(builder, factors, FLOAT, entry)) for entry in entries]

        def body(place: Any, nothing: list[Any]) -> list[Any]:
            held = load(builder, total, vector(FLOAT), place)
            for share, line in zip(shares, lines, strict=True):
                held = multiply_add(builder, held, share, load(builder, line, vector(FLOAT), place))
            store(builder, held, total, place)
            return nothing

        counted(builder, LONG(0), vectors, [], body)

    return add


def _spreading(vectors: int) -> Any:
    @emitting(types.void, ADDRESS, ADDRESS, ADDRESS, COUNT, COUNT, ADDRESS, COUNT)
    def spread(builder, values, factors, rows, start, stop, out, stride):  # type: ignore[no-untyped-def]
        """out[rows[e], :w] += factors[e] * values[:w] for e in start:stop, w = vectors * LANES."""
        places = [LONG(number) for number in range(vectors)]
        own = [load(builder, values, vector(FLOAT), place) for place in places]

        def body(entry: Any, nothing: list[Any]) -> list[Any]:
            factor = splat(builder, load(builder, factors, FLOAT, entry))
            row = _row(builder, out, stride, rows, entry)
            held = [load(builder, row, vector(FLOAT), place) for place in places]
            for place, before, value in zip(places, held, own, strict=True):
                store(builder, multiply_add(builder, before, factor, value), row, place)
            return nothing

        counted(builder, start, stop, [], body)

    return spread


def _dotting(group: int) -> Any:
    @emitting(types.void, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT, COUNT, types.float32, ADDRESS)
    def dots(builder, values, matrix, stride, rows, count, vectors, factor, out):  # type: ignore[no-untyped-def]
        """out[e] = factor * <values[:w], matrix[rows[e], :w]> for e in 0:count, at most `group`, w = vectors * LANES.
        One sum per row, whatever the others are: the last row stands in for those that are missing."""
        last, entries = builder.sub(count, LONG(1)), [LONG(entry) for entry in range(group)]
        entries = [builder.select(builder.icmp_signed("<", entry, last), entry, last) for entry in entries]
        lines = [_row(builder, matrix, stride, rows, entry) for entry in entries]

        def body(place: Any, sums: list[Any]) -> list[Any]:
            own = load(builder, values, vector(FLOAT), place)
            return [
                multiply_add(builder, held, own, load(builder, line, vector(FLOAT), place))
                for held, line in zip(sums, lines, strict=True)
            ]

        sums = counted(builder, LONG(0), vectors, [constant(FLOAT, 0.0)] * group, body)
        for entry, value in zip(entries, totals(builder, sums), strict=True):
            store(builder, builder.fmul(factor, value), out, entry)

    return dots


def _dotting_and_adding(count: int) -> Any:
    @emitting(types.void, ADDRESS, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT, types.float32, ADDRESS, ADDRESS)
    def both(builder, values, factors, matrix, stride, rows, vectors, factor, out, total):  # type: ignore[no-untyped-def]
        """out[e] = factor * <values[:w], row e> and total[:w] += factors[e] * row e, for e in 0:count, w = vectors *
        LANES and row e = matrix[rows[e], :w], which is read once."""
        entries = [LONG(entry) for entry in range(count)]
        lines = [_row(builder, matrix, stride, rows, entry) for entry in entries]
        shares = [splat(builder, load(builder, factors, FLOAT, entry)) for entry in entries]

        def body(place: Any, sums: list[Any]) -> list[Any]:
            own = load(builder, values, vector(FLOAT), place)
            held = load(builder, total, vector(FLOAT), place)
            registers = [load(builder, line, vector(FLOAT), place) for line in lines]
            for share, line in zip(shares, registers, strict=True):
                held = multiply_add(builder, held, share, line)
            store(builder, held, total, place)
            return [multiply_add(builder, one, own, line) for one, line in zip(sums, registers, strict=True)]

        sums = counted(builder, LONG(0), vectors, [constant(FLOAT, 0.0)] * count, body)
        for entry, value in enumerate(totals(builder, sums)):
            store(builder, builder.fmul(factor, value), out, LONG(entry))

    return both


_add_8, _add_2, _add_1, _add_half = _adding(8), _adding(2), _adding(1), _adding(1, LANES // 2)
_add_whole_8 = _adding_whole(8)
_spread_4, _spread_1 = _spreading(4), _spreading(1)
_dots_8, _dots_4 = _dotting(GROUP), _dotting(HALF)
_both_4, _both_1 = _dotting_and_adding(4), _dotting_and_adding(1)


@compiled
def add_rows(total, factors, matrix, rows, start, stop):  # type: ignore[no-untyped-def]
    """total += sum over entries e in start:stop of factors[e] * matrix[rows[e]]."""
    width, stride, column = len(total), matrix.shape[1], 0
    if width >= WIDE and width % LANES == 0:
        while start + 8 <= stop:
            _add_whole_8(
                address(total), address(factors[start:]), address(matrix), stride, address(rows[start:]), width // LANES
            )
            start += 8
    while column + 8 * LANES <= width:
        _add_8(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += 8 * LANES
    while column + 2 * LANES <= width:
        _add_2(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += 2 * LANES
    if column + LANES <= width:
        _add_1(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += LANES
    if column + LANES // 2 <= width:
        _add_half(
            address(total[column:]), address(factors), address(matrix[0, column:]), stride, address(rows), start, stop
        )
        column += LANES // 2
    for rest in range(column, width):
        for entry in range(start, stop):
            total[rest] += factors[entry] * matrix[rows[entry], rest]


@compiled
def spread_row(values, factors, rows, start, stop, out):  # type: ignore[no-untyped-def]
    """out[rows[e], :w] += factors[e] * values for entries e in start:stop; w, the number of values, is a multiple of
    LANES."""
    width, stride, column = len(values), out.shape[1], 0
    while column + 4 * LANES <= width:
        _spread_4(
            address(values[column:]), address(factors), address(rows), start, stop, address(out[0, column:]), stride
        )
        column += 4 * LANES
    while column < width:
        _spread_1(
            address(values[column:]), address(factors), address(rows), start, stop, address(out[0, column:]), stride
        )
        column += LANES


@compiled
def dot_rows(values, matrix, rows, start, stop, factor, out):  # type: ignore[no-untyped-def]
    """out[e] = factor * <values, matrix[rows[e]]> for entries e in start:stop. The numbers of a row are added up in the
    same order whichever entries stand beside it: what bytes let through changes no bit of a score."""
    width, stride = len(values), matrix.shape[1]
    vectors, entry = width // LANES, start
    while stop - entry > HALF:
        count = min(GROUP, stop - entry)
        _dots_8(
            address(values), address(matrix), stride, address(rows[entry:]), count, vectors, factor,
            address(out[entry:]),
        )  # fmt: skip
        entry += count
    if entry < stop:
        _dots_4(
            address(values), address(matrix), stride, address(rows[entry:]), stop - entry, vectors, factor,
            address(out[entry:]),
        )  # fmt: skip
    if vectors * LANES < width:
        for entry in range(start, stop):
            for column in range(vectors * LANES, width):
                out[entry] += factor * values[column] * matrix[rows[entry], column]


@compiled
def dot_and_add_rows(values, factors, matrix, rows, start, stop, factor, out, total):  # type: ignore[no-untyped-def]
    """`dot_rows` and `add_rows` at once, for rows that the cache does not hold; their width is a multiple of LANES."""
    stride, vectors, entry = matrix.shape[1], len(values) // LANES, start
    while entry + 4 <= stop:
        _both_4(
            address(values), address(factors[entry:]), address(matrix), stride, address(rows[entry:]), vectors, factor,
            address(out[entry:]), address(total),
        )  # fmt: skip
        entry += 4
    while entry < stop:
        _both_1(
            address(values), address(factors[entry:]), address(matrix), stride, address(rows[entry:]), vectors, factor,
            address(out[entry:]), address(total),
        )  # fmt: skip
        entry += 1
