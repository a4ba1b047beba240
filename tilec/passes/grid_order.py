"""The order of a grid's instances: which run at the same time decides what they find in the L2.

    for i, j in parallel(M by BM, N by BN):         instance 0 1 2 …: i = 0 … 7 of j = 0, then of j = 1, …, then i = 8 … 15
        … a[i, k] @ b[k, j] …

Row by row, the CTAs that run together read one row of tiles of the left operand and all of the right one. In groups of rows,
swept along the columns, they read about as much of either, and both are read again soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.launch import product
from tilec.ir.symbolic import Sym, Var
from tilec.passes.uses import Definitions, all_ops, operands, syms_of
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.table import DEFAULT_ARCH, Target

ROWS_OF_A_GROUP = 8
"""Rows of tiles that are swept together: of some hundred resident CTAs about as many columns as rows."""

SECTION_ROUNDS = 2
"""Rounds of resident CTAs that a section of an uneven grid has about."""


def rows_of_a_group(nest: t.Nest, definitions: Definitions) -> int:
    """How many trips of the last grid loop but one share a sweep along the last one; 1 where neighbours share nothing that way:
    the two must number tiles, and every product must take one operand from either."""
    if len(nest.grid) < 2:
        return 1
    rows, columns = nest.grid[-2:]
    if (
        rows.step is None
        or columns.step is None
        or 1 in (rows.trips.constant, columns.trips.constant)
    ):
        return 1
    dots = [op for op in all_ops(nest.body) if isinstance(op, t.Dot)]
    pair = frozenset((rows.index, columns.index))
    for op in dots:
        a, b = (_depends(value, definitions) & pair for value in (op.a, op.b))
        if len(a) != 1 or len(b) != 1 or a == b:
            return 1
    return ROWS_OF_A_GROUP if dots else 1


def stored_along(nest: t.Nest, index: Var) -> bool:
    """Whether neighbouring trips of a grid loop write neighbouring bytes: the last subscripts of all stores are spans that follow it."""
    stores = [op for op in all_ops(nest.body) if isinstance(op, t.Store) and op.access.terms]
    last = [op.access.terms[-1] for op in stores]
    return bool(last) and all(isinstance(x, t.AtSpan) and index in x.start.variables for x in last)


def reread_first(nest: t.Nest, tiles: Iterable[t.Load]) -> tuple[t.GridAxis, ...]:
    """The grid loops, fastest last, in an order in which instances that need the same ones of these tiles run at the same time: slow loops
    that a tile does not depend on become the fastest ones, where it depends on all others. Else all of its tensor passes between two
    instances that read the same."""
    loads = list(tiles)
    for load in loads:
        used = {v for sym in syms_of(load) for v in sym.variables}
        if any(v.kind == "value" for v in used):
            continue
        free = [loop for loop in nest.grid if loop.index not in used]
        others = [loop for loop in nest.grid if loop.index in used]
        if free and others and nest.grid == (*free, *others):
            return (*others, *free)
    return nest.grid


def uneven_chain(program: t.Program) -> bool:
    """Whether some loop with two products or more has more trips in one instance than in another."""
    for nest in program.nests:
        digits = {loop.index for loop in nest.grid}
        for op in all_ops(nest.body):
            if not isinstance(op, t.For) or not op.trips.variables & digits:
                continue
            if sum(isinstance(inner, t.Dot) for inner in all_ops(op.body)) > 1:
                return True
    return False


def section_size(grid: Sequence[k.GridDigit], resident: int, target: Target) -> Sym:
    """How many trips of the other loops of a grid whose last one has longer trips later are taken together, the longest first; `resident`
    CTAs share a multiprocessor. One after the other each would end with its short trips, and the last one's long ones, which start when
    most of the work is done, would be waited for. All together, those that read the same are far from each other."""
    device = REPRESENTATIVES.get(target.arch, REPRESENTATIVES[DEFAULT_ARCH])
    trips, others = grid[-1].trips, product(tuple(digit.trips for digit in grid[:-1]))
    most = Sym.of(SECTION_ROUNDS * resident * device.multiprocessors) // trips + 1
    sections = (others - 1) // most + 1
    return (others - 1) // sections + 1


def _depends(value: t.Value, definitions: Definitions) -> set[Var]:
    """The trip numbers that a value depends on, through memory addresses, carried names and branches."""
    found: set[Var] = set()
    waiting, seen = [value.id], {value.id}
    while waiting:
        op = definitions.defining[waiting.pop()]
        # which trips survive says when a tile is read, not which tiles a row or a column has
        values = [] if isinstance(op, t.Survivor) else [v.id for v in operands(op)]
        for sym in syms_of(op):
            found |= {v for v in sym.variables if v.kind == "trip"}
            values += [v.key for v in sym.variables if v.kind == "value"]
        match op:
            case t.For():
                values += [c.next.id for c in op.carried]
            case t.If():
                values += [v.id for m in op.merges for v in (m.then, m.otherwise)]
            case _:
                pass
        waiting += [v for v in values if v not in seen]
        seen |= set(values)
    return found
