"""A nest under one variant -> a kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL
from tilec.ir.facts import Facts
from tilec.passes.assign_layouts import Variant
from tilec.passes.axes import Axes
from tilec.passes.grid_order import reread_first, rows_of_a_group, stored_along
from tilec.passes.lower import edges
from tilec.passes.lower.access import AddressBuilder, Guards
from tilec.passes.lower.ahead import ahead
from tilec.passes.lower.asynchronous import Roles
from tilec.passes.lower.atomics import lower_atomic
from tilec.passes.lower.body import (
    Body,
    apply_elementwise,
    hold_in,
    not_compiled,
)
from tilec.passes.lower.choices import is_rare
from tilec.passes.lower.context import Context, compute_type, converted
from tilec.passes.lower.covering import Weaving, load_covered
from tilec.passes.lower.crossing import cross
from tilec.passes.lower.finish import finish
from tilec.passes.lower.folds import lower_fold
from tilec.passes.lower.lines import load_lines, spread_read, store_lines
from tilec.passes.lower.loops import Structure
from tilec.passes.lower.merging import merges
from tilec.passes.lower.names import Names, Spelling
from tilec.passes.lower.near import hold_near
from tilec.passes.lower.pinned import hold_pinned
from tilec.passes.lower.private import close_private, open_private
from tilec.passes.lower.products import lower_dot, products_of, stage_now, staged_loads
from tilec.passes.lower.questions import (
    before_rounding,
    costs_more_later,
    half_values,
    meet,
    meets_others,
    reject_hazards,
)
from tilec.passes.lower.rarely import announce, subtract_rarely
from tilec.passes.lower.reductions import lower_combine, lower_reduce
from tilec.passes.lower.roles import with_roles
from tilec.passes.lower.scans import lower_scan
from tilec.passes.lower.seldom import announce_joint
from tilec.passes.lower.shares import splits
from tilec.passes.lower.survivors import lower_survivor, lower_survivors
from tilec.passes.lower.vectors import declare_window, load_op, store_op, vector_access
from tilec.passes.lower.whole import hold_masked
from tilec.passes.placement import Placement
from tilec.passes.products import Staged
from tilec.passes.skip_dead import left_of
from tilec.passes.uses import Definitions
from tilec.targets.table import Target


def lower_nest(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    placement: Placement,
    variant: Variant,
    name: str,
    body_name: str,
    spell: Spelling,
    target: Target,
) -> k.Kernel:
    """The Kernel IR of a nest, before `synchronize`. Raises a coded error for what is not compiled."""
    facts = Facts.of(program)
    for sym, number in variant.divisors:
        facts.learn_divisor(sym, number)
    for sym in variant.positive:
        facts.learn(sym)
    left = left_of(nest, facts) if variant.asynchronous is not None else None
    if left is not None:
        facts.learn(left)  # roles go on where an instance stores nothing
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
        target,
    )
    reject_hazards(context)
    fast = next((a for a in variant.level.axes.values() if a.vectorised), None)
    if variant.merged and fast is not None:
        context.merges = merges(nest.body, definitions, placement, program.math, fast.extent)
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
        most = facts.upper_bound(loop.trips)
        backwards = costs_more_later(nest, loop.index)
        grid.append(k.GridDigit(c_name, loop.trips, backwards, most=most))
        context.used_syms |= loop.trips.variables
    declare_window(context)
    if variant.crossing and len(grid) > 1 and stored_along(nest, nest.grid[-2].index):
        grid[-2:] = reversed(grid[-2:])
    elif variant.asynchronous is not None and variant.asynchronous.brings:
        if not any(d.backwards for d in grid):
            places = {loop.index: digit for loop, digit in zip(nest.grid, grid, strict=True)}
            order = reread_first(nest, variant.asynchronous.brought)
            grid = [places[loop.index] for loop in order]
    elif len(grid) > 1 and not any(d.backwards for d in grid[-2:]):
        grid[-2] = replace(grid[-2], swept=rows_of_a_group(nest, definitions))
    elif len(grid) > 1 and grid[-1].backwards and variant.asynchronous is None:
        grid[-1] = replace(grid[-1], section=names.unique(f"{nest.grid[-1].name}_section"))
    statements = _Statements(context)
    context.lower_scalar = statements.op
    context.hold = statements.hold
    roles = statements.roles
    producer = roles.producer(nest) if roles is not None else ()
    first = ahead(roles, nest) if roles is not None else ()
    open_private(context)
    statements.block(nest.body)
    close_private(context)
    kernel = finish(context, tuple(grid), name, body_name)
    return kernel if roles is None else with_roles(kernel, roles, producer, first)


class _Statements:
    """Walks a block and emits."""

    def __init__(self, context: Context):
        self.context = context
        form = context.variant.asynchronous
        self.roles = Roles(context, form) if form is not None else None
        self.structure = Structure(context, self.roles, self.block)
        self.staged = staged_loads(context) if context.variant.products is not None else {}

    def _stage_once(self, op: t.Load) -> bool:
        """Stage an operand here if the products that read it stand in a loop below; says whether nothing else needs the load."""
        context = self.context
        if self.roles is not None:
            self.roles.arrive(op)
            return True
        if self.structure.brings(op):
            return not context.placement.sinks.get(op.out.id)
        plan, operand = self.staged[op.out.id]
        home = context.definitions.loops[op.out.id]
        readers = [
            p
            for p in products_of(context).plans.values()
            if any(isinstance(o, Staged) and o.source is operand.source for o in (p.a, p.b))
        ]
        if (
            any(context.definitions.loops[p.op.out.id] != home for p in readers)
            and op.out.id not in context.ring_values
        ):
            stage_now(context, operand, plan, op.span, self.structure.begins(op))
            context.staged_once.add(operand.key)
        return not context.placement.sinks.get(op.out.id)

    def block(self, block: t.Block) -> None:
        """Ops in order; neighbouring reductions and stores that share a walk go together."""
        ops = list(block.ops)
        announce(self.context, ops)
        announce_joint(self.context, ops)
        self.structure.announce_rings(ops)
        n = 0
        while n < len(ops):
            op = ops[n]
            if isinstance(op, t.Store):
                group = [op]
                while n + 1 < len(ops) and isinstance(follower := ops[n + 1], t.Store):
                    if any(meet(self.context, follower, earlier) for earlier in group):
                        break  # one thread's store must not pass another's
                    group.append(follower)
                    n += 1
                for store in group:
                    spread_read(self.context, store)
                self._stores(group)
            else:
                self.op(op)
                if self.roles is not None:
                    self.roles.leave(op)
                    if self.roles.sums is not None and splits(self.roles.sums, op):
                        self.roles.sums.rest(partial(self.block, t.Block(tuple(ops[n + 1 :]))))
                        return
            n += 1

    def op(self, op: t.Op) -> None:
        """Emit one op."""
        context = self.context
        spread_read(context, op)
        match op:
            case t.Dot() if self.roles is not None:
                context.fragments[op.out.id] = self.roles.product(op)
            case t.Dot():
                lower_dot(context, op)
            case t.Constant():
                context.bind_scalar(op.out, k.Literal_(op.value, op.out.type.dtype))
            case t.FromSym() if self._only_compared(op):
                pass
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
            case t.Scan():
                lower_scan(context, op)
            case t.ReduceWith():
                lower_fold(context, op)
            case t.Survivors():
                lower_survivors(context, op)
            case t.Survivor():
                looped = any(isinstance(x, k.Loop) for x in context.out)
                behind = not context.one_thread and (looped or self.structure.depth > 0)
                lower_survivor(context, op, behind)
            case t.For():
                self.structure.loop(op)
            case t.If():
                self.structure.branch(op)
            case t.Atomic():
                coords = self._access_axes(op)
                lower_atomic(
                    context, op, coords, self.context.one_thread_of(context.ordered(coords))
                )
            case t.Print():
                parts = tuple(p if isinstance(p, str) else context.scalar(p) for p in op.parts)
                context.out.append(k.PrintOp(parts, self.context.one_thread_of(()), span=op.span))
            case t.Assert():
                context.out.append(
                    k.AssertOp(context.scalar(op.condition), op.message, span=op.span)
                )
            case t.Load() if op.out.type.rank == 0:
                self._scalar_load(op)
            case t.Elementwise() if op.out.type.rank == 0 and self._holds(op):
                context.bind_scalar(op.out, k.Literal_(True, BOOL))
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
            case t.Load() if self.roles is not None and self.roles.reads(op):
                context.fragments[op.out.id] = self.roles.read(op)
            case t.Elementwise() | t.Cast() | t.Bitcast() | t.Rearrange() | t.Fill() | t.Load():
                if isinstance(op, t.Load) and id(op) in context.variant.crossing:
                    cross(context, op)
                if op.out.id in context.joint_tiles:
                    pass
                elif op.out.id in context.early:
                    context.early.discard(op.out.id)
                elif op.out.id in context.placement.held and context.placement.sinks.get(op.out.id):
                    self.hold(op)
            case t.Iota() | t.Full():
                pass
            case _:
                raise not_compiled(op, context.nest.span)

    # ---- scalars

    def _only_compared(self, op: t.FromSym) -> bool:
        """Whether all that reads a size are comparisons that hold."""
        users = self.context.definitions.users[op.out.id]
        return bool(users) and all(isinstance(u, t.Elementwise) and self._holds(u) for u in users)

    def _holds(self, op: t.Elementwise) -> bool:
        """Whether a comparison of a size with a number is known to hold wherever this variant is launched."""
        if op.op not in ("gt", "ge"):
            return False
        left, right = (self.context.definitions.defining.get(a.id) for a in op.args)
        if not isinstance(left, t.FromSym) or not isinstance(right, t.Constant):
            return False
        if not isinstance(right.value, int) or isinstance(right.value, bool):
            return False
        least = right.value + (op.op == "gt")
        return self.context.facts.prove_nonnegative(left.sym - least)

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
        if isinstance(op, t.Load) and context.variant.products is not None:
            held = load_lines(context, op, name)
            if held is not None:
                context.fragments[value.id] = held
                return
        if isinstance(op, t.Load) and fast is not None and id(op) in context.variant.covers:
            body = Body(context, axes)
            fragment = k.Fragment(name, value.type.dtype, axes)
            if load_covered(body, op, coords, fast, fragment) is not None:
                context.out.append(k.Declare(fragment, None, span=op.span))
                body.finish(Guards(), [], [], op.span)
                context.fragments[value.id] = fragment
                return
        if isinstance(op, t.Load) and fast is not None and not op.access.pointwise:
            body = Body(context, axes)
            address = body.address(op.access, coords, writable=False, span_op=op)
            if vector_access(address, fast) and not body.elements:
                fragment = k.Fragment(name, value.type.dtype, axes)
                context.out.append(k.Declare(fragment, None, span=op.span))
                load = load_op(context, op, fragment, address, fast)
                loop = k.TileLoop(axes, (), (*body.prelude, load), span=op.span)
                context.out.append(edges.filled_or_not(loop) if context.variant.filled else loop)
                context.fragments[value.id] = fragment
                return
        if isinstance(op, t.Elementwise) and is_rare(op):
            subtract_rarely(context, op, coords, name)
            return
        for hold in (hold_masked, hold_near, hold_pinned):
            if hold(context, op, coords, name):
                return
        hold_in(context, value, value, coords, name)

    # ---- stores

    def _stores(self, group: list[t.Store]) -> None:
        """Stores that walk the same axes share one walk."""
        context = self.context
        meets = [s.access.tensor for s in group if meets_others(self.context, s)]
        if meets:
            context.out.append(k.CtaSync(f"reads of {meets[0]} before it is overwritten"))
        rest = list(group)
        while rest:
            axes = context.ordered(self._access_axes(rest[0]))
            elements = partial(self._store_elements, rest[0])
            if self.roles is not None and self.roles.store(rest[0], elements):
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

    def _store_elements(self, op: t.Store) -> None:
        """A store of its own of what threads have in registers."""
        if not store_lines(self.context, op):
            self._store_walk([op], self.context.ordered(self._access_axes(op)))

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
        declared: list[k.Op] = []
        common: list[k.Expr] | None = None
        for op in group:
            body.count(before_rounding(context, op.value))
        weaving = Weaving(context, group, fast)
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
            woven = weaving.address(body, op, coords)
            address = woven or body.address(op.access, coords, writable=True, span_op=op)
            guards = address.guards
            if source.type.rank:
                guards.add(body.presence(source, own))
            guards.vector += self.context.one_thread_of(axes)
            dtype = context.program.tensor(op.access.tensor).dtype
            if fast is not None and (woven or vector_access(address, fast)):
                vector = k.Fragment(
                    body.local_name(f"{op.access.tensor}_out"), expr.rep, (fast,), local=True
                )
                declared.append(k.Declare(vector, None))
                inside.append(k.Assign(vector, expr, span=op.span))
                if woven:
                    after += weaving.add(op, vector, dtype, guards)
                else:
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
                body.along = coords[-1] if coords else None
            common = (
                list(guards.vector) if common is None else [g for g in common if g in guards.vector]
            )
        body.loads += declared
        # a condition around a row's elements would be taken for all rows at once, and keep all addresses in registers
        across = len(axes) == 2 and body.along is axes[0]
        lifted = Guards(vector=[] if across else common or [])
        if axes:
            body.finish(lifted, inside, after, group[0].span)
        else:
            context.out += [*body.prelude, *body.loads, *body.elements, *inside]
