"""Trips that a mask empties are skipped: which ones is computed ahead, a bool for each block of the mask and of the values.

    for j in range(S by BN):                                           in front:  for b, x, y in parallel(…):
        seen = doc[b, i][:, None] == doc[b, j][None, :]                               doc_blocks[b, x, y] = any(doc[b, x][:, None] == doc[b, y][None, :])
        state = step(state, where(seen, s, -inf), v[b, h, j, :])   ->             for b, h, y in parallel(…):
                                                                                      v_wild[b, h, y] = sum(v[b, h, y, :] * 0) != 0
                                                                   for j in range(S by BN):
                                                                       if doc_blocks[b, i, j] or v_wild[b, h, j]:
                                                                           …

A trip has no effect where the mask is false on its whole tile and what it multiplies by zeros is finite (`idle_trips`). The body then stands
in a branch on scalars like one that a program wrote, and `filter_trips` makes a loop over the trips that survive of it. That is worth its launches where
a mask asks memory – what indices alone say is in bounds – and where it has fewer axes than the products, so that a block is asked about
once for many that are multiplied. A table may say of a block that it has an element where it has none: of integers that are compared the least and the greatest
are asked. A call without a workspace, or of less work than that, runs all trips.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, F64, I32
from tilec.ir.facts import Facts
from tilec.ir.filters import filter_of
from tilec.ir.symbolic import Sym, Var
from tilec.ir.walking import variable_of
from tilec.lazy_dataclass import dataclass
from tilec.passes import eliminate_dead
from tilec.passes.block_places import (
    bound_of,
    coarser,
    dims_of,
    is_gathered,
    loosened,
    read_by,
    variables,
)
from tilec.passes.computed import Computed, ComputedCopy
from tilec.passes.idle_trips import NotIdle, proved
from tilec.passes.schedule.clone import Cloner, Numbers
from tilec.passes.uses import Definitions, all_ops, operands

MADE = (
    t.Load, t.Elementwise, t.Cast, t.Bitcast, t.Rearrange, t.Reduce, t.Constant, t.FromSym, t.Scalar, t.Iota, t.Full, t.Fill,
)  # fmt: skip
"""What an entry of a table may be made of."""


@dataclass(frozen=True)
class BlockTable(ComputedCopy):
    """A bool for each block of a tile. `scanned`: elements of a block; `operations`, `read_bits`: what one of them takes, of tiles
    that memory has."""

    entry: tuple[Sym, ...] = ()
    """where a trip of an instance finds its own"""
    scanned: int = 0
    operations: int = 0
    read_bits: int = 0
    finite: bool = False
    """it says of values whether one is not finite, not of a mask whether it has an element"""
    flag: str = ""
    """of a mask of truth values in memory: the temp with a number that is 1 where a block has no element"""

    @property
    def further(self) -> tuple[t.Tensor, ...]:
        """The flag."""
        return (_flag(self.flag),) if self.flag else ()

    @property
    def reads_tiles(self) -> bool:
        """Whether it is made of tiles that memory has, not of rows alone."""
        return self.read_bits > 0

    @property
    def to(self) -> str:
        """To where, for the manifest."""
        return "the workspace, a bool for each block, by which the loop skips trips without effect"


@dataclass(frozen=True)
class Skipping(Computed):
    """A program and one of its nests whose loops skip the trips that tables say have no effect."""

    word: str = "skipping"
    before: t.Nest | None = field(default=None, compare=False)
    """the nest that runs all trips"""


def skipping(program: t.Program, nest: t.Nest) -> tuple[Skipping | None, str]:
    """The nest whose loops skip trips; or None, and why those of a loop with a mask from memory do not, "" where there is no such loop."""
    making = _Making(program, nest)
    body: list[t.Op] = []
    reason = ""
    for op in nest.body.ops:
        if isinstance(op, t.For):
            try:
                op = making.skipping(op)
            except NotIdle as why:
                reason = reason or str(why)
        body.append(op)
    if not making.tables:
        return None, reason
    temps = [t.Tensor(x.temp, x.dtype, x.dims, "temp") for x in making.tables]
    temps += [temp for x in making.tables for temp in x.further]
    changed = replace(nest, body=t.Block(tuple(body)))
    nests = tuple(changed if other.grid == nest.grid else other for other in program.nests)
    whole = replace(program, tensors=(*program.tensors, *temps), nests=nests)
    return Skipping(whole, changed, tuple(making.tables), before=nest), ""


class _Making:
    """Tables as they are found."""

    def __init__(self, program: t.Program, nest: t.Nest) -> None:
        self.program, self.nest = program, nest
        self.definitions = Definitions.of(nest.body)
        self.numbers = Numbers((*program.nests, nest))
        self.written = frozenset(
            op.access.tensor for op in all_ops(nest.body) if isinstance(op, t.Store | t.Atomic)
        )
        self.order = {id(op): at for at, op in enumerate(all_ops(nest.body))}
        self.names = set(program.names)
        self.tables: list[BlockTable] = []

    def skipping(self, loop: t.For) -> t.For:
        """The loop with a branch around its body; as it is where it has one, or no mask from memory. Raises NotIdle where trips may have an
        effect that are all masked."""
        if not any(isinstance(op, t.Dot) for op in loop.body.ops):
            return loop
        if any(other is not loop and _multiplies(other) for other in self.nest.body.ops):
            return loop  # two filtered loops of one nest go wrong (a random program found that)
        if filter_of(loop, self.written) is not None:
            return loop
        made: list[BlockTable] = []
        finite: dict[int, t.Value] = {}
        asked, why = False, ""
        for mask in _masks(loop):
            chain = self._chain(mask)
            if chain is None or not self._asks_memory(chain, loop):
                continue
            asked = True
            try:
                proof = proved(self.nest, loop, mask)
                for value in proof.finite:
                    self._table(loop, value, True)
                made.append(self._table(loop, mask, False))
                self.names |= {made[-1].temp, made[-1].flag}
                finite |= {v.id: v for v in proof.finite}
            except NotIdle as reason:
                why = why or str(reason)
        if asked and not made:
            raise NotIdle(why)
        if not made:
            return loop
        wild: list[BlockTable] = []
        for value in finite.values():
            wild.append(self._table(loop, value, True))
            self.names.add(wild[-1].temp)
        self.tables += [*made, *wild]
        return self._branch(loop, made, wild)

    def _branch(self, loop: t.For, seen: Sequence[BlockTable], wild: Sequence[BlockTable]) -> t.For:
        """The loop whose body runs where every mask has an element in the trip's block, or a value is not finite."""
        ops: list[t.Op] = []
        answer: t.Value | None = None
        for word, tables in (("and", seen), ("or", wild)):
            for table in tables:
                terms = tuple(map(t.AtScalar, table.entry))
                load = t.Load(t.Access(table.temp, terms), outs=(self._bool(),), span=loop.span)
                ops.append(load)
                if answer is not None:
                    both = t.Elementwise(word, (answer, load.out), outs=(self._bool(),), span=loop.span)  # type: ignore[arg-type]  # fmt: skip
                    ops.append(both)
                answer = ops[-1].out
        assert answer is not None
        merges, carried = [], []
        for c in loop.carried:
            if c.next is c.entry:
                carried.append(c)
                continue
            result = self.numbers.fresh(c.next)
            merges.append(t.Merge(c.next, c.entry, result))
            carried.append(replace(c, next=result))
        outs = tuple(m.result for m in merges)
        branch = t.If(answer, loop.body, t.Block(), tuple(merges), outs=outs, span=loop.span)
        return replace(loop, carried=tuple(carried), body=t.Block((*ops, branch)))

    def _bool(self) -> t.Value:
        return self._fresh(t.TileType(BOOL))

    def _fresh(self, type_: t.TileType) -> t.Value:
        self.numbers.next += 1
        return t.Value(self.numbers.next - 1, type_)

    def _asks_memory(self, chain: Sequence[t.Op], loop: t.For) -> bool:
        """Whether a mask hangs on more of memory than numbers by which the loop is bounded: its program has left out those trips."""
        bounds = [self.definitions.defining.get(v.key) for v in loop.trips.variables if v.kind == "value"]  # fmt: skip
        known = [op.access for op in bounds if isinstance(op, t.Load)]
        return any(isinstance(op, t.Load) and op.access not in known for op in chain)

    # ---- tables

    def _chain(self, value: t.Value) -> list[t.Op] | None:
        """The ops that a value is made by, in order; None where it is no function of indices, arguments and tensors that the nest does not write."""
        found: dict[int, t.Op] = {}
        waiting = [value.id]
        while waiting:
            op = self.definitions.defining.get(waiting.pop())
            if not isinstance(op, MADE) or any(is_gathered(v) for v in op.outs):
                return None
            if isinstance(op, t.Load) and op.access.tensor in self.written:
                return None
            if id(op) not in found:
                found[id(op)] = op
                waiting += [v.id for v in operands(op)]
                waiting += [v.key for v in variables(op) if v.kind == "value"]
        return sorted(found.values(), key=lambda op: self.order[id(op)])

    def _table(self, loop: t.For, value: t.Value, finite: bool) -> BlockTable:
        """The table of blocks in which a mask has an element, or with `finite` a value has one that is not finite. Raises NotIdle where blocks are
        not those of trips and instances."""
        chain = self._chain(value)
        if chain is None:
            raise NotIdle("what is multiplied by zeros is computed from more than tensors")
        chain, values = loosened(self.program, chain)
        value = values.get(value.id, value)
        chain = read_by(value, chain)
        used = {v for op in chain for v in variables(op) if v.kind == "trip"}
        trips = {axis.index: axis.trips for axis in self.nest.grid}
        most = bound_of(loop.trips, trips, True)
        if most is None or not used <= {*trips, loop.index}:
            raise NotIdle("no size bounds its trips")
        self._in_range(chain, loop, most)
        steps = {axis.index: axis.step for axis in self.nest.grid}
        names = {axis.index: axis.name for axis in self.nest.grid} | {loop.index: loop.name}
        trips[loop.index] = most
        entry: list[Sym] = []
        dims: list[Sym] = []
        grid: list[t.GridAxis] = []
        replaced: dict[Sym, Sym] = {}
        news: dict[Var, Sym] = {}
        for var in (var for var in trips if var in used):
            at, count = coarser(var, trips[var], chain)
            new = Var(var.name, "trip", self.numbers.next)
            self.numbers.next += 1
            replaced[at], news[var] = Sym.of(new), Sym.of(new)
            step = steps.get(var) if at == Sym.of(var) else None
            grid.append(t.GridAxis(names[var], new, count, step))
            entry.append(at)
            dims.append(count)
        cloner = _Elsewhere(self.numbers, news, replaced)
        ops = cloner.ops(chain)
        if finite:
            ops += self._wild(cloner.value(value))
        else:
            made = {v.id: op for op in ops for v in op.outs}
            found: list[t.Op] = []
            answer = self._some(cloner.value(value), made, found)
            ops += found or [t.Elementwise("or", (answer, answer), outs=(self._bool(),))]
        tensor = next(op.access.tensor for op in chain if isinstance(op, t.Load))
        sizes = sorted({v for op in chain for v in variables(op) if v.kind == "tile"})
        numbers = [str(self.program.tiles[v.name]) for v in sizes]
        if len(self.program.nests) > 1:
            numbers.append(str(value.id))  # another nest may have a table of that name
        temp = self._named("_".join((tensor, "wild" if finite else "blocks", *numbers)))
        scanned = sum(_elements(x.arg) for x in all_ops(t.Block(tuple(ops))) if isinstance(x, t.Reduce))  # fmt: skip
        terms = tuple(t.AtScalar(Sym.of(axis.index)) for axis in grid)
        answer = ops[-1].out
        ops.append(t.Store(t.Access(temp, terms), answer, span=value.span))
        places = [t.Tensor(temp, BOOL, tuple(dims), "temp")]
        # documents and lengths empty blocks: nobody asks whether they do
        read = [op for op in chain if isinstance(op, t.Load | t.Iota)]
        asked = not finite and all(op.out.type.dtype == BOOL for op in read)
        flag = self._named(f"{temp}_empty") if asked else ""
        if flag:
            ops += self._flagged(flag, answer)
            places.append(_flag(flag))
        program = replace(
            self.program,
            tensors=(*self.program.tensors, *places),
            nests=(t.Nest(tuple(grid), eliminate_dead.run(t.Block(tuple(ops))), value.span),),
        )
        whole = [op for op in chain if _elements(op.out) == _elements(value)]
        tiles = [op.out for op in whole if isinstance(op, t.Load) and op.out.type.rank > 1]
        return BlockTable(
            tensor, temp, BOOL, tuple(dims), program,
            entry=tuple(entry),
            finite=finite,
            flag=flag,
            scanned=max(1, scanned),
            operations=1 if finite else 1 + sum(isinstance(op, t.Elementwise) for op in whole),
            read_bits=sum(tile.type.dtype.bits for tile in tiles),
        )  # fmt: skip

    def _flagged(self, flag: str, answer: t.Value) -> list[t.Op]:
        """1 to the flag where there is no element."""
        ops: list[t.Op] = []
        none = self._made(ops, t.Elementwise, t.TileType(BOOL), op="not", args=(answer,))
        one = t.Constant(1, outs=(self._fresh(t.TileType(I32)),))
        store = t.Store(t.Access(flag, (t.AtScalar(Sym.of(0)),)), one.out, span=answer.span)
        return [*ops, t.If(none, t.Block((one, store)), t.Block())]

    def _wild(self, value: t.Value) -> list[t.Op]:
        """Whether an element is not finite: 0 times such a one is NaN."""
        ops: list[t.Op] = []
        axes = value.type.axes
        if value.type.dtype not in (F32, F64):
            value = self._made(ops, t.Cast, t.TileType(F32, axes), arg=value)
        dtype = value.type.dtype
        zero = self._made(ops, t.Constant, t.TileType(dtype), value=0.0)
        zeros = self._made(
            ops, t.Elementwise, t.TileType(dtype, axes), op="mul", args=(value, zero)
        )
        # row by row, so that all rows of a thread are under way at once
        total = zeros
        for last in reversed(range(len(axes))):
            rest = t.TileType(dtype, axes[:last])
            total = self._made(ops, t.Reduce, rest, op="sum", arg=total, axes=(last,))
        self._made(ops, t.Elementwise, t.TileType(BOOL), op="ne", args=(total, zero))
        return ops

    def _some(self, value: t.Value, made: Mapping[int, t.Op], ops: list[t.Op]) -> t.Value:
        """A bool that holds where an element of a mask does. Of integers that are compared along different axes the least and the greatest are asked: that is
        exact for an order, and for equal ones holds where their ranges meet. It may hold where two conditions do at different places."""
        op = made.get(value.id)
        flag = t.TileType(BOOL)
        match op:
            case t.Rearrange():
                return self._some(op.arg, made, ops)
            case t.Elementwise(op="and" | "or"):
                parts = tuple(self._some(arg, made, ops) for arg in op.args)
                return self._made(ops, t.Elementwise, flag, op=op.op, args=parts)
            case t.Elementwise(op="eq" | "lt" | "le" | "gt" | "ge") if _is_apart(op):
                a, b = op.args
                if op.op == "eq":
                    flags = (self._order("le", a, b, ops), self._order("le", b, a, ops))
                    return self._made(ops, t.Elementwise, flag, op="and", args=flags)
                if op.op in ("lt", "le"):
                    return self._order(op.op, a, b, ops)
                return self._order("lt" if op.op == "gt" else "le", b, a, ops)
            case _:
                return self._end(value, "any", ops)

    def _order(self, word: str, low: t.Value, high: t.Value, ops: list[t.Op]) -> t.Value:
        """Whether an element of one tile is less than one of another, or no greater."""
        ends = (self._end(low, "min", ops), self._end(high, "max", ops))
        return self._made(ops, t.Elementwise, t.TileType(BOOL), op=word, args=ends)

    def _end(self, value: t.Value, word: str, ops: list[t.Op]) -> t.Value:
        """The reduction of a whole tile."""
        axes = value.type.axes
        kept = tuple(n for n, axis in enumerate(axes) if not axis.is_one)
        if not axes:
            return value
        dtype = value.type.dtype
        if len(kept) < len(axes):
            axes = tuple(axes[n] for n in kept)
            value = self._made(ops, t.Rearrange, t.TileType(dtype, axes), arg=value, axes=kept)
        if not axes:
            return value
        whole = tuple(range(len(axes)))
        return self._made(ops, t.Reduce, t.TileType(dtype), op=word, arg=value, axes=whole)

    def _made(self, ops: list[t.Op], kind: type[t.Op], type_: t.TileType, **parts: Any) -> t.Value:
        ops.append(kind(outs=(self._fresh(type_),), **parts))
        return ops[-1].out

    def _named(self, temp: str) -> str:
        while temp in self.names:
            temp += "_other"
        return temp

    def _in_range(self, chain: Iterable[t.Op], loop: t.For, most: Sym) -> None:
        """No scalar index of a trip beyond an instance's last one leaves its tensor. Raises NotIdle where that is not known."""
        facts = Facts.of(replace(self.program, nests=(self.nest,))).knowing({loop.index: most}, ())
        moving = {loop.index}
        for op in chain:
            if not isinstance(op, t.Load):
                moved = moving & variables(op) or any(
                    variable_of(v) in moving for v in operands(op)
                )
                moving |= {variable_of(v) for v in op.outs if moved}
                continue
            for term, dim in zip(op.access.terms, dims_of(self.program, op), strict=True):
                if not isinstance(term, t.AtScalar) or not moving & term.index.variables:
                    continue
                least, greatest = term.index, dim - 1 - term.index
                if not facts.prove_nonnegative(least) or not facts.prove_nonnegative(greatest):
                    raise NotIdle("its indices may leave their tensors in trips that are not made")
            if moving & variables(op):
                moving |= {variable_of(v) for v in op.outs}


class _Elsewhere(Cloner):
    """Copies ops with other numbers for trips and instances, or for what they are divided by."""

    def __init__(
        self, numbers: Numbers, news: Mapping[Var, Sym], replaced: Mapping[Sym, Sym]
    ) -> None:
        super().__init__(numbers, {}, news, {})
        self.replaced = replaced

    def sym(self, sym: Sym) -> Sym:
        """A symbolic integer in terms of the copies."""
        return self.replaced.get(sym) or super().sym(sym)


def _flag(name: str) -> t.Tensor:
    """A flag as a piece of the workspace."""
    return t.Tensor(name, I32, (Sym.of(1),), "temp")


def _multiplies(op: t.Op) -> bool:
    """Whether there are products in a loop."""
    return any(isinstance(inner, t.Dot) for inner in all_ops(t.Block((op,))))


def _is_apart(op: t.Elementwise) -> bool:
    """Whether integers are compared that differ along different axes."""
    sides = [{n for n, axis in enumerate(v.type.axes) if not axis.is_one} for v in op.args]
    return op.args[0].type.dtype.is_integer and not sides[0] & sides[1]


def _masks(loop: t.For) -> list[t.Value]:
    """The conditions by which a loop's body chooses elements."""
    found: dict[int, t.Value] = {}
    for op in loop.body.ops:
        if isinstance(op, t.Elementwise) and op.op == "where" and op.args[0].type.rank:
            found[op.args[0].id] = op.args[0]
    return list(found.values())


def _elements(value: t.Value) -> int:
    return prod(axis.capacity or 1 for axis in value.type.axes)
