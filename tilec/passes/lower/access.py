"""Accesses: pointers, offsets, and the guards that presence and layouts ask for."""

from __future__ import annotations

from dataclasses import field

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Apply, Sym, Var, sym_max, sym_min
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import term_axes
from tilec.passes.index_ranges import range_of
from tilec.passes.lower.context import Context, converted


@dataclass
class Guards:
    """Conditions for whole vectors, for single elements, and the bounds (on the coordinate along the vectorised axis) among the latter."""

    vector: list[k.Expr] = field(default_factory=list)
    element: list[k.Expr] = field(default_factory=list)
    tails: list[tuple[k.LoopAxis, k.Expr]] = field(default_factory=list)
    awkward: bool = False
    """some element guard is more than an upper bound: no vector access"""

    def add(self, other: Guards) -> None:
        """Both must hold."""
        for mine, theirs in ((self.vector, other.vector), (self.element, other.element)):
            mine += [g for g in theirs if g not in mine]
        self.tails += [g for g in other.tails if g not in self.tails]
        self.awkward |= other.awkward

    @property
    def all(self) -> tuple[k.Expr, ...]:
        """Everything, for an access of one element."""
        return (*self.vector, *self.element)


def coordinate(axis: k.LoopAxis, element: bool = True) -> Sym:
    """The current coordinate along an axis as a Sym, of the element or of the vector's first."""
    return Sym.of(Var(axis.element if element else axis.coordinate, "local"))


def below(context: Context, axis: k.LoopAxis, limit: Sym) -> Guards:
    """coordinate < limit, for whole vectors where the limit is a multiple of them; nothing where it always holds."""
    guards = Guards()
    facts = context.facts
    capacity = axis.layout.capacity
    if axis.windowed:
        return _inside(context, axis, limit)
    if capacity and facts.prove_nonnegative(limit - capacity):
        return guards
    if axis.layout.streams and facts.prove_nonnegative(limit - axis.extent):
        digit = axis.layout.vector
        if digit == 1 or facts.divides(axis.extent, digit):
            return guards
    limit = _tightest(context, limit, capacity)
    bound = context.limit(limit, axis.name)
    if axis.layout.vector == 1 or facts.divides(limit, axis.layout.vector):
        at = k.Index(coordinate(axis, element=False), I32)
        guards.vector.append(k.Apply("lt", (at, bound), BOOL))
    else:
        at = k.Index(coordinate(axis), I32)
        guards.element.append(k.Apply("lt", (at, bound), BOOL))
        guards.tails.append((axis, bound))
    return guards


def _inside(context: Context, axis: k.LoopAxis, limit: Sym) -> Guards:
    """0 <= coordinate < limit, which no windowed axis knows of itself."""
    bound = context.limit(limit, axis.name)
    first = k.Index(coordinate(axis, element=False), I32)
    at = k.Index(coordinate(axis), I32)
    guards = Guards([k.Apply("lt", (first, bound), BOOL)])
    if context.facts.prove_nonnegative(limit):
        guards.element.append(k.Apply("is_within", (at, bound), BOOL))
    else:
        guards.element += [
            k.Apply("ge", (at, k.Literal_(0, I32)), BOOL),
            k.Apply("lt", (at, bound), BOOL),
        ]
    guards.tails.append((axis, bound))
    return guards


def _tightest(context: Context, limit: Sym, capacity: int) -> Sym:
    """`min(a, b) - c` without what no coordinate below `capacity` reaches: a span's own end, say, which leaves 32 bits where the
    span starts near 2^31."""
    for monomial, coefficient in limit.terms:
        atom = monomial[0] if len(monomial) == 1 and coefficient == 1 else None
        if not capacity or not isinstance(atom, Apply) or atom.op != "min":
            continue
        rest = limit - Sym.of(atom)
        kept = [a for a in atom.args if not context.facts.prove_nonnegative(a + rest - capacity)]
        if kept and len(kept) < len(atom.args):
            return sym_min(kept) + rest
    return limit


def at_least(context: Context, axis: k.LoopAxis, limit: Sym) -> Guards:
    """coordinate >= limit."""
    guards = Guards()
    if context.facts.prove_nonnegative(-limit):
        return guards
    bound = context.limit(limit, axis.name + "_begin")
    whole = not axis.windowed and context.facts.divides(limit, axis.layout.vector)
    if axis.layout.vector == 1 or whole:
        at = k.Index(coordinate(axis, element=False), I32)
        guards.vector.append(k.Apply("ge", (at, bound), BOOL))
        return guards
    guards.element.append(k.Apply("ge", (k.Index(coordinate(axis), I32), bound), BOOL))
    guards.awkward = True
    return guards


def in_range(index: k.Expr, size: k.Expr) -> list[k.Expr]:
    """0 <= index < size."""
    size = converted(size, index.rep)
    conditions: list[k.Expr] = [k.Apply("lt", (index, size), BOOL)]
    if index.rep.kind == "int":
        conditions.insert(0, k.Apply("ge", (index, k.Literal_(0, index.rep)), BOOL))
    return conditions


def padding(context: Context, axis: k.LoopAxis) -> Guards:
    """Coordinates that the layout has but the extent does not."""
    return below(context, axis, axis.extent)


def span_guards(context: Context, axis: k.LoopAxis, term: t.AtSpan, dim: Sym) -> Guards:
    """What a span's bound and the tensor's dimension leave of the coordinates."""
    hi = dim if term.hi is None else sym_min([term.hi, dim])
    lo = Sym.of(0) if term.lo is None else sym_max([term.lo, 0])
    guards = padding(context, axis)
    if not context.facts.prove_nonnegative(hi - term.start - term.extent):
        guards.add(below(context, axis, hi - term.start))
    if not context.facts.prove_nonnegative(term.start - lo):
        guards.add(at_least(context, axis, lo - term.start))
    return guards


def _shares(axis: k.LoopAxis) -> tuple[Sym, Sym]:
    """What the thread's digit and the step add to the coordinate of a vector."""
    layout = axis.layout
    lane = Sym.of(Var(axis.lane, "local")) * layout.vector if layout.threads > 1 else Sym.of(0)
    if not axis.vectorised and layout.steps == 1:
        return lane, Sym.of(0)
    return lane, Sym.of(Var(axis.step, "local")) * (layout.threads * layout.vector)


@dataclass
class Address:
    """`pointer + offset`: the offset of the current element and of the current vector's first element."""

    pointer: str
    element: k.Expr
    vector: k.Expr
    guards: Guards
    contiguous: bool
    """the last term runs along the vectorised axis with stride 1 and nothing else depends on that axis' elements"""


class AddressBuilder:
    """Builds addresses for one body; gathers evaluate their index tiles through it."""

    def __init__(self, context: Context):
        self.context = context

    def index_tile(
        self, value: t.Value, coords: tuple[k.LoopAxis | None, ...]
    ) -> tuple[k.Expr, Guards]:
        """The element of an index tile, and the guards of its own presence."""
        raise AssertionError("given by the body")

    def address(
        self,
        access: t.Access,
        coords: tuple[k.LoopAxis | None, ...],
        writable: bool,
        span_op: t.Op,
        own_pointer: bool = False,
        open_along: bool = False,
    ) -> Address:
        """The address of an access whose axes run along `coords`. `own_pointer`: each thread's share of the coordinates goes into
        the pointer, so that its steps are at distances that all threads have in common. `open_along`: the bounds of the last term are
        left to who asks."""
        context = self.context
        tensor = context.program.tensor(access.tensor)
        view = next((v for v in context.program.views if v.name == access.view), None)
        dims = tensor.dims if view is None else view.dims
        strides = (
            tensor.row_major
            if view is None
            else t.Tensor("", tensor.dtype, dims, "input").row_major
        )
        base = Sym.of(0)
        moving = Sym.of(0)
        vector_moving = Sym.of(0)
        gathered: list[tuple[k.Expr, Sym]] = []
        guards = Guards(vector=list(context.live))
        contiguous = False
        for n, (term, along) in enumerate(zip(access.terms, term_axes(access), strict=True)):
            stride, dim = strides[n], dims[n]
            match term:
                case t.AtScalar():
                    base = base + term.index * stride
                case t.AtSpan() | t.AtAll():
                    axis = coords[along[0]]
                    if isinstance(term, t.AtSpan):
                        base = base + term.start * stride
                        if axis is None:
                            guards.add(self._single(term, dim))
                            continue
                        if open_along and n == len(access.terms) - 1:
                            guards.add(padding(context, axis))
                        else:
                            guards.add(span_guards(context, axis, term, dim))
                    elif axis is not None:
                        guards.add(padding(context, axis))
                    if axis is not None:
                        moving = moving + coordinate(axis) * stride
                        if own_pointer and axis.layout.is_blocked and not axis.layout.streams:
                            lane, step = _shares(axis)
                            base = base + lane * stride
                            vector_moving = vector_moving + step * stride
                        else:
                            vector_moving = vector_moving + coordinate(axis, element=False) * stride
                        if n == len(access.terms) - 1 and axis.vectorised and stride.constant == 1:
                            contiguous = True
                case t.AtTile():
                    own = tuple(coords[a] for a in along)
                    index, presence = self.index_tile(term.index, own)
                    guards.add(presence)
                    if writable:
                        for part in own:
                            if part is not None:
                                guards.add(padding(context, part))
                    conditions = self._in_range(term.index, index, dim)
                    if any(a is not None and a.vectorised for a in own):
                        guards.element += conditions
                        guards.awkward = True
                        contiguous = False
                    else:
                        guards.vector += conditions
                    gathered.append((index, stride))
        if any(c is not None and c.vectorised for c in coords[:-1]):
            contiguous = False
        pointer = self._pointer(access, tensor, base, writable, span_op)
        element, vector = context.index(moving, wide=True), context.index(vector_moving, wide=True)
        for index, stride in gathered:
            term_expr = k.Apply("offset", (index, context.index(stride, wide=True)), I32)
            element = k.Apply("offset_add", (element, term_expr), I32)
            vector = k.Apply("offset_add", (vector, term_expr), I32)
        return Address(pointer, element, vector, guards, contiguous and not access.pointwise)

    def _in_range(self, value: t.Value, index: k.Expr, dim: Sym) -> list[k.Expr]:
        """What is not known of 0 <= index < dim."""
        context = self.context
        least, greatest = range_of(value, context.definitions)
        conditions = in_range(index, context.index(dim))
        if greatest is not None and context.facts.prove_nonnegative(dim - greatest - 1):
            conditions.pop()
        if least is not None and context.facts.prove_nonnegative(least):
            conditions = [c for c in conditions if not (isinstance(c, k.Apply) and c.op == "ge")]
        return conditions

    def _single(self, term: t.AtSpan, dim: Sym) -> Guards:
        """A span of extent 1: its only coordinate is there or not."""
        guards = Guards()
        context = self.context
        hi = dim if term.hi is None else sym_min([term.hi, dim])
        lo = Sym.of(0) if term.lo is None else sym_max([term.lo, 0])
        for condition in (hi - term.start - 1, term.start - lo):
            if not context.facts.prove_nonnegative(condition):
                guards.vector.append(
                    k.Apply("ge", (context.index(condition), k.Literal_(0, I32)), BOOL)
                )
        return guards

    def _pointer(
        self, access: t.Access, tensor: t.Tensor, base: Sym, writable: bool, span_op: t.Op
    ) -> str:
        context = self.context
        context.pointers[tensor.name] = context.pointers.get(tensor.name, False) or writable
        whole = context.names.spell(tensor.name)
        if base == Sym.of(0):
            return whole
        name = context.names.unique(f"{tensor.name}_at")
        context.out.append(
            k.Pointer(
                name,
                whole,
                tensor.dtype,
                context.index(base, wide=True),
                writable,
                span=span_op.span,
            )
        )
        return name
