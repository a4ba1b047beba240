"""Two tilings of one nest: which is faster depends on sizes that a launch knows and the plan does not.

    for i in parallel(S by BM):                    BM = 192, BN = 128   fewer, wider steps: where rows are long
        for j in range(min(T, i.stop) by BN):      BM = 256, BN = 64    narrow ones waste less behind the bound: where they are short

Both are compiled. The launcher compares what the tiles of each take: of the loop that has more trips in some instances than in others
those of an instance in the middle, each with clocks for itself and for its elements, and clocks for the tile.
"""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import LaunchCondition, product
from tilec.ir.requirements import INSTANCE_LIMIT
from tilec.ir.symbolic import Sym, Var, sym_max
from tilec.passes.uses import all_ops
from tilec.targets.rates import TILE_CLOCKS, step_clocks
from tilec.targets.table import Target

UNIT = 16
"""Clocks that one of the comparison's numbers stands for: with all sizes below 2^31 no sum leaves 64 bits."""
WORTH = (33, 32)
"""The other tiling must be faster by as much: the model is no better than that."""


def faster(
    wide: t.Program, narrow: t.Program, target: Target
) -> tuple[LaunchCondition, ...] | None:
    """What holds where the tiles of `wide`, the same program of one nest, take less time than those of `narrow`, and have numbers; None
    where that is not known."""
    own, other = (_time(program, target) for program in (wide, narrow))
    if own is None or other is None:
        return None
    numeric = Facts.of(wide).numeric
    instances = numeric(product(tuple(a.trips for a in wide.nests[0].grid)))
    fits = t.HostOp("<=", (instances, t.HostNumber(INSTANCE_LIMIT)))
    return t.HostOp("<", (own * WORTH[0], other * WORTH[1])), fits


def _time(program: t.Program, target: Target) -> Sym | None:
    """What all tiles along the uneven axis take, twice, in UNIT clocks; None where the loop is not like that."""
    loop, grid = _uneven(program.nests[0])
    if loop is None or grid is None:
        return None
    dots = [op for op in loop.body.ops if isinstance(op, t.Dot)]
    number = program.tile_number
    sizes = [
        (number(d.out.type.axes[0].extent), number(d.out.type.axes[1].extent), number(d.a.type.axes[1].extent))
        for d in dots
    ]  # fmt: skip
    elements = sizes[0][0] * sizes[0][1]
    multiply_adds = sum(m * n * k for m, n, k in sizes)
    step = step_clocks(target.arch, elements, multiply_adds, dots[0].a.type.dtype.bits)
    if step is None:
        return None
    numeric = Facts.of(program).numeric
    tiles = numeric(grid.trips)
    trips = Sym.of(0)
    for middle in ((tiles - 1) // 2, tiles // 2):

        def there(var: Var, middle: Sym = middle) -> Sym | None:
            return middle if var == grid.index else None

        trips = trips + sym_max([numeric(loop.trips).substitute(there), 0])
    if any(v.kind not in ("dim", "scalar") for v in trips.variables):
        return None
    return tiles * (trips * round(step / UNIT) + 2 * round(TILE_CLOCKS / UNIT))


def _uneven(nest: t.Nest) -> tuple[t.For | None, t.GridAxis | None]:
    """The loop of chained products that has more trips in some instances than in others, and the axis that says in which."""
    for op in all_ops(nest.body):
        if not isinstance(op, t.For) or sum(isinstance(x, t.Dot) for x in op.body.ops) < 2:
            continue
        along = [g for g in nest.grid if g.index in op.trips.variables]
        if len(along) == 1:
            return op, along[0]
    return None, None
