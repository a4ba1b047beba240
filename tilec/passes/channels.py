"""Channels: rings of operand tiles that one thread fills by bulk copies and products empty.

A channel has slots, each with a pair of barriers: full and free. Tiles that one loop brings and one product reads first share a
channel; copies of one load, which schedules make, fill the same ring at several sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.asynchronous import PanelBuffer
from tilec.ir.dtypes import DType
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import Axes
from tilec.passes.boxes import Unsuited, load_box
from tilec.passes.products import ProductPlan, Products, Staged
from tilec.passes.schedule.clone import Cloner, Numbers
from tilec.passes.uses import Definitions, all_ops, operands, syms_of
from tilec.targets.table import Target

MOST_SLOTS = 8
"""Deeper rings hide nothing more."""
SLOTS_READ_AGAIN = 3
"""Of a ring whose tiles are read twice, a trip apart, so that the next one is under way meanwhile."""
BARRIER_BYTES = 256
"""Room for the barriers."""
ALIGNMENT = 1024
"""Of an operand tile in shared memory: the swizzle's pattern begins there."""


@dataclass(frozen=True)
class Member:
    """One operand tile of a channel: its dtype and shape in shared memory, and the tensor that it comes from, at the first site."""

    tensor: str
    dtype: DType
    rows: int
    cols: int

    @property
    def shape(self) -> tuple[DType, int, int]:
        """What its slot is, wherever it comes from."""
        return self.dtype, self.rows, self.cols

    @property
    def bytes(self) -> int:
        """Bytes of a tile."""
        return self.rows * self.cols * self.dtype.bits // 8


@dataclass(frozen=True)
class Site:
    """A place where a channel's next slot is filled, one load for each member. `home`: the loops around; `first`: the product that
    reads the slot first; `last`: the op beside the loads, the product itself or a loop around it, behind which the slot is free. Both are
    the load itself where registers take the tile."""

    operands: tuple[Staged, ...]
    loads: tuple[t.Load, ...]
    home: tuple[t.Op, ...]
    first: t.Op
    last: t.Op
    copies_of: tuple[int, ...] = ()
    """the values that the loads, and those of other sites, are copies of"""


@dataclass(frozen=True)
class Channel:
    """Tiles that travel together, and the places where they set out."""

    members: tuple[Member, ...]
    sites: tuple[Site, ...]
    slots: int = 1
    held: bool = False
    """registers take the tile where it is loaded, no product reads it"""
    again: Channel | None = None
    """the channel whose slots this one reads once more, and gives back"""

    @property
    def bytes(self) -> int:
        """Bytes of a slot."""
        return sum(m.bytes for m in self.members)

    @property
    def in_loop(self) -> bool:
        """Whether one instance fills several slots."""
        return len(self.sites) > 1 or bool(self.sites[0].home)


_Place = tuple[tuple[int, ...], int]
"""The loops around a load and the product that reads it first, by ids."""


def plan_channels(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    products: Products,
    definitions: Definitions,
    facts: Facts,
    origin: Mapping[int, int],
) -> tuple[Channel, ...]:
    """The tiles that products read from shared memory, in the order of their loads."""
    order = {id(op): n for n, op in enumerate(all_ops(nest.body))}
    readers: dict[int, list[ProductPlan]] = {}
    staged: dict[int, Staged] = {}
    for plan in sorted(products.plans.values(), key=lambda p: order[id(p.op)]):
        for operand in (plan.a, plan.b):
            if isinstance(operand, Staged):
                known = staged.setdefault(operand.source.id, operand)
                if known.k_axis != operand.k_axis:
                    raise Unsuited("one tile is consumed along both of its axes")
                readers.setdefault(operand.source.id, []).append(plan)
    keys: dict[int, list[_Place]] = {}
    places: dict[tuple[_Place, ...], list[Staged]] = {}
    for number, operand in staged.items():
        load = _load_of(operand)
        if set(map(id, definitions.users[number])) - _reaching(number, definitions, products):
            raise Unsuited("a tile is an operand and read in registers too")
        if load.out.type.rank != 2:
            raise Unsuited("an operand is gathered")
        box = load_box(program, load, facts)
        consumed = load.access.terms[(box.row, box.col)[operand.k_axis]]
        extent = load.out.type.axes[operand.k_axis].capacity
        if isinstance(consumed, t.AtSpan) and any(p.k_extent != extent for p in readers[number]):
            # a copy as large as the instruction's steps would bring what belongs to the next tile
            raise Unsuited(f"a consumed extent of {extent} is no whole number of steps")
        home = definitions.loops[load.out.id]
        if not all(isinstance(op, t.For) for op in home):
            raise Unsuited("an operand is loaded in a branch")
        key = (tuple(map(id, home)), readers[number][0].op.out.id)
        keys.setdefault(origin.get(load.out.id, load.out.id), []).append(key)
    for operand in staged.values():
        load = _load_of(operand)
        home = definitions.loops[load.out.id]
        here = (tuple(map(id, home)), readers[operand.source.id][0].op.out.id)
        # only what always travels together does
        places.setdefault((here, *keys[origin.get(load.out.id, load.out.id)]), []).append(operand)
    grouped: dict[tuple[int, ...], list[Site]] = {}
    shapes: dict[tuple[int, ...], tuple[Member, ...]] = {}
    for operands_here in places.values():
        together = sorted(operands_here, key=lambda o: order[id(_load_of(o))])
        loads = tuple(map(_load_of, together))
        home = definitions.loops[loads[0].out.id]
        users = [p.op for o in together for p in readers[o.source.id]]
        last = max(users, key=lambda op: order[id(op)])
        around = definitions.loops[last.out.id]
        beside = around[len(home)] if len(around) > len(home) else last
        first = min(users, key=lambda op: order[id(op)])
        members = tuple(
            _member(axes, products, o, max(p.k_extent for p in readers[o.source.id]))
            for o in together
        )
        name = tuple(origin.get(load.out.id, load.out.id) for load in loads)
        if shapes.setdefault(name, members) != members:
            raise Unsuited("copies of one tile differ in shape")
        grouped.setdefault(name, []).append(Site(tuple(together), loads, home, first, beside, name))
    found = []
    for name, sites in grouped.items():
        ordered = sorted(sites, key=lambda s: order[id(s.loads[0])])
        found.append(Channel(shapes[name], tuple(ordered)))
    found.sort(key=lambda c: order[id(c.sites[0].loads[0])])
    return _one_after_the_other(_read_again(program, found, facts, order), definitions, order)


def _read_again(
    program: t.Program, channels: list[Channel], facts: Facts, order: Mapping[int, int]
) -> list[Channel]:
    """The channels, of which those that would bring again what another one has brought a little earlier in the same order read its slots."""
    found: list[Channel] = []
    for channel in channels:
        for other in found:
            free = other.again is None and not any(c.again is other for c in found)
            if free and _follows(program, other, channel, facts, order):
                channel = replace(channel, members=other.members, again=other)
                break
        found.append(channel)
    return found


def _follows(
    program: t.Program, first: Channel, later: Channel, facts: Facts, order: Mapping[int, int]
) -> bool:
    """Whether what one channel brings is the first columns of what another one has brought: in the same trips of a loop, or in the trip
    before, where the other begins in front of the loop and this one ends behind it. This one has to be read last."""
    if not (first.in_loop and later.in_loop) or len(first.members) > 1 or len(later.members) > 1:
        return False
    own, other = first.members[0], later.members[0]
    panels = {PanelBuffer("", m.dtype, m.rows, m.cols, 1).panel for m in (own, other)}
    alike = (own.tensor, own.dtype, own.rows) == (other.tensor, other.dtype, other.rows)
    if not alike or len(panels) > 1 or len(first.sites) != len(later.sites):
        return False
    if len(first.sites) == 1:
        ((one,), (two,)) = (first.sites, later.sites)
        if one.home != two.home or order[id(one.last)] >= order[id(two.last)]:
            return False
        return _is_part(program, one.loads[0], two.loads[0], facts, {})
    if len(first.sites) != 2:
        return False
    (before, one), (two, behind) = first.sites, later.sites
    loop = one.home[-1] if one.home else None
    if not isinstance(loop, t.For) or one.home != two.home:
        return False
    if not before.home == behind.home == one.home[:-1]:
        return False
    if not order[id(before.loads[0])] < order[id(loop)] < order[id(behind.loads[0])]:
        return False
    whole = one.loads[0]
    # the loop's slots are those of the trip behind: what is read now was brought in the trip before
    return (
        _is_part(program, whole, before.loads[0], facts, {loop.index: Sym.of(-1)})
        and _is_part(program, whole, two.loads[0], facts, {loop.index: Sym.of(loop.index) - 1})
        and _is_part(program, whole, behind.loads[0], facts, {loop.index: loop.trips - 1})
    )


def _is_part(
    program: t.Program, whole: t.Load, part: t.Load, facts: Facts, trips: Mapping[Var, Sym]
) -> bool:
    """Whether a load is the first columns of another one in the trip that `trips` says."""
    box = load_box(program, part, facts)
    place = load_box(program, whole, facts).col
    access = Cloner(Numbers(()), {}, trips, {}).access(whole.access)
    if box.col != place or len(access.terms) != len(part.access.terms):
        return False
    for n, (term, wanted) in enumerate(zip(access.terms, part.access.terms, strict=True)):
        if n != place and term != wanted:
            return False
    column, wanted = access.terms[place], part.access.terms[place]
    if isinstance(column, t.AtAll):
        return isinstance(wanted, t.AtAll) or (
            isinstance(wanted, t.AtSpan) and wanted.start == Sym.of(0)
        )
    return column == wanted


def _one_after_the_other(
    channels: Iterable[Channel], definitions: Definitions, order: Mapping[int, int]
) -> tuple[Channel, ...]:
    """Channels of loops, of which one begins to be filled behind the last op that reads another, are one where their tiles have the same
    shape: both roles go through the slots in the order of the program."""

    def outermost(op: t.Op) -> int:
        around = definitions.loops[op.outs[0].id] if op.outs else ()
        # what a loop leaves is defined beside it
        return order[id(around[0] if around else op)]

    found: list[Channel] = []
    for channel in channels:
        begin = min(outermost(load) for site in channel.sites for load in site.loads)
        for n, other in enumerate(found):
            end = max(outermost(site.last) for site in other.sites)
            if other.again is not None or channel.again is not None:
                continue
            if any(other is c.again or channel is c.again for c in channels):
                continue
            alike = [m.shape for m in other.members] == [m.shape for m in channel.members]
            if alike and end < begin and other.in_loop and channel.in_loop:
                found[n] = replace(other, sites=(*other.sites, *channel.sites))
                break
        else:
            found.append(channel)
    return tuple(found)


def _load_of(operand: Staged) -> t.Load:
    assert operand.load is not None
    return operand.load


def _member(axes: Axes, products: Products, operand: Staged, extent: int) -> Member:
    sides = [extent if n == operand.k_axis else _side(axes, products, operand, n) for n in (0, 1)]
    if sides[0] > 256 or sides[0] % 8:
        raise Unsuited(f"{sides[0]} rows are no box of a bulk copy")
    return Member(_load_of(operand).access.tensor, operand.source.type.dtype, sides[0], sides[1])


def _reaching(number: int, definitions: Definitions, products: Products) -> set[int]:
    """The users of a value that are products, or transpositions for them."""
    found: set[int] = set()
    for user in definitions.users[number]:
        if isinstance(user, t.Dot) and user.accumulate is not definitions.values[number]:
            found.add(id(user))
        elif isinstance(user, t.Rearrange):
            inner = {id(op) for op in definitions.users[user.out.id]}
            if inner <= _reaching(user.out.id, definitions, products):
                found.add(id(user))
    return found


def _side(axes: Axes, products: Products, operand: Staged, axis: int) -> int:
    found = axes.of(operand.source, axis)
    if found is None or found.number not in products.layouts:
        raise Unsuited("an operand has one row or column")
    return products.layouts[found.number].capacity


def producer_scalars(channels: Iterable[Channel], definitions: Definitions) -> frozenset[int]:
    """The scalar ops that addresses and trip counts of the producer need. Raises Unsuited where one needs more than scalars."""
    needed: set[int] = set()

    def visit_syms(syms: Iterable[Sym]) -> None:
        for sym in syms:
            for var in sym.variables:
                if var.kind == "value":
                    visit(var.key)

    def visit(number: int) -> None:
        op = definitions.defining[number]
        if id(op) in needed:
            return
        if not isinstance(
            op,
            t.Load
            | t.Elementwise
            | t.Cast
            | t.Bitcast
            | t.FromSym
            | t.Constant
            | t.Scalar
            | t.Fill
            | t.Survivors
            | t.Survivor,
        ) or any(v.type.rank for v in op.outs):
            raise Unsuited("an address depends on what the loop computes")
        needed.add(id(op))
        visit_syms(syms_of(op))
        for value in operands(op):
            visit(value.id)

    for channel in channels:
        for site in channel.sites:
            for op in (*site.home, *site.loads):
                visit_syms(syms_of(op))
    return frozenset(needed)


def with_slots(
    channels: tuple[Channel, ...],
    target: Target,
    stages: int | None,
    leaving: int,
    streamed: frozenset[int] = frozenset(),
    split: bool = False,
) -> tuple[Channel, ...]:
    """Ring depths from the shared memory of a block: two slots at least in a loop, two of what an instance loads once, so that the next
    instance's is under way; then as many as fit, the same for all. `leaving`: bytes of what leaves the block. `streamed`: values of the
    loads that memory's latency must be hidden for, with as many bytes under way as the target's table says, and no more where CTAs
    `split` the loop (on an H200 5 slots of 16 KB of the stream are 0.5 to 2 % faster than 6, and 4 slower)."""
    room = target.shared_per_block_optin - 2 * ALIGNMENT - BARRIER_BYTES - leaving
    fixed = sum(c.bytes for c in channels if not c.in_loop)
    ring = sum(c.bytes for c in channels if c.in_loop and c.again is None)
    again = any(c.again is not None for c in channels)
    fewest = SLOTS_READ_AGAIN if again and fixed + SLOTS_READ_AGAIN * ring <= room else 2
    twice = 2 * fixed + fewest * ring <= room
    fixed *= 2 if twice else 1
    under_way = sum(
        member.bytes
        for c in channels
        for member, load in zip(c.members, c.sites[0].loads, strict=True)
        if c.in_loop and c.again is None and load.out.id in streamed
    )
    least = -(-target.bytes_under_way // under_way) if under_way else 0
    most = least if split else max(MOST_SLOTS, least)
    if under_way and target.most_under_way:
        most = min(most, max(fewest, target.most_under_way // under_way))
    slots = min(most, (room - fixed) // ring) if ring else 1
    if stages is not None:
        slots = min(slots, max(fewest, stages))
    if fixed > room or (ring and slots < fewest):
        raise Unsuited(f"{fixed + fewest * ring} bytes of operand tiles exceed the shared memory")
    once = 2 if twice else 1
    deep = [replace(c, slots=slots if c.in_loop else once) for c in channels]
    return tuple(
        c if c.again is None else replace(c, again=deep[channels.index(c.again)]) for c in deep
    )
