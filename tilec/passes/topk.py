"""`topk` becomes rounds: each takes the greatest element that is less than the last one taken.

                                      key  = order of x, then the coordinate backwards      i64: no two are equal
    values, places = topk x k   ->    last = greatest i64
                                      for round < k
                                          last = max(where(key < last, key, least i64))
                                          keys = where(iota = round, last, keys)
                                      values, places = what the keys are made of

What has been taken is what is not less than the last key, so that no tile of it is kept. NaN comes first, equal elements by coordinate.
Elements of 64 bits leave no room for the coordinate: a round finds the greatest among what is left, then its first place, then its bits.
Where fewer than k elements are present the rest is the least value, at place -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, I32, I64, U32, DType
from tilec.ir.symbolic import Sym, Var
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import all_ops

Axes = tuple[t.Axis, ...]


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
    """The ops of one `topk`. Where the axis of the op is gone a *row* is left: a scalar for a tile of one axis."""

    def __init__(self, op: t.TopK, numbers: Numbers, index: Var):
        self.op = op
        self.numbers = numbers
        self.index = index
        self.made: list[t.Op] = []
        self.tile = op.arg.type.axes
        self.kept = op.outs[0].type.axes
        self.row = tuple(a for n, a in enumerate(self.tile) if n != op.axis)

    def ops(self) -> list[t.Op]:
        """What stands for the op."""
        if self.op.arg.type.dtype.bits < 64:
            self.packed()
        else:
            self.apart()
        return self.made

    # ---- elements of up to 32 bits

    def packed(self) -> None:
        """Rounds over keys of an element and its coordinate. The key's low half is the coordinate backwards and whether a zero is
        negative."""
        high, negative = self.order(self.op.arg)
        at = self.cast(self.coordinates(self.tile), I64)
        low = self.both("shl", self.both("sub", self.constant(I32.maximum), at), self.constant(1))
        if negative is not None:
            low = self.both("or", low, self.cast(negative, I64))
        key = self.both("or", self.both("shl", high, self.constant(32)), low)
        least = self.constant(I64.minimum)
        starts = (
            self.everywhere(self.constant(I64.maximum), self.row),
            self.everywhere(least, self.kept),
        )
        before, self.made = self.made, []

        last, keys = self.value(I64, self.row), self.value(I64, self.kept)
        left = self.compare("lt", key, self.along(last))
        found = self.reduced("max", self.where(left, key, least))
        nexts = found, self.collected(found, keys)
        results = self.looped(before, starts, (last, keys), nexts)

        self.unpack(results[1], least, negative is not None)

    def order(self, x: t.Value) -> tuple[t.Value, t.Value | None]:
        """Integers in the order of elements, and which of these are negative zeros."""
        dtype = x.type.dtype
        if not dtype.is_float:
            wide = self.cast(x, I64)
            return (wide if dtype != U32 else self.shifted(wide, "sub")), None
        x = self.cast(x, F32)
        bits = self.add(t.Bitcast(arg=x), I32, self.tile)
        number = self.magnitude(bits, I32)
        zero, negative = self.number(0, F32), self.number(I32.minimum, I32)
        number = self.where(self.compare("eq", x, zero), self.number(0, I32), number)
        nan = self.compare("ne", x, x)
        number = self.where(nan, self.number(I32.maximum, I32), number)
        return self.cast(number, I64), self.compare("eq", bits, negative)

    def unpack(self, keys: t.Value, least: t.Value, is_float: bool) -> None:
        """Elements and coordinates from keys."""
        dtype = self.op.arg.type.dtype
        missing = self.compare("eq", keys, least)
        half = self.both("and", keys, self.constant(U32.maximum))
        place = self.both(
            "sub", self.constant(I32.maximum), self.both("shr", half, self.constant(1))
        )
        at = self.cast(place, I32)
        self.where(missing, self.number(-1, I32), at, self.op.outs[1])
        value = self.both("shr", keys, self.constant(32))
        if is_float:
            number = self.magnitude(self.cast(value, I32), I32)
            flag = self.both("and", half, self.constant(1))
            negative = self.compare("eq", flag, self.constant(1))
            # of NaN no bit says more than that it is one
            zero = self.compare("eq", number, self.number(0, I32))
            negative = self.both("and", negative, zero)
            number = self.where(negative, self.number(I32.minimum, I32), number)
            value = self.add(t.Bitcast(arg=number), F32, self.kept)
        elif dtype == U32:
            value = self.shifted(value, "add")
        self.where(missing, self.least(), self.cast(value, dtype), self.op.outs[0])

    def shifted(self, x: t.Value, op: Literal["add", "sub"]) -> t.Value:
        """From u32 to the range of i32 and back."""
        return self.both(op, x, self.constant(-I32.minimum))

    def magnitude(self, bits: t.Value, dtype: DType) -> t.Value:
        """Bits of a float as an integer that orders like it, and back: those behind the sign turn over where that is set."""
        sign = self.both("shr", bits, self.number(dtype.bits - 1, dtype))
        return self.both("xor", bits, self.both("and", sign, self.number(dtype.maximum, dtype)))

    # ---- elements of 64 bits

    def apart(self) -> None:
        """Rounds over the order of elements and their coordinates."""
        x = self.op.arg
        dtype = x.type.dtype
        least, greatest = self.constant(I64.minimum), self.constant(I64.maximum)
        bits = x if dtype == I64 else self.add(t.Bitcast(arg=x), I64, self.tile)
        key = bits
        if dtype.is_float:
            zero = self.compare("eq", x, self.number(0, dtype))
            key = self.where(zero, self.constant(0), self.magnitude(bits, I64))
            key = self.where(self.compare("ne", x, x), greatest, key)
        elif dtype != I64:
            key = self.both("xor", bits, least)
        at = self.coordinates(self.tile)
        none, nowhere = self.number(I32.maximum, I32), self.number(-1, I32)
        starts = (
            self.everywhere(greatest, self.row),
            self.everywhere(nowhere, self.row),
            self.everywhere(least, self.kept),
            self.everywhere(nowhere, self.kept),
        )
        before, self.made = self.made, []

        last, place = self.value(I64, self.row), self.value(I32, self.row)
        values, places = self.value(I64, self.kept), self.value(I32, self.kept)
        wide = self.along(last)
        later = self.compare("gt", at, self.along(place))
        equal = self.both("and", self.compare("eq", key, wide), later)
        left = self.both("or", self.compare("lt", key, wide), equal)
        found = self.reduced("max", self.where(left, key, least))
        hit = self.both("and", left, self.compare("eq", key, self.along(found)))
        reached = self.reduced("min", self.where(hit, at, none))
        own = self.where(self.compare("eq", at, self.along(reached)), bits, least)
        taken = self.reduced("max", own)
        nexts = found, reached, self.collected(taken, values), self.collected(reached, places)
        results = self.looped(before, starts, (last, place, values, places), nexts)

        missing = self.compare("eq", results[3], none)
        self.where(missing, nowhere, results[3], self.op.outs[1])
        value = results[2]
        if dtype != I64:
            value = self.add(t.Bitcast(arg=value), dtype, self.kept)
        self.where(missing, self.least(), value, self.op.outs[0])

    # ---- the loop

    def collected(self, row: t.Value, tile: t.Value) -> t.Value:
        """The tile with a round's row at its place."""
        number = self.add(t.FromSym(sym=Sym.of(self.index)), I32, ())
        here = self.compare("eq", self.coordinates(self.kept), number)
        return self.where(here, self.along(row), tile)

    def looped(
        self,
        before: list[t.Op],
        starts: tuple[t.Value, ...],
        entries: tuple[t.Value, ...],
        nexts: tuple[t.Value, ...],
    ) -> tuple[t.Value, ...]:
        """A loop around what was made last; its results."""
        results = tuple(self.value(e.type.dtype, e.type.axes) for e in entries)
        carried = tuple(
            t.Carried(*four) for four in zip(starts, entries, nexts, results, strict=True)
        )
        loop = t.For(
            name=self.index.name,
            index=self.index,
            trips=Sym.of(self.op.k),
            carried=carried,
            body=t.Block(tuple(self.made)),
            outs=results,
            span=self.op.span,
        )
        self.made = [*before, loop]
        return results

    # ---- ops

    def value(self, dtype: DType, axes: Axes) -> t.Value:
        return self.numbers.fresh(t.Value(0, t.TileType(dtype, axes), "", self.op.span))

    def add(self, op: t.Op, dtype: DType, axes: Axes, out: t.Value | None = None) -> t.Value:
        out = out or self.value(dtype, axes)
        self.made.append(replace(op, outs=(out,), span=self.op.span))
        return out

    def number(self, number: int | float, dtype: DType) -> t.Value:
        exact = float(number) if dtype.is_float else number
        return self.add(t.Constant(value=exact), dtype, ())

    def constant(self, number: int) -> t.Value:
        return self.number(number, I64)

    def least(self) -> t.Value:
        """The neutral element of `max`."""
        dtype = self.op.arg.type.dtype
        return self.number(float("-inf") if dtype.is_float else dtype.minimum, dtype)

    def cast(self, x: t.Value, dtype: DType) -> t.Value:
        return x if x.type.dtype == dtype else self.add(t.Cast(arg=x), dtype, x.type.axes)

    def everywhere(self, value: t.Value, axes: Axes) -> t.Value:
        """A scalar at all coordinates of some axes."""
        if not axes:
            return value
        whole = tuple(replace(a, presence=()) for a in axes)
        return self.add(t.Full(value=value), value.type.dtype, whole)

    def coordinates(self, axes: Axes) -> t.Value:
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
        place = self.op.axis
        order = tuple(
            None if n == place else n - (n > place) for n in range(len(row.type.axes) + 1)
        )
        one = t.Axis(Sym.of(1), 1)
        axes = tuple(one if n is None else row.type.axes[n] for n in order)
        return self.add(t.Rearrange(arg=row, axes=order), row.type.dtype, axes)

    def elementwise(
        self, op: t.ElementwiseName, args: tuple[t.Value, ...], dtype: DType, out: t.Value | None
    ) -> t.Value:
        """An op in the shape of its arguments, of which axes of extent 1 and scalars are broadcast."""
        axes: list[t.Axis] = []
        for arg in args:
            own = list(arg.type.axes)
            axes = axes or own
            axes = [b if a.is_one else a for a, b in zip(axes, own or axes, strict=True)]
        return self.add(t.Elementwise(op=op, args=args), dtype, tuple(axes), out)

    def both(self, op: t.ElementwiseName, a: t.Value, b: t.Value) -> t.Value:
        return self.elementwise(op, (a, b), a.type.dtype, None)

    def compare(self, op: t.ElementwiseName, a: t.Value, b: t.Value) -> t.Value:
        return self.elementwise(op, (a, b), BOOL, None)

    def where(
        self, condition: t.Value, yes: t.Value, no: t.Value, out: t.Value | None = None
    ) -> t.Value:
        return self.elementwise("where", (condition, yes, no), yes.type.dtype, out)

    def reduced(self, op: Literal["max", "min"], value: t.Value) -> t.Value:
        reduce = t.Reduce(op=op, arg=value, axes=(self.op.axis,))
        return self.add(reduce, value.type.dtype, self.row)
