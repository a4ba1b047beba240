"""`topk` becomes rounds: each takes the greatest element that is less than the last one taken.

                                      key  = order of x, then the coordinate backwards      i64: no two are equal
    values, places = topk x k   ->    last = max(key)
                                      keys = where(iota = 0, last, least i64)
                                      for round < k - 1
                                          last = max(where(key < last, key, least i64))
                                          keys = where(iota = round + 1, last, keys)
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
from tilec.ir.dtypes import BOOL, F8E4M3, I8, I16, I32, I64, U32, DType
from tilec.ir.symbolic import Sym, Var
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import all_ops

Axes = tuple[t.Axis, ...]
_BITS = {8: I8, 16: I16, 32: I32}


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
        first = self.reduced("max", key)
        starts = first, self.collected(first, least, Sym.of(0))
        before, self.made = self.made, []

        last, keys = entries = self.alike(starts)
        left = self.compare("lt", key, self.along(last))
        found = self.reduced("max", self.where(left, key, least))
        nexts = found, self.collected(found, keys, self.later)
        results = self.looped(before, starts, entries, nexts)

        self.unpack(results[1], least, negative is not None)

    def order(self, x: t.Value) -> tuple[t.Value, t.Value | None]:
        """Integers in the order of elements, and which of these are negative zeros."""
        dtype = x.type.dtype
        if not dtype.is_float:
            wide = self.cast(x, I64)
            return (wide if dtype != U32 else self.shifted(wide, "sub")), None
        bits = self.cast(self.add(t.Bitcast(arg=x), _BITS[dtype.bits], self.tile), I32)
        number = self.magnitude(bits, dtype.bits)
        zero = self.compare("eq", x, self.number(0, dtype))
        number = self.where(zero, self.number(0, I32), number)
        number = self.where(self.compare("ne", x, x), self.number(I32.maximum, I32), number)
        negative = self.number(_BITS[dtype.bits].minimum, I32)
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
            number = self.magnitude(self.cast(value, I32), dtype.bits)
            flag = self.both("and", half, self.constant(1))
            negative = self.compare("eq", flag, self.constant(1))
            whole = _BITS[dtype.bits]
            number = self.where(negative, self.number(whole.minimum, I32), number)
            number = self.where(missing, self.number(_least_bits(dtype), I32), number)
            bits = self.cast(number, whole)
            self.add(t.Bitcast(arg=bits), dtype, self.kept, self.op.outs[0])
            return
        if dtype == U32:
            value = self.shifted(value, "add")
        self.where(missing, self.least(), self.cast(value, dtype), self.op.outs[0])

    def shifted(self, x: t.Value, op: Literal["add", "sub"]) -> t.Value:
        """From u32 to the range of i32 and back."""
        return self.both(op, x, self.constant(-I32.minimum))

    def magnitude(self, bits: t.Value, width: int) -> t.Value:
        """Bits of a float as an integer that orders like it, and back: those behind the sign turn over where that is set."""
        dtype = bits.type.dtype
        sign = self.both("shr", bits, self.number(dtype.bits - 1, dtype))
        turned = self.both("and", sign, self.number((1 << (width - 1)) - 1, dtype))
        return self.both("xor", bits, turned)

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
            key = self.where(zero, self.constant(0), self.magnitude(bits, 64))
            key = self.where(self.compare("ne", x, x), greatest, key)
        elif dtype != I64:
            key = self.both("xor", bits, least)
        at = self.coordinates(self.tile)
        none, nowhere = self.number(I32.maximum, I32), self.number(-1, I32)

        def taken(found: t.Value, left: t.Value | None) -> tuple[t.Value, t.Value]:
            """Place and bits of the first element with an order."""
            hit = self.compare("eq", key, self.along(found))
            hit = hit if left is None else self.both("and", left, hit)
            place = self.reduced("min", self.where(hit, at, none))
            own = self.where(self.compare("eq", at, self.along(place)), bits, least)
            return place, self.reduced("max", own)

        first = self.reduced("max", key)
        place, value = taken(first, None)
        starts = (
            first,
            place,
            self.collected(value, least, Sym.of(0)),
            self.collected(place, nowhere, Sym.of(0)),
        )
        before, self.made = self.made, []

        last, place, values, places = entries = self.alike(starts)
        wide = self.along(last)
        later = self.compare("gt", at, self.along(place))
        equal = self.both("and", self.compare("eq", key, wide), later)
        left = self.both("or", self.compare("lt", key, wide), equal)
        found = self.reduced("max", self.where(left, key, least))
        place, value = taken(found, left)
        nexts = (
            found,
            place,
            self.collected(value, values, self.later),
            self.collected(place, places, self.later),
        )
        results = self.looped(before, starts, entries, nexts)

        missing = self.compare("eq", results[3], none)
        self.where(missing, nowhere, results[3], self.op.outs[1])
        value = results[2]
        if dtype != I64:
            value = self.add(t.Bitcast(arg=value), dtype, self.kept)
        self.where(missing, self.least(), value, self.op.outs[0])

    # ---- the loop

    @property
    def later(self) -> Sym:
        """The number of a round in the loop, in front of which one has been."""
        return Sym.of(self.index) + 1

    def collected(self, row: t.Value, tile: t.Value, number: Sym) -> t.Value:
        """The tile with a round's row at its place."""
        place = self.add(t.FromSym(sym=number), I32, ())
        here = self.compare("eq", self.coordinates(self.kept), place)
        return self.where(here, self.along(row), tile)

    def alike(self, values: tuple[t.Value, ...]) -> tuple[t.Value, ...]:
        """New values of the same types."""
        return tuple(self.value(v.type.dtype, v.type.axes) for v in values)

    def looped(
        self,
        before: list[t.Op],
        starts: tuple[t.Value, ...],
        entries: tuple[t.Value, ...],
        nexts: tuple[t.Value, ...],
    ) -> tuple[t.Value, ...]:
        """A loop around what was made last, for the rounds behind the first; its results."""
        if self.op.k == 1:
            self.made = before
            return starts
        results = self.alike(entries)
        carried = tuple(
            t.Carried(*four) for four in zip(starts, entries, nexts, results, strict=True)
        )
        loop = t.For(
            name=self.index.name,
            index=self.index,
            trips=Sym.of(self.op.k - 1),
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
        shapes = [arg.type.axes for arg in args if arg.type.axes]
        axes: list[t.Axis] = []
        for same in zip(*shapes, strict=True):
            wide = [axis for axis in same if not axis.is_one]
            presence = dict.fromkeys(c for axis in wide for c in axis.presence)
            axes.append(replace(wide[0], presence=tuple(presence)) if wide else same[0])
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


def _least_bits(dtype: DType) -> int:
    """Bits of -inf, or of the least number where a type has no infinity."""
    greatest = ((1 << dtype.exponent) - 1) << dtype.mantissa
    if dtype == F8E4M3:
        greatest += (1 << dtype.mantissa) - 2
    return greatest - (1 << (dtype.bits - 1))
