"""Operands that a kernel computes, computed ahead of it: bulk copies bring to warpgroups what lies in memory, and nothing else.

    k = load k[b, h, j, :]                           in front:  for x, y, r in parallel(…):
    n = k * rsqrt(sum(k * k, axis=1))[:, None]   ->                 k_computed[x, y, r, :] = …
    s = q @ n.T                                      s = q @ (load k_computed[b, h, j, :]).T

An operand qualifies whose rows are made of tensors' rows of the same index, element by element or by reductions within the row: it
is the same in whatever instance and trip it is computed, so that one launch computes all rows once. It is tried where a nest does not
take the form of warpgroups as it is, and a call without a workspace takes products of warps (`copies`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, replace
from math import prod
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import DType
from tilec.ir.facts import Facts
from tilec.ir.launch import AllOf, LaunchCondition, product
from tilec.ir.symbolic import Sym, Var, ceildiv
from tilec.lazy_dataclass import dataclass
from tilec.passes import eliminate_dead
from tilec.passes.computed_tiles import Unknown, tile_ahead
from tilec.passes.forms import Form
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import Definitions, all_ops, operands

WHOLE = 128
"""Bits of which a row of the copy has a whole number, for bulk copies."""
_MADE = (
    t.Load, t.Elementwise, t.Cast, t.Bitcast, t.Rearrange, t.Fill, t.Reduce, t.Constant, t.FromSym, t.Scalar, t.Iota, t.Full,
)  # fmt: skip
"""What such an operand may be made by."""


@dataclass(frozen=True)
class ComputedCopy:
    """The temp for all rows of an operand, `dims` with the row's elements last, and the nest that fills it. `tensor`: one of those that
    it is made of."""

    tensor: str
    temp: str
    dtype: DType
    dims: tuple[Sym, ...]
    program: t.Program = field(compare=False)
    """with the nest alone"""
    form: Form | None = field(default=None, compare=False)
    """the nest for a target"""
    in_loop: bool = False
    """each trip of a loop would compute another tile"""

    @property
    def condition(self) -> AllOf:
        """It is computed in every call that this is for."""
        return AllOf(())

    @property
    def place(self) -> t.Tensor:
        """The temp as a piece of the workspace."""
        return t.Tensor(self.temp, self.dtype, (self.elements,), "temp")

    @property
    def elements(self) -> Sym:
        """How many are computed."""
        return Facts.of(self.program).numeric(product(self.dims))

    @property
    def needed(self) -> Sym:
        """1: it is always computed."""
        return Sym.of(1)

    @property
    def further(self) -> tuple[t.Tensor, ...]:
        """None."""
        return ()

    @property
    def asked(self) -> tuple[t.HostExpr, ...]:
        """Nothing."""
        return ()

    @property
    def operations(self) -> int:
        """Of a trip that would compute its tile: those that make its elements, and the loads of what it is made of."""
        if not self.in_loop:
            return 0
        ops = [op for op in all_ops(self.program.nests[0].body) if op.outs]
        made = (t.Load, t.Elementwise, t.Cast, t.Bitcast)
        return sum(
            prod(axis.capacity or 1 for axis in op.outs[0].type.axes)
            for op in ops
            if isinstance(op, made) and len(op.outs[0].type.axes) > 1
        )

    @property
    def grid(self) -> Sym:
        """CTAs."""
        trips = product(tuple(axis.trips for axis in self.program.nests[0].grid))
        return Facts.of(self.program).numeric(trips)

    @property
    def reads_tiles(self) -> bool:
        """Whether it is made of tiles that memory has, not of rows alone."""
        return True

    @property
    def where(self) -> str:
        """In which calls, for the manifest."""
        return "always"

    @property
    def to(self) -> str:
        """To where, for the manifest."""
        return "the workspace, as the kernel computes it"


@dataclass(frozen=True)
class Computed:
    """A program and one of its nests that loads operands that were computed ahead."""

    program: t.Program
    nest: t.Nest
    copies: tuple[ComputedCopy, ...]
    word: str = "computed"
    interleaved: frozenset[str] = frozenset()

    @property
    def conditions(self) -> tuple[LaunchCondition, ...]:
        """What the nests that compute them ask of a call."""
        forms = [copy.form for copy in self.copies]
        return tuple(form.variant.condition for form in forms if form is not None)


def ahead(program: t.Program, nest: t.Nest) -> Computed | None:
    """The nest with all operands that it computes loaded from where they have been computed; None where it has none, or one that
    depends on more than its own row. Of a sum of two products, `a @ b + c @ d`, one is made: its operands are parts of one row each."""
    definitions = Definitions.of(nest.body)
    written = {op.access.tensor for op in all_ops(nest.body) if isinstance(op, t.Store | t.Atomic)}
    order = {id(op): n for n, op in enumerate(all_ops(nest.body))}
    found: dict[int, t.Value] = {}
    for op in all_ops(nest.body):
        if not isinstance(op, t.Dot) or op.a.type.rank != 2:
            continue
        for value in (op.a, op.b):
            base = _base(value, definitions)
            made = definitions.defining.get(base.id)
            if isinstance(made, t.Elementwise | t.Cast) and _reads(base, definitions, written):
                found[base.id] = base
    making = _Making(program, nest, definitions, order)
    for op in all_ops(nest.body):
        if isinstance(op, t.Dot) and op.accumulate is not None:
            making.join(op, found, written)
    for number, value in found.items():
        if number not in making.placed and not making.alone(value):
            return None
    if not making.copies:
        return None
    temps = [t.Tensor(copy.temp, copy.dtype, copy.dims, "temp") for copy in making.copies]
    changed = replace(nest, body=eliminate_dead.run(_placed(nest.body, making.placed)))
    # the ids that are taken are those of the nests of a program
    nests = tuple(changed if other.grid == nest.grid else other for other in program.nests)
    return Computed(
        replace(program, tensors=(*program.tensors, *temps), nests=nests),
        changed,
        tuple(making.copies),
    )


class _Making:
    """The copies as they are found; `placed`: what takes the place of the op that defines a value."""

    def __init__(
        self,
        program: t.Program,
        nest: t.Nest,
        definitions: Definitions,
        order: Mapping[int, int],
    ) -> None:
        self.program, self.nest = program, nest
        self.definitions, self.order = definitions, order
        self.numbers = Numbers((*program.nests, nest))
        self.names = set(program.names)
        self.copies: list[ComputedCopy] = []
        self.placed: dict[int, tuple[t.Op, ...]] = {}

    def alone(self, value: t.Value) -> bool:
        """Make a copy for one operand; says whether there is one."""
        if not _only_multiplied(value, self.definitions):
            return False
        load = self._made([value], value)
        if load is not None:
            self.placed[value.id] = (load,)
        return load is not None

    def _made(self, parts: list[t.Value], out: t.Value) -> t.Load | None:
        """The load of `parts` side by side, after a copy was made for them."""
        chains = [_chain(part, self.definitions, self.order) for part in parts]
        made = list(zip(chains, parts, strict=True))
        for anchor in (op for chain in chains for op in chain if isinstance(op, t.Load)):
            try:
                copy, load = _Ahead(self.program, self.numbers, anchor).result(
                    made, out, self.names
                )
            except Unknown:
                continue
            break
        else:
            if len(parts) > 1:
                return None
            try:
                own = tile_ahead(self.nest, self.numbers, *made[0])
            except Unknown:
                return None
            tensor = next(op for op in chains[0] if isinstance(op, t.Load)).access.tensor
            store = t.Store(t.Access("", own.written), own.value, span=out.span)
            copy, load = _assembled(
                self.program,
                tensor,
                own.grid,
                (*own.ops, store),
                own.dims,
                own.read,
                out,
                self.names,
            )
            copy = replace(copy, in_loop=own.in_loop)
        self.copies.append(copy)
        self.names.add(copy.temp)
        return load

    def join(self, second: t.Dot, found: Mapping[int, t.Value], written: set[str]) -> None:
        """Make one product of a sum of two where an operand of them is computed."""
        assert second.accumulate is not None
        first = self.definitions.defining.get(second.accumulate.id)
        if not isinstance(first, t.Dot) or first.accumulate is not None:
            return
        if self.definitions.users[first.out.id] != [second] or first.precision != second.precision:
            return
        sides = []
        for one, other in ((first.a, second.a), (first.b, second.b)):
            pair = [_base(one, self.definitions), _base(other, self.definitions)]
            known = all(_reads(v, self.definitions, written) and self._used_once(v) for v in pair)
            turned = one is not pair[0], other is not pair[1]
            if not known or turned[0] != turned[1] or pair[0] is pair[1]:
                return
            sides.append((pair, turned[0]))
        if not any(value.id in found for pair, _ in sides for value in pair):
            return
        kept = len(self.copies), dict(self.placed)
        operands_: list[t.Value] = []
        behind: list[t.Op] = []
        for n, (pair, turned_) in enumerate(sides):
            consumed = (1, 0)[n] if not turned_ else (0, 1)[n]
            if consumed != 1:
                break
            types = [value.type for value in pair]
            columns = [type_.axes[1].extent.constant for type_ in types]
            if None in columns or types[0].dtype != types[1].dtype:
                break
            width = sum(c for c in columns if c is not None)
            axes = (types[0].axes[0], t.Axis(Sym.of(width), width))
            out = self.numbers.fresh(pair[0], t.TileType(types[0].dtype, axes))
            load = self._beside(pair, out) or self._made(pair, out)
            if load is None:
                break
            early, late = sorted(
                pair, key=lambda v: self.order[id(self.definitions.defining[v.id])]
            )
            self.placed[early.id], self.placed[late.id] = (), (load,)
            if turned_:
                value = self.numbers.fresh(out, t.TileType(types[0].dtype, axes[::-1]))
                behind.append(t.Rearrange(out, (1, 0), outs=(value,), span=second.span))
                out = value
            operands_.append(out)
        else:
            dot = t.Dot(
                a=operands_[0],
                b=operands_[1],
                precision=first.precision,
                outs=second.outs,
                span=first.span,
            )
            self.placed[second.out.id] = (*behind, dot)
            return
        del self.copies[kept[0] :]
        self.placed = kept[1]

    def _used_once(self, value: t.Value) -> bool:
        users = self.definitions.users[value.id]
        if len(users) != 1:
            return False
        return isinstance(users[0], t.Dot) or (
            isinstance(users[0], t.Rearrange) and self._used_once(users[0].out)
        )

    def _beside(self, pair: list[t.Value], out: t.Value) -> t.Load | None:
        """The load of two neighbouring parts of one tensor's rows."""
        loads = [self.definitions.defining[value.id] for value in pair]
        one, other = loads
        if not isinstance(one, t.Load) or not isinstance(other, t.Load):
            return None
        (*rest, low), (*others, high) = one.access.terms, other.access.terms
        if replace(one.access, terms=()) != replace(other.access, terms=()) or rest != others:
            return None
        if not isinstance(low, t.AtSpan) or not isinstance(high, t.AtSpan):
            return None
        whole = not any(op.out.type.axes[1].presence for op in (one, other))
        if low.start + low.extent != high.start or not whole:
            return None
        term = t.AtSpan(low.start, low.extent + high.extent)
        return t.Load(replace(one.access, terms=(*rest, term)), outs=(out,), span=one.span)


def split(program: t.Program) -> t.Program:
    """The program with nests of their own for operands that are reduced along the axis that a product consumes: threads that hold a part
    of a row for a product know no sums of the row."""
    at = 0
    while at < len(program.nests):
        nests = program.nests
        found = ahead(program, nests[at]) if _reduces(nests[at]) else None
        if found is not None:
            rows = [nest for copy in found.copies for nest in copy.program.nests]
            program = replace(
                program,
                tensors=found.program.tensors,
                nests=(*nests[:at], *rows, found.nest, *nests[at + 1 :]),
            )
            at += len(rows)
        at += 1
    return program


def _reduces(nest: t.Nest) -> bool:
    definitions = Definitions.of(nest.body)
    order = {id(op): n for n, op in enumerate(all_ops(nest.body))}
    for op in all_ops(nest.body):
        if isinstance(op, t.Dot) and op.a.type.rank == 2:
            for value in (op.a, op.b):
                chain = _chain(value, definitions, order) if _reads(value, definitions, ()) else []
                if any(isinstance(x, t.Reduce) for x in chain):
                    return True
    return False


def _base(value: t.Value, definitions: Definitions) -> t.Value:
    """The tile that a product's operand is, or is transposed from."""
    op = definitions.defining.get(value.id)
    while isinstance(op, t.Rearrange) and op.arg.type.rank == 2 and None not in op.axes:
        value = op.arg
        op = definitions.defining.get(value.id)
    return value


def _reads(value: t.Value, definitions: Definitions, written: Collection[str]) -> bool:
    """Whether a tile is made of rows of tensors that the nest does not write, and of numbers."""
    loaded = False
    pending, seen = [value], {value.id}
    while pending:
        op = definitions.defining.get(pending.pop().id)
        if not isinstance(op, _MADE):
            return False
        if isinstance(op, t.Load):
            if op.access.tensor in written:
                return False
            loaded = True
        for arg in operands(op):
            if arg.id not in seen:
                seen.add(arg.id)
                pending.append(arg)
    return loaded


def _only_multiplied(value: t.Value, definitions: Definitions) -> bool:
    for user in definitions.users[value.id]:
        match user:
            case t.Dot():
                if user.accumulate is value:
                    return False
            case t.Rearrange() if user.out.type.rank == 2:
                if not _only_multiplied(user.out, definitions):
                    return False
            case _:
                return False
    return True


def _chain(value: t.Value, definitions: Definitions, order: Mapping[int, int]) -> list[t.Op]:
    """The ops that a tile is made by, in order."""
    found: dict[int, t.Op] = {}
    pending = [value]
    while pending:
        op = definitions.defining[pending.pop().id]
        if id(op) not in found:
            found[id(op)] = op
            pending += operands(op)
    return sorted(found.values(), key=lambda op: order[id(op)])


def _placed(block: t.Block, placed: Mapping[int, tuple[t.Op, ...]]) -> t.Block:
    ops: list[t.Op] = []
    for op in block.ops:
        match op:
            case t.For():
                ops.append(replace(op, body=_placed(op.body, placed)))
            case t.If():
                then, otherwise = _placed(op.then, placed), _placed(op.otherwise, placed)
                ops.append(replace(op, then=then, otherwise=otherwise))
            case _ if len(op.outs) == 1 and op.out.id in placed:
                ops += placed[op.out.id]
            case _:
                ops.append(op)
    return t.Block(tuple(ops))


class _Ahead:
    """The nest that computes an operand for all indices of the tensor that `anchor` loads from. Raises Unknown where what else the
    operand is made of is no function of these."""

    def __init__(
        self,
        program: t.Program,
        numbers: Numbers,
        anchor: t.Load,
    ) -> None:
        self.program, self.anchor = program, anchor
        access = anchor.access
        moving = [term for term in access.terms if isinstance(term, t.AtSpan) and _moves(term)]
        if access.pointwise or len(moving) != 1:
            raise Unknown
        (self.span,) = moving
        at = access.terms.index(self.span)
        if not all(isinstance(term, t.AtScalar) for term in access.terms[:at]):
            raise Unknown  # rows lie along the first axis
        self.row = anchor.out.type.axes[0]
        if self.row.extent.constant is not None and not self.row.presence:
            raise Unknown  # any other axis might be meant
        view = next((v for v in program.views if v.name == access.view), None)
        dims = program.tensor(access.tensor).dims if view is None else view.dims
        self.numbers = numbers
        self.rows = dims[at]
        self.grid: list[t.GridAxis] = []
        self.dims: list[Sym] = []
        self.scalars: dict[Sym, Sym] = {}
        self.read: list[t.IndexTerm] = []
        """where an instance of the nest finds what was computed"""
        self.written: list[t.IndexTerm] = []
        for n, (term, dim) in enumerate(zip(access.terms, dims, strict=True)):
            # loops are numbered from 1, and have fewer numbers than there are values
            index = Var("row" if n == at else f"at_{n}", "trip", numbers.next + n)
            if n == at:
                extent = self.row.extent
                self.own = t.AtSpan(extent * Sym.of(index), extent)
                self.grid.append(t.GridAxis(index.name, index, ceildiv(dim, extent), extent))
                self.written.append(self.own)
            elif isinstance(term, t.AtScalar) and _moves(term):
                self.scalars[term.index] = Sym.of(index)
                self.grid.append(t.GridAxis(index.name, index, dim))
                self.written.append(t.AtScalar(Sym.of(index)))
            else:
                continue
            self.read.append(term)
            self.dims.append(dim)
        numbers.next += len(dims)
        self.presence = (t.Below(self.rows - self.own.start),)
        self.values: dict[int, t.Value] = {}

    def result(
        self, parts: list[tuple[list[t.Op], t.Value]], out: t.Value, names: Collection[str]
    ) -> tuple[ComputedCopy, t.Load]:
        """The copy of tiles that lie side by side, each with the ops that it is made by, and the load `out` of all."""
        ops: list[t.Op] = []
        made: list[tuple[t.Value, int]] = []
        for chain, value in parts:
            first, last = value.type.axes
            columns = last.extent.constant
            if not self._is_row(first) or first.presence != self.row.presence:
                raise Unknown
            if columns is None or last.presence or columns * value.type.dtype.bits % WHOLE:
                raise Unknown
            ops += [self._op(op) for op in chain if op.out.id not in self.values]
            made.append((self.values[value.id], columns))
        dims = (*self.dims, Sym.of(sum(columns for _, columns in made)))
        at = 0
        for value, columns in made:
            last_term = t.AtSpan(Sym.of(at), Sym.of(columns)) if len(made) > 1 else t.AtAll()
            access = t.Access("", (*self.written, last_term))
            ops.append(t.Store(access, value, span=out.span))
            at += columns
        tensor, read = self.anchor.access.tensor, (*self.read, t.AtAll())
        return _assembled(self.program, tensor, self.grid, ops, dims, read, out, names)

    def _is_row(self, axis: t.Axis) -> bool:
        return axis.extent == self.row.extent and (
            self.row.extent.constant is None or axis.presence == self.row.presence
        )

    def _op(self, op: t.Op) -> t.Op:
        """One op of the new nest."""
        if isinstance(op, t.Reduce) and any(self._is_row(op.arg.type.axes[n]) for n in op.axes):
            raise Unknown
        if isinstance(op, t.Iota) and op.start == self.span.start:
            changed: dict[str, Any] = {"start": self.own.start, "lo": None, "hi": self.rows}
        else:
            changed = {
                f.name: self._part(getattr(op, f.name))
                for f in fields(op)
                if f.name not in ("outs", "span")
            }
        axes = tuple(self._axis(axis) for axis in op.out.type.axes)
        new = self.numbers.fresh(op.out, replace(op.out.type, axes=axes))
        self.values[op.out.id] = new
        return replace(op, outs=(new,), **changed)

    def _axis(self, axis: t.Axis) -> t.Axis:
        if self._is_row(axis):
            if axis.presence != self.row.presence:
                raise Unknown
            return replace(axis, presence=self.presence)
        if axis.presence:
            raise Unknown
        return axis

    def _part(self, part: Any) -> Any:
        """A part of an op by the indices and the values of the new nest."""
        match part:
            case t.Value():
                return self.values[part.id]
            case Sym():
                if part in self.scalars:
                    return self.scalars[part]
                if _moving(part):
                    raise Unknown
                return part
            case t.AtSpan() if (part.start, part.extent) == (self.span.start, self.span.extent):
                return replace(self.own, hi=self.rows)
            case t.AtSpan() | t.AtScalar():
                return replace(
                    part, **{f.name: self._part(getattr(part, f.name)) for f in fields(part)}
                )
            case t.AtTile():
                raise Unknown
            case t.Access():
                return replace(part, terms=self._part(part.terms))
            case tuple():
                return tuple(map(self._part, part))
            case _:
                return part


def _assembled(
    program: t.Program,
    tensor: str,
    grid: Sequence[t.GridAxis],
    ops: Sequence[t.Op],
    dims: tuple[Sym, ...],
    read: tuple[t.IndexTerm, ...],
    out: t.Value,
    names: Collection[str],
) -> tuple[ComputedCopy, t.Load]:
    """The copy that a nest of these ops makes, whose stores wait for the temp's name, and the load `out` from where it is `read`."""
    temp = f"{tensor}_computed"
    if temp in names or len(program.nests) > 1:
        # two nests may have operands of the same name and of different extents
        temp = f"{temp}_{out.id}"
    while temp in names:
        temp += "_copy"
    named = [
        replace(op, access=replace(op.access, tensor=temp)) if isinstance(op, t.Store) else op
        for op in ops
    ]
    nest = t.Nest(tuple(grid), t.Block(tuple(named)), out.span)
    place = t.Tensor(temp, out.type.dtype, dims, "temp")
    program = replace(program, tensors=(*program.tensors, place), nests=(nest,))
    load = t.Load(t.Access(temp, read), outs=(out,), span=out.span)
    return ComputedCopy(tensor, temp, out.type.dtype, dims, program), load


def _moving(sym: Sym) -> bool:
    """Whether a number differs from instance to instance, or from trip to trip."""
    return any(var.kind in ("trip", "value", "local") for var in sym.variables)


def _moves(term: t.AtSpan | t.AtScalar) -> bool:
    return _moving(term.start if isinstance(term, t.AtSpan) else term.index)
