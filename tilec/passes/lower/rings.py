"""Rings: copies of operand tiles ahead of a loop.

A loop with staged loads becomes

    for stage in 0 .. stages-2:  copies of trip `stage` ; commit
    for trip:
        wait ; barrier                                  the tiles of this trip are there, the oldest slot is free
        products on slot trip % stages, and everything else
        copies of trip + stages - 1 ; commit
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym, Var
from tilec.passes.lower.context import Context
from tilec.passes.lower.products import declare_tile, emit_copy, products_of, tile_axes
from tilec.passes.products import ProductPlan, Staged
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


class Ring:
    """The rings of one loop: what to emit in front of it and at the head of its body."""

    def __init__(self, context: Context, loop: t.For, trips: k.Expr):
        self.context = context
        self.loop = loop
        self.trips = trips
        self.members = rings(context, loop)
        self.stages = context.variant.stages
        self.tiles: list[tuple[Staged, k.TileBuffer, tuple[k.LoopAxis, k.LoopAxis]]] = []
        for plan, operand in self.members:
            buffer = declare_tile(context, operand, plan, self.stages)
            self.tiles.append((operand, buffer, tile_axes(context, operand, plan)))

    def prologue(self) -> None:
        """The first trips' copies."""
        context = self.context
        stage = context.names.unique("stage")
        outer, context.out = context.out, []
        self._copies(Sym.of(Var(stage, "trip")), k.Local(stage, I32))
        body = tuple(context.out)
        context.out = outer
        context.out.append(
            k.Loop(stage, k.Literal_(self.stages - 1, I32), body, span=self.loop.span)
        )

    def head(self, name: str) -> None:
        """Wait for this trip's tiles."""
        context = self.context
        current = Sym.of(Var(name, "trip"))
        slot: k.Expr = k.Index(current % self.stages, I32)
        context.out.append(k.WaitGroup(self.stages - 2, span=self.loop.span))
        context.out.append(
            k.CtaSync("this trip's tiles have landed, those of the last trip are read")
        )
        for operand, buffer, _ in self.tiles:
            context.staged[operand.source.id] = k.TileAddress(buffer.name, slot)
            context.ring_values.add(operand.source.id)

    def tail(self, name: str) -> None:
        """Start the copies of a later trip: behind this trip's work, whose first operands they must not delay."""
        context = self.context
        following = context.names.unique(f"{name}_next")
        current = Sym.of(Var(name, "trip"))
        context.out.append(k.Let(following, I32, k.Index(current + (self.stages - 1), I32)))
        later = Sym.of(Var(following, "trip"))
        self._copies(later, k.Index(later % self.stages, I32))

    def _copies(self, trip: Sym, slot: k.Expr) -> None:
        """The copies of one trip, if there is such a trip, and the end of their group."""
        context = self.context
        outer, context.out = context.out, []
        context.limits.append({})
        words = set(context.names.used)
        scalars, names = dict(context.scalars), dict(context.value_names)
        context.renames[self.loop.index] = trip
        done: set[int] = set()
        for operand, buffer, axes in self.tiles:
            assert operand.load is not None
            for op in _ahead(context, operand.load, self.loop) or []:
                if id(op) not in done:
                    done.add(id(op))
                    context.lower_scalar(op)
            emit_copy(context, operand, axes, k.TileAddress(buffer.name, slot))
        del context.renames[self.loop.index]
        context.scalars, context.value_names = scalars, names
        context.names.used = words | context.lasting_names()
        context.limits.pop()
        copies = tuple(context.out)
        context.out = outer
        index = k.Index(trip, I32)
        context.out.append(
            k.IfUniform(k.Apply("lt", (index, self.trips), BOOL), copies, span=self.loop.span)
        )
        context.out.append(k.Commit())
