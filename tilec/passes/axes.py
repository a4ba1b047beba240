"""Axis classes: which axes of which tiles run together.

Two axes belong to one class if an element-wise op, a carried name, a reduction, a load or a store pairs them:
all of a class are laid out alike, so that no value ever changes its layout. A row and the weights it is scaled
with share one class; rows and columns of a block are two. Layout-free values (spans used as tiles, constants) are
cloned per use first, so that `i[:, None] >= i[None, :]` keeps two classes apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import field, replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes import eliminate_dead
from tilec.passes.fields import field_stride
from tilec.passes.uses import Definitions, all_ops, operands
from tilec.source.diagnostics import fail
from tilec.source.text import Span

Key = tuple[int, int]


@dataclass
class AxisClass:
    """`extent` and `capacity` as in Tile IR (capacity None: unbounded); `contiguous` weighs the accesses that run along it with
    stride 1, in bytes of tile; `together` are classes that meet in one value; `reduced`: some reduction consumes it."""

    number: int
    name: str
    extent: Sym
    capacity: int | None
    static: bool
    contiguous: int = 0
    vector_bytes: int = 0
    together: set[int] = field(default_factory=set)
    reduced: bool = False
    carried: bool = False


@dataclass
class Axes:
    """The classes of a nest. A unit axis (extent 1) has none, unless a product has it, which lays it out like any other."""

    classes: list[AxisClass] = field(default_factory=list)
    of_key: dict[Key, int] = field(default_factory=dict)

    def of(self, value: t.Value, axis: int) -> AxisClass | None:
        """Class of an axis of a value, None for a unit axis."""
        number = self.of_key.get((value.id, axis))
        return None if number is None else self.classes[number]

    def of_value(self, value: t.Value) -> tuple[AxisClass | None, ...]:
        """Classes of all axes of a value."""
        return tuple(self.of(value, k) for k in range(value.type.rank))

    def of_access(self, op: t.Store | t.Atomic | t.Load) -> tuple[AxisClass | None, ...]:
        """Classes of the axes of an access."""
        if isinstance(op, t.Load):
            return self.of_value(op.out)
        return tuple(
            None if (n := self.of_key.get((-1 - op_key(op), k))) is None else self.classes[n]
            for k in range(access_rank(op.access))
        )


def op_key(op: t.Op) -> int:
    """A number for an op without results."""
    return id(op)


def access_rank(access: t.Access) -> int:
    """Number of axes of what an access selects."""
    ranks = [_term_rank(term) for term in access.terms]
    return max(ranks, default=0) if access.pointwise else sum(ranks)


def _term_rank(term: t.IndexTerm) -> int:
    match term:
        case t.AtScalar():
            return 0
        case t.AtTile():
            return term.index.type.rank
        case _:
            return 1


def term_axes(access: t.Access) -> list[tuple[int, ...]]:
    """For each term the axes of the result that it runs along."""
    result: list[tuple[int, ...]] = []
    rank = access_rank(access)
    position = 0
    for term in access.terms:
        own = _term_rank(term)
        first = rank - own if access.pointwise else position
        result.append(tuple(range(first, first + own)))
        position += own
    return result


class _Union:
    def __init__(self) -> None:
        self.parent: dict[Key, Key] = {}

    def find(self, key: Key) -> Key:
        self.parent.setdefault(key, key)
        root = key
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[key] != root:
            self.parent[key], key = root, self.parent[key]
        return root

    def join(self, a: Key, b: Key) -> None:
        self.parent[self.find(a)] = self.find(b)


def classify(program: t.Program, nest: t.Nest) -> tuple[t.Nest, Axes]:
    """The nest, with layout-free values cloned per use, and its classes. Raises E0511 where a tile would run along one class twice."""
    nest = _cloned(nest, (t.Iota, t.Full))
    try:
        return nest, _classes(program, nest, fields=True)
    except _Conflict:
        pass
    try:
        return nest, _classes(program, nest)
    except _Conflict:
        nest = _cloned(nest, (t.Iota, t.Full, t.Load, t.Cast))
    try:
        return nest, _classes(program, nest)
    except _Conflict as conflict:
        raise fail(
            "E0511",
            "a tile is combined with its own transpose",
            _where(program, nest, conflict),
            help="store it to a `temp` in one nest and load it in the other order in the next",
        ) from None


class _Conflict(Exception):
    def __init__(self, value: t.Value):
        self.value = value


def _where(program: t.Program, nest: t.Nest, conflict: _Conflict) -> Span:
    """The place of the op that makes two axes of a tile one class: without what comes behind it there is the conflict, without itself not."""
    ops = list(all_ops(nest.body))

    def conflicts(number: int) -> bool:
        try:
            _classes(program, nest, number)
        except _Conflict:
            return True
        return False

    number = bisect_left(range(len(ops)), True, key=lambda n: conflicts(n + 1))
    outs = ops[number].outs
    named = outs[0].span if outs and outs[0].span.end else ops[number].span
    return named if named.end else conflict.value.span


def _classes(
    program: t.Program, nest: t.Nest, joining: int | None = None, fields: bool = False
) -> Axes:
    """The classes of a nest; `joining`: as far as so many of its ops pair axes. `fields`: stores of fields of the same coordinates pair
    theirs."""
    union = _Union()
    extents: dict[Key, t.Axis] = {}
    ops = list(all_ops(nest.body))

    def note(value: t.Value) -> None:
        for k, axis in enumerate(value.type.axes):
            union.find((value.id, k))
            extents[value.id, k] = axis

    def join(a: t.Value, k: int, b: t.Value, n: int) -> None:
        if a.type.axes[k].is_one == b.type.axes[n].is_one:
            union.join((a.id, k), (b.id, n))

    def join_all(a: t.Value, b: t.Value) -> None:
        if a.type.rank == b.type.rank:
            for k in range(a.type.rank):
                join(a, k, b, k)

    for op in ops if joining is not None else ():
        for value in (*op.outs, *((c.entry for c in op.carried) if isinstance(op, t.For) else ())):
            note(value)
    for op in ops[:joining]:
        for value in op.outs:
            note(value)
        match op:
            case t.Elementwise():
                for arg in op.args:
                    join_all(op.out, arg)
            case t.Cast() | t.Bitcast() | t.Fill() | t.Scan() | t.Combine():
                join_all(op.out, op.arg)
            case t.Rearrange():
                for k, source in enumerate(op.axes):
                    if source is not None:
                        join(op.out, k, op.arg, source)
            case t.Reduce():
                kept = [k for k in range(op.arg.type.rank) if k not in op.axes]
                for n, k in enumerate(kept):
                    join(op.out, n, op.arg, k)
            case t.ReduceWith():
                kept = [k for k in range(op.args[0].type.rank) if k != op.axis]
                for arg, out in zip(op.args, op.outs, strict=True):
                    join_all(op.args[0], arg)
                    for n, k in enumerate(kept):
                        join(out, n, arg, k)
            case t.Dot():
                rank = op.out.type.rank
                for k in range(rank - 1):
                    join(op.out, k, op.a, k)
                for k in (*range(rank - 2), rank - 1):
                    join(op.out, k, op.b, k)
                join(op.a, rank - 1, op.b, rank - 2)
                if op.accumulate is not None:
                    join_all(op.out, op.accumulate)
            case t.For():
                for c in op.carried:
                    note(c.entry)
                    for other in (c.initial, c.next, c.result):
                        join_all(c.entry, other)
            case t.If():
                for m in op.merges:
                    join_all(m.result, m.then)
                    join_all(m.result, m.otherwise)
            case t.Load() | t.Store() | t.Atomic():
                _note_access(program, op, union, extents, join)
            case _:
                pass
    for one, beside in _fields_beside(program, ops) if fields else ():
        for n in range(access_rank(one.access)):
            union.join((-1 - op_key(one), n), (-1 - op_key(beside), n))
    return _collect(program, ops, union, extents)


def _fields_beside(program: t.Program, ops: list[t.Op]) -> Iterator[tuple[t.Store, t.Store]]:
    """Stores that are of fields of the same coordinates."""
    first: dict[t.Access, t.Store] = {}
    for op in ops:
        if not isinstance(op, t.Store) or op.access.pointwise:
            continue
        for n in range(len(op.access.terms) - 1):
            if field_stride(program, op.access, n) is not None:
                plain = replace(op.access, terms=op.access.terms[: n + 1])
                other = first.setdefault(plain, op)
                if other is not op:
                    yield other, op


def _note_access(
    program: t.Program,
    op: t.Load | t.Store | t.Atomic,
    union: _Union,
    extents: dict[Key, t.Axis],
    join: Callable[[t.Value, int, t.Value, int], None],
) -> None:
    """Pair the axes of an access with those of its value and of its index tiles."""
    result = op.out if isinstance(op, t.Load) else None
    rank = access_rank(op.access)
    if result is None:
        value = op.value if isinstance(op, t.Store | t.Atomic) else None
        for k in range(rank):
            axis = _access_axis(program, op.access, k)
            union.find((-1 - op_key(op), k))
            extents[-1 - op_key(op), k] = axis
            same = value is not None and value.type.rank == rank
            if same and value is not None and value.type.axes[k].is_one == axis.is_one:
                union.join((-1 - op_key(op), k), (value.id, k))
    for term, axes in zip(op.access.terms, term_axes(op.access), strict=True):
        if not isinstance(term, t.AtTile):
            continue
        for n, k in enumerate(axes):
            if result is not None:
                join(result, k, term.index, n)
            elif term.index.type.axes[n].is_one == extents[-1 - op_key(op), k].is_one:
                union.join((-1 - op_key(op), k), (term.index.id, n))


def _access_axis(program: t.Program, access: t.Access, k: int) -> t.Axis:
    """Axis k of what an access selects."""
    view = next((v for v in program.views if v.name == access.view), None)
    dims = program.tensor(access.tensor).dims if view is None else view.dims
    one = t.Axis(Sym.of(1), 1)
    for n, (term, axes) in enumerate(zip(access.terms, term_axes(access), strict=True)):
        if k not in axes:
            continue
        match term:
            case t.AtSpan():
                return t.Axis(term.extent, term.extent.constant)
            case t.AtAll():
                return t.Axis(dims[n], Facts.of(program).upper_bound(dims[n]))
            case t.AtTile():
                axis = term.index.type.axes[axes.index(k)]
                if not axis.is_one:
                    return axis
            case _:
                pass
    return one


def _collect(
    program: t.Program, ops: list[t.Op], union: _Union, extents: dict[Key, t.Axis]
) -> Axes:
    axes = Axes()
    numbers: dict[Key, int] = {}
    multiplied = {
        union.find((value.id, k))
        for op in ops
        if isinstance(op, t.Dot)
        for value in (op.a, op.b, op.out)
        for k in range(value.type.rank)
    }
    for key in list(union.parent):
        root = union.find(key)
        if extents[root].is_one and root not in multiplied:
            continue
        if root not in numbers:
            axis = extents.get(key) or extents[root]
            numbers[root] = len(axes.classes)
            capacity = axis.capacity
            static = axis.is_static
            if static:
                capacity = program.tile_number(axis.extent)
            axes.classes.append(AxisClass(numbers[root], "", axis.extent, capacity, static))
        axes.of_key[key] = numbers[root]
    for op in ops:
        for value in op.outs:
            _meet(axes, value, [axes.of(value, k) for k in range(value.type.rank)])
        if isinstance(op, t.For):
            for carried in op.carried:
                for found in axes.of_value(carried.entry):
                    if found is not None:
                        found.carried = True
        if isinstance(op, t.Reduce | t.Scan | t.ReduceWith):
            for k in op.axes if isinstance(op, t.Reduce) else (op.axis,):
                found = axes.of(op.args[0] if isinstance(op, t.ReduceWith) else op.arg, k)
                if found is not None:
                    found.reduced = True
        if isinstance(op, t.Load | t.Store | t.Atomic):
            _weigh(program, axes, op)
    for found in axes.classes:
        found.name = found.name or "t"
    return axes


def _meet(axes: Axes, value: t.Value, classes: list[AxisClass | None]) -> None:
    present = [c for c in classes if c is not None]
    if len({c.number for c in present}) != len(present):
        raise _Conflict(value)
    for one in present:
        one.together |= {c.number for c in present} - {one.number}


def _weigh(program: t.Program, axes: Axes, op: t.Load | t.Store | t.Atomic) -> None:
    """Note along which class an access is contiguous, and the names its terms suggest."""
    classes = axes.of_access(op)
    tensor = program.tensor(op.access.tensor)
    dims = tensor.dims
    if op.access.view is not None:
        dims = next(v.dims for v in program.views if v.name == op.access.view)
    strides = tensor.row_major if op.access.view is None else None
    elements = 1
    for found in classes:
        if found is not None:
            elements *= found.capacity or 4096
    if isinstance(op, t.Store | t.Atomic):
        _meet(axes, op.value, list(classes))
    for n, (term, along) in enumerate(zip(op.access.terms, term_axes(op.access), strict=True)):
        for k in along:
            found = classes[k]
            if found is None:
                continue
            if not found.name:
                found.name = _term_name(term, dims[n])
            last = n == len(op.access.terms) - 1 and (strides is None or strides[n].constant == 1)
            if last and isinstance(term, t.AtSpan | t.AtAll):
                weight = elements * tensor.dtype.bits
                # a loaded tile may pass through shared memory, a stored one may not
                stored = isinstance(op, t.Store) and len(classes) > 1
                found.contiguous += weight * 5 // 4 if stored else weight
                found.vector_bytes = max(found.vector_bytes, tensor.dtype.bits)
            elif not op.access.pointwise and isinstance(op, t.Load | t.Store):
                stride = field_stride(program, op.access, n)
                found.contiguous += elements * tensor.dtype.bits // stride if stride else 0


def _term_name(term: t.IndexTerm, dim: Sym) -> str:
    match term:
        case t.AtSpan():
            # what a loop's end hangs on is not what it counts
            counted = {
                a for monomial, _ in term.start.terms for a in monomial if isinstance(a, Var)
            }
            trips = [v for v in sorted(counted) if v.kind == "trip"]
            return trips[-1].name if trips else ""
        case t.AtAll():
            names = [v.name for v in sorted(dim.variables)]
            return names[0].lower() if len(names) == 1 else ""
        case _:
            return ""


def _cloned(nest: t.Nest, kinds: tuple[type[t.Op], ...]) -> t.Nest:
    """The nest with ops of the given kinds copied right before each op that reads them; what then only copies are read of has no say in
    the layout, and goes."""
    return replace(nest, body=eliminate_dead.run(_Cloner(kinds, nest.body).run(nest.body)))


class _Cloner:
    def __init__(self, kinds: tuple[type[t.Op], ...], block: t.Block):
        self.kinds = kinds
        self.sources: dict[int, t.Op] = {}
        self.next = 1 + max((v.id for v in Definitions.of(block).values.values()), default=0)

    def run(self, block: t.Block) -> t.Block:
        ops: list[t.Op] = []
        for op in block.ops:
            if isinstance(op, self.kinds) and op.out.type.rank > 0:
                self.sources[op.out.id] = op
                ops.append(op)
                continue
            fresh: dict[int, t.Value] = {}
            for value in operands(op):
                source = self.sources.get(value.id)
                if source is not None:
                    ops += self._copy(source, fresh)
            op = substitute(op, fresh)
            match op:
                case t.For():
                    op = replace(op, body=self.run(op.body))
                case t.If():
                    op = replace(op, then=self.run(op.then), otherwise=self.run(op.otherwise))
                case _:
                    pass
            ops.append(op)
        return t.Block(tuple(ops))

    def _copy(self, source: t.Op, fresh: dict[int, t.Value]) -> list[t.Op]:
        """Copies of an op and of the copied kinds that it reads; `fresh` maps old values to new ones."""
        ops: list[t.Op] = []
        for value in operands(source):
            inner = self.sources.get(value.id)
            if inner is not None and value.id not in fresh:
                ops += self._copy(inner, fresh)
        old = source.out
        new = t.Value(self.next, old.type, old.name, old.span)
        self.next += 1
        ops.append(replace(substitute(source, fresh), outs=(new,)))
        fresh[old.id] = new
        return ops


def substitute(op: t.Op, values: dict[int, t.Value]) -> t.Op:
    """The op with its operands replaced (nested blocks untouched)."""
    if not values:
        return op

    def new(value: t.Value) -> t.Value:
        return values.get(value.id, value)

    def access(old: t.Access) -> t.Access:
        terms = tuple(
            replace(term, index=new(term.index)) if isinstance(term, t.AtTile) else term
            for term in old.terms
        )
        return replace(old, terms=terms)

    match op:
        case t.Full():
            return replace(op, value=new(op.value))
        case t.Load():
            return replace(op, access=access(op.access))
        case t.Elementwise() | t.ReduceWith():
            return replace(op, args=tuple(map(new, op.args)))
        case (
            t.Cast()
            | t.Bitcast()
            | t.Rearrange()
            | t.Reshape()
            | t.Slice()
            | t.Reduce()
            | t.Combine()
            | t.Scan()
            | t.TopK()
        ):
            return replace(op, arg=new(op.arg))
        case t.Fill():
            return replace(op, arg=new(op.arg), value=new(op.value))
        case t.Dot():
            return replace(
                op, a=new(op.a), b=new(op.b), accumulate=op.accumulate and new(op.accumulate)
            )
        case t.Store() | t.Atomic():
            return replace(op, access=access(op.access), value=new(op.value))
        case t.For():
            return replace(
                op, carried=tuple(replace(c, initial=new(c.initial)) for c in op.carried)
            )
        case t.If() | t.Assert():
            return replace(op, condition=new(op.condition))
        case t.Print():
            return replace(
                op, parts=tuple(new(p) if isinstance(p, t.Value) else p for p in op.parts)
            )
        case _:
            return op


def slots_of(axes: Axes) -> list[list[AxisClass]]:
    """Classes that never meet share a slot; the slot that most memory runs along comes first."""
    slots: list[list[AxisClass]] = []
    for found in sorted(axes.classes, key=lambda c: (-c.contiguous, c.number)):
        for slot in slots:
            if not any(other.number in found.together for other in slot):
                slot.append(found)
                break
        else:
            slots.append([found])
    return slots
