"""`auto` tile sizes that depend on what a program says of its products, beside the target's table.

A side that is known to be short: the other operand is read once, and its transport is all the work.

    require M <= 16
    for i, j in parallel(M by BM, N by BN): … for k in range(K by BK): acc += a[i, k] @ b[k, j]      BM = 16, BN = 64, BK = 128
    require M <= 128: as much of a as of b for each tile of 128 columns, twice as much for 64        BM = 128, BN = 128, BK = 64
        where b is not too large: a pair of CTAs has 64 rows each, and brings the same columns once  BM = 64, BN = 128, BK = 64
        where there are columns enough for all CTAs                                                  BM = 128, BN = 256, BK = 64
    with as many columns, also for fewer rows, where memory runs along them: longer runs of it       BM = 16, BN = 256, BK = 64

A plain product of warps, one that a loop adds up from operands that are loaded: `plan.product_tiles` ranks all sizes. One of warpgroups has
further ones beside the table's, which a launch takes where its other sizes suit them and all tiles have as many trips (`even_rounds`).

The consumed axis: tables count 16-bit elements, and what matters are bytes. BK = 64 of bf16 is 128 of 8-bit elements, 32 of f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass
from tilec.passes.placement import COSTS, from_memory
from tilec.passes.swap import WARPGROUP_ROWS
from tilec.passes.uses import Definitions, all_ops, running_sum
from tilec.plan.candidate import Candidate
from tilec.plan.product_tiles import Given, Sides, ranked
from tilec.targets.rates import is_crowded
from tilec.targets.table import Target

MOST_ROWS = 128
"""Longer sides are multiplied often enough that the tensor cores are what limits."""
TABLE_BITS = 16
"""Of the elements that tables of tile sizes count."""
LEAST_ROWS = 8
"""The narrowest product."""
BUSY_ABOVE = 16
"""Issue slots of an element between two products: a scale, a maximum, a difference, its exponential and a sum are 5, with a choice or a term
beside 6, with a multiply-add 7, with a hyperbolic tangent 18."""


@dataclass(frozen=True)
class FewRows:
    """Tile sizes by name; `shared`: for a form in which CTAs share the consumed axis, or the stream."""

    tiles: Mapping[str, int]
    shared: bool


def few_rows(program: t.Program, target: Target, by_size: bool = False) -> tuple[FewRows, ...]:
    """Choices of tile sizes, best first: the short side as a power of two, the other one and the consumed axis from the
    target's tables, `by_size` those that a launch takes first where its other sizes suit them. () where the target has none, where no side
    of the program's products is short, or where its products differ."""
    if not target.stream_tiles:
        return ()
    found: set[tuple[str, str, str, int, bool]] = set()
    for nest in program.nests:
        bounds = _bounds(program, nest)
        definitions = Definitions.of(nest.body)
        for op in all_ops(nest.body):
            if not isinstance(op, t.Dot) or op.out.type.rank != 2:
                continue
            sides = [_tile(op.out.type.axes[n].extent) for n in (0, 1)]
            consumed = _tile(op.a.type.axes[1].extent)
            for short, other in (sides, sides[::-1]):
                bound = bounds.get(short)
                if bound is not None and bound <= MOST_ROWS and bounds.get(other) is None:
                    found.add((short, other, consumed, bound, _runs_along(op, other, definitions)))
                    break
            else:
                return ()
    if len(found) != 1:
        return ()
    ((short, other, consumed, bound, long_runs),) = found
    if not all((short, other, consumed)):
        return ()
    rows = max(LEAST_ROWS, 1 << (bound - 1).bit_length())
    _, bits = consumed_axis(program) or (consumed, TABLE_BITS)
    narrowest = min(wide for wide, _ in target.stream_tiles)
    crowded = is_crowded(target.arch, rows, narrowest)
    size = target.cluster_size
    tables = [
        (rows, True, target.shared_stream_tiles if crowded else ()),
        (rows, False, target.stream_tiles),
    ]
    if by_size:
        tables = [
            (rows, False, target.wide_stream_tiles if crowded or long_runs else ()),
            (rows // size, True, target.paired_stream_tiles if crowded else ()),
        ]
    return tuple(
        FewRows({short: own, other: width, consumed: deep * TABLE_BITS // bits}, shared)
        for own, shared, table in tables
        for width, deep in table
        if own == rows or own >= WARPGROUP_ROWS
    )


def _runs_along(op: t.Dot, name: str, definitions: Definitions) -> bool:
    """Whether memory runs along the axis of an operand in steps of a tile size: wider tiles then read longer runs of it."""
    for operand in (op.a, op.b):
        while isinstance(inner := definitions.defining.get(operand.id), t.Rearrange):
            operand = inner.arg
        if isinstance(inner, t.Load) and _tile(inner.out.type.axes[-1].extent) == name:
            return True
    return False


def warp_tiles(
    program: t.Program, target: Target, candidate: Candidate
) -> tuple[Mapping[str, int], ...]:
    """Choices of tile sizes of a plain product of warps by name, best first; () where a program's only product is no such one."""
    plain = _plain_product(program)
    if plain is None:
        return ()
    nest, names, bits = plain
    bounds = _bounds(program, nest)
    open_names = {n for n in names if candidate.origin.get(n) == "auto"}
    fixed = {place: program.tiles[n] for place, n in enumerate(names) if n not in open_names}
    sides = Sides(bounds.get(names[0]), bounds.get(names[1]), bits)
    given = Given(fixed, candidate.warps, candidate.stages)
    return tuple(dict(zip(names, tile, strict=True)) for tile in ranked(target, sides, given))


def even_tiles(
    program: t.Program, target: Target, candidate: Candidate
) -> tuple[Mapping[str, int], ...]:
    """Choices of tile sizes of a plain product of warpgroups by name for launches whose rounds they fill better; () where a program's
    only product is no such one, has more trips in some tiles than in others, or its tiles or warps are given."""
    plain = _plain_product(program)
    if plain is None or any(candidate.origin.get(n) != "auto" for n in plain[1]):
        return ()
    if candidate.warps is not None:
        return ()
    nest, names, bits = plain
    definitions = Definitions.of(nest.body)
    loops = [op for op in all_ops(nest.body) if isinstance(op, t.For)]
    trips = [loop.trips for loop in loops if running_sum(loop, definitions) is not None]
    if any(v.kind not in ("dim", "scalar", "tile") for sym in trips for v in sym.variables):
        return ()
    return tuple(
        dict(zip(names, (rows, columns, deep * TABLE_BITS // bits), strict=True))
        for rows, columns, deep in target.even_tiles
    )


def _plain_product(program: t.Program) -> tuple[t.Nest, tuple[str, str, str], int] | None:
    """The nest of a program's only product, where a loop does nothing but add it up from operands that are loaded; the names of the
    tile sizes of its rows, its columns and the consumed axis, and the bits of an operand's element."""
    dots = [
        (nest, op) for nest in program.nests for op in all_ops(nest.body) if isinstance(op, t.Dot)
    ]
    if len(dots) != 1:
        return None
    ((nest, op),) = dots
    definitions = Definitions.of(nest.body)
    consumed = consumed_axis(program)
    if consumed is None or op.out.type.rank != 2 or not _is_summed(nest, op, definitions):
        return None
    for operand in (op.a, op.b):
        while isinstance(inner := definitions.defining.get(operand.id), t.Rearrange):
            operand = inner.arg
        if not isinstance(inner, t.Load) or inner.access.pointwise:
            return None
    rows, columns = (_tile(op.out.type.axes[n].extent) for n in (0, 1))
    names = (rows, columns, consumed[0])
    if not all(names) or len(set(names)) < 3:
        return None
    return nest, names, consumed[1]


def _is_summed(nest: t.Nest, op: t.Dot, definitions: Definitions) -> bool:
    """Whether a loop does nothing with a product but add it up."""
    return any(running_sum(loop, definitions) is op for loop in all_ops(nest.body))


def is_narrow_chain(program: t.Program) -> bool:
    """Whether a product has a left operand of 8 bits that is computed."""
    for nest in program.nests:
        definitions = Definitions.of(nest.body)
        for op in all_ops(nest.body):
            if not isinstance(op, t.Dot) or op.a.type.dtype.bits != 8:
                continue
            if not from_memory(op.a, definitions):
                return True
    return False


def is_busy_chain(program: t.Program) -> bool:
    """Whether what a loop computes of one product's elements for the next one takes so long that the tensor cores wait: more warpgroups, with
    fewer elements each, have something to start more often."""
    return any(
        _cost_between(op) > BUSY_ABOVE
        for nest in program.nests
        for op in all_ops(nest.body)
        if isinstance(op, t.For)
    )


def _cost_between(loop: t.For) -> int:
    """Issue slots of what a loop with several products computes of each element of the first one, 0 for other loops."""
    dots = [op for op in loop.body.ops if isinstance(op, t.Dot)]
    if len(dots) < 2:
        return 0
    reached = {dots[0].out.id}
    cost = 0
    for op in loop.body.ops:
        if isinstance(op, t.Elementwise) and reached & {a.id for a in op.args}:
            reached.add(op.out.id)
            if op.out.type.rank == 2:
                cost += COSTS.get(op.op, 1)
    return cost


def consumed_axis(program: t.Program) -> tuple[str, int] | None:
    """The name of the tile size along which all products of a program consume, and the bits of their operands' elements; None where
    they differ."""
    found = {
        (_tile(op.a.type.axes[-1].extent), op.a.type.dtype.bits, op.b.type.dtype.bits)
        for nest in program.nests
        for op in all_ops(nest.body)
        if isinstance(op, t.Dot)
    }
    if len(found) != 1:
        return None
    ((name, left, right),) = found
    return (name, left) if name and left == right and left in (8, 16, 32) else None


def _tile(extent: Sym) -> str:
    """The name of the tile size that an extent is, "" for others."""
    variables = list(extent.variables)
    named = len(variables) == 1 and variables[0].kind == "tile" and extent == Sym.of(variables[0])
    return variables[0].name if named else ""


def _bounds(program: t.Program, nest: t.Nest) -> dict[str, int | None]:
    """Bounds of what the grid walks in steps of a tile size, by its name; None: not known."""
    found: dict[str, int | None] = {}
    for digit in nest.grid:
        name = "" if digit.step is None else _tile(digit.step)
        if name:
            # in steps of one the trips are the coordinates
            ones = replace(program, tiles={**program.tiles, name: 1})
            found[name] = Facts.of(ones).upper_bound(digit.trips)
    return found
