"""The asynchronous form of a nest: what the producer does, and what the products of the consumers wait for and release.

producer   for each instance: the loops around operand tiles; for each tile: wait until its slot is free, announce
           the bytes, start the copies
consumers  everything else; a product waits for its tiles, and releases their slots when it is done
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, I32
from tilec.ir.launch import TensorMapArgument
from tilec.ir.symbolic import Sym, Var
from tilec.passes.asynchronous import (
    CHUNK_ROWS,
    CHUNKS_UNDER_WAY,
    TRANSPOSABLE,
    WIDEST_PIECE,
    Asynchronous,
    Channel,
    Departure,
    Member,
    TensorBox,
    load_box,
    panel_buffer,
    tensor_box,
)
from tilec.passes.lower.context import Context
from tilec.passes.lower.lines import rounded_fragment
from tilec.passes.lower.products import accumulators, left_fragment, products_of
from tilec.passes.products import InRegisters, ProductPlan, Staged
from tilec.passes.uses import all_ops


class Roles:
    """Names of rings and barriers of one nest, the producer's ops, and what lowering of the consumers asks for."""

    def __init__(self, context: Context, form: Asynchronous):
        self.context = context
        self.form = form
        self.buffers: dict[int, a.PanelBuffer] = {}
        """by id of the operand's value"""
        self.rings: dict[Channel, str] = {}
        self.channel_of: dict[int, Channel] = {}
        self.loads: dict[int, tuple[Channel, Member]] = {}
        """by id of the load op"""
        self.barriers: list[a.Barrier] = []
        self.maps: dict[tuple[object, ...], TensorMapArgument] = {}
        self.delayed: t.Dot | None = None
        """the product of the loop being lowered, whose wait is left to its next trip"""
        peers = form.sharing.size if form.sharing else 1
        for channel in form.channels:
            names = [m.load.access.tensor for m in channel.members]
            base = "_".join(dict.fromkeys(names))
            ring = context.names.unique(f"{base}_ring")
            self.rings[channel] = ring
            for member in channel.members:
                name = context.names.unique(f"{member.load.access.tensor}_tiles")
                self.buffers[member.operand.source.id] = panel_buffer(name, member, channel.slots)
                self.channel_of[member.operand.source.id] = channel
                self.loads[id(member.load)] = (channel, member)
            warps = form.warpgroups * 4 * self._peers(channel)
            self.barriers += [
                a.Barrier(context.names.unique(f"{ring[:-5]}_full"), channel.slots, 1),
                a.Barrier(context.names.unique(f"{ring[:-5]}_free"), channel.slots, warps),
            ]
        self.peers = peers
        self.leaving = Leaving(context, form.departure, form.warpgroups) if form.departure else None

    def _peers(self, channel: Channel) -> int:
        """CTAs whose copies land in this CTA's slots."""
        sharing = self.form.sharing
        if sharing is None or not any(m.load.out.id in sharing.shared for m in channel.members):
            return 1
        return sharing.size

    def _barrier(self, channel: Channel, free: bool) -> str:
        return self.barriers[2 * self.form.channels.index(channel) + free].name

    # ---- the producer

    def producer(self, nest: t.Nest) -> tuple[k.Op, ...]:
        """Its ops, rings first."""
        context = self.context
        outer, context.out = context.out, []
        scalars, names = dict(context.scalars), dict(context.value_names)
        words = set(context.names.used)
        context.limits.append({})
        self._walk(nest.body)
        context.limits.pop()
        context.scalars, context.value_names = scalars, names
        context.names.used = words
        body, context.out = tuple(context.out), outer
        return (*self._declarations(filled=False), a.Instances(body))

    def _declarations(self, filled: bool) -> list[k.Op]:
        return [
            a.RingDeclare(self.rings[c], c.slots, filled, span=k.NOWHERE)
            for c in self.form.channels
        ]

    def _walk(self, block: t.Block) -> None:
        context = self.context
        for op in block.ops:
            if id(op) in self.form.scalars:
                context.lower_scalar(op)
            elif isinstance(op, t.For) and any(id(x) in self.loads for x in all_ops(op.body)):
                name = self._loop_name(op)
                trips = context.index(op.trips)
                outer, context.out = context.out, []
                context.limits.append({})
                self._walk(op.body)
                context.limits.pop()
                body, context.out = tuple(context.out), outer
                context.out.append(k.Loop(name, trips, body, span=op.span))
            elif id(op) in self.loads:
                channel, member = self.loads[id(op)]
                if member is channel.members[-1]:
                    self._fill(channel)

    def _loop_name(self, op: t.For) -> str:
        """The trip's C name; the consumers take it again."""
        from tilec.passes.lower.questions import is_span_loop

        context = self.context
        name = context.names.unique(
            f"{op.name}_tile" if op.name and is_span_loop(op) else op.name or "trip"
        )
        context.var_names[op.index] = name
        return name

    def _fill(self, channel: Channel) -> None:
        """Wait for a free slot and start the copies into it."""
        context = self.context
        ring = self.rings[channel]
        full = self._barrier(channel, free=False)
        span = channel.members[-1].load.span
        context.out += [
            a.BarrierWait(self._barrier(channel, free=True), ring, span=span),
            a.BarrierExpect(full, ring, channel.bytes, span=span),
        ]
        for member in channel.members:
            self._copy(member, ring, full)
        context.out.append(a.RingAdvance(ring))

    def _copy(self, member: Member, ring: str, full: str) -> None:
        context = self.context
        buffer = self.buffers[member.operand.source.id]
        box = load_box(context.program, member.load, context.facts)
        sharing = self.form.sharing
        shared = sharing is not None and member.load.out.id in sharing.shared
        peers = sharing.size if sharing is not None and shared else 1
        panels = buffer.cols // buffer.panel
        share = "none" if not shared else "panels" if panels % peers == 0 and panels > 1 else "rows"
        rows = buffer.rows // peers if share == "rows" else buffer.rows
        name = self.map_of(member.load.access.tensor, box, buffer, rows)
        coordinates = tuple(context.index(start) for start in reversed(box.start))
        context.out.append(
            a.TensorCopy(
                name,
                buffer,
                ring,
                full,
                coordinates,
                len(box.dims) - 1 - box.row,
                peers,
                share,  # type: ignore[arg-type]
                span=member.load.span,
            )
        )

    def map_of(self, tensor_name: str, box: TensorBox, buffer: a.PanelBuffer, rows: int) -> str:
        """The name of the tensor map of a copy; equal ones are one."""
        context = self.context
        numeric = context.facts.numeric
        tensor = context.program.tensor(tensor_name)
        extents = [1] * len(box.dims)
        extents[box.row] = rows
        extents[box.col] = buffer.panel
        size = tensor.dtype.bits // 8
        parts = (
            tensor.name,
            tuple(numeric(d) for d in reversed(box.dims)),
            tuple(numeric(s) * size for s in reversed(box.strides[:-1])),
            tuple(reversed(extents)),
            buffer.span,
        )
        if parts not in self.maps:
            name = context.names.unique(f"{tensor.name}_map")
            self.maps[parts] = TensorMapArgument(name, tensor.name, tensor.dtype, *parts[1:])
        return self.maps[parts].name

    # ---- the consumers

    def consumer(self, body: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
        """Rings, and the lowered body for each instance; then what is still to leave."""
        before: list[k.Op] = []
        after: list[k.Op] = []
        if self.leaving is not None:
            before, after = self.leaving.before, self.leaving.after()
        return (*self._declarations(filled=True), *before, a.Instances(body), *after)

    def store(self, op: t.Store) -> bool:
        """Let a tile leave by bulk copies; says whether it does."""
        if self.leaving is None or self.leaving.departure.store is not op:
            return False
        self.leaving.store(self)
        self.leaving.final = self.leaving.chunks(self)
        return True

    def arrive(self, load: t.Load) -> None:
        """At an operand's load: wait here for what a loop below reads."""
        channel, member = self.loads[id(load)]
        if member is channel.members[-1] and not isinstance(channel.last, t.Dot):
            self._wait(channel)

    def leave(self, op: t.Op) -> None:
        """Behind an op of a body: slots that it was the last to read are free."""
        for channel in self.form.channels:
            if channel.last is op and not isinstance(op, t.Dot):
                self._release(channel)

    def _wait(self, channel: Channel) -> None:
        self.context.out.append(
            a.BarrierWait(self._barrier(channel, free=False), self.rings[channel])
        )

    def _release(self, channel: Channel, previous: bool = False) -> None:
        release = a.BarrierRelease(
            self._barrier(channel, free=True), self.rings[channel], previous, self._peers(channel)
        )
        self.context.out.append(release)
        if not previous:
            self.context.out.append(a.RingAdvance(self.rings[channel]))

    def product(self, op: t.Dot) -> k.Fragment:
        """A product: wait for its tiles, start it, wait for it (or for the one before it), release."""
        context = self.context
        plan = products_of(context).plans[op.out.id]
        target = accumulators(context, op)
        left: k.Fragment | None = None
        if isinstance(plan.a, InRegisters):
            left = left_fragment(context, plan.a, op)
        own = self._channels_of(plan)
        for channel in own:
            if isinstance(channel.last, t.Dot) and channel.first is op:
                self._wait(channel)
        context.out.append(a.WarpgroupFence(span=op.span))
        context.out.append(self._start(op, plan, target, left))
        context.out.append(a.WarpgroupCommit())
        ending = [c for c in own if c.last is op]
        if self.delayed is op:
            context.out.append(a.WarpgroupWait(1))
            trip = k.Index(Sym.of(context.definitions.loops[op.out.id][-1].index), I32)
            outer, context.out = context.out, []
            for channel in ending:
                self._release(channel, previous=True)
            body, context.out = tuple(context.out), outer
            context.out.append(k.IfUniform(k.Apply("gt", (trip, k.Literal_(0, I32)), BOOL), body))
            context.out += [a.RingAdvance(self.rings[c]) for c in ending]
            if self.leaving is not None and self.leaving.departure.deferred:
                context.out.append(self.leaving.chunks(self, trip=trip))
            return target
        context.out.append(a.WarpgroupWait(0, (target,)))
        for channel in ending:
            self._release(channel)
        return target

    def _channels_of(self, plan: ProductPlan) -> list[Channel]:
        found: dict[Channel, None] = {}
        for operand in (plan.a, plan.b):
            if isinstance(operand, Staged):
                found[self.channel_of[operand.source.id]] = None
        return list(found)

    def _tile(self, operand: Staged) -> k.TileAddress:
        number = operand.source.id
        ring = self.rings[self.channel_of[number]]
        return k.TileAddress(self.buffers[number].name, k.Local(f"{ring}.slot", I32))

    def _start(
        self, op: t.Dot, plan: ProductPlan, target: k.Fragment, left: k.Fragment | None
    ) -> a.WarpgroupProduct:
        context = self.context
        row, col = context.loop_axes(op.out)
        assert row is not None and col is not None and isinstance(plan.b, Staged)
        columns = col.layout.capacity
        types = self.form.types[op.out.id]
        blocks = row.layout.steps // 2
        first = f"uniform_int(thread / 128) * {64 * blocks}" if self.form.warpgroups > 1 else "0"
        staged = plan.a if isinstance(plan.a, Staged) else None
        operand: k.TileAddress | k.Fragment
        if staged is not None:
            operand = self._tile(staged)
        else:
            assert left is not None
            operand = left
        return a.WarpgroupProduct(
            target,
            types,
            plan.k_extent,
            32 * 8 // op.a.type.dtype.bits,
            operand,
            self._tile(plan.b),
            staged is not None and staged.k_axis == 0,
            plan.b.k_axis == 0,
            blocks,
            columns,
            min(columns, WIDEST_PIECE),
            first,
            types in TRANSPOSABLE,
            span=op.span,
        )

    # ---- loops whose product runs on into the next trip

    def delays(self, loop: t.For) -> t.Dot | None:
        """The product of a loop that does nothing else with its accumulators: the wait for it may stand behind the next one's
        start."""
        dots = [op for op in all_ops(loop.body) if isinstance(op, t.Dot)]
        if len(dots) != 1 or dots[0] not in loop.body.ops:
            return None
        (dot,) = dots
        users = self.context.definitions.users
        channels = self._channels_of(products_of(self.context).plans[dot.out.id])
        if any(c.first is not dot or c.last is not dot for c in channels):
            return None
        for carried in loop.carried:
            if carried.next is dot.out and dot.accumulate is carried.entry:
                alone = all(u is dot for u in users[carried.entry.id])
                return dot if alone and all(u is loop for u in users[dot.out.id]) else None
        return None

    def finish_delayed(self, loop: t.For, dot: t.Dot, trips: k.Expr, target: k.Fragment) -> None:
        """Behind such a loop: wait for the last product, release its slots."""
        context = self.context
        context.out.append(a.WarpgroupWait(0, (target,), span=loop.span))
        plan = products_of(context).plans[dot.out.id]
        outer, context.out = context.out, []
        for channel in self._channels_of(plan):
            self._release(channel, previous=True)
        body, context.out = tuple(context.out), outer
        context.out.append(k.IfUniform(k.Apply("gt", (trips, k.Literal_(0, I32)), BOOL), body))
        if self.leaving is not None and self.leaving.departure.deferred:
            context.out.append(self.leaving.chunks(self, trips=trips))


class Leaving:
    """A tile on its way out: packed registers and coordinates that outlive their instance, and the chunks' shared memory."""

    def __init__(self, context: Context, departure: Departure, warpgroups: int):
        self.context = context
        self.departure = departure
        store = departure.store
        name = store.access.tensor
        rep = context.program.tensor(name).dtype
        self.box = tensor_box(context.program, store.access, context.facts)
        row, col = (
            context.variant.level.axes[c.number]
            for c in context.axes.of_access(store)
            if c is not None
        )
        self.axes = (row, col)
        self.blocks = row.layout.steps // 2
        self.panels = col.layout.capacity // departure.columns
        slots = 4 * warpgroups * CHUNKS_UNDER_WAY
        self.buffer = a.PanelBuffer(
            context.names.unique(f"{name}_chunks"), rep, CHUNK_ROWS, departure.columns, slots
        )
        self.fragment = k.Fragment(
            context.names.unique(f"{name}_out"), rep, context.ordered(self.axes)
        )
        self.before: list[k.Op] = []
        self.map = ""
        self.final: k.Op = a.BulkDrain()
        self.places: list[k.Fragment] = []
        for n in range(len(self.box.dims)):
            end = "row" if n == self.box.row else "col" if n == self.box.col else f"at{n}"
            self.places.append(k.Fragment(context.names.unique(f"{name}_{end}"), I32))
        if departure.deferred:
            self.before.append(
                k.Declare(self.fragment, k.Apply("convert", (k.Literal_(0.0, F32),), rep))
            )
            for n, place in enumerate(self.places):
                # behind the tensor's end: what leaves before there is anything is left out
                first = context.index(self.box.dims[n]) if n == self.box.row else k.Literal_(0, I32)
                self.before.append(k.Declare(place, first))

    def chunks(
        self, roles: Roles, trip: k.Expr | None = None, trips: k.Expr | None = None
    ) -> a.SendChunks:
        """The op that sends all chunks, or those of a trip."""
        if not self.map:
            name = self.departure.store.access.tensor
            self.map = roles.map_of(name, self.box, self.buffer, CHUNK_ROWS)
        return a.SendChunks(
            self.fragment,
            self.buffer,
            self.map,
            tuple(k.Local(p.name, I32) for p in reversed(self.places)),
            len(self.places) - 1 - self.box.row,
            self.blocks,
            self.panels,
            CHUNKS_UNDER_WAY,
            trip=trip,
            trips=trips,
            span=self.departure.store.span,
        )

    def store(self, roles: Roles) -> None:
        """Pack the tile and note where it goes; send it now unless it is deferred."""
        context = self.context
        store = self.departure.store
        rounded_fragment(
            context, store.value, self.axes, self.fragment, store.span, not self.departure.deferred
        )
        thread = Sym.of(Var("thread", "local"))
        warp = thread // 128 * (64 * self.blocks) + thread % 128 // 32 * 16
        for n, place in enumerate(self.places):
            start = self.box.start[n] + (warp if n == self.box.row else 0)
            value = context.index(start)
            if self.departure.deferred:
                context.out.append(k.Assign(place, value, span=store.span))
            else:
                context.out.append(k.Let(place.name, I32, value, span=store.span))
        if not self.departure.deferred:
            context.out.append(self.chunks(roles))

    def after(self) -> list[k.Op]:
        """Behind the last instance."""
        last = [self.final] if self.departure.deferred else []
        return [*last, a.BulkDrain()]


def with_roles(kernel: k.Kernel, roles: Roles, producer: tuple[k.Op, ...]) -> k.Kernel:
    """The kernel with its roles, maps, rings and barriers."""
    form = roles.form
    both = a.Roles(
        form.threads, form.registers[0], form.registers[1], producer, roles.consumer(kernel.body)
    )
    sharing = form.sharing
    digit = roles.context.var_names[sharing.digit] if sharing else ""
    return replace(
        kernel,
        threads=form.threads + 128,
        producers=128,
        arguments=(*roles.maps.values(), *kernel.arguments),
        panels=(
            *roles.buffers.values(),
            *([roles.leaving.buffer] if roles.leaving is not None else []),
        ),
        barriers=tuple(roles.barriers),
        cluster=sharing.size if sharing else 1,
        cluster_digit=digit,
        body=(both,),
    )
