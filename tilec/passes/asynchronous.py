"""The asynchronous form of a nest with products: one thread fills rings of operand tiles by bulk copies, warpgroups multiply.

A *channel* is a ring of slots with a pair of barriers for each: full and free. Tiles that one loop brings and one product
reads first share a channel. Everything is decided from the program's loops, loads and products; what does not fit the form
(a gather, a computed operand, a bound inside a tensor) says why, and the nest takes the synchronous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BF16, F8E4M3, F8E5M2, F16, I8, U8, DType
from tilec.ir.facts import Facts
from tilec.ir.layouts import fragment_columns, warpgroup_rows
from tilec.ir.symbolic import Sym, Var
from tilec.passes.axes import Axes, term_axes
from tilec.passes.epilogue import plan_epilogue
from tilec.passes.placement import Placement
from tilec.passes.products import InRegisters, ProductPlan, Products, Staged
from tilec.passes.uses import Definitions, all_ops, operands, running_sum, syms_of
from tilec.targets.table import Product, Target

TYPE_NAMES: dict[DType, str] = {
    BF16: "bf16", F16: "f16", I8: "s8", U8: "u8", F8E4M3: "e4m3", F8E5M2: "e5m2",
}  # fmt: skip
"""What the warpgroup product calls its operands."""

TRANSPOSABLE = frozenset({"bf16", "f16"})
"""Operands that may lie with their consumed axis along rows."""

WARPGROUP = 128
"""Threads of a warpgroup."""
WARPGROUP_ROWS = 64
"""Rows of a warpgroup's product."""
WIDEST_PIECE = 256
"""Columns of one instruction."""
MOST_SLOTS = 8
"""Deeper rings hide nothing more."""
BARRIER_BYTES = 256
"""Room for the barriers."""
CHUNK_ROWS, CHUNK_COLUMNS = 16, 64
"""What a warp sends at once: the rows of its accumulators, and a panel of 16-bit elements."""
CHUNKS_UNDER_WAY = 2
"""Chunks of a warp that have room in shared memory, where they come in pairs: the slots alternate from one to the next."""
ROOM_BESIDES = 36
"""Registers of a consumer beside accumulators and what waits to leave (ptxas; more spill)."""
ALIGNMENT = 1024
"""Of an operand tile in shared memory: the swizzle's pattern begins there."""


class Unsuited(Exception):
    """Why a nest does not take the asynchronous form."""


@dataclass(frozen=True)
class Member:
    """One operand tile of a channel: its dtype and shape in shared memory, and the tensor that it comes from."""

    tensor: str
    dtype: DType
    rows: int
    cols: int

    @property
    def bytes(self) -> int:
        """Bytes of a tile."""
        return self.rows * self.cols * self.dtype.bits // 8


@dataclass(frozen=True)
class Site:
    """A place where a channel's next slot is filled, one load for each member. `home`: the loops around; `first`: the product that
    reads the slot first; `last`: the op beside the loads, the product itself or a loop around it, behind which the slot is free."""

    operands: tuple[Staged, ...]
    loads: tuple[t.Load, ...]
    home: tuple[t.Op, ...]
    first: t.Dot
    last: t.Op


@dataclass(frozen=True)
class Channel:
    """Tiles that travel together, and the places where they set out."""

    members: tuple[Member, ...]
    sites: tuple[Site, ...]
    slots: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of a slot."""
        return sum(m.bytes for m in self.members)

    @property
    def in_loop(self) -> bool:
        """Whether one instance fills several slots."""
        return len(self.sites) > 1 or bool(self.sites[0].home)


@dataclass(frozen=True)
class Sharing:
    """CTAs of a cluster take neighbouring trips of a grid loop and share the tiles that do not depend on it."""

    size: int
    digit: Var
    shared: frozenset[int]
    """ids of the loads' values"""


@dataclass(frozen=True)
class Departure:
    """A tile of accumulators' shape that leaves by bulk copies, in chunks of 16 rows and `columns` columns of each warp. `deferred`:
    under the first trips of the next instance's loop."""

    store: t.Store
    columns: int
    deferred: bool


@dataclass(frozen=True)
class Asynchronous:
    """The form. `registers` of a thread of the producer and of the consumers, 0 where the launch's number stays."""

    products: Products
    types: dict[int, str]
    """by id of the Dot's result"""
    warpgroups: int
    channels: tuple[Channel, ...]
    registers: tuple[int, int]
    scalars: frozenset[int]
    """ids of the scalar ops that the producer repeats"""
    sharing: Sharing | None = None
    departure: Departure | None = None
    early: frozenset[int] = frozenset()
    """ids of loads that are made before the last product is done"""
    unfilled: bool = False
    """accumulators that begin with zeros are not filled: the first product writes them"""
    reasons: tuple[str, ...] = field(default=(), compare=False)

    @property
    def threads(self) -> int:
        """Threads of the consumers."""
        return WARPGROUP * self.warpgroups


def plan_asynchronous(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    target: Target,
    base: Products,
    placement: Placement,
    warps: int | None,
    stages: int | None,
    origin: Mapping[int, int],
) -> Asynchronous:
    """The asynchronous form of a nest; `origin` as in `Scheduled`. Raises Unsuited."""
    if "wgmma" not in target.features:
        raise Unsuited(f"{target.arch} has no products of warpgroups")
    for op in all_ops(nest.body):
        if isinstance(op, t.Print | t.Assert):
            raise Unsuited("`print` and `assert` stop asynchronous products")
        if isinstance(op, t.If) and any(
            isinstance(inner, t.Dot) for b in (op.then, op.otherwise) for inner in all_ops(b)
        ):
            raise Unsuited("a product stands in a branch")
    definitions = Definitions.of(nest.body)
    facts = Facts.of(program)
    types = {number: _types(plan, target) for number, plan in base.plans.items()}
    products, warpgroups = _geometry(axes, base, target, warps)
    channels = _channels(program, nest, axes, products, definitions, facts, origin)
    scalars = _producer_scalars(channels, definitions)
    sharing = _sharing(nest, channels, definitions, target)
    registers = target.role_registers.get(warpgroups, (0, 0))
    if products.accumulators + target.product_registers_besides > (registers[1] or 255):
        raise Unsuited(f"{products.accumulators} accumulators a thread leave no room")
    departure = _departure(program, nest, axes, products, definitions, facts)
    room = (registers[1] or 255) - products.accumulators - ROOM_BESIDES
    packed = products.accumulators // 2
    # what is loaded early takes the registers of the packed tile that has left by then
    epilogue = plan_epilogue(
        program, nest, axes, placement, products, definitions, min(room, packed)
    )
    if departure is not None:
        bare = len(channels) == 1 and [len(site.home) for site in channels[0].sites] == [1]
        # chunks leave where the wait for a product is left to the next trip
        bare = bare and running_sum(channels[0].sites[0].home[0], definitions) is not None
        # a load behind the last product would find all registers taken: by the accumulators and by what they are packed to
        fits = packed <= room and not epilogue.late
        departure = replace(departure, deferred=fits and bare)
        room -= packed
    # without a fill accumulators are taken from the start, beside what waits to leave and what the epilogue reads
    unfilled = epilogue.words is not None and epilogue.words <= room
    channels = _slots(channels, target, stages, 4 * warpgroups if departure else 0)
    return Asynchronous(
        products,
        types,
        warpgroups,
        channels,
        registers,
        scalars,
        sharing,
        departure,
        epilogue.early,
        unfilled,
    )


def _departure(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    products: Products,
    definitions: Definitions,
    facts: Facts,
) -> Departure | None:
    """The first store of a tile of accumulators' shape that may leave by bulk copies: of 16-bit elements, to all places of the
    tensor that its spans reach."""
    for op in nest.body.ops:
        if not isinstance(op, t.Store) or op.value.type.rank != 2:
            continue
        tensor = program.tensor(op.access.tensor)
        if tensor.role != "output" or tensor.dtype.bits != 16:
            continue
        row, col = axes.of_access(op)
        if row is None or col is None or col.number not in products.columns:
            continue
        if row.number not in products.layouts or row.number in products.columns:
            continue
        try:
            box = tensor_box(program, op.access, facts)
        except Unsuited:
            continue
        if box.inner != ((None, None), (None, None)):
            continue
        columns = products.layouts[col.number].capacity
        if columns % CHUNK_COLUMNS == 0 and _all_present(op.value, box, facts):
            return Departure(op, CHUNK_COLUMNS, False)
    return None


def _all_present(value: t.Value, box: TensorBox, facts: Facts) -> bool:
    """Whether all elements of a tile that lie inside the tensor are present."""
    for axis, place in zip(value.type.axes, (box.row, box.col), strict=True):
        inside = box.dims[place] - box.start[place]
        for constraint in axis.presence:
            match constraint:
                case t.Below(limit):
                    if not (
                        facts.prove_nonnegative(limit - axis.extent)
                        or facts.prove_nonnegative(limit - inside)
                    ):
                        return False
                case t.AtLeast(limit):
                    if not facts.prove_nonnegative(-limit):
                        return False
                case _:
                    return False
    return True


def _types(plan: ProductPlan, target: Target) -> str:
    """The instruction's name for the operands."""
    a, b = plan.op.a.type.dtype, plan.op.b.type.dtype
    found: Product | None = None
    for product in target.products:
        if product.form == "wgmma" and (product.a, product.b) == (a, b):
            found = product
    if found is None or a not in TYPE_NAMES or b not in TYPE_NAMES:
        raise Unsuited(f"no product of warpgroups takes {a} and {b} from shared memory as they are")
    for operand in (plan.a, plan.b):
        if isinstance(operand, InRegisters):
            continue
        if operand.load is None:
            raise Unsuited("an operand is computed, not loaded")
        if operand.k_axis == 0 and "n" not in found.b_major:
            raise Unsuited(f"{a} operands must have the consumed axis last in memory")
    first, second = TYPE_NAMES[a], TYPE_NAMES[b]
    return first if first == second else f"{first}_{second}"


# ------------------------------------------------------------------------------------------ geometry


def _geometry(
    axes: Axes, base: Products, target: Target, warps: int | None
) -> tuple[Products, int]:
    """The products' layouts for warpgroups of 64 rows: rows over warpgroups, whole columns in each."""
    rows = {}
    columns = {}
    for plan in base.plans.values():
        m, n = axes.of(plan.op.out, 0), axes.of(plan.op.out, 1)
        assert m is not None and n is not None
        rows[m.number], columns[n.number] = m, n
    extent = max(c.capacity or 1 for c in rows.values())
    if extent < WARPGROUP_ROWS:
        raise Unsuited(f"{extent} rows are fewer than the {WARPGROUP_ROWS} of a warpgroup")
    most = max(target.role_registers)
    warpgroups = warps // 4 if warps else min(most, 2, -(-extent // WARPGROUP_ROWS))
    if extent % (WARPGROUP_ROWS * 3) == 0 and not warps and extent <= WARPGROUP_ROWS * 3:
        warpgroups = min(most, 3)
    if warpgroups not in target.role_registers or (warps or 0) % 4:
        raise Unsuited(f"{warps} warps are not one to {most} warpgroups")
    layouts = {}
    for c in rows.values():
        blocks = -(-(c.capacity or 1) // (WARPGROUP_ROWS * warpgroups))
        layouts[c.number] = warpgroup_rows(blocks, warpgroups)
    for c in columns.values():
        tiles = -(-(c.capacity or 1) // 8)
        tiles += tiles % 2
        needed = max(
            (p.k_extent for p in base.plans.values() if _consumes(axes, p, c.number)), default=0
        )
        layouts[c.number] = fragment_columns(max(tiles, needed // 8), 1, 32)
    found = replace(
        base, warps=4 * warpgroups, row_warps=4 * warpgroups, layouts=layouts, accumulators=0
    )
    needed = used = 0
    for plan in base.distinct():
        m, n = axes.of(plan.op.out, 0), axes.of(plan.op.out, 1)
        assert m is not None and n is not None
        padded = layouts[m.number].capacity * layouts[n.number].capacity
        found.accumulators += padded // (WARPGROUP * warpgroups)
        used += padded * plan.k_extent
        needed += (m.capacity or 1) * (n.capacity or 1) * plan.k_extent
        if layouts[n.number].capacity > WIDEST_PIECE and layouts[n.number].capacity % WIDEST_PIECE:
            raise Unsuited(f"{layouts[n.number].capacity} columns are no whole pieces")
    beside = base.beside * 32 * base.warps
    found.beside = -(-beside // (WARPGROUP * warpgroups))
    found.accumulators += found.beside
    found.waste = 1 - needed / used if used else 0.0
    return found, warpgroups


def _consumes(axes: Axes, plan: ProductPlan, number: int) -> bool:
    for value, axis in ((plan.op.a, 1), (plan.op.b, 0)):
        found = axes.of(value, axis)
        if found is not None and found.number == number:
            return True
    return False


# ------------------------------------------------------------------------------------------ channels


_Place = tuple[tuple[int, ...], int]
"""The loops around a load and the product that reads it first, by ids."""


def _channels(
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
        grouped.setdefault(name, []).append(Site(tuple(together), loads, home, first, beside))
    found = []
    for name, sites in grouped.items():
        ordered = sorted(sites, key=lambda s: order[id(s.loads[0])])
        found.append(Channel(shapes[name], tuple(ordered)))
    return tuple(sorted(found, key=lambda c: order[id(c.sites[0].loads[0])]))


def _load_of(operand: Staged) -> t.Load:
    assert operand.load is not None
    return operand.load


def _member(axes: Axes, products: Products, operand: Staged, extent: int) -> Member:
    sides = [extent if n == operand.k_axis else _side(axes, products, operand, n) for n in (0, 1)]
    if sides[0] > 256 or sides[0] % 8:
        raise Unsuited(f"{sides[0]} rows are no box of a bulk copy")
    return Member(
        _load_of(operand).access.tensor, operand.source.type.dtype, sides[0], sides[1]
    )


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


@dataclass(frozen=True)
class TensorBox:
    """What a bulk copy of a load is told: the tensor's dims (elements) and strides (elements, the last is 1), slowest first, the
    tile's first coordinate along each, and which of them are the tile's rows and columns. `inner`: bounds of rows and of columns,
    from the tile's first coordinate on, that lie inside the tensor: (from, to), None for none."""

    dims: tuple[Sym, ...]
    strides: tuple[Sym, ...]
    start: tuple[Sym, ...]
    row: int
    col: int
    inner: tuple[tuple[Sym | None, Sym | None], ...]


def load_box(program: t.Program, load: t.Load, facts: Facts) -> TensorBox:
    """The box of a load. Raises Unsuited where a bulk copy cannot bring it as it is."""
    if load.out.type.rank != 2:
        raise Unsuited("an operand is gathered")
    if program.tensor(load.access.tensor).role in ("output", "inout"):
        raise Unsuited(f"`{load.access.tensor}` is written by this kernel")
    return tensor_box(program, load.access, facts)


def tensor_box(program: t.Program, access: t.Access, facts: Facts) -> TensorBox:
    """The box of an access to a tile. Raises Unsuited where a bulk copy cannot move it as it is."""
    tensor = program.tensor(access.tensor)
    view = next((v for v in program.views if v.name == access.view), None)
    dims = tensor.dims if view is None else view.dims
    strides = (
        tensor.row_major if view is None else t.Tensor("", tensor.dtype, dims, "input").row_major
    )
    if access.pointwise:
        raise Unsuited("an operand is gathered")
    if not 2 <= len(dims) <= 5:
        raise Unsuited(f"a bulk copy takes 2 to 5 dimensions, `{tensor.name}` has {len(dims)}")
    start: list[Sym] = []
    places: list[int] = []
    inner: list[tuple[Sym | None, Sym | None]] = []
    for n, (term, along) in enumerate(zip(access.terms, term_axes(access), strict=True)):
        match term:
            case t.AtScalar():
                start.append(term.index)
            case t.AtAll():
                start.append(Sym.of(0))
                places += [n] * len(along)
                inner += [(None, None)] * len(along)
            case t.AtSpan():
                start.append(term.start)
                places += [n] * len(along)
                inner += [_inner(term, dims[n], facts)] * len(along)
            case t.AtTile():
                raise Unsuited("an operand is gathered")
    if len(places) != 2 or places[1] != len(dims) - 1 or strides[-1].constant != 1:
        raise Unsuited("an operand's columns are not neighbours in memory")
    return TensorBox(
        tuple(dims), tuple(strides), tuple(start), places[0], places[1], tuple(inner)
    )


def _inner(term: t.AtSpan, dim: Sym, facts: Facts) -> tuple[Sym | None, Sym | None]:
    """Bounds of a span, from its start on, that are not the tensor's own."""
    first = last = None
    if term.hi is not None and not (
        facts.prove_nonnegative(term.hi - dim)
        or facts.prove_nonnegative(term.hi - term.start - term.extent)
    ):
        last = term.hi - term.start
    if term.lo is not None and not facts.prove_nonnegative(term.start - term.lo):
        first = term.lo - term.start
    return first, last


def _producer_scalars(channels: Iterable[Channel], definitions: Definitions) -> frozenset[int]:
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
            | t.Fill,
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


# ------------------------------------------------------------------------------------------- cluster


def _sharing(
    nest: t.Nest, channels: tuple[Channel, ...], definitions: Definitions, target: Target
) -> Sharing | None:
    """A pair of CTAs along the grid loop whose operands are the smaller ones: the larger are shared. Only where both do the same
    number of trips, and where products are all that a loop does."""
    sites = [site for channel in channels for site in channel.sites]
    if target.cluster_size < 2 or any(site.first is not site.last for site in sites):
        return None
    if any(isinstance(op, t.Reduce) for op in all_ops(nest.body)):
        return None
    best: Sharing | None = None
    most = 0
    for digit in nest.grid:
        if digit.step is None:
            continue
        index = digit.index
        if any(_depends(syms_of(loop), index, definitions) for s in sites for loop in s.home):
            continue
        shared = {
            load.out.id: member.bytes
            for channel in channels
            for site in channel.sites
            for member, load in zip(channel.members, site.loads, strict=True)
            if not _depends(syms_of(load), index, definitions)
        }
        total = sum(shared.values())
        if 0 < len(shared) < sum(len(s.loads) for s in sites) and total > most:
            best, most = Sharing(target.cluster_size, index, frozenset(shared)), total
    return best


def _depends(syms: Iterable[Sym], index: Var, definitions: Definitions) -> bool:
    """Whether symbolic integers depend on a grid loop's trip, through loaded scalars too."""
    for sym in syms:
        for var in sym.variables:
            if var == index:
                return True
            if var.kind == "value":
                op = definitions.defining[var.key]
                inner = [*syms_of(op), *(Sym.of(Var("", "value", v.id)) for v in operands(op))]
                if _depends(inner, index, definitions):
                    return True
    return False


# --------------------------------------------------------------------------------------------- slots


def _slots(
    channels: tuple[Channel, ...], target: Target, stages: int | None, warps: int
) -> tuple[Channel, ...]:
    """Ring depths from the shared memory of a block: two slots at least in a loop, two of what an instance loads once, so that the next
    instance's is under way; then as many as fit, the same for all."""
    leaving = warps * CHUNKS_UNDER_WAY * CHUNK_ROWS * CHUNK_COLUMNS * 2
    room = target.shared_per_block_optin - 2 * ALIGNMENT - BARRIER_BYTES - leaving
    fixed = sum(c.bytes for c in channels if not c.in_loop)
    ring = sum(c.bytes for c in channels if c.in_loop)
    twice = 2 * (fixed + ring) <= room
    fixed *= 2 if twice else 1
    slots = min(MOST_SLOTS, (room - fixed) // ring) if ring else 1
    if stages is not None:
        slots = min(slots, max(2, stages))
    if fixed > room or (ring and slots < 2):
        raise Unsuited(f"{fixed + 2 * ring} bytes of operand tiles exceed the shared memory")
    once = 2 if twice else 1
    return tuple(replace(c, slots=slots if c.in_loop else once) for c in channels)
