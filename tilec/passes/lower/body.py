"""One walk of registers: evaluates tiles element by element inside a TileLoop.

tile_loop c                             the vectors of the axes
  x_tile = load_vector x_row + c_at     loads that only this walk needs, and then, for each element,
  row = convert f32 x_tile              named or shared intermediate values, and the sink's own ops
  accumulate max row_max row
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir import window_ops as w
from tilec.ir.atomic_ops import AtomicElement, AtomicShared, AtomicVector
from tilec.ir.covering_ops import LoadCovering, StoreWoven
from tilec.ir.dtypes import BOOL, F32, I32, U32, DType
from tilec.ir.kernel_walking import follows
from tilec.ir.symbolic import Sym, Var, sym_min
from tilec.passes.interior import affine
from tilec.passes.lower import edges, fused, packed
from tilec.passes.lower.access import (
    AddressBuilder,
    Guards,
    at_least,
    below,
    coordinate,
    in_range,
    padding,
)
from tilec.passes.lower.bits import column_bit, visible_bit
from tilec.passes.lower.context import Context, computable, compute_type, converted
from tilec.passes.lower.covering import load_covered, whole_or_edges
from tilec.passes.lower.vectors import load_op
from tilec.passes.lower.vectors import tail_count as tail_count
from tilec.passes.lower.vectors import vector_access as vector_access
from tilec.passes.uses import operands
from tilec.source.diagnostics import fail
from tilec.source.text import Span

Coords = tuple[k.LoopAxis | None, ...]

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Body(AddressBuilder):
    """Collects the ops of one walk over `axes`."""

    def __init__(self, context: Context, axes: tuple[k.LoopAxis, ...], inline_only: bool = False):
        super().__init__(context)
        self.axes = axes
        self.inline_only = inline_only
        self.prelude: list[k.Op] = []
        self.loads: list[k.Op] = []
        self.elements: list[k.Op] = []
        self.memo: dict[tuple[int, Coords], k.Expr] = {}
        self.uses: dict[int, int] = {}
        self.local_names: set[str] = set()
        self.reloaded: dict[str, k.Fragment] = {}
        self.along: k.LoopAxis | None = None
        """the axis along which single elements are neighbours in memory: inside, an address of a row is needed once"""
        self.covering: dict[tuple[object, ...], str] = {}
        """names of covering vectors that the walk loads"""
        self.held: dict[str, k.Fragment] = {}
        """fragments that the walk reads"""

    def local_name(self, wanted: str) -> str:
        """A name inside of the walk, free again behind it."""
        name = self.context.names.unique(wanted)
        self.local_names.add(name)
        return name

    # ---- values

    def count(self, value: t.Value) -> None:
        """Note a use of a value, and through inline ops of what it needs: what is needed twice gets a variable."""
        self.uses[value.id] = self.uses.get(value.id, 0) + 1
        if self.uses[value.id] > 1 or not self._inline(value):
            return
        for operand in operands(self.context.definition(value)):
            self.count(operand)

    def _inline(self, value: t.Value) -> bool:
        context = self.context
        return (
            value.type.rank > 0
            and value.id not in context.fragments
            and value.id in context.definitions.defining
        )

    def value(self, value: t.Value, coords: Coords) -> k.Expr:
        """The element of a value at the current coordinates, axis n of the value running along `coords[n]`."""
        context = self.context
        if value.type.rank == 0:
            return context.scalar(value)
        if value.id in context.usual:
            return self.value(context.usual[value.id], coords)
        fragment = None if self.inline_only else context.fragments.get(value.id)
        if fragment is not None:
            self.held[fragment.name] = fragment
            fast = coords[-1]
            if value.type.dtype == BOOL and fragment.rep == U32 and fast is not None:
                return column_bit(context, fragment, fast)
            return k.Element(self._again(fragment), fragment.rep)
        key = (value.id, coords)
        if key not in self.memo:
            expr = self._evaluate(context.definition(value), value, coords)
            if self._deserves_name(value, expr):
                name = self.local_name(value.name or _hint(context.definition(value)))
                self.elements.append(k.Let(name, expr.rep, expr, span=value.span))
                expr = k.Local(name, expr.rep)
            self.memo[key] = expr
        return self.memo[key]

    def _again(self, fragment: k.Fragment) -> k.Fragment:
        """A held fragment in this walk. Narrow data is widened anew in every walk after the first: the wide copies would take
        twice the registers from one walk to the next."""
        fast = next((a for a in fragment.axes if a.vectorised), None)
        if fast is None or fragment.local or fragment.rep.bits >= 32:
            return fragment
        if fragment.name not in self.reloaded:
            walk = self.context.walks.get(fragment.name, 0)
            self.context.walks[fragment.name] = walk + 1
            again = fragment
            if walk:
                again = k.Fragment(
                    self.local_name(f"{fragment.name}_again"), fragment.rep, (fast,), local=True
                )
                self.loads.append(k.Reload(again, fragment, walk))
            self.reloaded[fragment.name] = again
        return self.reloaded[fragment.name]

    def _deserves_name(self, value: t.Value, expr: k.Expr) -> bool:
        if isinstance(expr, k.Local | k.Literal_ | k.Element):
            return False
        return self.uses.get(value.id, 0) > 1 or bool(value.name)

    def _evaluate(self, op: t.Op, value: t.Value, coords: Coords) -> k.Expr:
        context = self.context
        match op:
            case t.Iota():
                assert coords[0] is not None or op.out.type.axes[0].is_one
                at = Sym.of(0) if coords[0] is None else coordinate(coords[0])
                return context.index(op.start + at)
            case t.Full():
                return context.scalar(op.value)
            case t.Load():
                return self._load(op, coords)
            case t.Elementwise():
                return self._elementwise(op, coords)
            case t.Cast():
                known = self._affine_float(op, coords)
                if known is not None:
                    return known
                return self.cast(self.value(op.arg, coords), op.arg.type.dtype, value.type.dtype)
            case t.Bitcast():
                arg = converted(self.value(op.arg, coords), op.arg.type.dtype)
                return k.Apply("bitcast", (arg,), value.type.dtype)
            case t.Rearrange():
                inner: list[k.LoopAxis | None] = [None] * op.arg.type.rank
                for n, source in enumerate(op.axes):
                    if source is not None:
                        inner[source] = coords[n]
                return self.value(op.arg, tuple(inner))
            case t.Fill():
                arg = self.value(op.arg, coords)
                guards = Guards()
                for n, (axis, along) in enumerate(zip(op.arg.type.axes, coords, strict=True)):
                    if op.axes is None or n in op.axes:
                        guards.add(self.axis_presence(axis, along))
                if not guards.all:
                    return arg
                filler = converted(context.scalar(op.value), arg.rep)
                return k.Apply("where", (conjunction(guards.all), arg, filler), arg.rep)
            case _:
                raise not_compiled(op, value.span)

    def cast(self, arg: k.Expr, source: DType, target: DType) -> k.Expr:
        """`.to`: narrow floats that were computed in f32 may keep the excess precision on the way to f32."""
        if target == F32 and arg.rep == F32:
            return arg
        return converted(arg, target)

    def _elementwise(self, op: t.Elementwise, coords: Coords) -> k.Expr:
        if op.out.id in self.context.holds:
            return k.Literal_(True, BOOL)
        compared = self._affine_comparison(op, coords) or visible_bit(self, op, coords)
        if compared is not None:
            return compared
        args: list[k.Expr] = []
        for arg in op.args:
            own: Coords = ()
            if arg.type.rank:
                own = tuple(
                    None if axis.is_one else coords[n] for n, axis in enumerate(arg.type.axes)
                )
            args.append(self.value(arg, own))
        return apply_elementwise(self.context, op, args)

    def _affine_comparison(self, op: t.Elementwise, coords: Coords) -> k.Expr | None:
        """A comparison of index tiles by rows and columns of accumulators, as a number of the row against one of the register: the
        latter is a constant of the unrolled loop."""
        fast = coords[-1] if len(coords) == 2 else None
        if (
            op.op not in COMPARISONS
            or fast is None
            or not fast.vectorised
            or fast.layout.is_blocked
        ):
            return None
        if self.context.variant.products is None:
            return None
        left, right = (affine(arg, self.context.definitions) for arg in op.args)
        if left is None or right is None:
            return None
        total = dict(left.coefficients)
        for n, c in right.coefficients.items():
            total[n] = total.get(n, 0) - c
        if total.get(1) not in (1, -1):
            return None
        number = left.base - right.base
        row = coords[0]
        if total.get(0):
            if row is None:
                return None
            number = number + coordinate(row) * total[0]
        lane = Sym.of(Var(fast.lane, "local"))
        register = self.context.index(coordinate(fast) - lane)
        if total[1] == -1:
            return k.Apply(op.op, (self.context.index(number - lane), register), BOOL)
        return k.Apply(op.op, (register, self.context.index(-number - lane)), BOOL)

    def _affine_float(self, op: t.Cast, coords: Coords) -> k.Expr | None:
        """A factor that counts indices of accumulators' rows and columns, as a float: that of the thread's first element, which is converted
        once, and a constant of the unrolled loop. Both are exact up to 2^24; the product rounds what lies beyond again."""
        context = self.context
        fast = coords[-1] if len(coords) == 2 else None
        if context.variant.products is None or context.program.math != "fast":
            return None
        if (
            fast is None
            or not fast.vectorised
            or fast.layout.is_blocked
            or op.out.type.dtype != F32
        ):
            return None
        users = context.definitions.users[op.out.id]
        if not all(isinstance(u, t.Elementwise) and u.op in ("mul", "fma") for u in users):
            return None
        found = affine(op.arg, context.definitions)
        if found is None or not found.coefficients.get(1):
            return None
        first, others = found.base, Sym.of(0)
        for n, count in found.coefficients.items():
            axis = coords[n]
            if axis is None:
                return None
            lane = Sym.of(Var(axis.lane, "local"))
            first = first + lane * count
            others = others + (coordinate(axis) - lane) * count
        parts = (converted(context.index(x), F32) for x in (first, others))
        return k.Apply("add", tuple(parts), F32)

    # ---- loads

    def index_tile(self, value: t.Value, coords: Coords) -> tuple[k.Expr, Guards]:
        """The element of an index tile and the guards of its own presence. One that is the same for a whole vector is
        evaluated before the vector."""
        outer = self.elements
        if not any(c is not None and c.vectorised for c in coords):
            self.elements = self.prelude
        expr = self.value(value, coords)
        if not isinstance(expr, k.Local | k.Literal_ | k.Element):
            name = self.local_name(value.name or "index")
            self.elements.append(k.Let(name, expr.rep, expr, span=value.span))
            expr = k.Local(name, expr.rep)
            self.memo[value.id, coords] = expr
        guards = self.presence(value, coords)
        self.elements = outer
        return expr, guards

    def _load(self, op: t.Load, coords: Coords) -> k.Expr:
        if op.out.id in self.context.crossed:
            buffer, apart = self.context.crossed[op.out.id]
            row, column = (Sym.of(0) if c is None else coordinate(c) for c in coords)
            place = k.Index(column * apart + row, I32)
            element = k.SharedElement(buffer, place, op.out.type.dtype)
            name = self.local_name(op.out.name or f"{op.access.tensor}_value")
            self.elements.append(k.Let(name, element.rep, element, span=op.span))
            return k.Local(name, element.rep)
        dtype = op.out.type.dtype
        fast = next((a for a in self.axes if a.vectorised), None)
        covered = None if fast is None else load_covered(self, op, coords, fast)
        if covered is not None:
            return k.Element(covered, dtype)
        address = self.address(op.access, coords, writable=False, span_op=op)
        if fast is None or not vector_access(address, fast):
            guards = address.guards
            return k.Memory(address.pointer, address.element, dtype, guards.all)
        fragment = k.Fragment(
            self.local_name(op.out.name or f"{op.access.tensor}_tile"), dtype, (fast,), local=True
        )
        self.loads.append(load_op(self.context, op, fragment, address, fast))
        return k.Element(fragment, dtype)

    # ---- presence

    def presence(self, value: t.Value, coords: Coords) -> Guards:
        """Guards of the presence of a value's element (not of the layout's padding)."""
        guards = Guards()
        for axis, along in zip(value.type.axes, coords, strict=True):
            guards.add(self.axis_presence(axis, along))
        return guards

    def axis_presence(self, axis: t.Axis, along: k.LoopAxis | None) -> Guards:
        """Guards of one axis."""
        guards = Guards()
        presence = axis.presence
        limits = [c.limit for c in presence if isinstance(c, t.Below)]
        if len(limits) > 1 and self.context.variant.asynchronous is not None:
            others = tuple(c for c in presence if not isinstance(c, t.Below))
            presence = (t.Below(self._least(limits, axis)), *others)
        for constraint in presence:
            match constraint:
                case t.Below():
                    if along is None:
                        guards.vector.append(self._positive(constraint.limit))
                    else:
                        guards.add(below(self.context, along, constraint.limit))
                case t.AtLeast():
                    if along is None:
                        guards.vector.append(self._positive(1 - constraint.limit))
                    else:
                        guards.add(at_least(self.context, along, constraint.limit))
                case t.InRange():
                    index = self.context.definitions.values[constraint.index]
                    expr, inner = self.index_tile(index, (along,))
                    conditions = in_range(expr, self.context.index(constraint.size))
                    if constraint.trips is not None:
                        conditions = [self._unless(constraint.trips, [*inner.all, *conditions])]
                        inner = Guards(awkward=bool(inner.element))
                    guards.add(inner)
                    if along is not None and along.vectorised:
                        guards.element += conditions
                        guards.awkward = True
                    else:
                        guards.vector += conditions
        return guards

    def _least(self, limits: list[Sym], axis: t.Axis) -> Sym:
        """The least of several bounds; those that no coordinate reaches are left out."""
        facts = self.context.facts
        kept = [x for x in limits if not facts.prove_nonnegative(x - axis.extent)]
        return sym_min(kept or limits[:1])

    def _positive(self, sym: Sym) -> k.Expr:
        return k.Apply("gt", (self.context.index(sym), k.Literal_(0, I32)), BOOL)

    def _unless(self, trips: Sym, conditions: list[k.Expr]) -> k.Expr:
        """All conditions, or no trip."""
        none = k.Apply("le", (self.context.index(trips), k.Literal_(0, I32)), BOOL)
        return k.Apply("or", (none, conjunction(tuple(conditions))), BOOL)

    def reduced_guards(self, value: t.Value, coords: Coords, axes: tuple[int, ...]) -> Guards:
        """Guards under which a coordinate of the reduced axes counts: presence and padding."""
        guards = Guards()
        for n in axes:
            along = coords[n]
            if along is not None:
                guards.add(padding(self.context, along))
            guards.add(self.axis_presence(value.type.axes[n], along))
        return guards

    # ---- the loop

    def finish(
        self,
        guards: Guards,
        inside: list[k.Op],
        after: list[k.Op],
        span: Span,
        parts: tuple[k.Part, ...] = (),
    ) -> None:
        """Emit the walk: loads, then for each element the intermediate values and `inside` (under the guards), then `after`."""
        around = guards.vector
        walk = self._cheaper(guards, inside)
        inside = walk.inside
        body: list[k.Op] = [*self.prelude, *(without(op, around) for op in self.loads)]
        if inside or self.elements:
            body.append(
                k.Elements(
                    tuple(guards.element),
                    (*self.elements, *(without(op, around) for op in inside)),
                    span=span,
                )
            )
        body += [without(op, around) for op in after]
        ops = packed.extremes(edges.without_masks(tuple(body), self.axes))
        loop = k.TileLoop(self._nesting(), tuple(around), ops, parts, span=span)
        whole = whole_or_edges(self.context, loop, span) or whole_or_cut(loop, span)
        if self.context.variant.filled and whole is loop:
            whole = edges.filled_or_not(loop)
        if self.context.variant.asynchronous is not None:
            whole = packed.where_scaled(whole, walk, self.context.names.unique)
        self.context.out.append(whole)
        self.context.names.release(self.local_names)

    def _cheaper(self, guards: Guards, inside: list[k.Op]) -> packed.Walk:
        """What words and common divisors spare the lanes; returns the walk, with the sink's own ops."""
        names = self.context.names
        walk = packed.Walk(self.loads, self.elements, inside, self.context.out)
        if self.context.prepared is not None:
            walk.known = self.context.prepared
        form = self.context.variant.asynchronous
        # accumulators leave no registers to widen into, but those of a pair
        if self.context.variant.products is None or form is not None:
            vectors = (*guards.element, *guards.vector)
            widest = 2 if form is not None and not form.brings else None
            packed.widen(walk, vectors, self.local_name, widest)
        packed.prepare_divisors(walk, self.axes, names.unique)
        fused.multiply_out(walk, self.local_name)
        self.loads, self.elements = walk.loads, walk.elements
        return walk

    def _nesting(self) -> tuple[k.LoopAxis, ...]:
        """The axes as the loops nest. A vector that follows the inner axis alone is needed again in each trip of the outer one, and
        stays in registers from the first to the last: of accumulators' two axes that one is the outer whose vectors take more."""
        if len(self.axes) != 2 or any(a.layout.is_blocked or a.layout.streams for a in self.axes):
            return self.axes
        outer, inner = self.axes
        if self.along is outer:
            return inner, outer
        if self._registers_along(inner, outer) > self._registers_along(outer, inner):
            return inner, outer
        return self.axes

    def _registers_along(self, axis: k.LoopAxis, other: k.LoopAxis) -> int:
        """Registers of what the walk reads along one axis only."""
        vectors = [f.rep.bits * axis.layout.vector for f in self.held.values() if f.axes == (axis,)]
        if axis.vectorised:
            vectors += [
                op.target.rep.bits * axis.layout.vector
                for op in self.loads
                if isinstance(op, k.LoadVector)
                and not follows((op.offset, op.guards, op.count), other)
            ]
        return axis.layout.steps * sum(-(-bits // 32) for bits in vectors)


def hold_in(
    context: Context, value: t.Value, shown: t.Value, coords: Coords, name: str
) -> k.Fragment:
    """Registers for `value`, which hold the elements of `shown`: of itself, or of what stands for it meanwhile."""
    body = Body(context, context.ordered(coords))
    body.count(shown)
    expr = body.value(shown, coords)
    fragment = k.Fragment(name, expr.rep, body.axes)
    context.out.append(k.Declare(fragment, None, span=value.span))
    body.finish(Guards(), [k.Assign(fragment, expr)], [], value.span)
    context.fragments[value.id] = fragment
    return fragment


def whole_or_cut(loop: k.TileLoop, span: Span) -> k.Op:
    """A walk whose vectors an upper bound may cut: where the bound leaves all of the tile, a form without the cuts."""
    cuts = {
        op.count
        for op in loop.body
        if isinstance(op, k.LoadVector | k.StoreVector | AtomicVector) and op.count is not None
    }
    bounds: dict[k.Expr, None] = {}
    for cut in sorted(cuts, key=repr):
        for bound in cut_bounds(cut):
            bounds[bound] = None
    fast = next((a for a in loop.axes if a.vectorised), None)
    guarded = any(isinstance(op, k.Elements) and op.guards for op in loop.body)
    if not bounds or fast is None or fast.layout.streams or fast.windowed or guarded:
        return loop
    capacity = k.Literal_(fast.layout.capacity, I32)
    conditions = tuple(k.Apply("ge", (bound, capacity), BOOL) for bound in bounds)
    body = tuple(
        replace(op, count=None)
        if isinstance(op, k.LoadVector | k.StoreVector | AtomicVector)
        else op
        for op in loop.body
    )
    return k.IfUniform(conjunction(conditions), (replace(loop, body=body),), (loop,), span=span)


def cut_bounds(count: k.Expr) -> list[k.Expr]:
    """The bounds whose least makes a tail's count."""
    if isinstance(count, k.Apply) and count.op == "min":
        return [bound for arg in count.args for bound in cut_bounds(arg)]
    return [count.args[0]] if isinstance(count, k.Apply) else []


def without(op: k.Op, guards: list[k.Expr]) -> k.Op:
    """The op without guards that stand around it, and each of the others once."""
    match op:
        case (
            k.LoadVector()
            | w.LoadWindow()
            | w.LoadShifted()
            | k.StoreVector()
            | w.StoreWindow()
            | LoadCovering()
            | StoreWoven()
            | k.StoreElement()
            | AtomicElement()
            | AtomicShared()
            | AtomicVector()
            | k.CopyAsync()
        ):
            return replace(op, guards=tuple(dict.fromkeys(g for g in op.guards if g not in guards)))
        case _:
            return op


def conjunction(parts: tuple[k.Expr, ...]) -> k.Expr:
    """All parts hold."""
    total = parts[0]
    for part in parts[1:]:
        total = k.Apply("and", (total, part), BOOL)
    return total


def apply_elementwise(context: Context, op: t.Elementwise, args: list[k.Expr]) -> k.Expr:
    """The operation on scalars: narrow floats compute in f32, in strict mode rounded after each operation."""
    dtype = op.out.type.dtype
    math: Literal["fast", "strict", "half"] = context.program.math
    if math == "fast" and op.out.id in context.half and op.op in ("tanh", "sigmoid"):
        math = "half"
    if op.op == "where":
        condition, *rest = args
        if isinstance(condition, k.Literal_):
            return rest[0] if condition.value else rest[1]
        rep = compute_type(dtype) if any(a.rep != dtype for a in rest) else dtype
        return k.Apply("where", (condition, *(converted(a, rep) for a in rest)), rep)
    if op.op == "sub_if":
        x, y, condition = (computable(a) for a in args)
        difference = k.Apply("sub", (x, y), x.rep, math)
        return k.Apply("where", (condition, difference, x), x.rep)
    if op.op == "and" and dtype == BOOL:
        args = [a for a in args if a != k.Literal_(True, BOOL)] or [k.Literal_(True, BOOL)]
        if len(args) == 1:
            return args[0]
    computed = [computable(a) for a in args]
    if op.op in COMPARISONS:
        return k.Apply(op.op, tuple(computed), BOOL)
    rep = compute_type(dtype)
    result: k.Expr = k.Apply(op.op, tuple(computed), rep, math)
    if context.program.math == "strict" and rep != dtype:
        result = converted(result, dtype)
    return result


def not_compiled(op: t.Op, span: Span) -> Exception:
    """The error for an op that parses and interprets but has no lowering."""
    names = {
        "Dot": ("E0510", "products (`@`)"),
        "ReduceWith": ("E0512", "`reduce` with a function"),
    }
    code, what = names.get(type(op).__name__, ("E0512", f"`{type(op).__name__}`"))
    return fail(
        code,
        f"{what} cannot be compiled to CUDA yet",
        op.span if op.span.end else span,
        note="the reference interpreter runs it: `tilec run --device reference`",
    )


def _hint(op: t.Op) -> str:
    match op:
        case t.Load():
            return f"{op.access.tensor}_value"
        case t.Elementwise():
            return op.op
        case t.Cast():
            return "as_" + op.out.type.dtype.name
        case _:
            return "t"
