"""The tiles of products, in every variant that this CPU can run, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ccr import kernels

if kernels.TIER != "x86":
    pytest.skip("tiles are a part of the x86 kernels", allow_module_level=True)

from ccr.kernels.x86.tiles import Tile, TilePanel, TileRows, block_starts_of, byte_tile_of, float_tile_of
from ccr.kernels.x86.variants import FEATURES, Variant, runnable
from ccr.kernels.x86.vectors import address

VARIANTS = runnable(FEATURES)
DEPTHS = (2, 30, 32, 34, 128, 250)


def compiled_tiles(tile: Tile) -> tuple[Any, Any]:
    """Which products of a tile's bytes reach its bounds, and its products of floats, as functions."""
    starts_of, mark, multiply = block_starts_of(tile), byte_tile_of(tile), float_tile_of(tile)

    @njit
    def marked(quads, panel, starts, about, two_sided, marks):  # type: ignore[no-untyped-def]
        depth = quads.shape[1]
        starts_of(address(panel), depth, address(starts))
        columns = TilePanel(
            address(panel), depth, address(starts), address(about[3]), address(about[4]), np.float32(2.0),
            np.float32(0.25),
        )  # fmt: skip
        rows = TileRows(
            address(quads), depth, address(about[0]), address(about[1]), address(about[5]), address(about[2]),
            address(marks), marks.shape[1],
        )  # fmt: skip
        mark(rows, columns, two_sided)

    @njit
    def multiplied(rows, panel, out):  # type: ignore[no-untyped-def]
        depth = rows.shape[1]
        multiply(address(rows), depth, address(panel), depth, address(out), out.shape[1], 3)

    return marked, multiplied


def some_bytes(tile: Tile, depth: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of rows and of columns as large as the variant may meet them: one row and one column are extreme."""
    rows = rng.integers(1 - tile.shift, tile.shift, (tile.rows, 4 * depth))
    columns = rng.integers(-127, 128, (tile.panel, 4 * depth))
    rows[0], columns[0] = tile.shift - 1, 127
    if not tile.dots:  # what 16 bits hold: half a block, two numbers of each quad, is at most 181 long
        for values in (rows, columns):
            values[:] = np.trunc(values * 181.0 / np.sqrt(64 * 127.0**2))
    return rows, columns


@pytest.mark.parametrize("rows", [None, 1], ids=["whole", "one row"])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_products_of_bytes_are_exact_and_those_of_floats_to_rounding(variant: Variant, rows: int | None) -> None:
    tile, rng = Tile(variant, rows), np.random.default_rng(0)
    marked, multiplied = compiled_tiles(tile)
    for depth in DEPTHS:
        lines, columns = some_bytes(tile, depth, rng)
        quads = (lines + tile.shift).astype(np.uint8).view(np.int32)
        panel = np.ascontiguousarray(columns.astype(np.int8).view(np.int32).T)
        products = lines @ columns.T
        starts = np.zeros((tile.blocks(depth), tile.panel), np.int32)
        for two_sided in (False, True):
            about = np.zeros((6, max(tile.panel, tile.lanes + tile.rows)), np.float32)
            about[0], about[2] = rng.integers(-9, 9, about.shape[1]), 0.75  # shifts; spreads: sqrt(0.75 + 0.25) = 1
            about[3] = rng.integers(-9, 9, about.shape[1])
            about[4], about[5] = rng.integers(0, 3, about.shape[1]), 0.5  # factors of columns; slacks
            totals = products + about[0, : tile.rows, None] + about[3, : tile.panel]
            sizes = np.abs(totals) if two_sided else totals
            bound = np.median(sizes, axis=1)  # one of the sizes or halfway between two: off by one would show
            about[1, : tile.rows] = (bound + 2) / 2
            bounds = (bound[:, None] + 2) * about[4, : tile.panel] - 2
            marks = np.zeros((tile.rows, tile.panel // 8), np.uint8)
            marked(quads, panel, starts, about, two_sided, marks)
            found = np.unpackbits(marks, axis=1, bitorder="little").astype(bool)
            assert np.array_equal(found, sizes >= bounds)
        floats, others = rng.normal(size=(tile.rows, depth)), rng.normal(size=(depth, tile.panel))
        out = np.full((tile.rows, tile.panel + 5), 7.0, np.float32)
        multiplied(floats.astype(np.float32), others.astype(np.float32), out)
        assert np.allclose(out[:, 3:-2], floats @ others, atol=1e-4)
        assert (np.delete(out, np.s_[3 : tile.panel + 3], axis=1) == 7.0).all()
