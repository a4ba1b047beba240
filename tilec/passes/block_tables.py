"""Trips that a mask empties are skipped: which ones is computed ahead, a bool for each block of the mask and of the values.

    for j in range(S by BN):                                           in front:  for b, x, y in parallel(…):
        seen = doc[b, i][:, None] == doc[b, j][None, :]                               seen_blocks[b, x, y] = any(doc[b, x][:, None] == doc[b, y][None, :])
        state = step(state, where(seen, s, -inf), v[b, h, j, :])   ->             for b, h, y in parallel(…):
                                                                                      v_wild[b, h, y] = not all(abs(v[b, h, y, :]) < inf)
                                                                   for j in range(S by BN):
                                                                       if seen_blocks[b, i, j] or v_wild[b, h, j]:
                                                                           …

A trip has no effect where the mask is false on its whole tile and what it multiplies by zeros is finite (`idle_trips`). The body then stands
in a branch on scalars like one that a program wrote, and `filter_trips` makes a loop over the trips that survive of it. That is worth its launches where
a mask asks memory – what indices alone say is in bounds – and where it has fewer axes than the products, so that a block is asked about
once for many that are multiplied. A call without a workspace, or of less work than that, runs all trips.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from math import prod
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, F64
from tilec.ir.facts import Facts, split_extreme
from tilec.ir.filters import filter_of
from tilec.ir.symbolic import Apply, Sym, Var, ceildiv, sym_max, sym_min
from tilec.ir.walking import syms_of, variable_of
from tilec.lazy_dataclass import dataclass
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
        if filter_of(loop, self.written) is not None:
            return loop
        made: list[tuple[BlockTable, dict[int, BlockTable]]] = []
        finite: dict[int, BlockTable] = {}
        asked, why = False, ""
        for mask in _masks(loop):
            chain = self._chain(mask)
            if chain is None or not any(isinstance(op, t.Load) for op in chain):
                continue
            asked = True
            try:
                proof = proved(self.nest, loop, mask)
                needed = {
                    v.id: finite.get(v.id) or self._table(loop, v, True) for v in proof.finite
                }
                made.append((self._table(loop, mask, False), needed))
                finite |= needed
            except NotIdle as reason:
                why = why or str(reason)
        if asked and not made:
            raise NotIdle(why)
        if not made:
            return loop
        self.tables += [table for table, _ in made]
        self.tables += finite.values()
        return self._branch(loop, [table for table, _ in made], list(finite.values()))

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

    # ---- tables

    def _chain(self, value: t.Value) -> list[t.Op] | None:
        """The ops that a value is made by, in order; None where it is no function of indices, arguments and tensors that the nest does not write."""
        found: dict[int, t.Op] = {}
        waiting = [value.id]
        while waiting:
            op = self.definitions.defining.get(waiting.pop())
            if not isinstance(op, MADE) or any(_is_gathered(v) for v in op.outs):
                return None
            if isinstance(op, t.Load) and op.access.tensor in self.written:
                return None
            if id(op) not in found:
                found[id(op)] = op
                waiting += [v.id for v in operands(op)]
                waiting += [v.key for v in _variables(op) if v.kind == "value"]
        return sorted(found.values(), key=lambda op: self.order[id(op)])

    def _table(self, loop: t.For, value: t.Value, finite: bool) -> BlockTable:
        """The table of blocks in which a mask has an element, or with `finite` a value has one that is not finite. Raises NotIdle where blocks are
        not those of trips and instances."""
        chain = self._chain(value)
        if chain is None:
            raise NotIdle("what is multiplied by zeros is computed from more than tensors")
        chain, values = _loosened(self.program, chain)
        value = values.get(value.id, value)
        chain = _read_by(value, chain)
        used = {v for op in chain for v in _variables(op) if v.kind == "trip"}
        trips = {axis.index: axis.trips for axis in self.nest.grid}
        most = _bound(loop.trips, trips, True)
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
            at, count = _coarser(var, trips[var], chain)
            new = Var(var.name, "trip", self.numbers.next)
            self.numbers.next += 1
            replaced[at], news[var] = Sym.of(new), Sym.of(new)
            step = steps.get(var) if at == Sym.of(var) else None
            grid.append(t.GridAxis(names[var], new, count, step))
            entry.append(at)
            dims.append(count)
        cloner = _Elsewhere(self.numbers, news, replaced)
        ops = cloner.ops(chain)
        ops += self._answer(cloner.value(value), finite)
        tensor = next(op.access.tensor for op in chain if isinstance(op, t.Load))
        sizes = sorted({v for op in chain for v in _variables(op) if v.kind == "tile"})
        numbers = [str(self.program.tiles[v.name]) for v in sizes]
        temp = "_".join((tensor, "wild" if finite else "blocks", *numbers))
        while temp in self.names:
            temp += "_other"
        self.names.add(temp)
        terms = tuple(t.AtScalar(Sym.of(axis.index)) for axis in grid)
        ops.append(t.Store(t.Access(temp, terms), ops[-1].out, span=value.span))
        place = t.Tensor(temp, BOOL, tuple(dims), "temp")
        program = replace(
            self.program,
            tensors=(*self.program.tensors, place),
            nests=(t.Nest(tuple(grid), t.Block(tuple(ops)), value.span),),
        )
        whole = [op for op in chain if _elements(op.out) == _elements(value)]
        tiles = [op.out for op in whole if isinstance(op, t.Load) and op.out.type.rank > 1]
        return BlockTable(
            tensor, temp, BOOL, tuple(dims), program,
            entry=tuple(entry),
            scanned=_elements(value),
            operations=1 + sum(isinstance(op, t.Elementwise) for op in whole) + 2 * finite,
            read_bits=sum(tile.type.dtype.bits for tile in tiles),
        )  # fmt: skip

    def _answer(self, value: t.Value, finite: bool) -> list[t.Op]:
        """One bool of a tile."""
        ops: list[t.Op] = []
        span = value.span

        def made(kind: type[t.Op], type_: t.TileType, **parts: Any) -> t.Value:
            ops.append(kind(outs=(self._fresh(type_),), span=span, **parts))
            return ops[-1].out

        axes = value.type.axes
        kept = tuple(n for n, axis in enumerate(axes) if not axis.is_one)
        if len(kept) < len(axes):
            axes = tuple(axes[n] for n in kept)
            value = made(t.Rearrange, t.TileType(value.type.dtype, axes), arg=value, axes=kept)
        if finite:
            if value.type.dtype not in (F32, F64):
                value = made(t.Cast, t.TileType(F32, axes), arg=value)
            dtype = value.type.dtype
            value = made(t.Elementwise, t.TileType(dtype, axes), op="abs", args=(value,))
            most = made(t.Constant, t.TileType(dtype), value=float("inf"))
            value = made(t.Elementwise, t.TileType(BOOL, axes), op="lt", args=(value, most))
        word = "all" if finite else "any"
        while axes:
            axes = axes[:-1]
            value = made(t.Reduce, t.TileType(BOOL, axes), op=word, arg=value, axes=(len(axes),))
        if finite:
            made(t.Elementwise, t.TileType(BOOL), op="not", args=(value,))
        return ops

    def _in_range(self, chain: Iterable[t.Op], loop: t.For, most: Sym) -> None:
        """No scalar index of a trip beyond an instance's last one leaves its tensor. Raises NotIdle where that is not known."""
        facts = Facts.of(replace(self.program, nests=(self.nest,))).knowing({loop.index: most}, ())
        moving = {loop.index}
        for op in chain:
            if not isinstance(op, t.Load):
                moved = moving & _variables(op) or any(
                    variable_of(v) in moving for v in operands(op)
                )
                moving |= {variable_of(v) for v in op.outs if moved}
                continue
            for term, dim in zip(op.access.terms, _dims(self.program, op), strict=True):
                if not isinstance(term, t.AtScalar) or not moving & term.index.variables:
                    continue
                least, greatest = term.index, dim - 1 - term.index
                if not facts.prove_nonnegative(least) or not facts.prove_nonnegative(greatest):
                    raise NotIdle("its indices may leave their tensors in trips that are not made")
            if moving & _variables(op):
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


def _coarser(var: Var, trips: Sym, chain: Iterable[t.Op]) -> tuple[Sym, Sym]:
    """By what ops tell instances from each other that differ in one number, and how many of that there are: by the number itself, or always by its
    quotient, as the heads of a group are."""
    read = {sym for op in chain for sym in _syms(op) if var in sym.variables}
    if len(read) == 1:
        (sym,) = read
        atom = sym.terms[0][0][0] if len(sym.terms) == 1 and len(sym.terms[0][0]) == 1 else None
        if sym.terms[0][1] == 1 and isinstance(atom, Apply) and atom.op == "//":
            whole, divisor = atom.args
            if whole == Sym.of(var) and (divisor.constant or 0) > 0:
                return sym, ceildiv(trips, divisor)
    return Sym.of(var), trips


def _masks(loop: t.For) -> list[t.Value]:
    """The conditions by which a loop's body chooses elements."""
    found: dict[int, t.Value] = {}
    for op in loop.body.ops:
        if isinstance(op, t.Elementwise) and op.op == "where" and op.args[0].type.rank:
            found[op.args[0].id] = op.args[0]
    return list(found.values())


def _loosened(program: t.Program, chain: Sequence[t.Op]) -> tuple[list[t.Op], dict[int, t.Value]]:
    """The ops without bounds of spans by instances and trips that nothing else hangs on, and their values: a block of more elements is emptied
    by its mask, or finite, no more often."""
    if any(isinstance(op, t.Reduce | t.Fill | t.Full) for op in chain):
        return list(chain), {}
    needed = {v for op in map(_without_bounds, chain) for s in syms_of(op) for v in s.variables}

    def is_kept(sym: Sym) -> bool:
        return all(v.kind not in ("trip", "value") or v in needed for v in sym.variables)

    def bound(end: Sym | None, op: str) -> Sym | None:
        if end is None or is_kept(end):
            return end
        inner = end.terms[0][0][0] if len(end.terms) == 1 and len(end.terms[0][0]) == 1 else None
        if not isinstance(inner, Apply) or inner.op != op or end.terms[0][1] != 1:
            return None
        kept = [a for a in inner.args if is_kept(a)]
        return (sym_min if op == "min" else sym_max)(kept) if kept else None

    def part(node: Any) -> Any:
        match node:
            case t.Value():
                return values.get(node.id, node)
            case t.AtSpan():
                return replace(node, lo=bound(node.lo, "max"), hi=bound(node.hi, "min"))
            case t.Access():
                return replace(node, terms=part(node.terms))
            case t.AtTile():
                return t.AtTile(part(node.index))
            case tuple():
                return tuple(map(part, node))
            case _:
                return node

    values: dict[int, t.Value] = {}
    found: list[t.Op] = []
    ends: dict[t.Constraint, t.Constraint] = {}
    """what a tensor's own end says in place of a bound"""
    for op in chain:
        if isinstance(op, t.Load) and not op.access.pointwise:
            spans = [x for x in zip(op.access.terms, _dims(program, op), strict=True) if not isinstance(x[0], t.AtScalar)]  # fmt: skip
            for axis, (term, dim) in zip(op.out.type.axes, spans, strict=False):
                for c in axis.presence if isinstance(term, t.AtSpan) else ():
                    assert isinstance(term, t.AtSpan)
                    if isinstance(c, t.Below):
                        ends[c] = t.Below(dim - term.start)
                    elif isinstance(c, t.AtLeast):
                        ends[c] = t.AtLeast(-term.start)
        changed = {f.name: part(getattr(op, f.name)) for f in fields(op) if f.name not in ("outs", "span")}  # fmt: skip
        if isinstance(op, t.Iota):
            changed |= {"lo": bound(op.lo, "max"), "hi": bound(op.hi, "min")}
        for out in op.outs:
            axes = []
            for axis in out.type.axes:
                kept = (c if is_kept(_limit(c)) else ends.get(c) for c in axis.presence)
                presence = dict.fromkeys(c for c in kept if c is not None)
                axes.append(replace(axis, presence=tuple(presence)))
            values[out.id] = replace(out, type=replace(out.type, axes=tuple(axes)))
        found.append(replace(op, outs=tuple(values[v.id] for v in op.outs), **changed))
    return found, values


def _read_by(value: t.Value, chain: Sequence[t.Op]) -> list[t.Op]:
    """Those of the ops that a value is made by."""
    needed = {value.id}
    found: list[t.Op] = []
    for op in reversed(chain):
        if any(out.id in needed for out in op.outs):
            needed |= {v.id for v in operands(op)}
            needed |= {v.key for v in _variables(op) if v.kind == "value"}
            found.insert(0, op)
    return found


def _without_bounds(op: t.Op) -> t.Op:
    if isinstance(op, t.Iota):
        return replace(op, lo=None, hi=None)
    if isinstance(op, t.Load):
        terms = tuple(
            replace(term, lo=None, hi=None) if isinstance(term, t.AtSpan) else term
            for term in op.access.terms
        )
        return replace(op, access=replace(op.access, terms=terms))
    return op


def _dims(program: t.Program, op: t.Load) -> tuple[Sym, ...]:
    """The dimensions that a load's indices are of."""
    view = next((v for v in program.views if v.name == op.access.view), None)
    return program.tensor(op.access.tensor).dims if view is None else view.dims


def _is_gathered(value: t.Value) -> bool:
    """Whether an index tile says what of a value is present."""
    return any(isinstance(c, t.InRange) for axis in value.type.axes for c in axis.presence)


def _limit(constraint: t.Constraint) -> Sym:
    return constraint.size if isinstance(constraint, t.InRange) else constraint.limit


def _elements(value: t.Value) -> int:
    return prod(axis.capacity or 1 for axis in value.type.axes)


def _variables(op: t.Op) -> frozenset[Var]:
    """The variables of an op's symbolic integers and of its results' presence."""
    return frozenset(v for sym in _syms(op) for v in sym.variables)


def _syms(op: t.Op) -> list[Sym]:
    syms = list(syms_of(op))
    for value in op.outs:
        for axis in value.type.axes:
            syms.append(axis.extent)
            syms += map(_limit, axis.presence)
    return syms


def _bound(sym: Sym, trips: Mapping[Var, Sym], upper: bool) -> Sym | None:
    """The least number known that is no less than a polynomial in any instance, or the greatest that is no greater; None where sizes say nothing."""
    # of several that bound it one may have nothing in it that moves, as the ends of a window have not from each other
    fixed = [part for part in split_extreme(sym, "min" if upper else "max") if _is_size(part)]
    if fixed:
        return sym_min(fixed) if upper else sym_max(fixed)
    total = Sym.of(0)
    for monomial, coefficient in sym.terms:
        product = Sym.of(coefficient)
        for atom in monomial:
            part = _atom_bound(atom, trips, upper == (coefficient > 0))
            if part is None:
                return None
            product = product * part
        total = total + product
    return total


def _atom_bound(atom: Var | Apply, trips: Mapping[Var, Sym], upper: bool) -> Sym | None:
    if isinstance(atom, Var):
        if atom.kind in ("dim", "tile"):
            return Sym.of(atom)
        if atom in trips:
            return trips[atom] - 1 if upper else Sym.of(0)
        return None
    if atom.op in ("//", "%"):
        whole, divisor = atom.args
        inner = _bound(whole, trips, upper) if atom.op == "//" and _is_size(divisor) else None
        return None if inner is None else inner // divisor
    found = [_bound(a, trips, upper) for a in atom.args]
    known = [b for b in found if b is not None]
    if not known or (len(known) < len(found) and upper != (atom.op == "min")):
        return None
    return sym_min(known) if atom.op == "min" else sym_max(known)


def _is_size(sym: Sym) -> bool:
    """Whether a number is the same for all instances and trips, and sizes alone say what it is."""
    return all(v.kind in ("dim", "tile") for v in sym.variables)
