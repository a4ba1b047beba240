"""Loops and branches: carried and merged names as variables, rings in front, bodies with and without masks."""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym, Var
from tilec.passes.interior import Interior
from tilec.passes.lower.access import Guards
from tilec.passes.lower.asynchronous import Roles
from tilec.passes.lower.body import Body
from tilec.passes.lower.context import Context, compute_type, converted
from tilec.passes.lower.left import is_packed, left_registers, pack_left
from tilec.passes.lower.questions import coords_for, interior_of, is_span_loop
from tilec.passes.lower.rings import Ring, read_beside, rings
from tilec.passes.lower.seldom import branch_rarely
from tilec.passes.lower.survivors import with_counts
from tilec.passes.lower.wmma import close_sums, open_sums
from tilec.passes.uses import operands
from tilec.source.text import Span


class Structure:
    """Emits loops and branches; `block` emits what is in them."""

    def __init__(self, context: Context, roles: Roles | None, block: Callable[[t.Block], None]):
        self.context = context
        self.roles = roles
        self.block = block
        self.depth = 0
        """loops around what is being lowered"""
        self.rings: dict[int, Ring] = {}
        """by id of the loop, rings that begin in front of it"""
        self.firsts: dict[int, Ring] = {}
        """the same by id of the load in front of which they begin"""
        self.block_ops: list[t.Op] = []
        """the outermost block, where rings are announced"""

    def announce_rings(self, ops: list[t.Op]) -> None:
        """Note the loops of a block whose first tile is read in front of them, or whose last one behind them."""
        context = self.context
        if self.roles is not None or self.depth or context.variant.products is None:
            return
        self.block_ops = ops
        for op in ops:
            if not isinstance(op, t.For) or not read_beside(context, op, ops):
                continue
            ring = Ring(context, op, ops)
            self.rings[id(op)] = ring
            first = next((x for x in ops if any(x is load for load in ring.first)), None)
            if first is not None:
                self.firsts[id(first)] = ring

    def begins(self, load: t.Load) -> bool:
        """Whether a ring's first wait follows before anything multiplies."""
        ops = self.block_ops
        if self.depth or not any(op is load for op in ops):
            return False
        at = next(n for n, op in enumerate(ops) if op is load)
        for op in ops[at + 1 :]:
            if id(op) in self.firsts:
                return True
            if isinstance(op, t.Dot | t.For | t.If):
                return False
        return False

    def brings(self, load: t.Load) -> bool:
        """Whether a ring brings what is loaded here, beside a loop; it begins where that is its first tile."""
        ring = self.firsts.get(id(load))
        if ring is not None:
            ring.prologue()
        return any(load is x for r in self.rings.values() for x in r.beside)

    def loop(self, op: t.For) -> None:
        """A loop, with the carried names in variables."""
        context = self.context
        name = context.names.unique(
            f"{op.name}_tile" if op.name and is_span_loop(op) else op.name or "trip"
        )
        context.var_names[op.index] = name
        trips = context.index(op.trips)
        variables: list[k.Fragment] = []
        unfilled = self.roles.unfilled(op) if self.roles is not None else None
        for carried in op.carried:
            variables.append(self._carried_variable(carried, carried is unfilled))
        delayed = None
        if self.roles is not None:
            delayed = self.roles.delayed = self.roles.delays(op)
            if delayed is not None:
                self.roles.begin_delayed(delayed, trips)
        own = self.roles.own_range(op, name, trips) if self.roles is not None else None
        floor = own.floor if own is not None else None
        # one loop where a product runs on into the next trip: only edges of operands differ, which it tests itself
        interior = interior_of(context, op, floor) if delayed is None else None
        bounds: list[k.Expr] = []
        first_bound = len(context.out)
        if interior is not None:
            interior = with_counts(context, interior)
            bounds = [
                context.limit(interior.first, f"{name}_whole_from"),
                context.limit(interior.end, f"{name}_whole"),
            ]
        if own is not None:
            trips = own.trips
        opened = open_sums(context, op)
        ring = self.rings.get(id(op))
        if ring is None and self.roles is None and context.variant.products is not None:
            ring = Ring(context, op) if rings(context, op) else None
        if ring is not None:
            if self.depth:
                context.out.append(k.CtaSync("the tiles of the outer loop's last trip are read"))
            ring.prologue()
        body: list[k.Op] = []
        outer, context.out = context.out, body
        context.limits.append({})
        self.depth += 1
        if ring is not None:
            ring.head(name)
            if ring.is_early:
                ring.tail(name)
        whole: tuple[k.Op, ...] | None = None
        if interior is None:
            self.block(op.body)
            self._yields(op, variables)
        elif self.roles is not None:
            whole, edges = self._two_bodies(op, variables, interior)
            context.out += edges
            whole = None if whole == edges else whole
        else:
            self._interior_and_edges(op, variables, name, interior, bounds)
        if ring is not None and not ring.is_early:
            ring.tail(name)
        self.depth -= 1
        context.limits.pop()
        context.out = outer
        if whole is not None and interior is not None:
            end = bounds[1] if own is None else self._least(bounds[1], trips, f"{name}_whole_own")
            ranges = (trips, bounds[0], end)
            loops = _three_loops(name, ranges, interior, whole, tuple(body), op.span)
            context.out += loops[:-1] if interior.end == op.trips else loops
        elif self.roles is not None:
            context.out.append(self.roles.trips_of(op, name, trips, tuple(body)))
        else:
            context.out.append(k.Loop(name, trips, tuple(body), span=op.span))
        context.drop_limits(bounds, first_bound)
        if self.roles is not None and delayed is not None:
            target = next(
                v for c, v in zip(op.carried, variables, strict=True) if c.next is delayed.out
            )
            self.roles.finish_delayed(op, delayed, trips, target)
        if ring is not None:
            ring.finish()
        close_sums(context, op, opened, variables)
        for carried, variable in zip(op.carried, variables, strict=True):
            self._rebind(carried.result, variable)

    def _least(self, left: k.Expr, right: k.Expr, hint: str) -> k.Expr:
        """The lesser of two numbers, in a variable."""
        name = self.context.names.unique(hint)
        self.context.out.append(k.Let(name, I32, k.Apply("min", (left, right), I32)))
        return k.Local(name, I32)

    def _interior_and_edges(
        self,
        op: t.For,
        variables: list[k.Fragment],
        name: str,
        interior: Interior,
        bounds: list[k.Expr],
    ) -> None:
        """The body twice: without masks for the interior's trips, with them for the others; once where no mask is in it."""
        context = self.context
        bodies = self._two_bodies(op, variables, interior)
        trip = k.Index(Sym.of(Var(name, "trip")), I32)
        condition: k.Expr = k.Apply("lt", (trip, bounds[1]), BOOL)
        if interior.first.constant != 0:
            condition = k.Apply("and", (k.Apply("ge", (trip, bounds[0]), BOOL), condition), BOOL)
        if bodies[0] == bodies[1]:
            context.out += bodies[0]
        else:
            context.out.append(k.IfUniform(condition, bodies[0], bodies[1], span=op.span))

    def _two_bodies(
        self, op: t.For, variables: list[k.Fragment], interior: Interior
    ) -> tuple[tuple[k.Op, ...], tuple[k.Op, ...]]:
        """The body of the trips that need no masks, and that of the others."""
        context = self.context
        facts, holds, all_there = context.facts, context.holds, context.whole
        bodies: list[tuple[k.Op, ...]] = []
        for whole in (True, False):
            if whole:
                context.facts = facts.knowing(interior.trips, interior.positive)
                context.holds = holds | interior.holds
                context.whole = all_there | interior.whole
            outer, context.out = context.out, []
            words = set(context.names.used)
            places = dict(context.fragments), dict(context.scalars), dict(context.value_names)
            context.limits.append({})
            self.block(op.body)
            self._yields(op, variables)
            context.limits.pop()
            context.fragments, context.scalars, context.value_names = places
            context.names.used = words | context.lasting_names()
            bodies.append(tuple(context.out))
            context.out = outer
            context.facts, context.holds, context.whole = facts, holds, all_there
        return bodies[0], bodies[1]

    def _carried_variable(self, carried: t.Carried, unfilled: bool) -> k.Fragment:
        context = self.context
        value = carried.entry
        rep = compute_type(value.type.dtype)
        name = context.names.unique(value.name or "carried")
        if value.type.rank == 0:
            variable = k.Fragment(name, rep)
            initial = converted(context.scalar(carried.initial), rep)
            context.out.append(k.Declare(variable, initial, span=value.span))
        elif is_packed(context, value):
            variable = left_registers(context, value, name)
            context.out.append(k.Declare(variable, None, span=value.span))
            pack_left(context, carried.initial, variable, value.span)
        else:
            coords = context.loop_axes(value)
            variable = k.Fragment(name, rep, context.ordered(coords))
            context.out.append(k.Declare(variable, None, span=value.span))
            if unfilled:
                self._rebind(value, variable)
                return variable
            body = Body(context, variable.axes)
            body.count(carried.initial)
            own = coords_for(carried.initial, coords)
            expr = converted(body.value(carried.initial, own), rep)
            body.finish(Guards(), [k.Assign(variable, expr)], [], value.span)
        self._rebind(value, variable)
        return variable

    def _rebind(self, value: t.Value, variable: k.Fragment) -> None:
        context = self.context
        if value.type.rank == 0:
            context.scalars[value.id] = k.Local(variable.name, variable.rep)
            context.value_names[value.id] = variable.name
        else:
            context.fragments[value.id] = variable

    def _yields(self, op: t.For, variables: list[k.Fragment]) -> None:
        """Every next value is computed before any variable changes."""
        context = self.context
        finals: list[k.Op] = []
        for number, (carried, variable) in enumerate(zip(op.carried, variables, strict=True)):
            following = carried.next
            if following is carried.entry:
                continue
            if following.type.rank == 0:
                expr = converted(context.scalar(following), variable.rep)
                if isinstance(expr, k.Local) and any(v.name == expr.name for v in variables):
                    name = context.names.unique(f"{variable.name}_next")
                    context.out.append(k.Let(name, expr.rep, expr))
                    expr = k.Local(name, expr.rep)
                finals.append(k.Assign(variable, expr))
                continue
            made = context.fragments.get(following.id)
            if made is variable:
                continue
            if is_packed(context, carried.entry):
                pack_left(context, following, variable, carried.entry.span)
                continue
            whole = made is not None and made.rep == variable.rep and made.axes == variable.axes
            if made is not None and whole and made not in variables:
                finals.append(k.CopyFragment(variable, made))
                continue
            coords = context.loop_axes(carried.entry)
            body = Body(context, variable.axes)
            body.count(following)
            expr = converted(body.value(following, coords_for(following, coords)), variable.rep)
            later = [c.next for c in op.carried[number + 1 :]]
            if not any(self._reads(value, carried.entry) for value in later):
                body.finish(Guards(), [k.Assign(variable, expr)], [], carried.entry.span)
                continue
            fresh = k.Fragment(
                context.names.unique(f"{variable.name}_next"), variable.rep, variable.axes
            )
            context.out.append(k.Declare(fresh, None))
            body.finish(Guards(), [k.Assign(fresh, expr)], [], carried.entry.span)
            context.fragments[following.id] = fresh
            finals.append(k.CopyFragment(variable, fresh))
        context.out += finals

    def _reads(self, value: t.Value, entry: t.Value) -> bool:
        """Whether evaluating a value element by element reads a carried name's register."""
        context = self.context
        if value is entry:
            return True
        if value.id in context.fragments or value.id in context.scalars:
            return False
        source = context.definitions.defining.get(value.id)
        return source is not None and any(self._reads(v, entry) for v in operands(source))

    def branch(self, op: t.If) -> None:
        """A branch, with the merged names in variables."""
        context = self.context
        if op.rare:
            branch_rarely(context, op, self.block)
            return
        variables: list[k.Fragment] = []
        for merge in op.merges:
            value = merge.result
            rep = compute_type(value.type.dtype)
            variable = k.Fragment(
                context.names.unique(value.name or "merged"),
                rep,
                context.ordered(context.loop_axes(value)),
            )
            context.out.append(k.Declare(variable, k.Literal_(0, rep)))
            variables.append(variable)
        bodies: list[tuple[k.Op, ...]] = []
        for block, side in ((op.then, "then"), (op.otherwise, "otherwise")):
            outer, context.out = context.out, []
            context.limits.append({})
            self.block(block)
            for merge, variable in zip(op.merges, variables, strict=True):
                chosen: t.Value = getattr(merge, side)
                if chosen.type.rank == 0:
                    context.out.append(
                        k.Assign(variable, converted(context.scalar(chosen), variable.rep))
                    )
                    continue
                coords = context.loop_axes(merge.result)
                body = Body(context, variable.axes)
                body.count(chosen)
                expr = converted(body.value(chosen, coords_for(chosen, coords)), variable.rep)
                body.finish(Guards(), [k.Assign(variable, expr)], [], op.span)
            context.limits.pop()
            bodies.append(tuple(context.out))
            context.out = outer
        context.out.append(
            k.IfUniform(context.scalar(op.condition), bodies[0], bodies[1], span=op.span)
        )
        for merge, variable in zip(op.merges, variables, strict=True):
            self._rebind(merge.result, variable)


def _three_loops(
    name: str,
    ranges: tuple[k.Expr, k.Expr, k.Expr],
    interior: Interior,
    whole: tuple[k.Op, ...],
    edges: tuple[k.Op, ...],
    span: Span,
) -> list[k.Op]:
    """One loop after another over the trips before the interior, the interior, and those behind it: no branch around products."""
    trips, first, end = ranges
    loops: list[k.Op] = []
    if interior.first.constant != 0:
        before = k.Apply("min", (first, trips), I32)
        loops.append(k.Loop(name, before, edges, span=span))
        first = k.Apply("max", (first, k.Literal_(0, I32)), I32)
    loops.append(k.Loop(name, end, whole, first, span=span))
    begin = k.Apply("max", (end, first), I32)
    return [*loops, k.Loop(name, trips, edges, begin, span=span)]
