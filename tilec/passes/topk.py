"""`topk` becomes rounds: each finds the greatest element behind the last one, and its first place.

                                      last = nan, place = -1
    values, places = topk x k   ->    for round < k
                                          after = x < last or (x = last and at > place)      at: coordinates of x
                                          last = max(where(after, x, least))
                                          place = min(where(after and x = last, at, none))
                                          values = where(iota = round, last, values)

Elements have one order: NaN first, then by falling value, equal ones by coordinate. What is behind (last, place) in it has not been taken,
so that no tile of what was taken is kept. Where fewer than k elements are present the others are the least value, at place -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, I32, DType
from tilec.ir.symbolic import Sym, Var
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import all_ops

NO_PLACE = 2**31 - 1
"""Behind every coordinate."""


def run(program: t.Program) -> t.Program:
    """The program without TopK."""
    if not any(isinstance(op, t.TopK) for nest in program.nests for op in all_ops(nest.body)):
        return program
    numbers = Numbers(program.nests)
    trips = max((var.key for nest in program.nests for var in _trips(nest)), default=0)
    rewriter = _Rewriter(numbers, trips)
    nests = tuple(replace(nest, body=rewriter.block(nest.body)) for nest in program.nests)
    return replace(program, nests=nests)


def _trips(nest: t.Nest) -> Iterable[Var]:
    """Variables that number the loops of a nest."""
    yield from (axis.index for axis in nest.grid)
    yield from (op.index for op in all_ops(nest.body) if isinstance(op, t.For))


class _Rewriter:
    def __init__(self, numbers: Numbers, trips: int):
        self.numbers = numbers
        self.trips = trips

    def block(self, block: t.Block) -> t.Block:
        ops: list[t.Op] = []
        for op in block.ops:
            match op:
                case t.TopK():
                    self.trips += 1
                    ops += _Rounds(op, self.numbers, Var("round", "trip", self.trips)).ops()
                case t.For():
                    ops.append(replace(op, body=self.block(op.body)))
                case t.If():
                    then, otherwise = self.block(op.then), self.block(op.otherwise)
                    ops.append(replace(op, then=then, otherwise=otherwise))
                case _:
                    ops.append(op)
        return t.Block(tuple(ops))


class _Rounds:
    """The ops of one `topk`. A *row* is what is left of the tile where its axis is gone: a scalar for a tile of one axis."""

    def __init__(self, op: t.TopK, numbers: Numbers, index: Var):
        self.op = op
        self.numbers = numbers
        self.index = index
        self.made: list[t.Op] = []
        self.dtype = _compared(op.arg.type.dtype)
        axes = op.arg.type.axes
        self.tile = axes
        self.row = tuple(a for n, a in enumerate(axes) if n != op.axis)

    def ops(self) -> list[t.Op]:
        """What stands for the op."""
        op = self.op
        x = op.arg
        if x.type.dtype != self.dtype:
            x = self.add(t.Cast(arg=x), self.dtype, self.tile)
        at = self.coordinates(self.tile)
        taken = self.coordinates(op.outs[0].type.axes)
        least = self.constant(_least(op.arg.type.dtype), self.dtype)
        none, nowhere = self.constant(NO_PLACE, I32), self.constant(-1, I32)
        first = self.constant(_first(self.dtype), self.dtype)
        starts = (
            self.everywhere(first, self.row),
            self.everywhere(nowhere, self.row),
            self.everywhere(least, op.outs[0].type.axes),
            self.everywhere(nowhere, op.outs[1].type.axes),
        )
        before, self.made = self.made, []

        last, place = self.value(self.dtype, self.row), self.value(I32, self.row)
        values = self.value(self.dtype, op.outs[0].type.axes)
        places = self.value(I32, op.outs[1].type.axes)
        after = self.after(x, at, last, place)
        found = self.reduced("max", self.where(after, x, least, self.tile))
        wide = self.along(found)
        same = self.compare("eq", x, wide, self.tile)
        if self.dtype.is_float:
            # where the greatest is no NaN, every NaN has been taken
            same = self.logical("or", same, self.compare("ne", x, x, self.tile))
        hit = self.logical("and", after, same)
        reached = self.reduced("min", self.where(hit, at, none, self.tile))
        missing = self.compare("eq", reached, none, self.row)
        named = self.where(missing, nowhere, reached, self.row)
        shown = self.where(missing, least, found, self.row)
        number = self.add(t.FromSym(sym=Sym.of(self.index)), I32, ())
        axes = op.outs[0].type.axes
        here = self.compare("eq", taken, number, taken.type.axes)
        nexts = (
            found,
            reached,
            self.where(here, self.along(shown), values, axes),
            self.where(here, self.along(named), places, axes),
        )
        body, self.made = self.made, []

        converted = self.dtype != op.arg.type.dtype
        results = (
            self.value(self.dtype, self.row),
            self.value(I32, self.row),
            self.value(self.dtype, axes) if converted else op.outs[0],
            op.outs[1],
        )
        entries = (last, place, values, places)
        carried = tuple(
            t.Carried(*four) for four in zip(starts, entries, nexts, results, strict=True)
        )
        loop = t.For(
            name=self.index.name,
            index=self.index,
            trips=Sym.of(op.k),
            carried=carried,
            body=t.Block(tuple(body)),
            outs=results,
            span=op.span,
        )
        ops = [*before, loop]
        if converted:
            ops.append(t.Cast(arg=results[2], outs=(op.outs[0],), span=op.span))
        return ops

    def after(self, x: t.Value, at: t.Value, last: t.Value, place: t.Value) -> t.Value:
        """Which elements come behind (last, place)."""
        wide, reached = self.along(last), self.along(place)
        behind = self.compare("gt", at, reached, self.tile)
        less = self.compare("lt", x, wide, self.tile)
        equal = self.compare("eq", x, wide, self.tile)
        if self.dtype.is_float:
            number = self.compare("eq", x, x, self.tile)
            nan = self.compare("ne", wide, wide, wide.type.axes)
            less = self.logical("or", less, self.logical("and", nan, number))
            equal = self.logical("or", equal, self.logical("and", nan, self.logical("not", number)))
        return self.logical("or", less, self.logical("and", equal, behind))

    # ---- ops

    def value(self, dtype: DType, axes: tuple[t.Axis, ...]) -> t.Value:
        return self.numbers.fresh(t.Value(0, t.TileType(dtype, axes), "", self.op.span))

    def add(self, op: t.Op, dtype: DType, axes: tuple[t.Axis, ...]) -> t.Value:
        out = self.value(dtype, axes)
        self.made.append(replace(op, outs=(out,), span=self.op.span))
        return out

    def constant(self, number: int | float, dtype: DType) -> t.Value:
        return self.add(t.Constant(value=number), dtype, ())

    def everywhere(self, value: t.Value, axes: tuple[t.Axis, ...]) -> t.Value:
        """A scalar at all coordinates of some axes."""
        if not axes:
            return value
        whole = tuple(replace(a, presence=()) for a in axes)
        return self.add(t.Full(value=value), value.type.dtype, whole)

    def coordinates(self, axes: tuple[t.Axis, ...]) -> t.Value:
        """Coordinates along the op's axis, of extent 1 along the others."""
        axis = replace(axes[self.op.axis], presence=())
        iota = self.add(t.Iota(start=Sym.of(0)), I32, (axis,))
        if len(axes) == 1:
            return iota
        order = tuple(0 if n == self.op.axis else None for n in range(len(axes)))
        one = t.Axis(Sym.of(1), 1)
        spread = tuple(axis if n is not None else one for n in order)
        return self.add(t.Rearrange(arg=iota, axes=order), I32, spread)

    def along(self, row: t.Value) -> t.Value:
        """A row with the op's axis again, of extent 1; a scalar as it is."""
        if not row.type.axes:
            return row
        rank, place = len(self.row) + 1, self.op.axis
        order = tuple(None if n == place else n - (n > place) for n in range(rank))
        one = t.Axis(Sym.of(1), 1)
        axes = tuple(one if n is None else row.type.axes[n] for n in order)
        return self.add(t.Rearrange(arg=row, axes=order), row.type.dtype, axes)

    def compare(
        self, op: t.ElementwiseName, a: t.Value, b: t.Value, axes: tuple[t.Axis, ...]
    ) -> t.Value:
        return self.add(t.Elementwise(op=op, args=(a, b)), BOOL, axes)

    def logical(self, op: t.ElementwiseName, *args: t.Value) -> t.Value:
        return self.add(t.Elementwise(op=op, args=args), BOOL, self.tile)

    def where(
        self, condition: t.Value, yes: t.Value, no: t.Value, axes: tuple[t.Axis, ...]
    ) -> t.Value:
        dtype = yes.type.dtype
        return self.add(t.Elementwise(op="where", args=(condition, yes, no)), dtype, axes)

    def reduced(self, op: str, value: t.Value) -> t.Value:
        assert op in ("max", "min")
        reduce = t.Reduce(op=op, arg=value, axes=(self.op.axis,))
        return self.add(reduce, value.type.dtype, self.row)


def _compared(dtype: DType) -> DType:
    """The type in which elements are compared, which holds all their values."""
    if dtype.bits >= 32:
        return dtype
    return F32 if dtype.is_float else I32


def _least(dtype: DType) -> int | float:
    return float("-inf") if dtype.is_float else dtype.minimum


def _first(dtype: DType) -> int | float:
    """What no element comes in front of."""
    return float("nan") if dtype.is_float else dtype.maximum
