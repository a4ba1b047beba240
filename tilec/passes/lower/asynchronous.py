"""The asynchronous form of a nest: what the producer does, and what the products of the consumers wait for and release.

producer   for each instance: the loops around operand tiles; for each tile: wait until its slot is free, announce
           the bytes, start the copies
consumers  everything else; a product waits for its tiles, and releases their slots when it is done
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, I32, TF32, U32
from tilec.ir.launch import TensorMapArgument
from tilec.ir.symbolic import Sym, Var
from tilec.passes.asynchronous import Asynchronous
from tilec.passes.boxes import TensorBox, load_box
from tilec.passes.channels import Channel, Site
from tilec.passes.lower import operand_edges
from tilec.passes.lower.alive import renewed, where_alive
from tilec.passes.lower.bits import has_word
from tilec.passes.lower.context import Context
from tilec.passes.lower.leaving import Leaving
from tilec.passes.lower.left import left_operand
from tilec.passes.lower.operand_rings import OperandRings
from tilec.passes.lower.own_range import OwnRange, find_own_range
from tilec.passes.lower.parts import left_parts, load_whole, place_left, start_in_parts
from tilec.passes.lower.products import accumulators, products_of
from tilec.passes.lower.questions import costs_more_later
from tilec.passes.lower.row_reads import read_rows
from tilec.passes.lower.shares import RANK, SharedSums, splits
from tilec.passes.lower.survivors import walked
from tilec.passes.lower.turns import turn_of
from tilec.passes.lower.warpgroup import first_row, start_product
from tilec.passes.products import InRegisters, Staged
from tilec.passes.uses import Definitions, all_ops, running_sum
from tilec.source.text import NOWHERE

KEEPS_DIVISORS = (40, 128)
"""Registers of a producer's and of a consumer's thread from which on it keeps what some instructions give again; a consumer does not
beside tiles that are brought, which take its last ones."""


class Roles(OperandRings):
    """The producer's ops of one nest, and what lowering of the consumers asks for."""

    def __init__(self, context: Context, form: Asynchronous):
        super().__init__(context, form)
        self.maps: dict[tuple[object, ...], TensorMapArgument] = {}
        self.policies: dict[str, a.CachePolicy] = {}
        """by name of the tensor"""
        self.trip_names: dict[Var, str] = {}
        """the producer's C names of trips"""
        self.own: OwnRange | None = None
        """of the loop in which a warpgroup runs no more trips than it needs"""
        self.rotated = False
        """whether some instances have less to do than the others"""
        self.places: dict[int, str] = {}
        """of left operands that pass through registers, by id of a delayed product's result"""
        self.stagger: a.Stagger | None = None
        """how warpgroups end the loop being lowered"""
        self.delayed: t.Dot | None = None
        """the product of the loop being lowered, whose wait is left to its next trip"""
        self.peers = form.sharing.size if form.sharing else 1
        self.sums = SharedSums(context, form.split) if form.split is not None else None
        self.leaving: Leaving | None = None
        if form.departure is not None:
            self.leaving = Leaving(context, form.departure, form.warpgroups, self.map_of)

    # ---- the producer

    def producer(self, nest: t.Nest) -> tuple[k.Op, ...]:
        """Its ops, rings first."""
        context = self.context
        outer, context.out = context.out, []
        scalars, names = dict(context.scalars), dict(context.value_names)
        words = set(context.names.used)
        context.limits.append({})
        context.one_thread = True
        self._walk(nest.body)
        for channel in self.form.rows:
            self._fill(channel, channel.sites[0])
        context.one_thread = False
        context.limits.pop()
        body, context.out = where_alive(context, walked(tuple(context.out))), outer
        context.scalars, context.value_names = scalars, names
        context.names.used = words
        return (
            *self._declarations(filled=False),
            *self.policies.values(),
            self._instances(body, 0),
        )

    def _declarations(self, filled: bool) -> list[k.Op]:
        return [
            a.RingDeclare(self.rings[c], c.slots, filled, span=NOWHERE)
            for c in self.form.rings
            if filled or c.again is None
        ]

    def _walk(self, block: t.Block) -> None:
        context = self.context
        for op in block.ops:
            if id(op) in self.form.scalars:
                context.lower_scalar(op)
            elif isinstance(op, t.For) and any(id(x) in self.sites for x in all_ops(op.body)):
                name = self._loop_name(op)
                trips = context.index(op.trips)
                outer, context.out = context.out, []
                context.limits.append({})
                self._walk(op.body)
                context.limits.pop()
                body, context.out = tuple(context.out), outer
                loop = self.trips_of(op, name, trips, body)
                # a trip waits for its slots however few instructions it has
                context.out.append(replace(loop, rolled=bool(self.form.interleaved)))
            elif id(op) in self.sites:
                channel, site = self.sites[id(op)]
                if op is site.loads[-1] and channel.again is None:
                    self._fill(channel, site)

    def trips_of(self, op: t.For, name: str, trips: k.Expr, body: tuple[k.Op, ...]) -> k.Loop:
        """A loop, or the trips of it that this CTA runs."""
        if self.sums is not None and splits(self.sums, op):
            return self.sums.trips(name, trips, body)
        return k.Loop(name, trips, body, span=op.span)

    def _loop_name(self, op: t.For) -> str:
        """The trip's C name; that which the consumers take may be another one."""
        from tilec.passes.lower.questions import is_span_loop

        context = self.context
        name = context.names.unique(
            f"{op.name}_tile" if op.name and is_span_loop(op) else op.name or "trip"
        )
        self.trip_names[op.index] = name
        return name

    def _fill(self, channel: Channel, site: Site) -> None:
        """Wait for a free slot and start the copies into it."""
        context = self.context
        ring = self.rings[channel]
        full = self.barrier(channel, free=False)
        span = site.loads[-1].span
        context.out += [
            a.BarrierWait(self.barrier(channel, free=True), ring, span=span),
            a.BarrierExpect(full, ring, channel.bytes, span=span),
        ]
        streamed = {s.value for s in self.form.streams}
        # what comes from memory sets out before what the L2 has
        for operand, load in sorted(
            zip(site.operands, site.loads, strict=True), key=lambda x: x[1].out.id not in streamed
        ):
            self._copy(self.buffers[operand.source.id], load, ring, full)
        context.out.append(a.RingAdvance(ring))

    def share_of(self, buffer: a.PanelBuffer, load: t.Load) -> tuple[a.Share, int]:
        """How the CTAs of a cluster deal a tile out, and how many do."""
        sharing = self.form.sharing
        if sharing is None or load.out.id not in sharing.shared:
            return "none", 1
        panels = buffer.cols // buffer.panel
        whole = panels % sharing.size == 0 and panels > 1
        return "panels" if whole else "rows", sharing.size

    def map_of_load(self, buffer: a.PanelBuffer, load: t.Load) -> str:
        """The name of the tensor map of a load's copies."""
        share, peers = self.share_of(buffer, load)
        rows = buffer.rows // peers if share == "rows" else buffer.rows
        box = load_box(self.context.program, load, self.context.facts)
        return self.map_of(load.access.tensor, box, buffer, rows)

    def _copy(self, buffer: a.PanelBuffer, load: t.Load, ring: str, full: str) -> None:
        context = self.context
        box = load_box(context.program, load, context.facts)
        share, peers = self.share_of(buffer, load)
        coordinates = tuple(context.index(start) for start in reversed(box.start))
        context.out.append(
            a.TensorCopy(
                self.map_of_load(buffer, load),
                buffer,
                ring,
                full,
                coordinates,
                len(box.dims) - 1 - box.row,
                peers,
                share,
                self._policy(load),
                span=load.span,
            )
        )

    def _policy(self, load: t.Load) -> str:
        """The name of the cache policy of a load, "" for the usual one."""
        context = self.context
        limit = products_of(context).target.evict_first_below
        stream = next((s for s in self.form.streams if s.value == load.out.id), None)
        if stream is None or not limit:
            return ""
        tensor = load.access.tensor
        if tensor not in self.policies:
            name = context.names.unique(f"{tensor}_policy")
            size = context.index(stream.bytes, wide=True)
            first: k.Expr = k.Apply("le", (size, k.Literal_(limit, I32)), BOOL)
            if stream.times != Sym.of(1):
                once = k.Apply("eq", (context.index(stream.times), k.Literal_(1, I32)), BOOL)
                first = k.Apply("and", (once, first), BOOL)
            self.policies[tensor] = a.CachePolicy(name, first, span=load.span)
        return self.policies[tensor].name

    def map_of(self, tensor_name: str, box: TensorBox, buffer: a.PanelBuffer, rows: int) -> str:
        """The name of the tensor map of a copy; equal ones are one."""
        context = self.context
        numeric = context.facts.numeric
        tensor = context.program.tensor(tensor_name)
        extents = [1] * len(box.dims)
        extents[box.row] = rows
        extents[box.col] = buffer.panel
        dtype = U32 if tensor.words else tensor.dtype
        size = dtype.bits // 8
        copies = context.variant.copies
        copy = copies.of(tensor.name) if copies is not None else None
        strides = box.strides[:-1] if copy is None else copy.strides
        parts = (
            tensor.name,
            tuple(numeric(d) for d in reversed(box.dims)),
            tuple(numeric(s) * size for s in reversed(strides)),
            tuple(reversed(extents)),
            buffer.swizzle,
        )
        if parts not in self.maps:
            name = context.names.unique(f"{tensor.name}_map")
            # products take f32 as tf32: the copy rounds, where the instruction would cut off; a result, and one row, keep their bits
            operand = tensor.role not in ("output", "inout") and buffer.rows > 1
            dtype = TF32 if dtype == F32 and operand else dtype
            instead = copy.instead if copy is not None else None
            self.maps[parts] = TensorMapArgument(name, tensor.name, dtype, *parts[1:], instead)
        return self.maps[parts].name

    # ---- the consumers

    def _instances(self, body: tuple[k.Op, ...], role: int) -> a.Instances:
        """The loop over instances of the producer (0) or of the consumers (1)."""
        registers = self.form.registers[role]
        scarce = 0 < registers < KEEPS_DIVISORS[role] or (role == 1 and self._is_full(body))
        return a.Instances(body, not scarce)

    def _is_full(self, body: tuple[k.Op, ...]) -> bool:
        """Whether tiles that are brought, or two forms of a function where instances are shared out by cost, take a consumer's last
        registers."""
        loops = [op for op in body if isinstance(op, k.Loop)]
        inner = [x for loop in loops for x in loop.body]
        forms = any(isinstance(x, k.IfAnyLane) and x.otherwise for x in inner)
        nest = self.context.nest
        return self.form.brings or (forms and costs_more_later(nest, nest.grid[-1].index))

    def consumer(self, body: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
        """Rings, and the lowered body for each instance; then what is still to leave."""
        before: list[k.Op] = []
        after: list[k.Op] = []
        if self.leaving is not None:
            before, after = self.leaving.before, self.leaving.after()
        if self.sums is not None:
            before = [*self.sums.before(), *before]
        axes = list(self.context.variant.level.axes.values())
        if products_of(self.context).swapped:
            axes += self.context.extra_axes
        body = where_alive(self.context, renewed(walked(body), axes))
        if self.turns:
            before = [*before, a.Turn("begin", self.form.warpgroups)]
            after = [a.Turn("end", self.form.warpgroups), *after]
        return (*self._declarations(filled=True), *before, self._instances(body, 1), *after)

    def store(self, op: t.Store, otherwise: Callable[[], None]) -> bool:
        """Let a tile leave by bulk copies, `otherwise` one that is not whole; says whether it does."""
        if self.leaving is None or self.leaving.departure.store is not op:
            return False
        self.leaving.leave(otherwise)
        return True

    def arrive(self, load: t.Load) -> None:
        """At an operand's load: wait here for what a loop below reads."""
        channel, site = self.sites[id(load)]
        if load is site.loads[-1] and not isinstance(site.last, t.Dot):
            self.wait(channel)
            for operand in site.operands:
                operand_edges.clear(self, operand, False, load.span)

    def reads(self, op: t.Op) -> bool:
        """Whether registers take a tile that the producer has brought."""
        return id(op) in self.sites and self.sites[id(op)][0].held

    def read(self, load: t.Load) -> k.Fragment:
        """Such a tile in registers, of accumulators' shape."""
        context = self.context
        channel, site = self.sites[id(load)]
        self.wait(channel)
        row, col = context.loop_axes(load.out)
        assert row is not None and col is not None
        name = context.names.unique(f"{load.access.tensor}_tile")
        bits = load.out.type.dtype == BOOL and has_word(col)
        words = context.program.tensor(load.access.tensor).words > 0
        fragment = k.Fragment(name, load.out.type.dtype, context.ordered((row, col)))
        if bits:
            fragment = k.Fragment(name, U32, (row,))
        if not bits and site.home:
            context.brought.add(load.out.id)
        blocks = row.layout.steps // 2
        tile = self.tile(site.operands[0])
        context.out += [
            k.Declare(fragment, None, span=load.span),
            a.TileLoad(
                fragment, tile, blocks, first_row(self.form, blocks), bits, words, span=load.span
            ),
        ]
        return fragment

    def leave(self, op: t.Op) -> None:
        """Behind an op of a body: slots that it was the last to read are free."""
        for channel in self.form.channels:
            if any(site.last is op for site in channel.sites) and not isinstance(op, t.Dot):
                self.context.out += self.release(channel)

    def product(self, op: t.Dot) -> k.Fragment:
        """A product: wait for its tiles and start it. What it reads and writes is waited for by `retire`, or, where the wait is left to
        the next trip, here."""
        context = self.context
        plan = products_of(context).plans[op.out.id]
        target = accumulators(context, op)
        left = left_operand(context, plan.a, op) if isinstance(plan.a, InRegisters) else None
        turned = op.out.id in self.form.turned
        staged = [o for o in (plan.a, plan.b) if isinstance(o, Staged)]
        sites = {self.site_of[o.source.id]: self.channel_of[o.source.id] for o in staged}
        if self.stagger is not None:
            waits = replace(self.stagger, what="wait", trip=self._trip(op), span=NOWHERE)
            context.out.append(waits)
        for site, channel in sites.items():
            if isinstance(site.last, t.Dot) and site.first is op:
                self.wait(channel)
        looked: tuple[k.Op, ...] = ()
        for operand in staged:
            site = self.site_of[operand.source.id]
            if isinstance(site.last, t.Dot) and site.first is op:
                looked += operand_edges.clear(
                    self, operand, isinstance(plan.a, InRegisters), op.span
                )
        ending = [channel for site, channel in sites.items() if site.last is op]
        if turned and self.delayed is op:
            context.out += looked
            self._start_in_parts(op, target, ending)
            return target
        turn = turn_of(self, op)
        if turned:
            left = load_whole(self, op)
        if turn.takes:
            context.out.append(a.Turn("take", self.form.warpgroups, span=op.span))
        context.out.append(a.WarpgroupFence(span=op.span))
        continues = self._continues(op)
        start = start_product(context, self.form, op, plan, target, left, continues, self.tile)
        context.out.append(start)
        if self.delayed is op:
            context.out += looked
            self._delay(op, ending)
            return target
        releases = tuple(x for channel in ending for x in self.release(channel))
        if self.own is not None and self.own.last is op:
            releases += self.own.others(self)
        if turn.passes == "done":
            releases = (a.Turn("pass", self.form.warpgroups), *releases)
        context.out += [
            a.WarpgroupCommit((target,), (left,) if left else (), releases),
            *looked,
        ]
        if turn.passes == "started":
            context.out.append(a.Turn("pass", self.form.warpgroups))
        return target

    def own_range(self, loop: t.For, name: str, trips: k.Expr) -> OwnRange | None:
        """The trips of a loop that a warpgroup's own rows need, where those may be fewer than the instance's."""
        self.own = find_own_range(self, loop, name, trips)
        self.rotated |= self.own is not None and self.own.partial
        return self.own

    def _start_in_parts(self, op: t.Dot, target: k.Fragment, ending: list[Channel]) -> None:
        """Start a product whose wait is left to the next trip part by part."""
        place, continues = self.places[op.out.id], self._continues(op)
        start_in_parts(self, op, target, place, continues, partial(self._wait_before, op, ending))
        self._advance(op, ending)

    def _delay(self, op: t.Dot, ending: list[Channel]) -> None:
        """Wait for the product of the trip before, and release its slots."""
        self._wait_before(op, ending)
        self._advance(op, ending)

    def _wait_before(self, op: t.Dot, ending: list[Channel]) -> None:
        """The group ends here; behind the wait for the one before, which was the trip before's last, its slots are free."""
        context = self.context
        context.out += [a.WarpgroupCommit(), a.WarpgroupWait(1)]
        body = tuple(x for channel in ending for x in self.release(channel, previous=True))
        some = k.Apply("gt", (self._trip(op), k.Literal_(0, I32)), BOOL)
        context.out.append(k.IfUniform(some, body))

    def _advance(self, op: t.Dot, ending: list[Channel]) -> None:
        """To the next slots; let a chunk of the tile before leave."""
        self.context.out += [a.RingAdvance(self.rings[c]) for c in ending]
        if self.leaving is not None and self.leaving.departure.deferred:
            self.context.out.append(self.leaving.chunks(trip=self._trip(op)))

    def _trip(self, op: t.Dot) -> k.Expr:
        loop = self.context.definitions.loops[op.out.id][-1]
        assert isinstance(loop, t.For)
        if self.sums is not None and splits(self.sums, loop):
            return k.Index(self.sums.number(), I32)
        return k.Index(Sym.of(loop.index), I32)

    def _continues(self, op: t.Dot) -> k.Expr | None:
        """Where the accumulators were not filled: whether the product adds to them."""
        around = self.context.definitions.loops[op.out.id]
        loop = around[-1] if around else None
        if not isinstance(loop, t.For) or self.delayed is not op:
            return None
        carried = self.unfilled(loop)
        if carried is None or carried.next is not op.out:
            return None
        return k.Apply("gt", (self._trip(op), k.Literal_(0, I32)), BOOL)

    # ---- loops whose product runs on into the next trip

    def delays(self, loop: t.For) -> t.Dot | None:
        """The product of a loop that does nothing else with its accumulators: the wait for it may stand behind the next one's
        start."""
        dot = running_sum(loop, self.context.definitions)
        sites = self._sites_of(dot) if dot is not None else []
        alone = len(sites) == 1 and sites[0].first is dot and sites[0].last is dot
        # the next trip overwrites registers that a product reads, unless these are of its parts
        turned = dot is not None and dot.out.id in self.form.turned
        plans = products_of(self.context).plans
        whole = turned and dot is not None and len(left_parts(plans[dot.out.id])) == 1
        return dot if alone and not whole else None

    def begin_delayed(self, dot: t.Dot, trips: k.Expr) -> None:
        """In front of such a loop: what its trips find ready."""
        if dot.out.id in self.form.turned:
            self.places[dot.out.id] = place_left(self, dot)
        self.stagger = self._staggered(dot, trips)
        if self.stagger is not None:
            self.context.out.append(self.stagger)

    def _staggered(self, dot: t.Dot, trips: k.Expr) -> a.Stagger | None:
        """How warpgroups end such a loop one after the other, where they may: none waits for all of them to clear a tile's edges. None
        passes twice before the next has waited: the ring has one slot more than there are trips between them."""
        form = self.form
        if not form.lag or operand_edges.meets(self, dot):
            return None
        loop = self.context.definitions.loops[dot.out.id][-1]
        assert isinstance(loop, t.For)
        name = self.context.names.unique(f"{loop.name or 'trip'}_turn")
        return a.Stagger("begin", name, form.warpgroups, form.lag, trips, span=loop.span)

    def unfilled(self, loop: t.For) -> t.Carried | None:
        """The accumulators of such a loop that begin with zeros, where the first trip's product writes them and there is one."""
        dot = self.delays(loop)
        if dot is None or not self.form.unfilled:
            return None
        if not self._has_trips(loop):
            return None
        for carried in loop.carried:
            if carried.next is dot.out and _is_zero(carried.initial, self.context.definitions):
                return carried
        return None

    def _has_trips(self, loop: t.For) -> bool:
        """Whether each CTA that runs a loop has a trip of it at least."""
        shares = self.sums.split.size if self.sums is not None and splits(self.sums, loop) else 1
        return self.context.facts.prove_nonnegative(loop.trips - shares)

    def _sites_of(self, dot: t.Dot) -> list[Site]:
        plan = products_of(self.context).plans[dot.out.id]
        staged = [o for o in (plan.a, plan.b) if isinstance(o, Staged)]
        return list(dict.fromkeys(self.site_of[o.source.id] for o in staged))

    def finish_delayed(self, loop: t.For, dot: t.Dot, trips: k.Expr, target: k.Fragment) -> None:
        """Behind such a loop: let the rest of the last tile leave, fetch what the next one needs, wait for the last product, release
        its slots."""
        context = self.context
        if self.stagger is not None:
            context.out.append(replace(self.stagger, what="pass", span=NOWHERE))
            self.stagger = None
        some = self._has_trips(loop)
        if self.leaving is not None and self.leaving.departure.deferred:
            context.out.append(self.leaving.chunks(trips=trips, least=int(some)))
        for value in sorted(self.form.early) if self.leaving is not None else ():
            load = context.definitions.defining[value]
            if value in self.channel_of:
                continue
            axes = context.loop_axes(load.outs[0])
            # an element at a time each comes with an address and a register of its own
            if id(load) in context.variant.aligned or not any(x and x.vectorised for x in axes):
                context.hold(load)
        if self.form.rows_ahead:
            read_rows(self)
        context.out.append(a.WarpgroupWait(0, (target,), span=loop.span))
        channels = [self.channel_of[s.operands[0].source.id] for s in self._sites_of(dot)]
        body = tuple(x for channel in channels for x in self.release(channel, previous=True))
        if some:
            context.out += body
        else:
            least: k.Expr = k.Literal_(0, I32)
            if splits(self.sums, loop):
                least = k.Index(RANK, I32)
            context.out.append(k.IfUniform(k.Apply("gt", (trips, least), BOOL), body))
        if not self.form.rows_ahead:
            read_rows(self)


def _is_zero(value: t.Value, definitions: Definitions) -> bool:
    """Whether a tile is all zeros."""
    op = definitions.defining.get(value.id)
    match op:
        case t.Full():
            return _is_zero(op.value, definitions)
        case t.Cast():
            return _is_zero(op.arg, definitions)
        case t.Constant():
            return op.value == 0
        case _:
            return False
