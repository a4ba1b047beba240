"""The asynchronous form of a nest with products: one thread fills rings of operand tiles by bulk copies, warpgroups multiply.

A *channel* is a ring of slots with a pair of barriers for each: full and free. Tiles that one loop brings and one product
reads first share a channel. Everything is decided from the program's loops, loads and products; what does not fit the form
(a gather, a computed operand, a bound inside a tensor) says why, and the nest takes the synchronous one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, I8, U8, DType
from tilec.ir.facts import Facts
from tilec.ir.layouts import fragment_columns, is_paired, warpgroup_rows
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.boxes import TensorBox, Unsuited, tensor_box
from tilec.passes.channels import (
    SLOTS_READ_AGAIN,
    Channel,
    plan_channels,
    producer_scalars,
    with_slots,
)
from tilec.passes.epilogue import plan_epilogue
from tilec.passes.held_tiles import plan_held
from tilec.passes.placement import Placement
from tilec.passes.products import InRegisters, ProductPlan, Products
from tilec.passes.reuse import Reuse, Sharing, Stream
from tilec.passes.skip_dead import left_of
from tilec.passes.splitting import Split, plan_split
from tilec.passes.swap import WARPGROUP_ROWS, is_across, is_turned, only_loaded, sides_of, swaps
from tilec.passes.uses import Definitions, all_ops, running_sum
from tilec.targets.occupancy import WARPGROUP
from tilec.targets.table import Product, Target

TYPE_NAMES: dict[DType, str] = {
    BF16: "bf16", F16: "f16", F32: "tf32", I8: "s8", U8: "u8", F8E4M3: "e4m3", F8E5M2: "e5m2",
}  # fmt: skip
"""What the warpgroup product calls its operands."""

TRANSPOSABLE = frozenset({"bf16", "f16"})
"""Operands that may lie with their consumed axis along rows."""

WIDEST_PIECE = 256
"""Columns of one instruction."""
PIECE_BESIDES = 26
"""Registers of a thread that ptxas wants for an instruction beside its accumulators (C7602 names the sum)."""
CHUNK_ROWS, CHUNK_WIDTHS = 16, (128, 64)
"""What a warp sends at once: the rows of its accumulators, and of columns so many that each row has the first of these numbers of bytes
that the tile is whole multiples of. Both are spans of a swizzle."""
CHUNKS_UNDER_WAY = 4096
"""Bytes of a warp's chunks that have room in shared memory: the slots take turns."""
ROOM_BESIDES = 36
"""Registers of a consumer beside accumulators and what waits to leave (ptxas; more spill)."""


@dataclass(frozen=True)
class Departure:
    """A tile of accumulators' shape that leaves in chunks of 16 rows and `depth` columns of elements of `bits`, of each warp, by bulk
    copies, or, where rows of the tensor begin anywhere, by the warp's own stores of whole rows. `deferred`: under the first trips of the
    next instance's loop; `across`: rows of accumulators are the tensor's columns. `needs`: numbers that are at least 0 where all elements of
    the tile have a place in the tensor; an instance in which one is not stores its elements."""

    store: t.Store
    bits: int
    depth: int
    deferred: bool
    across: bool = False
    bulk: bool = True
    needs: tuple[Sym, ...] = ()

    @property
    def slots(self) -> int:
        """Chunks of a warp that have room in shared memory."""
        return CHUNKS_UNDER_WAY * 8 // (CHUNK_ROWS * self.depth * self.bits)

    @property
    def anywhere(self) -> Departure:
        """The same without bulk copies."""
        return replace(self, bulk=False)


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
    streams: tuple[Stream, ...] = ()
    """operands that the grid reads once"""
    turned: frozenset[int] = frozenset()
    """ids of products' results whose left operand passes through registers, since the instruction cannot read it as it lies"""
    split: Split | None = None
    """CTAs of a cluster share the consumed axis"""
    reasons: tuple[str, ...] = field(default=(), compare=False)
    dealt: bool = True
    """whether instances are dealt to CTAs ahead; where memory says which of them have anything to do, CTAs draw them from a counter"""
    launched: int = 255
    """registers of a thread as launched: an instruction has no more, whatever `setmaxnreg` moves"""
    interleaved: frozenset[str] = frozenset()
    """tensors whose rows are in the order in which accumulators are left operands of 8 bits"""
    rows: tuple[Channel, ...] = ()
    """rows that the producer brings behind an instance's last operand tiles, of those that are loaded `early`"""
    rows_ahead: bool = False
    """the consumers read them before the last product is done, not behind it"""
    lag: int = 0
    """trips that each warpgroup ends a loop of products behind the one before it, 0: all end together"""

    @property
    def rings(self) -> tuple[Channel, ...]:
        """All that the producer fills."""
        return (*self.channels, *self.rows)

    @property
    def room(self) -> int:
        """Registers of a consumer's thread beside accumulators and what waits to leave."""
        return (self.registers[1] or 255) - self.products.accumulators - ROOM_BESIDES

    @property
    def is_shallow(self) -> bool:
        """Whether the next tile of a ring whose tiles are read twice only sets out when this one has been."""
        return any(c.again is not None and c.slots < SLOTS_READ_AGAIN for c in self.channels)

    @property
    def threads(self) -> int:
        """Threads of the consumers."""
        return WARPGROUP * self.warpgroups

    @property
    def brings(self) -> bool:
        """Whether the producer brings tiles for registers, besides operands."""
        return bool(self.brought)

    @property
    def brought(self) -> tuple[t.Load, ...]:
        """The loads of those tiles."""
        sites = [site for channel in self.channels if channel.held for site in channel.sites]
        return tuple(load for site in sites for load in site.loads)

    def piece(self, columns: int, unit: int) -> int:
        """Columns of one instruction of a product of so many: as many as suit its registers, in pieces of one width that begin at
        multiples of `unit`."""
        most = min(WIDEST_PIECE, 2 * (self.launched - PIECE_BESIDES))
        if columns <= most:
            return columns
        return next(n for n in range(most // unit * unit, 0, -unit) if columns % n == 0)


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
    wanted: frozenset[int] = frozenset(),
    interleaved: frozenset[str] = frozenset(),
) -> Asynchronous:
    """The asynchronous form of a nest; `origin` as in `Scheduled`; `wanted`: loads (ids of the ops) whose tiles the producer brings for
    the consumers' registers; `interleaved`: the tensors that are (`turning`). Raises Unsuited, also where it can bring none of these."""
    if "wgmma" not in target.features:
        raise Unsuited(f"{target.arch} has no products of warpgroups")
    for op in all_ops(nest.body):
        if isinstance(op, t.Print | t.Assert):
            raise Unsuited("`print` and `assert` stop asynchronous products")
        if isinstance(op, t.If) and any(
            isinstance(inner, t.Dot) for b in (op.then, op.otherwise) for inner in all_ops(b)
        ):
            raise Unsuited(
                "a product stands in a branch that is no filter of its loop, around the whole body, on what the loop does not compute"
            )
    factors = {plan.op.a.type.dtype for plan in base.plans.values()}
    if program.math == "strict" and any(d.is_float and d.bits == 8 for d in factors):
        raise Unsuited("sums of 8-bit floats have fewer bits there than `math = strict` allows")
    definitions = Definitions.of(nest.body)
    facts = Facts.of(program)
    base = replace(base, swapped=swaps(nest, axes, base, target))
    turned = frozenset(n for n, p in base.plans.items() if is_turned(p, base, target))
    if turned and not only_loaded(nest, axes, base):
        raise Unsuited(_ACROSS)
    types = {n: _types(plan, base, target, interleaved) for n, plan in base.plans.items()}
    narrow = any(base.plans[n].op.a.type.dtype.bits == 8 for n in turned)
    if narrow and len(turned) < len(base.plans):
        raise Unsuited(_BESIDE)
    products, warpgroups = _geometry(nest, axes, base, target, warps, narrow)
    left = max((_left_registers(axes, products, base.plans[n]) for n in turned), default=0)
    channels = plan_channels(program, nest, axes, products, definitions, facts, origin)
    held = plan_held(program, nest, axes, products, definitions, facts, origin, wanted)
    if wanted and not held:
        raise Unsuited("no tile is read as accumulators lie")
    scalars = producer_scalars((*channels, *held), definitions)
    reuse = Reuse(program, nest, channels, definitions, facts)
    widest = max(products.layouts[n].capacity for n in products.columns)
    streams = reuse.streams(products.swapped and widest < WARPGROUP_ROWS)
    sharing = None if streams else reuse.sharing(target)
    if sharing is not None and reuse.is_one_pair(sharing):
        streams = reuse.streams(False, sharing)
    registers = target.role_registers.get(warpgroups, (0, 0))
    if products.accumulators + left + target.consumer_registers_besides > (registers[1] or 255):
        raise Unsuited(f"{products.accumulators} accumulators a thread leave no room")
    departure = None
    # chunks would take the place of slots of a CTA's own stream, whose copies cover the time that plain stores take
    if not streams or sharing is not None:
        departure = _departure(program, nest, axes, products, definitions, facts)
    # chunks leave where the wait for a product is left to the next trip
    bare = not turned and len(channels) == 1 and [len(s.home) for s in channels[0].sites] == [1]
    bare = bare and running_sum(channels[0].sites[0].home[0], definitions) is not None
    streamed = frozenset(stream.value for stream in streams)
    chunks = 4 * warpgroups * CHUNKS_UNDER_WAY
    if departure is not None and departure.needs:
        # only some instances have chunks, which do not wait for a next one: no ring gives a slot for them
        brought = (*channels, *held)
        slots = [_slots(brought, target, stages, room, streamed) for room in (0, chunks)]
        departure = departure if slots[0] == slots[1] and not bare else None
    room = (registers[1] or 255) - products.accumulators - ROOM_BESIDES
    packed = products.accumulators // 2
    # what is loaded early takes the registers of the packed tile that has left by then
    epilogue = plan_epilogue(
        program, nest, axes, placement, products, definitions, min(room, packed)
    )
    if departure is not None:
        # a load behind the last product would find all registers taken: by the accumulators and by what they are packed to
        waiting = products.accumulators * departure.bits // 32
        fits = waiting <= room and not epilogue.late and not departure.across
        departure = replace(departure, deferred=fits and bare)
        if departure.deferred:
            # what was loaded early gives its registers to what is packed, vector by vector
            room = max(room - waiting, packed)
        elif departure.bits < 32:
            room -= packed
    # without a fill accumulators are taken from the start, beside what waits to leave and what the epilogue reads
    unfilled = epilogue.words is not None and epilogue.words <= room
    leaving = chunks if departure else 0
    split = None
    if streams and sharing is None and not turned:
        split = plan_split(nest, axes, channels, products, streams, definitions, warpgroups, target)
        leaving += split.bytes if split is not None else 0
    channels = (*channels, *held)
    try:
        channels = with_slots(channels, target, stages, leaving, streamed, split is not None)
    except Unsuited:
        if not held or departure is None or departure.deferred:
            raise
        # a ring that is filled ahead is worth more than bulk copies of what leaves
        departure = None
        channels = with_slots(channels, target, stages, 0, streamed, split is not None)
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
        unfilled=unfilled,
        streams=streams,
        turned=turned,
        split=split,
        dealt=sharing is not None or bool(streams) or not _hang_on_memory(nest, facts),
        launched=min(255, target.registers_per_sm // (WARPGROUP * (warpgroups + 1)) // 8 * 8),
        interleaved=interleaved,
        lag=_lag(channels[0].slots, warpgroups, target) if bare and sharing and not streams else 0,
    )


def _lag(slots: int, warpgroups: int, target: Target) -> int:
    """Trips that a warpgroup ends behind the one before it, whose epilogue runs under its products. Those of the one before are all in the
    ring by then, beside the trip in front of them, whose slot is free when a product behind it has been started. Where CTAs do
    not share operands launches of several rounds are 0.4 to 1.3 % slower with it on an H200."""
    deep = 0 < target.staggered_slots <= slots
    return slots - 1 if deep and warpgroups > 1 else 0


def _hang_on_memory(nest: t.Nest, facts: Facts) -> bool:
    """Whether loaded numbers say which instances have anything to do, or which trips of a loop survive, and a loop with several products how
    much: one takes many times as long as its neighbour."""
    filtered = any(isinstance(op, t.Survivors) for op in all_ops(nest.body))
    if left_of(nest, facts) is None and not filtered:
        return False
    loops = [op for op in all_ops(nest.body) if isinstance(op, t.For)]
    return any(sum(isinstance(inner, t.Dot) for inner in all_ops(op.body)) > 1 for op in loops)


def _slots(
    channels: tuple[Channel, ...],
    target: Target,
    stages: int | None,
    leaving: int,
    streamed: frozenset[int],
) -> tuple[int, ...]:
    """The slots of each channel's ring beside chunks of so many bytes; none where there is no room for two."""
    try:
        return tuple(c.slots for c in with_slots(channels, target, stages, leaving, streamed))
    except Unsuited:
        return ()


def _departure(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    products: Products,
    definitions: Definitions,
    facts: Facts,
) -> Departure | None:
    """The first store of a tile of accumulators' shape that may leave by bulk copies: of 16- or 32-bit elements, to all places of the
    tensor that its spans reach. Single 16-bit elements side by side in shared memory would take two stores a word."""
    for op in nest.body.ops:
        if not isinstance(op, t.Store) or op.value.type.rank != 2:
            continue
        tensor = program.tensor(op.access.tensor)
        if tensor.role != "output" or tensor.dtype.bits not in (16, 32):
            continue
        found = axes.of_access(op)
        down, along = found[::-1] if products.swapped else found
        if down is None or along is None or along.number not in products.columns:
            continue
        if down.number not in products.layouts or down.number in products.columns:
            continue
        if along.number in products.apart:
            continue  # a chunk is of all columns of a row
        paired = is_paired(products.layouts[down.number])
        if products.swapped and tensor.dtype.bits == 16 and not paired:
            continue
        try:
            box = tensor_box(program, op.access, facts)
        except Unsuited:
            continue
        needs = _needs(op.value, box, facts)
        if needs is None or (needs and products.swapped):
            continue
        columns = products.layouts[along.number].capacity
        bits = tensor.dtype.bits
        # across, a chunk's rows are 16 elements whatever its depth
        widths = CHUNK_WIDTHS[:1] if products.swapped else CHUNK_WIDTHS
        depth = next((w * 8 // bits for w in widths if columns % (w * 8 // bits) == 0), 0)
        whole = depth > 0
        # a chunk has all that accumulators have: what pads a tile must not lie in the next one
        for axis, found_axis, place in zip(
            op.value.type.axes, found, (box.row, box.col), strict=True
        ):
            assert found_axis is not None
            if products.layouts[found_axis.number].capacity != found_axis.capacity:
                beyond = box.dims[place] - box.start[place] - axis.extent
                whole &= facts.prove_nonnegative(-beyond)
        if whole:
            return Departure(op, bits, depth, False, products.swapped, needs=needs)
    return None


def _needs(value: t.Value, box: TensorBox, facts: Facts) -> tuple[Sym, ...] | None:
    """Numbers that are at least 0 where all elements of a tile that lie inside the tensor are stored; None where there are none such."""
    needs: list[Sym] = []
    for axis, place, (first, last) in zip(
        value.type.axes, (box.row, box.col), box.inner, strict=True
    ):
        inside = box.dims[place] - box.start[place]
        needs += [] if first is None else [-first]
        needs += [] if last is None else [last - axis.extent]
        for constraint in axis.presence:
            match constraint:
                case t.Below(limit):
                    if not facts.prove_nonnegative(limit - inside):
                        needs.append(limit - axis.extent)
                case t.AtLeast(limit):
                    needs.append(-limit)
                case _:
                    return None
    return tuple(dict.fromkeys(n for n in needs if not facts.prove_nonnegative(n)))


def _types(
    plan: ProductPlan, products: Products, target: Target, interleaved: frozenset[str]
) -> str:
    """The instruction's name for the operands, in its order."""
    a, b = plan.op.a.type.dtype, plan.op.b.type.dtype
    if products.swapped:
        a, b = b, a
    found: Product | None = None
    for product in target.products:
        if product.form == "wgmma" and (product.a, product.b) == (a, b):
            found = product
    if found is None or a not in TYPE_NAMES or b not in TYPE_NAMES:
        raise Unsuited(f"no product of warpgroups takes {a} and {b} from shared memory as they are")
    for operand in (plan.a, plan.b):
        if isinstance(operand, InRegisters):
            ordered = plan.b.load is not None and plan.b.load.access.tensor in interleaved
            if a.bits != 16 and not ordered:
                raise Unsuited(f"accumulators are no left operand of {a} as they are")
            extent = operand.source.type.axes[1].capacity
            if a.bits == 8 and plan.k_extent != extent:
                # registers hold whole steps: four neighbours are packed into one
                raise Unsuited(f"a consumed extent of {extent} is no whole number of steps")
            continue
        if operand.load is None:
            raise Unsuited("an operand is computed, not loaded")
    if is_across(plan, plan.a if products.swapped else plan.b, target):
        raise Unsuited(_ACROSS)
    first, second = TYPE_NAMES[a], TYPE_NAMES[b]
    return first if first == second else f"{first}_{second}"


# ------------------------------------------------------------------------------------------ geometry


_ACROSS = (
    "an operand of elements that are not of 16 bits must have the consumed axis last in memory"
)
_BESIDE = (
    "rows of 8-bit operands that lie across are in another order than those of the products beside"
)


def _left_registers(axes: Axes, products: Products, plan: ProductPlan) -> int:
    """Registers of a thread for the left operand of a product's trip."""
    row, _ = sides_of(axes, plan, products.swapped)
    blocks = products.layouts[row.number].steps // 2
    step = 32 * 8 // plan.op.a.type.dtype.bits
    return 4 * blocks * (plan.k_extent // step)


def _geometry(
    nest: t.Nest,
    axes: Axes,
    base: Products,
    target: Target,
    warps: int | None,
    paired: bool,
) -> tuple[Products, int]:
    """The products' layouts for warpgroups of 64 rows: rows over warpgroups, whole columns in each; or, where these are too many, the
    same rows in all, which share out columns that nothing goes along. `paired` as in `warpgroup_rows`."""
    sides = [sides_of(axes, plan, base.swapped) for plan in base.plans.values()]
    rows = {row.number: row for row, _ in sides}
    extent = max(c.capacity or 1 for c in rows.values())
    if extent < WARPGROUP_ROWS:
        raise Unsuited(f"{extent} rows are fewer than the {WARPGROUP_ROWS} of a warpgroup")
    most = max(target.role_registers)
    warpgroups = warps // 4 if warps else min(most, 2, -(-extent // WARPGROUP_ROWS))
    if extent % (WARPGROUP_ROWS * 3) == 0 and not warps and extent <= WARPGROUP_ROWS * 3:
        warpgroups = min(most, 3)
    chained = any(isinstance(p.a, InRegisters) for p in base.plans.values())
    if chained and extent == WARPGROUP_ROWS * 4 and not warps:
        warpgroups = min(most, 4)  # what stands between two products hides behind those of others
    if warpgroups not in target.role_registers or (warps or 0) % 4:
        raise Unsuited(f"{warps} warps are not one to {most} warpgroups")
    found = _laid_out(axes, base, sides, warpgroups, paired, frozenset())
    free = frozenset(c.number for _, c in sides if _is_free(nest, axes, base, c))
    if free and chained and not base.swapped and not _have_room(found, warpgroups, target):
        for count in [warps // 4] if warps else sorted(target.role_registers):
            beside = _laid_out(axes, base, sides, count, paired, free)
            if count > 1 and _have_room(beside, count, target):
                return beside, count
    return found, warpgroups


def _have_room(products: Products, warpgroups: int, target: Target) -> bool:
    registers = target.role_registers[warpgroups][1] or 255
    return products.accumulators + target.consumer_registers_besides <= registers


def _is_free(nest: t.Nest, axes: Axes, base: Products, column: AxisClass) -> bool:
    """Whether no product consumes columns, and nothing goes along them."""
    if column.reduced or any(_consumes(axes, plan, column.number) for plan in base.plans.values()):
        return False
    for op in all_ops(nest.body):
        if isinstance(op, t.Scan | t.TopK | t.ReduceWith | t.Reshape | t.Slice):
            args = op.args if isinstance(op, t.ReduceWith) else (op.arg,)
            found = [c for arg in args for c in axes.of_value(arg) if c is not None]
            if any(c.number == column.number for c in found):
                return False
    return True


def _laid_out(
    axes: Axes,
    base: Products,
    sides: Sequence[tuple[AxisClass, AxisClass]],
    warpgroups: int,
    paired: bool,
    apart: frozenset[int],
) -> Products:
    """The products in so many warpgroups; `apart`: classes of columns that they share out, all with the same rows."""
    rows = {row.number: row for row, _ in sides}
    columns = {column.number: column for _, column in sides}
    down = 1 if apart else warpgroups
    layouts = {}
    for c in rows.values():
        blocks = -(-(c.capacity or 1) // (WARPGROUP_ROWS * down))
        layouts[c.number] = warpgroup_rows(blocks, down, paired)
    for c in columns.values():
        across = warpgroups if c.number in apart else 1
        tiles = -(-(c.capacity or 1) // (8 * across))
        # what may become a left operand, or leave in chunks, takes them in pairs
        tiles += tiles % 2 if tiles > 1 or not base.swapped else 0
        needed = max(
            (p.k_extent for p in base.plans.values() if _consumes(axes, p, c.number)), default=0
        )
        layouts[c.number] = fragment_columns(
            max(tiles, needed // 8), across, WARPGROUP if apart else 32
        )
    found = replace(
        base,
        warps=4 * warpgroups,
        row_warps=4 * down,
        layouts=layouts,
        columns=frozenset(columns),
        accumulators=0,
        apart=apart,
    )
    sizes = []
    needed = used = 0
    for plan in base.distinct():
        row, column = sides_of(axes, plan, base.swapped)
        padded = layouts[row.number].capacity * layouts[column.number].capacity
        across = warpgroups if column.number in apart else 1
        sizes.append((plan.op.out.id, padded // (WARPGROUP * down * across)))
        used += padded * plan.k_extent
        needed += (row.capacity or 1) * (column.capacity or 1) * plan.k_extent
        width = layouts[column.number].capacity // across
        if width > WIDEST_PIECE and width % WIDEST_PIECE:
            raise Unsuited(f"{width} columns are no whole pieces")
    each = WARPGROUP * down
    found.carried = {n: -(-words * 32 * base.warps // each) for n, words in base.carried.items()}
    found.accumulators = found.at_once((*sizes, *found.carried.items()))
    found.waste = 1 - needed / used if used else 0.0
    return found


def _consumes(axes: Axes, plan: ProductPlan, number: int) -> bool:
    for value, axis in ((plan.op.a, 1), (plan.op.b, 0)):
        found = axes.of(value, axis)
        if found is not None and found.number == number:
            return True
    return False
