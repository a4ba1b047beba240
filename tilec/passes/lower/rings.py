"""Rings: copies of operand tiles ahead of a loop.

A loop with staged loads becomes

    for stage in 0 .. stages-2:  copies of trip `stage` ; commit
    for trip:
        wait ; barrier                                  the tiles of this trip are there, the oldest slot is free
        products on slot trip % stages, and everything else
        copies of trip + stages - 1 ; commit

With two slots the copies stand in front of the products. A rotated loop reads the first tile of some operands in front of it, and the last one
of others behind it: those are the trips -1 and `trips` of the same walk, in slots of the same rings. Then all that is above begins with the copies
of trip -1, which the first product waits for, and ends with a wait for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym, Var, sym_max, sym_min
from tilec.lazy_dataclass import dataclass
from tilec.passes.lower.context import Context
from tilec.passes.lower.products import declare_tile, emit_copy, products_of, tile_axes
from tilec.passes.products import ProductPlan, Staged
from tilec.passes.schedule.clone import Cloner, Numbers
from tilec.passes.uses import operands, syms_of


def rings(context: Context, loop: t.For) -> list[tuple[ProductPlan, Staged]]:
    """Loads in the body of a loop that its products consume and whose addresses a later trip's can be computed ahead; none where a
    ring has one stage."""
    found: list[tuple[ProductPlan, Staged]] = []
    seen: set[int] = set()
    if context.variant.stages == 1:
        return found
    for plan in products_of(context).plans.values():
        for operand in (plan.a, plan.b):
            if not isinstance(operand, Staged) or operand.load is None or operand.turned:
                continue
            around = context.definitions.loops[operand.load.out.id]
            if not around or around[-1] is not loop or operand.source.id in seen:
                continue
            if _ahead(context, operand.load, loop) is not None:
                seen.add(operand.source.id)
                found.append((plan, operand))
    return found


def _ahead(context: Context, load: t.Load, loop: t.For) -> list[t.Op] | None:
    """The scalar ops of a loop's body that a load's address needs, in order; None where it needs more than those."""
    needed: dict[int, t.Op] = {}
    inside = {v.id for op in loop.body.ops for v in op.outs} | {c.entry.id for c in loop.carried}

    def visit(op: t.Op) -> bool:
        values = [v.id for v in operands(op)]
        for sym in syms_of(op):
            values += [v.key for v in sym.variables if v.kind == "value"]
        for number in values:
            if number not in inside:
                continue
            source = context.definitions.defining[number]
            value = context.definitions.values[number]
            plain = isinstance(
                source,
                t.Load
                | t.Elementwise
                | t.Cast
                | t.FromSym
                | t.Constant
                | t.Iota
                | t.Full
                | t.Rearrange
                | t.Scalar
                | t.Fill,
            )
            if not plain or not visit(source):
                return False
            if value.type.rank == 0:
                needed[number] = source
        return True

    if not visit(load):
        return None
    order = {id(op): n for n, op in enumerate(loop.body.ops)}
    return sorted(needed.values(), key=lambda op: order[id(op)])


@dataclass(frozen=True)
class _Member:
    """An operand that a loop's ring brings. `before`, `after`: loads in front of the loop and behind it that are the trips -1 and `trips` of
    the same walk."""

    operand: Staged
    buffer: k.TileBuffer
    axes: tuple[k.LoopAxis, k.LoopAxis]
    before: t.Load | None
    after: t.Load | None


class Ring:
    """The rings of one loop: what to emit in front of it, at the head of its body, and behind it. `around`: the ops of the block that the
    loop stands in."""

    def __init__(self, context: Context, loop: t.For, around: Sequence[t.Op] = ()):
        self.context = context
        self.loop = loop
        self.stages = context.variant.stages
        self.members: list[_Member] = []
        self.begun = False
        self.end = _end(context, loop)
        for plan, operand in rings(context, loop):
            assert operand.load is not None
            before, after = _beside(context, around, loop, operand.load)
            buffer = declare_tile(context, operand, plan, self.stages)
            axes = tile_axes(context, operand, plan)
            self.members.append(_Member(operand, buffer, axes, before, after))

    @property
    def first(self) -> tuple[t.Load, ...]:
        """The loads in front of the loop that the ring brings."""
        return tuple(m.before for m in self.members if m.before is not None)

    @property
    def beside(self) -> tuple[t.Load, ...]:
        """Those and the loads behind it."""
        return (*self.first, *(m.after for m in self.members if m.after is not None))

    @property
    def is_early(self) -> bool:
        """Whether copies of a later trip start in front of a trip's work: with two slots nothing else hides them."""
        return self.stages == 2

    def prologue(self) -> None:
        """The first trips' copies, once."""
        if self.begun:
            return
        self.begun = True
        context = self.context
        ahead = [m for m in self.members if m.before is not None]
        # of a walk without trips the first tile is read too, and the last, for nothing: their rows are filled
        if ahead:
            self._bring(ahead, Sym.of(-1), k.Literal_(self.stages - 1, I32), always=True)
            context.out.append(k.Commit())
        first = 0
        if any(m.after is not None for m in self.members):
            self._copies(Sym.of(0), k.Literal_(0, I32), True)
            first = 1
        if first < self.stages - 1:
            stage = context.names.unique("stage")
            outer, context.out = context.out, []
            self._copies(Sym.of(Var(stage, "trip")), k.Local(stage, I32))
            body = tuple(context.out)
            context.out = outer
            start = k.Literal_(first, I32) if first else None
            context.out.append(
                k.Loop(stage, k.Literal_(self.stages - 1, I32), body, start, span=self.loop.span)
            )
        if ahead:
            context.out.append(k.WaitGroup(self.stages - 1, span=self.loop.span))
            context.out.append(k.CtaSync("the tiles in front of the loop have landed"))
            for m in ahead:
                assert m.before is not None
                slot = k.Literal_(self.stages - 1, I32)
                self._home(m.before, k.TileAddress(m.buffer.name, slot))

    def _home(self, load: t.Load, tile: k.TileAddress) -> None:
        self.context.staged[load.out.id] = tile
        self.context.ring_values.add(load.out.id)

    def head(self, name: str) -> None:
        """Wait for this trip's tiles."""
        context = self.context
        current = Sym.of(Var(name, "trip"))
        slot: k.Expr = k.Index(current % self.stages, I32)
        context.out.append(k.WaitGroup(self.stages - 2, span=self.loop.span))
        context.out.append(
            k.CtaSync("this trip's tiles have landed, those of the last trip are read")
        )
        for m in self.members:
            context.staged[m.operand.source.id] = k.TileAddress(m.buffer.name, slot)
            context.ring_values.add(m.operand.source.id)

    def tail(self, name: str) -> None:
        """Start the copies of a later trip: behind this trip's work, whose first operands they must not delay."""
        context = self.context
        following = context.names.unique(f"{name}_next")
        current = Sym.of(Var(name, "trip"))
        context.out.append(k.Let(following, I32, k.Index(current + (self.stages - 1), I32)))
        later = Sym.of(Var(following, "trip"))
        self._copies(later, k.Index(later % self.stages, I32))

    def finish(self) -> None:
        """Behind the loop: what is read there has landed."""
        behind = [m for m in self.members if m.after is not None]
        if not behind:
            return
        context = self.context
        context.out.append(k.WaitGroup(0, span=self.loop.span))
        context.out.append(k.CtaSync("the tiles behind the loop have landed"))
        slot = context.index(self.end % self.stages)
        for m in behind:
            assert m.after is not None
            self._home(m.after, k.TileAddress(m.buffer.name, slot))

    def _is_masked(self, load: t.Load, own: t.Access) -> bool:
        """Whether masks leave nothing of what `own` reads, the access of a trip of `load`, where the walk has no trip at all: what moves with
        the trips are spans that are not known to be whole."""
        context = self.context
        dims = context.program.tensor(load.access.tensor).dims
        for view in context.program.views:
            if view.name == load.access.view:
                dims = view.dims
        if _ahead(context, load, self.loop):
            return False
        masked = False
        for term, its, dim in zip(load.access.terms, own.terms, dims, strict=True):
            match term, its:
                case t.AtSpan(), t.AtSpan() if self.loop.index in term.start.variables:
                    hi = dim if its.hi is None else sym_min([its.hi, dim])
                    masked |= not context.facts.prove_nonnegative(hi - its.start - its.extent)
                case t.AtScalar(), _ if self.loop.index in term.index.variables:
                    return False
                case _:
                    pass
        return masked

    def _copies(self, trip: Sym, slot: k.Expr, always: bool = False) -> None:
        """The copies of one trip, if there is such a trip, and the end of their group. `always`: those that one more trip has, in any
        case."""
        context = self.context
        index = k.Index(trip, I32)
        for longer in (False, True):
            members = [m for m in self.members if (m.after is not None) == longer]
            if not members:
                continue
            outer, context.out = context.out, []
            context.limits.append({})
            words = set(context.names.used)
            self._bring(members, trip, slot, always=longer and always)
            context.limits.pop()
            copies = tuple(context.out)
            context.out = outer
            if longer and always:
                # in no scope of their own: their names stay taken
                context.out += copies
                continue
            context.names.used = words | context.lasting_names()
            trips = self.loop.trips + 1 if longer else self.loop.trips
            exists = k.Apply("lt", (index, context.index(trips)), BOOL)
            context.out.append(k.IfUniform(exists, copies, span=self.loop.span))
        context.out.append(k.Commit())

    def _bring(self, members: list[_Member], trip: Sym, slot: k.Expr, *, always: bool) -> None:
        """The copies of one trip for some of the operands. `always`: also where the walk has no trip."""
        context = self.context
        scalars, names, facts = dict(context.scalars), dict(context.value_names), context.facts
        context.renames[self.loop.index] = trip
        done: set[int] = set()
        for m in members:
            load, access = m.operand.load, None
            assert load is not None
            if m.after is not None:
                # one trip more than the loop has: what holds in the loop's own may not hold there
                context.facts = facts.knowing({self.loop.index: self.loop.trips + 1}, ())
            if m.before is not None and trip.constant == -1:
                access = m.before.access
            none = always and not facts.prove_nonnegative(self.loop.trips)
            if none and not self._is_masked(load, access or load.access):
                trips = context.index(self.loop.trips + 1)
                context.exists = (k.Apply("gt", (trips, k.Literal_(0, I32)), BOOL),)
            for op in _ahead(context, load, self.loop) or []:
                if id(op) not in done:
                    done.add(id(op))
                    context.lower_scalar(op)
            emit_copy(context, m.operand, m.axes, k.TileAddress(m.buffer.name, slot), access)
            context.exists, context.facts = (), facts
        del context.renames[self.loop.index]
        context.scalars, context.value_names = scalars, names


def read_beside(context: Context, loop: t.For, around: Sequence[t.Op]) -> bool:
    """Whether operands that a loop's ring brings are read in front of the loop or behind it too."""
    loads = [operand.load for _, operand in rings(context, loop)]
    return any(
        x is not None
        for load in loads
        if load is not None
        for x in _beside(context, around, loop, load)
    )


def _end(context: Context, loop: t.For) -> Sym:
    """The trip behind the last one, the first one where there is none."""
    if context.facts.prove_nonnegative(loop.trips):
        return loop.trips
    return sym_max([loop.trips, Sym.of(0)])


def _beside(
    context: Context, around: Sequence[t.Op], loop: t.For, load: t.Load
) -> tuple[t.Load | None, t.Load | None]:
    """The loads beside a loop that are the loop's own one trip before its first and one behind its last."""
    root = products_of(context).root
    same = [op for op in around if isinstance(op, t.Load) and root(op.out.id) == root(load.out.id)]

    def at(trip: Sym) -> t.Load | None:
        access = Cloner(Numbers(()), {}, {loop.index: trip}, {}).access(load.access)
        return next((op for op in same if op.access == access), None)

    # what is known of the sizes here may be more than where the loads were made
    return at(Sym.of(-1)), at(_end(context, loop)) or at(sym_max([loop.trips, Sym.of(0)]))
