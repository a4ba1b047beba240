"""How much work a run of the reference is, and which instances stand for all where it is too much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from tilec.ir import tile_ir as ir
from tilec.ir.symbolic import Sym, Var
from tilec.reference.interpreter import Instance, Interpreter
from tilec.source.diagnostics import fail

LIMIT = 10**11
"""Operations of a run of which every instance is verified."""
SAMPLES = 64
"""Instances of a nest that are verified above the limit, at least."""
_PER_OP = 100_000
"""Operations that NumPy's overhead for one tile op is worth."""
_LOADED_AT_ENDS = 4
"""Loaded integers of an expression that is evaluated at all of their ends."""
_PER_ELEMENT = 40
"""Operations that one element of an element-wise op with its bound is worth."""


@dataclass(frozen=True)
class Selection:
    """`instances` to run in order; `sampled` of `total` in the last nest, or all of them where `complete`. `operations` are those of all."""

    instances: tuple[Instance, ...] | None
    sampled: int
    total: int
    complete: bool
    operations: int = 0

    def describe(self) -> str:
        """What a run prints."""
        if self.complete:
            return f"all {self.total} instances"
        return f"{self.sampled} of {self.total} instances (corners, edges, ragged ends and others at random)"


def operations(program: ir.Program, sizes: Mapping[str, int], nest: int) -> int:
    """Estimate of the reference's work on one nest: multiplications and additions of products, elements with the weight of
    NumPy's passes over them, and a constant for every tile op. Trips that hang on loaded values count at the largest dimension."""
    estimate = _Estimate(program, sizes)
    counts = [max(0, estimate.number(g.trips)) for g in program.nests[nest].grid]
    instances = 1
    for axis, count in zip(program.nests[nest].grid, counts, strict=True):
        instances *= count
        estimate.trips[axis.index] = max(0, count - 1)
    return instances * estimate.block(program.nests[nest].body)


def select(interpreter: Interpreter, seed: int = 0, limit: int = LIMIT) -> Selection:
    """All instances where that is at most `limit` operations, else all of the earlier nests and SAMPLES or more of the last.

    Raises E0906 where the earlier nests alone exceed the limit: the last one needs all that they write.
    """
    program, sizes = interpreter.program, interpreter.sizes
    last = len(program.nests) - 1
    grids = [interpreter.grid(n) for n in range(len(program.nests))]
    totals = [int(np.prod(g, dtype=np.float64)) if g else 1 for g in grids]
    work = [operations(program, sizes, n) for n in range(len(program.nests))]
    if sum(work) <= limit:
        return Selection(None, sum(totals), sum(totals), True, sum(work))
    if sum(work[:-1]) > limit:
        raise fail(
            "E0906",
            f"`{program.name}` is too large at these sizes for the reference: its last nest needs all that earlier nests write",
            program.span,
            help="verify at smaller sizes, `-s M=…`",
        )
    chosen = choose(grids[last], seed)
    before = [i for n in range(last) for i in interpreter.instances(n)]
    instances = (*before, *(Instance(last, trips) for trips in chosen))
    share = work[last] * len(chosen) // max(1, totals[last])
    complete = len(chosen) == totals[last]
    return Selection(instances, len(chosen), totals[last], complete, sum(work[:-1]) + share)


def choose(grid: tuple[int, ...], seed: int = 0, count: int = SAMPLES) -> list[tuple[int, ...]]:
    """At least `count` coordinates of a grid (all, if it has fewer), sorted: its corners, points on its far edges, where the ragged
    ends lie, on its near edges, and others at random."""
    total = 1
    for extent in grid:
        total *= extent
    if total <= count:
        return list(product(*(range(n) for n in grid)))
    generator = np.random.Generator(np.random.PCG64([seed, len(grid)]))
    picked = set(product(*(sorted({0, n - 1}) for n in grid)))

    def anywhere() -> list[int]:
        return [int(generator.integers(n)) for n in grid]

    for axis, extent in enumerate(grid):
        for end in (extent - 1, 0):
            for _ in range(4):
                point = anywhere()
                point[axis] = end
                picked.add(tuple(point))
    while len(picked) < count:
        picked.add(tuple(anywhere()))
    return sorted(picked)


class _Estimate:
    """Counts the work of a block at representative trips: the last of each grid axis, the middle one of each loop."""

    def __init__(self, program: ir.Program, sizes: Mapping[str, int]) -> None:
        self.program = program
        self.sizes = sizes
        self.trips: dict[Var, int] = {}
        self.largest = max(sizes.values(), default=1)

    def number(self, sym: Sym) -> int:
        """A Sym's value; where it hangs on loaded integers, the greatest for which each of them is 0 or the largest dimension, or an
        upper bound where they are many."""
        loaded = [v for v in sym.variables if v.kind not in ("dim", "tile", "trip")]
        if len(loaded) <= _LOADED_AT_ENDS:
            ends = product((0, self.largest), repeat=len(loaded))
            known = [dict(zip(loaded, point, strict=True)) for point in ends]
            return max(sym.evaluate(partial(self.given, point)) for point in known)

        def reach(var: Var) -> tuple[int, int]:
            value = self.variable(var)
            return (value, value) if var.kind in ("dim", "tile", "trip") else (0, self.largest)

        high = sym.bounds(reach)[1]
        return self.largest if high is None else high

    def given(self, known: Mapping[Var, int], var: Var) -> int:
        """One variable, some of which are known."""
        return known[var] if var in known else self.variable(var)

    def variable(self, var: Var) -> int:
        """One variable."""
        match var.kind:
            case "dim":
                return self.sizes[var.name]
            case "tile":
                return self.program.tiles[var.name]
            case "trip":
                return self.trips.get(var, 0)
            case _:
                return self.largest

    def elements(self, type_: ir.TileType) -> int:
        """Number of elements of a tile."""
        total = 1
        for axis in type_.axes:
            total *= self.number(axis.extent)
        return total

    def block(self, block: ir.Block) -> int:
        """Work of a block."""
        return sum(self.op(op) for op in block.ops)

    def op(self, op: ir.Op) -> int:
        """Work of one op."""
        match op:
            case ir.For():
                trips = max(0, self.number(op.trips))
                self.trips[op.index] = trips // 2
                return trips * self.block(op.body)
            case ir.If():
                return max(self.block(op.then), self.block(op.otherwise))
            case ir.Dot():
                depth = self.number(op.a.type.axes[-1].extent)
                return _PER_OP + 2 * depth * self.elements(op.out.type)
            case ir.Constant() | ir.FromSym() | ir.Scalar():
                return _PER_OP // 10
            case ir.Reduce() | ir.Scan() | ir.TopK() | ir.Cast():
                return _PER_OP + _PER_ELEMENT * self.elements(op.arg.type)
            case ir.ReduceWith():
                extent = self.number(op.args[0].type.axes[op.axis].extent)
                return extent * self.block(op.combine.body)
            case ir.Store() | ir.Atomic():
                return _PER_OP + _PER_ELEMENT // 4 * self.elements(op.value.type)
            case _:
                return _PER_OP + sum(_PER_ELEMENT * self.elements(v.type) for v in op.outs)
