"""Accesses by covering vectors (`tilec.passes.covering`), and walks of them without edges.

tile_loop i                                          tile_loop i
  x_1 = load x + i - 1  where i - 1 in the tensor      x_around = load_covering x + i - 4, 2 vectors
  for each element                                →    x_1 = pick_vector x_around, 3
    acc = acc + where(i >= 1, x_1, 0)                  for each element …

What edges ask – of the vectors in front of a tensor and behind it, and which elements are present – is asked of the tile once: where all
of it lies inside, a form of the walk has none of those questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilec.ir import covering_ops as c
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.atomic_ops import AtomicVector
from tilec.ir.dtypes import BOOL, I32, DType
from tilec.ir.kernel_walking import inside
from tilec.ir.symbolic import Sym, Var
from tilec.passes.covering import Cover
from tilec.passes.fields import shape_of
from tilec.passes.lower.access import Address, Guards, coordinate
from tilec.passes.lower.context import Context
from tilec.passes.lower.packed import rewritten
from tilec.passes.lower.vectors import tail_count
from tilec.source.text import Span

if TYPE_CHECKING:
    from tilec.passes.lower.body import Body, Coords


def load_covered(
    body: Body, op: t.Load, coords: Coords, fast: k.LoopAxis, target: k.Fragment | None = None
) -> k.Fragment | None:
    """The current vector of a load, in `target` or one of its own, picked out of covering vectors that the walk loads once; None where it
    has none."""
    cover = body.context.variant.covers.get(id(op))
    if cover is None or coords[cover.axis] is not fast or fast.windowed:
        return None
    key = (cover.access, cover.along, cover.first, cover.count, coords)
    if key not in body.covering:
        load = _load(body, op, cover, coords, fast)
        if load is None:
            return None
        body.covering[key] = load.name
        body.loads.append(load)
    if target is None:
        name = body.local_name(op.out.name or f"{op.access.tensor}_tile")
        target = k.Fragment(name, op.out.type.dtype, (fast,), local=True)
    first = cover.shift - cover.first * cover.width
    body.loads.append(c.PickVector(target, body.covering[key], first, cover.stride, span=op.span))
    return target


def _load(
    body: Body, op: t.Load, cover: Cover, coords: Coords, fast: k.LoopAxis
) -> c.LoadCovering | None:
    """The covering vectors; None where an edge may cut them elsewhere than vectors end."""
    context = body.context
    term = cover.access.terms[cover.along]
    access, ahead = cover.access, cover.first * cover.width
    begin: k.Expr | None = None
    end: k.Expr | None = None
    if cover.stride == 1:
        assert isinstance(term, t.AtSpan)
        start = term.start + ahead
        terms = (*access.terms[:-1], replace(term, start=start))
        address = body.address(replace(access, terms=terms), coords, False, op, open_along=True)
        dim = shape_of(context.program, access)[0][-1]
        behind = dim - start - cover.count * cover.width
        capacity = fast.layout.capacity
        if not context.facts.prove_nonnegative(start):
            begin = _from(context.limit(-start, f"{fast.name}_begin"), fast)
        if not capacity or not context.facts.prove_nonnegative(
            behind - capacity + fast.layout.vector
        ):
            end = _from(context.limit(dim - start, fast.name), fast)
    else:
        address = body.address(access, coords, False, op)
        if not _whole_vectors(address, fast):
            return None
        tail = tail_count(address.guards, fast)
        if tail is not None:
            whole = k.Apply("min", (tail, k.Literal_(fast.layout.vector, I32)), I32)
            end = k.Apply("mul", (whole, k.Literal_(cover.stride, I32)), I32)
    name = body.local_name(f"{op.access.tensor}_around")
    guards = tuple(address.guards.vector)
    return c.LoadCovering(
        name,
        op.out.type.dtype,
        cover.width,
        cover.count,
        address.pointer,
        address.vector,
        cover.stride,
        guards,
        begin,
        end,
        span=op.span,
    )


def _from(bound: k.Expr, fast: k.LoopAxis) -> k.Expr:
    """Elements from the current vector's first one to a bound on the coordinate."""
    return k.Apply("offset_sub", (bound, k.Index(coordinate(fast, element=False), I32)), I32)


def _whole_vectors(address: Address, fast: k.LoopAxis) -> bool:
    return not address.guards.awkward and all(a is fast for a, _ in address.guards.tails)


class Weaving:
    """Stores of fields in one walk, which go together once all fields of their coordinates are there."""

    def __init__(self, context: Context, group: Sequence[t.Store], fast: k.LoopAxis | None):
        self.fast = fast
        self.covers = {id(op): context.variant.covers.get(id(op)) for op in group}
        self.parts: dict[int, k.Fragment] = {}
        self.addresses: dict[int, Address] = {}
        self.families: dict[int, list[t.Store]] = {}
        for op in group if fast is not None else ():
            family = [other for other in group if self._are_fields(op, other)]
            family.sort(key=self._number)
            numbers = list(range(self._stride(op)))
            if family and [self._number(other) for other in family] == numbers:
                self.families[id(op)] = family

    def _are_fields(self, op: t.Store, other: t.Store) -> bool:
        a, b = self.covers[id(op)], self.covers[id(other)]
        same = op.value.type.axes == other.value.type.axes
        return a is not None and b is not None and replace(a, shift=b.shift) == b and same

    def _number(self, op: t.Store) -> int:
        cover = self.covers[id(op)]
        return -1 if cover is None else cover.shift

    def _stride(self, op: t.Store) -> int:
        cover = self.covers[id(op)]
        return 0 if cover is None else cover.stride

    def address(self, body: Body, op: t.Store, coords: Coords) -> Address | None:
        """Where the fields of the current vector's coordinates begin, if a store is one of a whole family, and moves whole vectors."""
        family = self.families.get(id(op))
        if family is None or self.fast is None:
            return None
        first = id(family[0])
        if first not in self.addresses:
            cover = self.covers[first]
            assert cover is not None
            mark = body.context.mark()
            address = body.address(cover.access, coords, writable=True, span_op=op)
            if not _whole_vectors(address, self.fast):
                body.context.undo(mark)
                for other in family:
                    del self.families[id(other)]
                return None
            self.addresses[first] = address
        return self.addresses[first]

    def add(
        self, op: t.Store, vector: k.Fragment, rep: DType, guards: Guards
    ) -> list[c.StoreWoven]:
        """Note the vector of one field; returns the store of all of them where it is the last."""
        self.parts[id(op)] = vector
        family = self.families[id(op)]
        cover = self.covers[id(op)]
        if cover is None or self.fast is None or not all(id(o) in self.parts for o in family):
            return []
        address = self.addresses[id(family[0])]
        return [
            c.StoreWoven(
                tuple(self.parts[id(o)] for o in family),
                rep,
                cover.width,
                address.pointer,
                address.vector,
                tuple(guards.vector),
                tail_count(guards, self.fast),
                span=op.span,
            )
        ]


# ---------------------------------------------------------------------------------------------- edges


def whole_or_edges(context: Context, loop: k.TileLoop, span: Span) -> k.Op | None:
    """A walk of covering vectors, with a form for tiles that no edge cuts; None for any other walk, or where nothing asks for edges."""
    if not any(isinstance(op, c.LoadCovering | c.StoreWoven) for op in loop.body):
        return None
    asked = _Edges(context, loop)
    if not asked.conditions:
        return loop
    conditions = [
        k.Apply("ge", (context.index(sym), k.Literal_(0, I32)), BOOL) for sym in asked.needed()
    ]
    both: k.Expr = conditions[0]
    for condition in conditions[1:]:
        both = k.Apply("and", (both, condition), BOOL)
    whole = rewritten(loop, asked.without)
    return k.IfUniform(both, (whole,), (loop,), span=span)


class _Edges:
    """What a walk asks about edges: Syms that are not negative where a question's answer is the same for the whole tile."""

    def __init__(self, context: Context, loop: k.TileLoop):
        self.context = context
        self.bounds = {expr: sym for scope in context.limits for sym, expr in scope.items()}
        axes = [a for a in loop.axes if a.layout.is_blocked and not a.layout.streams]
        self.capacities = {
            name: (a, a.layout.capacity) for a in axes for name in (a.coordinate, a.element)
        }
        self.conditions: dict[Sym, None] = {}
        self.masks: set[k.Expr] = set()
        self.ends: set[k.Expr] = set()
        for part in inside(loop):
            if isinstance(part, k.Apply) and part.op in ("lt", "ge"):
                self._mask(part)
            elif isinstance(part, c.LoadCovering):
                vectors = part.count * part.width
                self._end(part.begin, None)
                fields = isinstance(part.end, k.Apply) and part.end.op == "mul"
                self._end(part.end, 0 if fields else vectors)
            elif isinstance(part, k.LoadVector | k.StoreVector | AtomicVector | c.StoreWoven):
                self._end(part.count, 0)

    def _known(self, bound: k.Expr) -> Sym | None:
        if isinstance(bound, k.Literal_):
            return Sym.of(int(bound.value))
        if bound in self.bounds:
            return self.bounds[bound]
        return bound.sym if isinstance(bound, k.Index) else None

    def _mask(self, part: k.Apply) -> None:
        """A comparison of a coordinate with a bound."""
        found = self._axis(part.args[0])
        sym = self._known(part.args[1])
        if found is None or sym is None:
            return
        self.masks.add(part)
        self.conditions[sym - found[1] if part.op == "lt" else -sym] = None

    def _axis(self, at: k.Expr) -> tuple[k.LoopAxis, int] | None:
        """The axis of which an expression is the current coordinate, and what it holds."""
        if not isinstance(at, k.Index):
            return None
        for name, found in self.capacities.items():
            if at.sym == Sym.of(Var(name, "local")):
                return found
        return None

    def _end(self, end: k.Expr | None, behind: int | None) -> None:
        """An end of vectors; `behind`: elements of them from the current vector's first on, None for a begin, 0 for an end between
        coordinates."""
        if end is None:
            return
        found: list[Sym] = []
        for part in inside(end):
            if isinstance(part, k.Apply) and part.op == "offset_sub":
                axis, sym = self._axis(part.args[1]), self._known(part.args[0])
                if axis is None or sym is None:
                    return
                if behind is None:
                    found.append(-sym)
                else:
                    reach = behind - axis[0].layout.vector if behind else 0
                    found.append(sym - axis[1] - reach)
        self.ends.add(end)
        self.conditions |= dict.fromkeys(found)

    def needed(self) -> list[Sym]:
        """The conditions that do not follow from another one."""
        kept: list[Sym] = []
        for sym in self.conditions:
            if self.context.facts.prove_nonnegative(sym):
                continue
            if any(self.context.facts.prove_nonnegative(sym - other) for other in kept):
                continue
            kept = [o for o in kept if not self.context.facts.prove_nonnegative(o - sym)]
            kept.append(sym)
        return kept

    def without(self, node: Any) -> Any:
        """A node as it is where all conditions hold."""
        true = k.Literal_(True, BOOL)
        if isinstance(node, k.Apply):
            if node in self.masks:
                return true
            if node.op == "and" and true in node.args:
                left, right = node.args
                return right if left == true else left
            if node.op == "where" and node.args[0] == true:
                return node.args[1]
            return node
        changes: dict[str, object] = {}
        for name in ("begin", "end", "count"):
            value = getattr(node, name, None)
            if isinstance(value, k.Apply) and value in self.ends:
                changes[name] = None
        guards = getattr(node, "guards", None)
        if guards:
            changes["guards"] = tuple(g for g in guards if g != true)
        return replace(node, **changes) if changes else node
