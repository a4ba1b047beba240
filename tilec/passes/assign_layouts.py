"""Layouts for the axis classes of a nest, as few compiled variants as its sizes ask for.

Classes that never meet in a value share the CTA's threads (one *slot*). The slot of the class that memory runs along
is the fast one: neighbouring threads, 16-byte vectors. What is left of the threads goes to the other classes, a reduced
class last (its coordinates rather sit in registers: no exchange).

A bounded run-time extent gives one variant per level of threads and vectors, chosen at launch by the extent; what does
not fit registers is walked (`streams`): read again by every reduction. Each level has an aligned form and, where alignment is
a matter of the launch, a general one that moves single elements. Numbers: vectors per thread and CTA sizes as measured
on an H200 for rows of 256 B to 256 KB (see docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from itertools import product
from math import prod

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.kernel_ir import LoopAxis
from tilec.ir.launch import AllOf, LaunchCondition
from tilec.ir.layouts import AxisLayout, blocked, streamed
from tilec.ir.symbolic import Sym
from tilec.passes import few_instances
from tilec.passes.alignment import Alignment, alignment
from tilec.passes.axes import Axes, AxisClass, access_rank, slots_of
from tilec.passes.axis_names import axis_names
from tilec.passes.covering import Cover, covers_of, fields_along
from tilec.passes.crossing import crossing, vector_of
from tilec.passes.levels import (
    LONG_WALK,
    MANY_THREADS,
    REGISTERS_OF_LONG_WALKS,
    REGISTERS_OF_WARPS,
    SCANNED_WORDS,
    Transport,
    cluster_levels,
    fills,
    least_cta,
    levels,
    power_of_two,
    power_of_two_in,
    registers_of_parts,
    registers_of_rows,
    registers_of_tiles,
    resident_ctas,
    takes_queue,
)
from tilec.passes.placement import Placement
from tilec.passes.private import THREADS, private_tensors
from tilec.passes.schedule.partial import leaves_sums
from tilec.passes.tile_registers import TileRegisters
from tilec.passes.uses import all_ops, syms_of
from tilec.passes.variants import Level as Level
from tilec.passes.variants import Variant as Variant
from tilec.passes.windows import Window, window_of
from tilec.source.diagnostics import fail
from tilec.targets.table import Target

MOST_STEPS = 32
"""Coordinates beside the fast axis that a thread takes while there are threads left: every one is unrolled."""

MOST_WORDS = 160
"""Registers a thread may need for one tile that has to be in registers, where everything else is walked."""


def assign(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    placement: Placement,
    target: Target,
    warps: int | None,
) -> tuple[Variant, ...]:
    """All variants of a nest, the general one last. Raises E0601 where a tile fits nowhere."""
    return Assignment(program, nest, axes, placement, target, warps).variants()


class Assignment:
    """The choice of layouts for one nest."""

    def __init__(
        self,
        program: t.Program,
        nest: t.Nest,
        axes: Axes,
        placement: Placement,
        target: Target,
        warps: int | None,
    ):
        self.program = program
        self.nest = nest
        self.axes = axes
        self.placement = placement
        self.target = target
        self.warps = warps
        self.facts = Facts.of(program)
        self.ops = list(all_ops(nest.body))
        accesses = [op for op in self.ops if isinstance(op, t.Load | t.Store | t.Atomic)]
        self.accesses = [op for op in accesses if self._most_elements(op) > 1]
        """those that may move vectors"""
        self.slots = slots_of(axes)
        self.registers = TileRegisters(
            self.ops, axes, placement, self.slots[0] if self.slots else ()
        )
        self.fast = self.slots[0][0] if self.slots else None
        self.names = axis_names(axes, program)
        self.wide = self._width(accesses)
        self.covers: dict[int, Cover] = {}
        self.transport: Transport = "aligned"
        self.window = self._window()
        self.least_threads = 1 if self._in_step() else 32

    # ---- variants

    def variants(self) -> tuple[Variant, ...]:
        """Aligned levels by size, then windows, then general ones; the last of all takes everything."""
        if self.wide == 1:
            return tuple(self._form("single", 1, [], [], set()))
        covers = self._covers()
        conditions, divisors, accesses = self.alignment(self.wide, covers=covers)
        self.covers = {n: cover for n, cover in covers.items() if n in accesses}
        accesses -= set(self.covers)
        result = self._form("aligned", self.wide, conditions, divisors, accesses)
        self.covers = {}
        if not conditions:
            return tuple(result)
        if self.window is not None:
            result += self._form("window", self.wide, list(self.window.conditions), [], set())
        return (*result, *self._form("single", 1, [], [], set()))

    def _form(
        self,
        transport: Transport,
        width: int,
        conditions: list[LaunchCondition],
        divisors: list[tuple[Sym, int]],
        accesses: set[int],
    ) -> list[Variant]:
        """The variants of one transport by size."""
        self.transport = transport
        ending = {"aligned": "", "window": "window", "single": "any" if self.wide > 1 else ""}
        result: list[Variant] = []
        before: tuple[Sym, Sym] | None = None
        stays = takes_queue(self.target)
        for level, bound, few in (*self._few(width), *((*x, ()) for x in self._levels(width))):
            parts: list[LaunchCondition] = [*conditions, *few]
            if bound is not None:
                parts.append(t.HostOp("<=", bound))
            batch = self._batch(level)
            private, batch = self._private(level, batch)
            size = f"{self.fast.name}{bound[1]}" if bound is not None and self.fast else ""
            size = size or (few_instances.NAME if few else "walk" if level.streams else "")
            result.append(
                Variant(
                    "_".join(part for part in (size, ending[transport]) if part),
                    level,
                    AllOf(tuple(parts)),
                    tuple(divisors),
                    frozenset(accesses),
                    batch,
                    self._blocks(level, batch),
                    window=self.window if transport == "window" else None,
                    beyond=before if stays else None,
                    filled=self._fills(level),
                    crossing=frozenset(map(id, self._crossing(level, batch))),
                    covers=self.covers,
                    private=private,
                    merged=self._merges(level, batch),
                )
            )
            before = bound
        return result

    def _window(self) -> Window | None:
        """The window that rows of a length known at launch move in."""
        fast = self.fast
        if fast is None or fast.static or len(self.slots) > 1 or len(self.slots[0]) > 1:
            return None
        along = [op for op in self.accesses if self._runs_along_fast(op)]
        return window_of(self.program, self.nest, self.ops, along, self.wide)

    def _width(self, accesses: list[t.Load | t.Store | t.Atomic]) -> int:
        """Elements of a vector along the fast class: as many as each full-rank access that runs along it moves at once. Atomics of single
        elements want neighbours in neighbouring threads: spread over four times as many sectors they take twice as long (measured on an
        H200, bench/results/atomics_first.json), whatever loads beside them gain from vectors."""
        if self.fast is None:
            return 1
        best_rank, width = -1, 1
        for op in accesses:
            most = self._most_elements(op)
            if not self._runs_along_fast(op):
                fields = fields_along(self.program, op, self.axes.of_access(op), self.slots[0])
                if fields is None:
                    continue
                most = max(2, most // power_of_two_in(fields))
            rank = access_rank(op.access)
            if rank > best_rank:
                best_rank, width = rank, most
            elif rank == best_rank:
                width = min(width, most)
        capacity = self.fast.capacity
        while capacity is not None and width > 1 and width > capacity:
            width //= 2
        return width

    def _most_elements(self, op: t.Load | t.Store | t.Atomic) -> int:
        """Elements that one instruction moves at most: 16 bytes, of an atomic what the target has."""
        dtype = self.program.tensor(op.access.tensor).dtype
        if isinstance(op, t.Atomic):
            return self.target.atomic_elements(op.op, dtype)
        return 128 // dtype.bits

    def _vector_elements(self, op: t.Load | t.Store | t.Atomic, width: int) -> int:
        """Elements that an access moves at once."""
        return width

    def _runs_along_fast(self, op: t.Load | t.Store | t.Atomic) -> bool:
        """Stride 1 along a class of the fast slot, by a span or a whole dimension."""
        access = op.access
        if not access.terms or not isinstance(access.terms[-1], t.AtSpan | t.AtAll):
            return False
        tensor = self.program.tensor(access.tensor)
        if access.view is None and tensor.row_major[-1].constant != 1:
            return False
        classes = self.axes.of_access(op)
        last = classes[-1] if classes else None
        return last is not None and last in self.slots[0] and not access.pointwise

    def _covers(self) -> dict[int, Cover]:
        """Accesses whose elements are picked out of covering vectors, if those are aligned."""
        plain = [op for op in self.accesses if isinstance(op, t.Load | t.Store)]
        pairs = [(op, self.axes.of_access(op)) for op in plain]
        written = {op.access.tensor for op in self.ops if isinstance(op, t.Store | t.Atomic)}
        return covers_of(self.program, pairs, self.slots[0], self.wide, written)

    def alignment(
        self,
        width: int,
        wanted: Collection[int] | None = None,
        copied: Collection[str] = (),
        covers: Mapping[int, Cover] | None = None,
    ) -> Alignment:
        """What the launch must check so that vectors along the fast slot are aligned, of all accesses or of those with these ids;
        `copied` and `covers` as in `tilec.passes.alignment`."""
        moved = [
            (op, self._vector_elements(op, width))
            for op in self.accesses
            if (self._runs_along_fast(op) or (covers and id(op) in covers))
            and (wanted is None or id(op) in wanted)
        ]
        moved += [
            (op, vector_of(last.capacity, op.out.type.dtype.bits))
            for op in self._crossing()
            if (last := self.axes.of_access(op)[1]) is not None and last.capacity is not None
        ]
        return alignment(self.program, moved, copied, covers)

    def _crossing(self, level: Level | None = None, batch: int = 1) -> list[t.Load]:
        """Loads that pass through shared memory: whole tiles of a CTA's one instance."""
        walked = level is not None and level.streams
        if self.fast is None or not self.fast.static or walked or batch > 1:
            return []
        loads = [op for op in self.accesses if isinstance(op, t.Load)]
        return crossing(self.program, self.axes, self.slots[0], loads)

    # ---- levels

    def _levels(self, width: int) -> list[tuple[Level, tuple[Sym, Sym] | None]]:
        """Levels with the bound on the fast extent under which each applies (None: always)."""
        fast = self.fast
        if fast is None:
            return [(Level({}, 1 if self._in_step() else 32, 0), None)]
        if fast.static and fast.capacity is not None:
            return [(self._static(width, fast.capacity), None)]
        result: list[tuple[Level, tuple[Sym, Sym] | None]] = []
        others = prod(max(map(self._capacity, slot)) for slot in self.slots[1:])
        limit = fast.capacity
        if others == 1:
            previous = 0
            one = [(threads, steps, 1) for threads, steps in self._steps(width)]
            for threads, steps, ctas in one + self._clusters(width):
                capacity = threads * steps * ctas * width
                if self.transport == "window":
                    capacity -= width - 1
                if capacity <= previous:
                    continue
                level = self._level(width, threads, steps, {}, ctas)
                if level is None:
                    continue
                previous = capacity
                last = limit is not None and capacity >= limit
                result.append((level, None if last else (fast.extent, Sym.of(capacity))))
                if last:
                    return result
        result.append((self._streaming(width), None))
        return result

    def _clusters(self, width: int) -> list[tuple[int, int, int]]:
        """(threads, vectors, CTAs) of the clusters that hold a row which is read more than once."""
        held = self.registers.held_of_vector(width)
        if any(isinstance(op, t.Scan | t.ReduceWith) for op in self.ops):
            return []  # the order of its parts is that of one CTA's threads
        if not held or len(self.slots) > 1 or self.warps is not None or self.wide == 1:
            return []
        return [
            (threads, steps, ctas)
            for threads, steps, ctas in cluster_levels(
                self.target, self.transport, len(self._streamed()), self._keeps()
            )
            if held * steps <= self._budget(threads)
        ]

    def _steps(self, width: int) -> list[tuple[int, int]]:
        """(threads, vectors) by size."""
        held = self.registers.held_of_vector(width)
        result = []
        transport = "aligned" if self.wide == 1 else self.transport
        clusters = bool(self._clusters(width))
        for threads, steps in levels(
            self.target,
            transport,
            len(self._streamed()),
            self.window is not None,
            clusters,
            self._keeps(),
        ):
            if self.warps is not None:
                threads = self.warps * 32
            threads = max(threads, self.least_threads)
            count = steps
            while count > 1 and held * count > self._budget(threads):
                count //= 2
            result.append((threads, count))
        return sorted(set(result), key=lambda pair: (pair[0] * pair[1], pair[0]))

    def _budget(self, threads: int) -> int:
        """Registers a thread may hold in tiles."""
        limit = min(
            self.target.registers_per_thread, self.target.registers_per_sm // max(threads, 32)
        )
        return min(limit - self.target.registers_besides, 96)

    def _level(
        self,
        width: int,
        threads: int,
        steps: int,
        others: Mapping[int, tuple[int, int]],
        ctas: int = 1,
    ) -> Level | None:
        """The fast slot over `threads` of each CTA, the other classes as given: (steps, threads)."""
        across = threads * ctas
        axes: dict[int, LoopAxis] = {}
        for found in self.slots[0]:
            if found is not self.fast and found.capacity is None:
                return None
            own = steps if found is self.fast else -(-self._capacity(found) // (across * width))
            axes[found.number] = self._axis(found, blocked(own, across, 1, width))
        total = threads
        for slot in self.slots[1:]:
            for found in slot:
                own_steps, own_threads = others.get(found.number, (1, 1))
                axes[found.number] = self._axis(found, blocked(own_steps, own_threads, total, 1))
            total *= max(others.get(c.number, (1, 1))[1] for c in slot)
        registers = self.registers.held(axes)
        if registers > self._budget(total) or total > self.target.threads_per_block:
            return None
        return Level(axes, total, registers, ctas=ctas)

    def _axis(self, found: AxisClass, layout: AxisLayout) -> LoopAxis:
        vectorised = self.wide > 1 and found in self.slots[0]
        windowed = self.transport == "window" and found is self.fast
        return LoopAxis(self.names[found.number], layout, found.extent, vectorised, windowed)

    def _capacity(self, found: AxisClass) -> int:
        return 1 << 30 if found.capacity is None else found.capacity

    def _static(self, width: int, capacity: int) -> Level:
        """One level for static tiles: threads for about four vectors each, first along the fast class."""
        vectors = -(-capacity // width)
        rest = prod(max(map(self._capacity, slot)) for slot in self.slots[1:])
        total = vectors * rest
        per_thread = 2 if total <= 64 else 4 if total <= 2048 else 8
        preferred = power_of_two(min(-(-total // per_thread), 256))
        choices = [c for c in (preferred, 256, 512, 1024) if c >= preferred]
        choices = choices if self.warps is None else [self.warps * 32]
        carried = bool(self.registers.held_of_vector(width)) and any(
            c.carried for c in self.axes.classes
        )
        # what cannot be walked is shared out among threads along reduced classes too
        for alike, threads in product((False, True) if carried else (False,), choices):
            level = self._shared_out(width, vectors, threads, alike)
            if level is not None:
                return level
        return self._streaming(width)

    def _few(self, width: int) -> list[tuple[Level, None, tuple[LaunchCondition, ...]]]:
        """The level for few instances that add up over loops, and what the launch asks for it."""
        fast = self.fast
        if fast is None or not fast.static or fast.capacity is None or self.warps is not None:
            return []
        if not leaves_sums(self.ops) or (self.transport != "aligned" and self.wide > 1):
            return []
        usual, vectors = self._static(width, fast.capacity), -(-fast.capacity // width)
        total = vectors * prod(max(map(self._capacity, slot)) for slot in self.slots[1:])
        asked = few_instances.are_few(self.program, self.nest, usual.threads, self.target)
        shared_out = partial(self._shared_out, width, vectors)
        level = few_instances.level_of(total, usual.threads, shared_out) if asked else None
        return [] if level is None else [(level, None, asked)]

    def _shared_out(self, width: int, vectors: int, threads: int, alike: bool) -> Level | None:
        """Static tiles with so many `vectors` along the fast class on so many threads; None where they have no room."""
        own = max(min(threads, power_of_two(vectors)), min(self.least_threads, threads))
        others, steps = self._spread(threads // own, alike), -(-vectors // own)
        level = self._level(width, own, steps, others)
        return level if prod(o[0] for o in others.values()) * steps <= 256 else None

    def _spread(self, threads: int, alike: bool = False) -> dict[int, tuple[int, int]]:
        """Threads for the classes beside the fast slot: kept classes first, reduced ones only beyond 16 registers, or all `alike`."""
        others: dict[int, tuple[int, int]] = {}
        given: list[int] = []
        left = threads
        for slot in self.slots[1:]:
            capacity = max(self._capacity(c) for c in slot)
            reduced = not alike and any(c.reduced for c in slot)
            want = power_of_two(capacity)
            if reduced:
                want = power_of_two(max(1, capacity // 16))
            own = min(want, max(1, left))
            left = max(1, left // own)
            given.append(own)
        sizes = [max(self._capacity(c) for c in slot) for slot in self.slots[1:]]
        while (
            left > 1
            and prod(-(-s // own) for s, own in zip(sizes, given, strict=True)) > MOST_STEPS
        ):
            longest = max(range(len(given)), key=lambda n: -(-sizes[n] // given[n]))
            given[longest] *= 2
            left //= 2
        for slot, own in zip(self.slots[1:], given, strict=True):
            for found in slot:
                others[found.number] = (-(-self._capacity(found) // own), own)
        return others

    def _streaming(self, width: int) -> Level:
        """Every class that is too long for registers is walked."""
        axes: dict[int, LoopAxis] = {}
        streams: set[int] = set()
        threads = 256 if self.warps is None else self.warps * 32
        if self.fast is not None and (self.fast.capacity is None or self.fast.capacity > 65536):
            threads = 512 if self.warps is None else threads
        threads = min(threads, self.target.threads_per_block)
        fast_threads = threads
        if self.fast is not None and self.fast.capacity is not None:
            fast_threads = min(threads, max(1, power_of_two(-(-self.fast.capacity // width))))
        others = self._spread(max(1, threads // fast_threads))
        total = fast_threads
        fixed = self.registers.classes_of_kept()
        for found in self.slots[0]:
            if found.number in fixed and found.capacity is not None:
                steps = -(-found.capacity // (fast_threads * width))
                axes[found.number] = self._axis(found, blocked(steps, fast_threads, 1, width))
            else:
                axes[found.number] = self._axis(found, streamed(fast_threads, 1, width))
                streams.add(found.number)
        for slot in self.slots[1:]:
            own = max(others[c.number][1] for c in slot)
            for found in slot:
                steps, own_threads = others[found.number]
                if found.capacity is None or (steps > 16 and found.number not in fixed):
                    axes[found.number] = self._axis(found, streamed(own_threads, total, 1))
                    streams.add(found.number)
                else:
                    axes[found.number] = self._axis(found, blocked(steps, own_threads, total, 1))
            total *= own
        words, largest = self.registers.largest_kept(axes)
        unbounded = next(
            (c for c in self.axes.classes if c.number in streams and c.number in fixed), None
        )
        if largest is not None and (unbounded is not None or words > MOST_WORDS):
            along = unbounded or max(
                (c for c in self.axes.of_value(largest) if c is not None), key=self._capacity
            )
            scanned = any(isinstance(op, t.Scan) and op.out is largest for op in self.ops)
            what = (
                "a name carried by a loop"
                if along.carried
                else "the result of a scan"
                if scanned
                else "the result of a reduction or branch"
            )
            helps = "use a smaller tile, or bound the size with `require`"
            if scanned:
                helps += "; or walk it in spans, `for c in range(C by 1024)`, and carry what comes before each"
            raise fail(
                "E0601",
                f"{what} has {self._capacity(along)} elements along `{self.names[along.number]}`, "
                "more than registers hold",
                largest.span if largest.span.end else self.nest.span,
                help=helps,
            )
        return Level(axes, total, 0, frozenset(streams))

    # ---- resources of a CTA

    def _batch(self, level: Level) -> int:
        """Instances that share a CTA, so that it has at least 128 threads: only where they run in step."""
        steps = self._row_steps(level)
        least = least_cta(steps) if steps else 128
        if level.threads >= least or level.threads & (level.threads - 1) or self.least_threads > 1:
            return 1
        return least // level.threads

    def _private(self, level: Level, batch: int) -> tuple[frozenset[str], int]:
        """Tensors that CTAs combine into in shared memory, and the instances of a CTA then: as many as share them."""
        together = self.least_threads == 1 and level.threads & (level.threads - 1) == 0
        more = max(batch, THREADS // level.threads) if batch > 1 or together else batch
        found = private_tensors(self.program, self.axes, self.ops, more)
        return (found, more) if found and level.ctas == 1 else (frozenset(), batch)

    def _in_step(self) -> bool:
        """No loop or branch depends on the instance."""
        return all(
            not isinstance(op, t.If | t.Print | t.Assert)
            and not (
                isinstance(op, t.For)
                and any(v.kind in ("trip", "value") for v in op.trips.variables)
            )
            for op in self.ops
        )

    def _blocks(self, level: Level, batch: int) -> int:
        """Resident CTAs to ask of the compiler: as many threads as the held registers allow."""
        width = max((a.layout.vector for a in level.axes.values()), default=1)
        walked = sum(1 for a in level.axes.values() if a.layout.steps > 1 and not a.layout.streams)
        steps = prod(a.layout.steps for a in level.axes.values() if not a.layout.streams)
        row_steps = self._row_steps(level)
        if row_steps:
            window = self.target.window_registers if self.transport == "window" else 0
            several = sum(isinstance(op, t.Store) for op in self.ops) > 1
            own = (level.words, row_steps, len(self._streamed()), window, self._fills(level))
            registers = registers_of_rows(*own, self.target.row_registers_of_stores * several)
            if window and self._fills(level) and len(self._streamed()) > 1:
                registers += REGISTERS_OF_WARPS if level.threads >= MANY_THREADS else 0
        else:
            passing = self.registers.passing(width) * min(steps, 6 if walked > 1 else 3)
            registers = registers_of_tiles(level.words, passing, width == 1)
            computed = sum(
                isinstance(op, t.Elementwise) and op.out.type.rank > 0 for op in self.ops
            )
            registers += REGISTERS_OF_LONG_WALKS if computed > LONG_WALK else 0
        for op in self.ops:
            if isinstance(op, t.Scan):
                registers += registers_of_parts(SCANNED_WORDS, steps)
            elif isinstance(op, t.ReduceWith):
                registers += 3 * registers_of_parts(len(op.outs) + 1, steps)
        return resident_ctas(
            self.target, level.threads * batch, registers, 1024 if level.streams else None
        )

    def _fills(self, level: Level) -> bool:
        """Whether rows that fill a level have walks of their own."""
        steps = self._row_steps(level)
        if self.transport == "window" and self._batch(level) > 1:
            return False
        streams = len(self._streamed()) + sum(isinstance(op, t.Store) for op in self.ops)
        return steps > 0 and fills(
            self.target, self.transport, steps, level.ctas, streams, self.wide
        )

    def _merges(self, level: Level, batch: int) -> bool:
        """Whether reductions of a row share an exchange where they can: no other CTA of the SM works while one waits, or not enough
        for what a cluster waits."""
        if "merged_exchanges" not in self.target.features or not self._row_steps(level):
            return False
        return level.ctas > 1 or (batch == 1 and self._blocks(level, batch) == 1)

    def _row_steps(self, level: Level) -> int:
        """Vectors a thread holds of a row whose length is known at launch; 0 for any other nest, and for single elements."""
        fast = self.fast
        if fast is None or len(self.slots) > 1 or fast.static or level.streams or self.wide == 1:
            return 0
        layout = level.axes[fast.number].layout
        return layout.steps if layout.vector > 1 else 0

    def _streamed(self) -> list[t.Load]:
        """Loads whose vectors one step along the fast slot reads."""
        return [
            op
            for op in self.ops
            if isinstance(op, t.Load)
            and op.out.type.rank
            and any(c is not None and c in self.slots[0] for c in self.axes.of_value(op.out))
        ]

    def _keeps(self) -> bool:
        """Whether a row is combined with something that is the same for all rows."""
        moving = {loop.index for loop in self.nest.grid}
        return any(
            not moving & frozenset().union(*(sym.variables for sym in syms_of(op)))
            and not any(isinstance(term, t.AtTile | t.AtScalar) for term in op.access.terms)
            for op in self._streamed()
        )
