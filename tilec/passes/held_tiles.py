"""Tiles of accumulators' shape that a loop reads beside its products: the producer brings them, as it brings operands.

for j …:                                                  producer   wait bias_free; expect; copy bias[i, j] -> bias_tiles
    s = q @ k[j].T + bias[i, j]                      ->   consumers  start s; wait bias_full
    …                                                                bias_tile = load_rows bias_tiles; release
                                                                     wait 1; s + bias_tile

A load of registers is waited for in each trip, at memory's latency; a ring of tiles in shared memory is filled while earlier trips
compute. What a copy brings where an element is absent is like what products have there: nothing reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import U32
from tilec.ir.facts import Facts
from tilec.ir.layouts import is_paired
from tilec.passes.axes import Axes
from tilec.passes.boxes import Unsuited, load_box
from tilec.passes.channels import Channel, Member, Site
from tilec.passes.products import Products, Staged
from tilec.passes.uses import Definitions, all_ops


def plan_held(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    products: Products,
    definitions: Definitions,
    facts: Facts,
    origin: Mapping[int, int],
    wanted: frozenset[int],
) -> tuple[Channel, ...]:
    """A channel for each of the `wanted` loads (ids of the ops) whose tile a loop reads in accumulators' shape, with its copies; `origin`
    as in `Scheduled`. Loads of which one copy does not suit have none."""
    groups: dict[int, list[t.Load]] = {}
    for op in all_ops(nest.body):
        if isinstance(op, t.Load) and id(op) in wanted:
            groups.setdefault(origin.get(op.out.id, op.out.id), []).append(op)
    found: list[Channel] = []
    for loads in groups.values():
        members = [_member(program, axes, products, load, facts) for load in loads]
        homes = [definitions.loops[load.out.id] for load in loads]
        first = members[0]
        loops = [op for home in homes for op in home]
        if first is None or any(m != first for m in members) or not any(homes):
            continue
        if not all(isinstance(op, t.For) for op in loops):
            continue
        sites = tuple(
            Site((Staged(load.out, 1, load),), (load,), home, load, load)
            for load, home in zip(loads, homes, strict=True)
        )
        found.append(Channel((first,), sites, held=True))
    return tuple(found)


def _member(
    program: t.Program, axes: Axes, products: Products, load: t.Load, facts: Facts
) -> Member | None:
    """The tile of a load in shared memory; None where it has another shape than accumulators, or no copy brings it."""
    try:
        box = load_box(program, load, facts)
    except Unsuited:
        return None
    classes = axes.of_value(load.out)
    if len(classes) != 2 or products.swapped or load.out.type.dtype.bits not in (8, 16):
        return None
    row, col = classes
    if (
        row is None
        or col is None
        or row.number in products.columns
        or col.number not in products.columns
    ):
        return None
    rows, columns = products.layouts.get(row.number), products.layouts.get(col.number)
    if rows is None or columns is None or is_paired(rows) or box.row > box.col:
        return None
    words = program.tensor(load.access.tensor).words
    if words:
        if columns.capacity != words or rows.capacity % 64:
            return None
        return Member(load.access.tensor, U32, rows.capacity // 8, 32)
    dtype = load.out.type.dtype
    bytes_of_row = columns.capacity * dtype.bits // 8
    if rows.capacity > 256 or bytes_of_row % 32:
        return None
    return Member(load.access.tensor, dtype, rows.capacity, columns.capacity)
