"""Trips of a loop that a warpgroup's own rows need.

    for j in range(0 : min(T, i.stop) by BN)      an instance has the rows of `warpgroups` parts, part w
                                                  begins at row `rows · w`

A tile size that nobody asked for may be that of a part: a part stops where its own rows stop, and one none of whose rows are present
has nothing to do. The slots that it does not read it gives back. A tile whose consumed axis ends inside the last step keeps all trips:
all warpgroups clear its edge together.

    j_tile_own = …                                from the part's rows
    for j_tile < j_tile_own: …                    the part's trips
    for j_tile_own <= j_tile < trips:             wait for a slot, take and pass the turn, give the slot back
"""

from __future__ import annotations

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.channels import Channel
from tilec.passes.interior import Floor
from tilec.passes.lower import operand_edges
from tilec.passes.lower.operand_rings import OperandRings
from tilec.passes.lower.products import products_of
from tilec.passes.lower.turns import turn_of
from tilec.passes.products import Staged
from tilec.passes.uses import all_ops

WARPGROUP = Sym.of(Var("warpgroup", "local"))
"""The number of the thread's warpgroup among the consumers"""


@dataclass(frozen=True)
class OwnRange:
    """A loop that warpgroups leave when their rows need no more. `trips`: of the warpgroup; `all_trips`: of the instance; `floor`: its
    first row; `last`: the product behind the loop, after which the channels' other slots are given back; `partial`: whether there are
    instances some of whose parts are absent."""

    name: str
    trips: k.Expr
    all_trips: k.Expr
    floor: Floor
    last: t.Dot
    channels: tuple[Channel, ...]
    partial: bool

    def others(self, rings: OperandRings) -> tuple[k.Op, ...]:
        """The trips that the warpgroup has no use for."""
        warpgroups = rings.form.warpgroups
        outer, rings.context.out = rings.context.out, []
        for n, channel in enumerate(self.channels):
            rings.wait(channel)
            if n == 0:
                rings.context.out += [a.Turn("take", warpgroups), a.Turn("pass", warpgroups)]
            rings.context.out += rings.release(channel)
        body, rings.context.out = tuple(rings.context.out), outer
        return (k.Loop(self.name, self.all_trips, body, self.trips),)


def find_own_range(rings: OperandRings, loop: t.For, name: str, trips: k.Expr) -> OwnRange | None:
    """The own range of a loop whose products start in turns, declared in front of it; None where all parts need all trips."""
    context, form = rings.context, rings.form
    dots = [op for op in loop.body.ops if isinstance(op, t.Dot)]
    if form.sharing is not None or products_of(context).swapped or form.products.apart:
        return None
    if (
        not dots
        or not turn_of(rings, dots[0]).takes
        or any(operand_edges.meets(rings, dot) for dot in dots)
    ):
        return None
    channels = _channels(rings, loop)
    last = _last(rings, loop, channels)
    rows = dots[0].out.type.axes[0]
    grid = next((g for g in context.nest.grid if g.step == rows.extent), None)
    if last is None or grid is None or not rows.is_static:
        return None
    part = context.program.tile_number(rows.extent) // form.warpgroups
    floor = Floor(rows.extent, WARPGROUP * part)
    own = _own_trips(rings, loop, grid, channels, part)
    absent = _absent(rings, rows, floor)
    if own is None and absent is None:
        return None
    needed = trips
    if own is not None:
        needed = k.Apply("min", (context.index(own), trips), I32)
        needed = k.Apply("max", (needed, k.Literal_(0, I32)), I32)
    if absent is not None:
        needed = k.Apply("where", (absent, k.Literal_(0, I32), needed), I32)
    for operand in _operands(rings, last):
        first, end = operand_edges.ends(rings, operand)
        if first is not None or end is not None:
            ragged = operand_edges.ragged(rings, operand, first, end)[2]
            needed = k.Apply("where", (ragged, trips, needed), I32)
    own_name = context.names.unique(f"{name}_own")
    context.out.append(k.Let(own_name, I32, needed, span=loop.span))
    local = k.Local(own_name, I32)
    return OwnRange(name, local, trips, floor, last, channels, absent is not None)


def _channels(rings: OperandRings, loop: t.For) -> tuple[Channel, ...]:
    """The channels that the loop reads from."""
    return tuple(
        channel
        for channel in rings.form.channels
        if any(site.home and site.home[-1] is loop for site in channel.sites)
    )


def _last(rings: OperandRings, loop: t.For, channels: tuple[Channel, ...]) -> t.Dot | None:
    """The product behind a loop that was rotated: each of its channels has one more slot, in front of it or behind it."""
    ops = list(rings.context.nest.body.ops)
    if loop not in ops:
        return None
    behind: list[t.Dot] = []
    for channel in channels:
        if channel.held:
            continue  # its tile is read in front of the loop as in a trip
        # of loops in turn the last one: slots that it gives back late are nobody else's
        own = channel.sites[-1].copies_of
        sites = [site for site in channel.sites if site.copies_of == own]
        if len(sites) != 2 or not all(isinstance(s.last, t.Dot) for s in sites):
            return None
        if not any(site.home and site.home[-1] is loop for site in sites):
            return None
        outside = [site for site in sites if not site.home]
        if len(outside) != 1:
            return None
        last = outside[0].last
        assert isinstance(last, t.Dot)
        if ops.index(last) > ops.index(loop):
            behind.append(last)
    return behind[0] if len(behind) == 1 else None


def _operands(rings: OperandRings, dot: t.Dot) -> list[Staged]:
    plan = products_of(rings.context).plans[dot.out.id]
    return [operand for operand in (plan.a, plan.b) if isinstance(operand, Staged)]


def _own_trips(
    rings: OperandRings, loop: t.For, grid: t.GridAxis, channels: tuple[Channel, ...], part: int
) -> Sym | None:
    """The trips of the loop if the instance had the part's rows only; None where they are the same, or its tiles would be others."""
    context = rings.context
    tile = _automatic_tile(grid, context.program)
    if tile is None or grid.index not in loop.trips.variables:
        return None
    loads = [load for channel in channels for site in channel.sites for load in site.loads]
    inside = {id(op) for op in all_ops(loop.body)}
    for load in loads:
        terms = load.access.terms if id(load) in inside else ()
        if any(isinstance(x, t.AtSpan) and grid.index in x.start.variables for x in terms):
            return None
    number = Sym.of(grid.index) * rings.form.warpgroups + WARPGROUP

    def of_part(var: Var) -> Sym | None:
        return Sym.of(part) if var == tile else number if var == grid.index else None

    return loop.trips.substitute(of_part)


def _automatic_tile(grid: t.GridAxis, program: t.Program) -> Var | None:
    """The tile size that a grid axis steps by, if nobody asked for it."""
    for var in grid.step.variables if grid.step is not None else ():
        if var.name in program.automatic and Sym.of(var) == grid.step:
            return var
    return None


def _absent(rings: OperandRings, rows: t.Axis, floor: Floor) -> k.Expr | None:
    """Whether none of the part's rows are present; None where an instance has all of its rows."""
    context = rings.context
    if len(rows.presence) != 1 or not isinstance(rows.presence[0], t.Below):
        return None
    limit = rows.presence[0].limit
    if context.facts.prove_nonnegative(limit - rows.extent):
        return None
    return k.Apply("le", (context.index(limit), context.index(floor.row)), BOOL)
