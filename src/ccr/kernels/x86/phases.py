"""The phases of a step of Algorithm 2, each cut into items that threads work on side by side (`training`).

CODE: a chunk of the batch's rows is coded over the concepts of an owner. HEAD: logits, loss and gradient of a chunk, by
the codes of all owners. SORT: the entries of a share of the concepts, by concept. UPDATE: a panel of concepts steps
(gradient, momentum, projection) and is packed anew. The head of many classes does not fit into the cache: instead of
HEAD there are then, after SORT, LOGITS, some classes of all rows, concept by concept, and GRADIENTS, loss and gradient
of a chunk. A head of few weights is gone through weight by weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ccr.kernels.plain.arguments import LINE, Criterion, Dropout, Entries
from ccr.kernels.plain.rows import (
    copy_into,
    multiply,
    pace_of,
    update_bias,
    update_concept,
    update_threshold,
    update_weights,
)
from ccr.kernels.plain.select import step_salt
from ccr.kernels.x86.arguments import PanelColumns, RowBlock, Screen
from ccr.kernels.x86.rounding import pack_concepts
from ccr.kernels.x86.score import active_entries
from ccr.kernels.x86.tiles import PANEL
from ccr.kernels.x86.variants import compiled, fused, inlined
from ccr.kernels.x86.vectors import (
    FLOAT,
    INT,
    LANES,
    LONG,
    add_rows,
    address,
    called,
    constant,
    counted,
    dot_and_add_rows,
    dot_rows,
    fetch_ahead,
    fetch_array,
    load,
    multiply_add,
    shuffled,
    splat,
    spread_row,
    store,
    totals,
    vector,
)

# Exponentials of a row of logits, in registers.
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
            loaded = load(builder, values, vector(FLOAT), place)
            return [builder.select(builder.fcmp_ordered(">", held[0], loaded), held[0], loaded)]

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


# One training step of Algorithm 2 on sparse codes, with rows summed in registers; the functions are documented in
# `ccr.kernels.plain.training`.
ZERO = np.float32(0.0)


@fused
def logit_gradient(logits, y, share, total):  # type: ignore[no-untyped-def]
    """Replace logits, a multiple of LANES, by their gradient, and return the loss; those FAR_BELOW become zero."""
    true = logits[y]
    top, mass = exponentials(address(logits), len(logits) // LANES)
    factor = share / mass
    for column in range(len(logits)):
        grad = logits[column] * factor - (share if column == y else ZERO)
        logits[column] = grad
        total[column] += grad
    return share * (np.log(np.float64(mass)) + np.float64(top) - np.float64(true))


@fused
def head_gradients(codes, y, share, parameters, settings, grad_logits, grad_bias, grad_scores):  # type: ignore[no-untyped-def]
    pointers, indices, data = codes
    # Taken out once: numba counts references each time that an array is taken out of a tuple.
    weights, bias, keep, loss = parameters.weights, parameters.bias, np.float32(settings.keep), 0.0
    for row in range(len(y)):
        start, stop = np.int64(pointers[row]), np.int64(pointers[row + 1])
        grad = grad_logits[row]
        copy_into(grad, bias)
        add_rows(grad, data, weights, indices, start, stop)
        loss += logit_gradient(grad, y[row], share[row], grad_bias)
        if settings.refine:
            dot_rows(grad, weights, indices, start, stop, keep, grad_scores)
    return loss


@fused
def logits(pointers, indices, data, weights, bias, out):  # type: ignore[no-untyped-def]
    for row in range(len(out)):
        copy_into(out[row], bias)
        add_rows(out[row], data, weights, indices, np.int64(pointers[row]), np.int64(pointers[row + 1]))


@fused
def sparse_head_gradients(codes, y, share, bias, sparse, keep, chunk, grad_bias, grad_scores):  # type: ignore[no-untyped-def]
    """`head_gradients` of a head of few weights, whose gradient by this chunk goes to sparse.grads[chunk]."""
    pointers, indices, data = codes
    starts, columns, values, own_grads = sparse.starts, sparse.columns, sparse.values, sparse.grads[chunk]
    grad, loss = np.empty(len(bias), np.float32), 0.0
    own_grads[:] = ZERO
    for row in range(len(y)):
        copy_into(grad, bias)
        for entry in range(pointers[row], pointers[row + 1]):
            concept = indices[entry]
            for place in range(starts[concept], starts[concept + 1]):
                grad[columns[place]] += data[entry] * values[place]
        loss += logit_gradient(grad, y[row], share[row], grad_bias)
        for entry in range(pointers[row], pointers[row + 1]):
            concept, total = indices[entry], ZERO
            for place in range(starts[concept], starts[concept + 1]):
                own = grad[columns[place]]
                total += own * values[place]
                own_grads[place] += data[entry] * own
            grad_scores[entry] = keep * total
    return loss


@compiled
def move_sparse_weights(concept, chunks, sparse, size, settings, pace):  # type: ignore[no-untyped-def]
    """Step a concept's few weights; its new running size."""
    first, last = sparse.starts[concept], sparse.starts[concept + 1]
    grad = np.zeros(last - first, np.float32)
    for chunk in range(chunks):
        for place in range(first, last):
            grad[place - first] += sparse.grads[chunk, place]
    return update_weights(sparse.values[first:last], sparse.moments[first:last], size, grad, settings, pace)


@compiled
def count_concepts(indices, entries, counts):  # type: ignore[no-untyped-def]
    """counts[j] += how many of the first `entries` indices are j."""
    for entry in range(entries):
        counts[indices[entry]] += 1


@compiled
def by_concept(concept, row, codes, grad_scores, sources, positions, entries):  # type: ignore[no-untyped-def]
    """Put those of a chunk's codes that are of the len(positions) concepts from `concept` on among the batch's sorted
    `entries`: one of concept + j goes to positions[j], which moves on. Row r of the chunk is row + r of the batch and
    sources[r] of x."""
    pointers, indices, data = codes
    _, sorted_rows, sorted_sources, sorted_codes, sorted_grads = entries
    for own in range(len(pointers) - 1):
        source = sources[own]
        for entry in range(pointers[own], pointers[own + 1]):
            place = indices[entry] - concept
            if 0 <= place < len(positions):
                position = positions[place]
                positions[place] = position + 1
                sorted_rows[position] = row + own
                sorted_sources[position] = source
                sorted_codes[position] = data[entry]
                sorted_grads[position] = grad_scores[entry]


@compiled
def update_concepts(first, last, chunks, workspace, x, parameters, settings, pace):  # type: ignore[no-untyped-def]
    """Update concepts first:last and their weights. With a wide head, the gradients of the scores are computed here."""
    keep, wide = np.float32(settings.keep), len(workspace.logits) > 0
    grad_weights, grad = np.empty(len(parameters.bias), np.float32), np.empty(x.shape[1], np.float32)
    starts, rows, sources, codes, grad_scores = workspace.entries
    grad_logits, sparse = workspace.grad_logits, workspace.sparse
    weights, weight_moment, weight_size = parameters.weights, parameters.weight_moment, parameters.weight_size
    dictionary, moment, size = parameters.dictionary, parameters.dictionary_moment, parameters.dictionary_size
    center, allowed = parameters.center, parameters.allowed
    for concept in range(first, last):
        start, stop = np.int64(starts[concept]), np.int64(starts[concept + 1])
        if len(sparse.starts) > 0:
            weight_size[concept] = move_sparse_weights(concept, chunks, sparse, weight_size[concept], settings, pace)
        else:
            grad_weights[:] = ZERO
            if settings.refine and wide:
                dot_and_add_rows(
                    weights[concept], codes, grad_logits, rows, start, stop, keep, grad_scores, grad_weights
                )
            else:
                add_rows(grad_weights, codes, grad_logits, rows, start, stop)
            if len(allowed) > 0:
                multiply(grad_weights, allowed[concept])
            weight_size[concept] = update_weights(
                weights[concept], weight_moment[concept], weight_size[concept], grad_weights, settings, pace
            )
        if not settings.refine:
            continue
        for needed in (dictionary, moment, center):
            fetch_array(needed[concept])
        grad[:] = ZERO
        add_rows(grad, grad_scores, x, sources, start, stop)
        size[concept] = update_concept(
            dictionary[concept], moment[concept], size[concept], center[concept], grad, settings, pace
        )


#: Classes whose logits are computed together where the head is wide: their part of it stays in the cache.
CLASSES = 4 * LANES
#: Rows of the chunk so many after this one are asked for.
LATER = 2
#: Rows of the head are asked for so many before they are read.
AHEAD = 8


@compiled
def _add(total, values):  # type: ignore[no-untyped-def]
    for column in range(len(total)):
        total[column] += values[column]


@compiled
def chunks_of(begin, end, workspace):  # type: ignore[no-untyped-def]
    """Number of chunks of rows begin:end."""
    size = workspace.pointers.shape[1] - 1
    return (end - begin + size - 1) // size


@inlined
def _chunk(chunk, begin, end, workspace):  # type: ignore[no-untyped-def]
    """Rows of a chunk, in a batch of end - begin rows."""
    size = workspace.pointers.shape[1] - 1
    return chunk * size, min((chunk + 1) * size, end - begin)


@inlined
def _place(owner, chunk, workspace):  # type: ignore[no-untyped-def]
    """Index in the workspace of a chunk's codes over the concepts of an owner."""
    return owner * len(workspace.grad_biases) + chunk


@inlined
def _owned(panels, first, last):  # type: ignore[no-untyped-def]
    """The panels of concepts first:last, `first` the first of a panel."""
    start, stop, screen = first // PANEL, (last + PANEL - 1) // PANEL, panels.screen
    own = Screen(
        screen.quads[start:stop], screen.starts[start:stop], screen.offsets[start:stop], screen.scales[start:stop],
        screen.row_noise, screen.concept_noise,
    )  # fmt: skip
    factors = panels.factors[start * PANEL : stop * PANEL]
    return PanelColumns(panels.dictionary[first:last], own, panels.floats[start:stop], factors, first)


@inlined
def code(owner, chunk, begin, end, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Codes over the concepts of an owner, of a chunk of the batch, which is rows begin:end of the plan."""
    size, place = workspace.pointers.shape[1] - 1, _place(owner, chunk, workspace)
    first, last = _chunk(chunk, begin, end, workspace)
    codes = Entries(workspace.pointers[place], workspace.indices[place], workspace.codes[place])
    rows, salt = plan.rows[begin:], step_salt(settings.seed, parameters.steps[0])
    block = RowBlock(plan.x, rows[first:last], rows[first + LATER * size :][:size], workspace.rounded)
    criterion = Criterion(settings.kind, np.float32(parameters.threshold[0]), settings.length)
    start, stop = workspace.owners[owner], workspace.owners[owner + 1]
    active, n_exact = active_entries(
        block, _owned(workspace.panels, start, stop), criterion, Dropout(first, settings.dropped, salt), codes
    )
    entries, counts = codes.pointers[last - first], workspace.counts[chunk]
    for entry in range(entries):
        codes.data[entry] *= np.float32(settings.keep)
    workspace.sums[place, 1], workspace.sums[place, 2] = active, n_exact
    counts[start:stop] = 0
    count_concepts(codes.indices, entries, counts)


@inlined
def _together(chunk, rows, workspace):  # type: ignore[no-untyped-def]
    """A chunk's codes over all concepts."""
    owners, count = len(workspace.owners) - 1, 0
    all_pointers, all_indices, all_codes = workspace.pointers, workspace.indices, workspace.codes
    if owners == 1:
        return Entries(all_pointers[chunk], all_indices[chunk], all_codes[chunk])
    for owner in range(owners):
        count += all_pointers[_place(owner, chunk, workspace), rows]
    pointers, indices, data = np.empty(rows + 1, np.int32), np.empty(count, np.int32), np.empty(count, np.float32)
    pointers[0] = count = 0
    for row in range(rows):
        for owner in range(owners):
            place = _place(owner, chunk, workspace)
            for entry in range(all_pointers[place, row], all_pointers[place, row + 1]):
                indices[count], data[count] = all_indices[place, entry], all_codes[place, entry]
                count += 1
        pointers[row + 1] = count
    return Entries(pointers, indices, data)


@inlined
def _apart(grad_scores, chunk, rows, workspace):  # type: ignore[no-untyped-def]
    """Give every owner its part of what belongs to the entries that `_together` gave."""
    owners, count = len(workspace.owners) - 1, 0
    all_pointers, all_grads = workspace.pointers, workspace.grad_scores
    for row in range(rows):
        for owner in range(owners):
            place = _place(owner, chunk, workspace)
            for entry in range(all_pointers[place, row], all_pointers[place, row + 1]):
                all_grads[place, entry] = grad_scores[count]
                count += 1


@inlined
def logits_and_gradients(chunk, begin, end, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Logits, loss and gradient of a chunk."""
    first, last = _chunk(chunk, begin, end, workspace)
    codes, grad_bias = _together(chunk, last - first, workspace), workspace.grad_biases[chunk]
    by_owner = len(workspace.owners) > 2
    grad_scores = np.empty(len(codes.indices), np.float32) if by_owner else workspace.grad_scores[chunk]
    grad_bias[:] = np.float32(0.0)
    y, share = plan.y[begin + first : begin + last], plan.share[begin + first : begin + last]
    if len(workspace.sparse.starts) > 0:
        workspace.sums[chunk, 0] = sparse_head_gradients(
            codes, y, share, parameters.bias, workspace.sparse, np.float32(settings.keep), chunk, grad_bias, grad_scores
        )
    else:
        workspace.sums[chunk, 0] = head_gradients(
            codes, y, share, parameters, settings, workspace.grad_logits[first:last], grad_bias, grad_scores
        )
    if by_owner:
        _apart(grad_scores, chunk, last - first, workspace)


@inlined
def tile_logits(item, batch, parameters, workspace):  # type: ignore[no-untyped-def]
    """Logits of some classes, of all rows."""
    first, last = item * CLASSES, min((item + 1) * CLASSES, len(parameters.bias))
    tile, weights, n = workspace.logits[item], parameters.weights, len(parameters.weights)
    entries = workspace.entries
    for row in range(batch):
        copy_into(tile[row], parameters.bias[first:last])
    for concept in range(n):
        ahead = min(concept + AHEAD, n - 1)
        fetch_ahead(address(weights[ahead, first:]), CLASSES * 4 // LINE)
        spread_row(
            weights[concept, first:last], entries.codes, entries.rows, np.int64(entries.starts[concept]),
            np.int64(entries.starts[concept + 1]), tile,
        )  # fmt: skip


@inlined
def gradients_of_chunk(chunk, begin, end, parameters, plan, workspace):  # type: ignore[no-untyped-def]
    """Loss and gradient of a chunk, from its logits."""
    first, last = _chunk(chunk, begin, end, workspace)
    width, loss = len(parameters.bias), 0.0
    grad_bias = workspace.grad_biases[chunk]
    grad_bias[:] = np.float32(0.0)
    for row in range(first, last):
        grad = workspace.grad_logits[row]
        for item in range(len(workspace.logits)):
            start, stop = item * CLASSES, min((item + 1) * CLASSES, width)
            copy_into(grad[start:stop], workspace.logits[item, row, : stop - start])
        loss += logit_gradient(grad, plan.y[begin + row], plan.share[begin + row], grad_bias)
    workspace.sums[chunk, 0] = loss


@inlined
def find_starts(chunks, workspace):  # type: ignore[no-untyped-def]
    """Find the start of each concept's entries in the sorted order."""
    n, starts = workspace.counts.shape[1], workspace.entries.starts
    together = np.zeros(n, np.int32)
    for chunk in range(chunks):
        _add(together, workspace.counts[chunk])
    starts[0] = 0
    for concept in range(n):
        starts[concept + 1] = starts[concept] + together[concept]


@inlined
def sum_up(chunks, batch, step, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Report loss and active concepts of the step, and update the bias and the threshold."""
    loss, active, n_exact = 0.0, 0.0, 0.0
    grad = np.zeros(len(parameters.bias), np.float32)
    for chunk in range(chunks):
        loss += workspace.sums[chunk, 0]
        for owner in range(len(workspace.owners) - 1):
            place = _place(owner, chunk, workspace)
            active += workspace.sums[place, 1]
            n_exact += workspace.sums[place, 2]
        _add(grad, workspace.grad_biases[chunk])
    report = workspace.reports[step]
    report[0], report[1], report[2] = loss, active / batch, n_exact / batch
    update_bias(grad, plan.rates[step, 0], parameters, settings)
    update_threshold(active / batch, parameters, settings)


@inlined
def update(panel, step, chunks, parameters, settings, plan, workspace):  # type: ignore[no-untyped-def]
    """Step the concepts of a panel, and pack them anew."""
    first, last = panel * PANEL, min((panel + 1) * PANEL, len(parameters.dictionary))
    pace = pace_of(plan.rates[step], parameters, settings)
    update_concepts(first, last, chunks, workspace, plan.x, parameters, settings, pace)
    if settings.refine:
        pack_concepts(first, last, workspace.panels)


@inlined
def sort(share, shares, begin, end, plan, workspace):  # type: ignore[no-untyped-def]
    """Sort the entries of the concepts that a share of the panels has, by concept and then by row."""
    n = workspace.counts.shape[1]
    panels = (n + PANEL - 1) // PANEL
    first, last = min(n, share * panels // shares * PANEL), min(n, (share + 1) * panels // shares * PANEL)
    positions = workspace.entries.starts[first:last].copy()
    for owner in range(len(workspace.owners) - 1):
        if workspace.owners[owner] >= last or workspace.owners[owner + 1] <= first:
            continue
        for chunk in range(chunks_of(begin, end, workspace)):
            place, (top, bottom) = _place(owner, chunk, workspace), _chunk(chunk, begin, end, workspace)
            pointers = workspace.pointers[place, : bottom - top + 1]
            by_concept(
                first, top, Entries(pointers, workspace.indices[place], workspace.codes[place]),
                workspace.grad_scores[place], plan.rows[begin + top : begin + bottom], positions, workspace.entries,
            )  # fmt: skip
