"""Loaded tiles whose rows in memory run across the threads' neighbours: they pass through shared memory.

y[j, i] = x[i, j].T     stores run along i, rows of x along j: read as rows, kept by columns, written as rows of y

Each side then moves whole vectors of neighbouring lanes. Instances that write neighbouring bytes come one after the other: a tile of 64
columns is 256 bytes of a row, and what lies beside it is written while the DRAM's page is open (0.95 of a copy to 0.98 on an H200).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir import tile_ir as t
from tilec.passes.axes import Axes, AxisClass

MOST_BYTES = 36 << 10
"""Of all such tiles of a CTA, so that several CTAs have room and each may declare it."""

LEAST = 16
"""Coordinates along either side from which on the way through shared memory pays."""


def crossing(
    program: t.Program, axes: Axes, fast: Sequence[AxisClass], loads: Sequence[t.Load]
) -> list[t.Load]:
    """The loads that pass through shared memory: as many as there is room for."""
    found: list[t.Load] = []
    room = MOST_BYTES
    for op in loads:
        size = _bytes(program, axes, fast, op)
        if 0 < size <= room:
            found.append(op)
            room -= size
    return found


def _bytes(program: t.Program, axes: Axes, fast: Sequence[AxisClass], op: t.Load) -> int:
    """Bytes of a load's tile by columns; 0 unless it is of a block of rows, and its columns are the classes of the `fast` slot."""
    access, tensor = op.access, program.tensor(op.access.tensor)
    blocks = [term for term in access.terms if isinstance(term, t.AtSpan | t.AtAll)]
    others = [term for term in access.terms if not isinstance(term, t.AtScalar)]
    if access.pointwise or access.view is not None or len(others) != 2 or others != blocks:
        return 0
    if blocks[1] is not access.terms[-1] or tensor.row_major[-1].constant != 1:
        return 0
    rows, columns = axes.of_access(op)
    if rows is None or columns is None or rows not in fast or columns in fast:
        return 0
    sides = rows.capacity or 0, columns.capacity or 0
    if not (rows.static and columns.static) or min(sides) < LEAST or tensor.dtype.bits < 16:
        return 0
    return pitch(sides[0], tensor.dtype.bits) * sides[1] * tensor.dtype.bits // 8


def pitch(rows: int, bits: int) -> int:
    """Elements from a column to the next: an odd number of words, so that neighbouring columns begin in other banks."""
    each = max(1, 32 // bits)
    words = -(-rows // each)
    return (words + 1 - words % 2) * each


def vector_of(columns: int, bits: int) -> int:
    """Elements of a vector along rows of so many columns."""
    width = 128 // bits
    while columns % width:
        width //= 2
    return width
