"""A nest under one variant -> a kernel."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir import window_ops as w
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, Var
from tilec.passes.assign_layouts import Variant
from tilec.passes.axes import Axes
from tilec.passes.grid_order import rows_of_a_group
from tilec.passes.interior import Interior
from tilec.passes.lower.access import AddressBuilder, Guards
from tilec.passes.lower.asynchronous import Roles, with_roles
from tilec.passes.lower.body import (
    Body,
    apply_elementwise,
    not_compiled,
)
from tilec.passes.lower.context import Context, compute_type, converted
from tilec.passes.lower.finish import finish
from tilec.passes.lower.lines import store_lines
from tilec.passes.lower.names import Names, Spelling
from tilec.passes.lower.products import (
    Ring,
    is_packed,
    lower_dot,
    pack_left,
    rings,
    stage_now,
    staged_loads,
)
from tilec.passes.lower.questions import (
    before_rounding,
    coords_for,
    costs_more_later,
    half_values,
    interior_of,
    is_span_loop,
    meets_others,
    reject_hazards,
)
from tilec.passes.lower.reductions import THREAD, lower_combine, lower_reduce
from tilec.passes.lower.vectors import declare_window, load_op, store_op, vector_access
from tilec.passes.lower.wmma import close_sums, open_sums
from tilec.passes.placement import Placement
from tilec.passes.uses import Definitions, operands
from tilec.source.text import Span


def lower_nest(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    placement: Placement,
    variant: Variant,
    name: str,
    body_name: str,
    spell: Spelling,
) -> k.Kernel:
    """The Kernel IR of a nest, before `synchronize`. Raises a coded error for what is not compiled."""
    facts = Facts.of(program)
    for sym, number in variant.divisors:
        facts.learn_divisor(sym, number)
    for sym in variant.positive:
        facts.learn(sym)
    definitions = Definitions.of(nest.body)
    names = Names(spell)
    for word in [*(x.name for x in program.tensors), *(x.name for x in program.scalars)]:
        names.unique(word)
    for var in program.dims:
        names.unique(var.name)
    for tile in program.tiles:
        names.unique(tile)
    context = Context(
        program,
        nest,
        axes,
        placement,
        variant,
        definitions,
        facts,
        names,
        half_values(nest, definitions),
    )
    reject_hazards(context)
    for axis in variant.level.axes.values():
        for word in (
            axis.coordinate,
            axis.element,
            axis.lane,
            axis.step,
            axis.shift,
            f"{axis.name}_sub",
        ):
            names.used.add(word)
    grid: list[k.GridDigit] = []
    for loop in nest.grid:
        c_name = names.unique(f"{loop.name}_tile" if loop.step is not None else loop.name)
        context.var_names[loop.index] = c_name
        grid.append(k.GridDigit(c_name, loop.trips, costs_more_later(nest, loop.index)))
        context.used_syms |= loop.trips.variables
    declare_window(context)
    if len(grid) > 1 and not any(d.backwards for d in grid[-2:]):
        grid[-2] = replace(grid[-2], swept=rows_of_a_group(nest, definitions))
    statements = _Statements(context)
    context.lower_scalar = statements.op
    context.hold = statements.hold
    roles = statements.roles
    producer = roles.producer(nest) if roles is not None else ()
    statements.block(nest.body)
    kernel = finish(context, tuple(grid), name, body_name)
    return kernel if roles is None else with_roles(kernel, roles, producer)


class _Statements:
    """Walks a block and emits."""

    def __init__(self, context: Context):
        self.context = context
        self.depth = 0
        """loops around what is being lowered"""
        form = context.variant.asynchronous
        self.roles = Roles(context, form) if form is not None else None
        self.staged = staged_loads(context) if context.variant.products is not None else {}

    def _stage_once(self, op: t.Load) -> bool:
        """Stage an operand here if the products that read it stand in a loop below; says whether nothing else needs the load."""
        context = self.context
        if self.roles is not None:
            self.roles.arrive(op)
            return True
        plan, operand = self.staged[op.out.id]
        home = context.definitions.loops[op.out.id]
        if (
            context.definitions.loops[plan.op.out.id] != home
            and op.out.id not in context.ring_values
        ):
            stage_now(context, operand, plan, op.span)
            context.staged_once.add(operand.source.id)
        return not context.placement.sinks.get(op.out.id)

    def block(self, block: t.Block) -> None:
        """Ops in order; neighbouring reductions and stores that share a walk go together."""
        ops = list(block.ops)
        n = 0
        while n < len(ops):
            op = ops[n]
            if isinstance(op, t.Store):
                group = [op]
                while n + 1 < len(ops) and isinstance(follower := ops[n + 1], t.Store):
                    group.append(follower)
                    n += 1
                self._stores(group)
            else:
                self.op(op)
                if self.roles is not None:
                    self.roles.leave(op)
            n += 1

    def op(self, op: t.Op) -> None:
        """Emit one op."""
        context = self.context
        match op:
            case t.Dot() if self.roles is not None:
                context.fragments[op.out.id] = self.roles.product(op)
            case t.Dot():
                lower_dot(context, op)
            case t.Constant():
                context.bind_scalar(op.out, k.Literal_(op.value, op.out.type.dtype))
            case t.FromSym():
                self._from_sym(op)
            case t.Scalar():
                context.bind_scalar(
                    op.out, k.Local(context.names.spell(op.name), op.out.type.dtype)
                )
            case t.Reduce():
                lower_reduce(context, op)
            case t.Combine():
                lower_combine(context, op)
            case t.For():
                self._loop(op)
            case t.If():
                self._branch(op)
            case t.Atomic():
                self._atomic(op)
            case t.Print():
                parts = tuple(p if isinstance(p, str) else context.scalar(p) for p in op.parts)
                context.out.append(k.PrintOp(parts, self._one_thread(()), span=op.span))
            case t.Assert():
                context.out.append(
                    k.AssertOp(context.scalar(op.condition), op.message, span=op.span)
                )
            case t.Load() if op.out.type.rank == 0:
                self._scalar_load(op)
            case t.Elementwise() if op.out.type.rank == 0:
                args = [context.scalar(a) for a in op.args]
                context.bind_scalar(op.out, apply_elementwise(context, op, args), op.op)
            case t.Cast() if op.out.type.rank == 0:
                body = Body(context, ())
                arg = context.scalar(op.arg)
                context.bind_scalar(
                    op.out, body.cast(arg, op.arg.type.dtype, op.out.type.dtype), "cast"
                )
            case t.Bitcast() if op.out.type.rank == 0:
                arg = converted(context.scalar(op.arg), op.arg.type.dtype)
                context.bind_scalar(op.out, k.Apply("bitcast", (arg,), op.out.type.dtype))
            case t.Fill() if op.out.type.rank == 0:
                context.bind_scalar(op.out, context.scalar(op.arg))
            case t.Load() if op.out.id in self.staged and self._stage_once(op):
                pass
            case t.Elementwise() | t.Cast() | t.Bitcast() | t.Rearrange() | t.Fill() | t.Load():
                if op.out.id in context.placement.held and context.placement.sinks.get(op.out.id):
                    self.hold(op)
            case t.Iota() | t.Full():
                pass
            case _:
                raise not_compiled(op, context.nest.span)

    # ---- scalars

    def _from_sym(self, op: t.FromSym) -> None:
        context = self.context
        dtype = op.out.type.dtype
        if op.sym.constant is not None:
            number = op.sym.constant
            literal = k.Literal_(float(number) if dtype.is_float else number, compute_type(dtype))
            context.bind_scalar(op.out, literal)
            return
        expr = context.index(op.sym)
        context.bind_scalar(op.out, converted(expr, compute_type(dtype)), "size")

    def _scalar_load(self, op: t.Load) -> None:
        context = self.context
        address = AddressBuilder(context).address(op.access, (), writable=False, span_op=op)
        dtype = op.out.type.dtype
        expr = k.Memory(address.pointer, address.element, dtype, address.guards.all)
        context.bind_scalar(op.out, expr, f"{op.access.tensor}_value")

    # ---- tiles in registers

    def hold(self, op: t.Op) -> None:
        """Evaluate a tile into registers."""
        context = self.context
        value = op.outs[0]
        coords = context.loop_axes(value)
        if any(a is not None and a.layout.streams for a in coords):
            return
        axes = context.ordered(coords)
        fast = next((a for a in axes if a.vectorised), None)
        name = context.names.unique(
            value.name or (f"{op.access.tensor}_tile" if isinstance(op, t.Load) else "tile")
        )
        if isinstance(op, t.Load) and fast is not None:
            body = Body(context, axes)
            address = body.address(op.access, coords, writable=False, span_op=op)
            if vector_access(address, fast) and not body.elements:
                fragment = k.Fragment(name, value.type.dtype, axes)
                context.out.append(k.Declare(fragment, None, span=op.span))
                load = load_op(context, op, fragment, address, fast)
                context.out.append(k.TileLoop(axes, (), (load,), span=op.span))
                context.fragments[value.id] = fragment
                return
        self._evaluate_into(value, coords, name)

    def _evaluate_into(
        self, value: t.Value, coords: tuple[k.LoopAxis | None, ...], name: str
    ) -> k.Fragment:
        context = self.context
        body = Body(context, context.ordered(coords))
        body.count(value)
        expr = body.value(value, coords)
        fragment = k.Fragment(name, expr.rep, body.axes)
        context.out.append(k.Declare(fragment, None, span=value.span))
        body.finish(Guards(), [k.Assign(fragment, expr)], [], value.span)
        context.fragments[value.id] = fragment
        return fragment

    # ---- stores

    def _stores(self, group: list[t.Store]) -> None:
        """Stores that walk the same axes share one walk."""
        context = self.context
        meets = [s.access.tensor for s in group if meets_others(self.context.nest, s)]
        if meets:
            context.out.append(k.CtaSync(f"reads of {meets[0]} before it is overwritten"))
        rest = list(group)
        while rest:
            axes = context.ordered(self._access_axes(rest[0]))
            if self.roles is not None and self.roles.store(rest[0]):
                rest = rest[1:]
                continue
            if context.variant.products is not None and store_lines(context, rest[0]):
                rest = rest[1:]
                continue
            same = [s for s in rest if context.ordered(self._access_axes(s)) == axes]
            rest = [s for s in rest if s not in same]
            self._store_walk(same, axes)
        if meets:
            context.out.append(k.CtaSync(f"writes of {meets[0]} before it is read"))

    def _access_axes(self, op: t.Store | t.Atomic) -> tuple[k.LoopAxis | None, ...]:
        context = self.context
        return tuple(
            None if c is None else context.variant.level.axes[c.number]
            for c in context.axes.of_access(op)
        )

    def _store_walk(self, group: list[t.Store], axes: tuple[k.LoopAxis, ...]) -> None:
        context = self.context
        body = Body(context, axes)
        fast = next((a for a in axes if a.vectorised), None)
        inside: list[k.Op] = []
        after: list[k.Op] = []
        common: list[k.Expr] | None = None
        for op in group:
            body.count(before_rounding(context, op.value))
        for op in group:
            coords = self._access_axes(op)
            source = before_rounding(context, op.value)
            own = coords if source.type.rank else ()
            if source.type.rank:
                own = tuple(
                    None if axis.is_one else c
                    for axis, c in zip(
                        source.type.axes, coords[len(coords) - source.type.rank :], strict=True
                    )
                )
            expr = body.value(source, own)
            address = body.address(op.access, coords, writable=True, span_op=op)
            guards = address.guards
            if source.type.rank:
                guards.add(body.presence(source, own))
            guards.vector += self._one_thread(axes)
            dtype = context.program.tensor(op.access.tensor).dtype
            if fast is not None and vector_access(address, fast):
                vector = k.Fragment(
                    body.local_name(f"{op.access.tensor}_out"), expr.rep, (fast,), local=True
                )
                inside.append(k.Assign(vector, expr, span=op.span))
                after.append(store_op(context, op, vector, dtype, address, guards, fast))
            else:
                store = k.StoreElement(
                    address.pointer,
                    address.element,
                    converted(expr, dtype),
                    guards.all,
                    span=op.span,
                )
                inside.append(store)
            common = (
                list(guards.vector) if common is None else [g for g in common if g in guards.vector]
            )
        body.loads += [
            k.Declare(op.source, None)
            for op in after
            if isinstance(op, k.StoreVector | w.StoreWindow)
        ]
        lifted = Guards(vector=common or [])
        if axes:
            body.finish(lifted, inside, after, group[0].span)
        else:
            context.out += [*body.prelude, *body.loads, *body.elements, *inside]

    def _one_thread(self, axes: tuple[k.LoopAxis, ...]) -> tuple[k.Expr, ...]:
        """Guards that leave one of the threads that hold the same element."""
        context = self.context
        covered = {(d.divisor, d.radix) for a in axes for d in a.layout.thread_digits}
        guards: list[k.Expr] = []
        for axis, digit in context.thread_digits():
            if (digit.divisor, digit.radix) in covered:
                continue
            number = Sym.of(Var(axis.lane, "local"))
            if not axis.layout.is_blocked:
                number = THREAD // digit.divisor % digit.radix
            guards.append(k.Apply("eq", (k.Index(number, I32), k.Literal_(0, I32)), BOOL))
        return tuple(guards)

    def _atomic(self, op: t.Atomic) -> None:
        context = self.context
        coords = self._access_axes(op)
        axes = context.ordered(coords)
        body = Body(context, axes)
        own: tuple[k.LoopAxis | None, ...] = ()
        if op.value.type.rank:
            own = tuple(
                None if axis.is_one else c
                for axis, c in zip(
                    op.value.type.axes, coords[len(coords) - op.value.type.rank :], strict=True
                )
            )
        body.count(op.value)
        expr = body.value(op.value, own)
        address = body.address(op.access, coords, writable=True, span_op=op)
        guards = address.guards
        if own:
            guards.add(body.presence(op.value, own))
        guards.vector += [*self._one_thread(axes), *context.live]
        dtype = context.program.tensor(op.access.tensor).dtype
        atomic = k.AtomicElement(
            op.op,
            address.pointer,
            address.element,
            converted(expr, dtype),
            tuple(dict.fromkeys(guards.all)),
            span=op.span,
        )
        if axes:
            body.finish(Guards(), [atomic], [], op.span)
        else:
            context.out += [*body.prelude, *body.loads, *body.elements, atomic]

    # ---- structure

    def _loop(self, op: t.For) -> None:
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
        # one loop where a product runs on into the next trip: only edges of operands differ, which it tests itself
        interior = interior_of(context, op) if delayed is None else None
        bounds: list[k.Expr] = []
        first_bound = len(context.out)
        if interior is not None:
            bounds = [
                context.limit(interior.first, f"{name}_whole_from"),
                context.limit(interior.end, f"{name}_whole"),
            ]
        opened = open_sums(context, op)
        ring = None
        if self.roles is None and context.variant.products is not None and rings(context, op):
            ring = Ring(context, op, trips)
            if self.depth:
                context.out.append(k.CtaSync("the tiles of the outer loop's last trip are read"))
            ring.prologue()
        body: list[k.Op] = []
        outer, context.out = context.out, body
        context.limits.append({})
        self.depth += 1
        if ring is not None:
            ring.head(name)
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
        if ring is not None:
            ring.tail(name)
        self.depth -= 1
        context.limits.pop()
        context.out = outer
        if whole is not None and interior is not None:
            ranges = (trips, bounds[0], bounds[1])
            context.out += _three_loops(name, ranges, interior, whole, tuple(body), op.span)
        else:
            context.out.append(k.Loop(name, trips, tuple(body), span=op.span))
        context.drop_limits(bounds, first_bound)
        if self.roles is not None and delayed is not None:
            target = next(
                v for c, v in zip(op.carried, variables, strict=True) if c.next is delayed.out
            )
            self.roles.finish_delayed(op, delayed, trips, target)
        close_sums(context, op, opened, variables)
        for carried, variable in zip(op.carried, variables, strict=True):
            self._rebind(carried.result, variable)

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
        facts, holds = context.facts, context.holds
        bodies: list[tuple[k.Op, ...]] = []
        for whole in (True, False):
            if whole:
                context.facts = facts.knowing(
                    {op.index: interior.end}, [Sym.of(op.index) - interior.first + 1]
                )
                context.holds = holds | interior.holds
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
            context.facts, context.holds = facts, holds
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
            axes = context.ordered(context.loop_axes(value))
            variable = k.Fragment(name, value.type.dtype, axes)
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
            if is_packed(context, carried.entry):
                pack_left(context, following, variable, carried.entry.span)
                continue
            made = context.fragments.get(following.id)
            if made is variable:
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

    def _branch(self, op: t.If) -> None:
        context = self.context
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
