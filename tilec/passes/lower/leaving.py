"""A tile that leaves a nest of asynchronous products by bulk copies, or by stores of whole rows: now, chunk by chunk, or under the next
instance's loop. Where rows may end inside of it, an instance asks whether its tile is whole, and stores the elements of one that is not."""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import BOOL, F32, I32
from tilec.ir.layouts import is_paired
from tilec.ir.symbolic import Sym, Var
from tilec.passes.asynchronous import CHUNK_ROWS, Departure
from tilec.passes.boxes import TensorBox, tensor_box
from tilec.passes.lower.body import conjunction
from tilec.passes.lower.context import Context
from tilec.passes.lower.lines import rounded_fragment

FEW_ACCUMULATORS = 64
"""Registers of a thread's part of a tile up to which two of its chunks may be packed beside it."""

Maps = Callable[[str, TensorBox, a.PanelBuffer, int], str]
"""The name of the tensor map of copies between a tensor and a buffer, so many rows at a time."""


class Leaving:
    """A tile on its way out: packed registers and coordinates that outlive their instance, and the chunks' shared memory."""

    def __init__(self, context: Context, departure: Departure, warpgroups: int, maps: Maps):
        self.context = context
        self.maps = maps
        self.departure = departure
        store = departure.store
        name = store.access.tensor
        rep = context.program.tensor(name).dtype
        self.box = tensor_box(context.program, store.access, context.facts)
        axes = [
            context.variant.level.axes[c.number]
            for c in context.axes.of_access(store)
            if c is not None
        ]
        self.axes = (axes[0], axes[1])
        self.down, self.along = reversed(self.axes) if departure.across else self.axes
        self.blocks = self.down.layout.steps // 2
        self.panels = self.along.layout.capacity // departure.depth
        self.under_way = min(departure.slots, self.blocks * self.panels)
        slots = 4 * warpgroups * self.under_way
        sides = (CHUNK_ROWS, departure.depth)
        rows, cols = sides[::-1] if departure.across else sides
        self.buffer = a.PanelBuffer(context.names.unique(f"{name}_chunks"), rep, rows, cols, slots)
        self.fragment = k.Fragment(
            context.names.unique(f"{name}_out"), rep, context.ordered(self.axes)
        )
        self.before: list[k.Op] = []
        self.map = ""
        self.final: k.Op = a.BulkDrain()
        self.elected = False
        self.rows: a.RowsAnywhere | None = None
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
        self,
        trip: k.Expr | None = None,
        trips: k.Expr | None = None,
        least: int = 0,
        only: tuple[int, ...] = (),
    ) -> a.SendChunks:
        """The op that sends all chunks, those of a trip, those of the trips that a loop of `trips`, `least` at least, had not, or one."""
        name = self.departure.store.access.tensor
        if not self.departure.bulk:
            self.rows = self._rows(name)
        elif not self.map:
            self.map = self.maps(name, self.box, self.buffer, self.buffer.rows)
        last = len(self.places) - 1
        places = (last - self.box.row, last - self.box.col)
        down, along = places[::-1] if self.departure.across else places
        return a.SendChunks(
            self.fragment,
            self.buffer,
            self.map,
            tuple(k.Local(p.name, I32) for p in reversed(self.places)),
            down,
            along,
            self.blocks,
            self.panels,
            self.departure.depth,
            self.under_way,
            trip=trip,
            trips=trips,
            least=least,
            only=only,
            rows=self.rows,
            across=self.departure.across,
            paired=is_paired(self.down.layout),
            span=self.departure.store.span,
        )

    def _rows(self, tensor: str) -> a.RowsAnywhere:
        """Where the tile's rows lie: those of its matrix, of which a batch has several."""
        context, box = self.context, self.box
        context.pointers[tensor] = True
        offset = Sym.of(0)
        for n, place in enumerate(self.places):
            if n not in (box.row, box.col):
                offset = offset + Sym.of(Var(place.name, "local")) * box.strides[n]
        return a.RowsAnywhere(
            context.names.spell(tensor),
            context.index(offset, wide=True),
            context.index(box.strides[box.row], wide=True),
            context.index(box.dims[box.row]),
            context.index(box.dims[box.col]),
        )

    def leave(self, otherwise: Callable[[], None]) -> None:
        """Let the tile leave; where it is not whole, `otherwise` stores its elements."""
        context = self.context
        needs = self.departure.needs
        if not needs:
            self.store()
            self.final = self.chunks()
            return
        # both ways send the same registers, which are made while the last product may still be under way
        store = self.departure.store
        rounded_fragment(context, store.value, self.axes, self.fragment, store.span)
        context.fragments[store.value.id] = self.fragment
        zero = k.Literal_(0, I32)
        whole = tuple(k.Apply("ge", (context.index(need), zero), BOOL) for need in needs)
        branches: list[tuple[k.Op, ...]] = []
        for branch in (self.store, otherwise):
            outer, context.out = context.out, []
            context.limits.append({})
            branch()
            context.limits.pop()
            branches.append(tuple(context.out))
            context.out = outer
        context.out.append(k.IfUniform(conjunction(whole), *branches, span=store.span))

    def store(self) -> None:
        """Pack the tile and note where it goes; or, unless it is deferred, pack and send it chunk by chunk."""
        context = self.context
        store = self.departure.store
        deferred = self.departure.deferred
        if deferred:
            rounded_fragment(context, store.value, self.axes, self.fragment, store.span, False)
        thread = Sym.of(Var("thread", "local"))
        warp = thread // 128 * (64 * self.blocks) + thread % 128 // 32 * 16
        down = self.box.col if self.departure.across else self.box.row
        for n, place in enumerate(self.places):
            start = self.box.start[n] + (warp if n == down else 0)
            value = context.index(start)
            if deferred:
                context.out.append(k.Assign(place, value, span=store.span))
            else:
                context.out.append(k.Let(place.name, I32, value, span=store.span))
        if not deferred:
            ready = context.fragments.get(store.value.id)
            alike = ready is not None and ready.axes == self.fragment.axes
            if ready is not None and alike and ready.rep == self.fragment.rep:
                self.fragment = ready
            else:
                ready = None
                context.out.append(k.Declare(self.fragment, None, span=store.span))
            # the accumulators and few chunks at a time are all that registers hold; those of one fence are sent together
            held = self.down.layout.steps * self.along.layout.capacity // 4
            chunks = range(self.blocks * self.panels)
            few = held <= FEW_ACCUMULATORS and len(chunks) % self.under_way == 0
            together = self.under_way if few and self.departure.bulk else 1
            self.elected = together > 1
            context.prepared = {}
            for first in chunks[::together]:
                sent = tuple(chunks[first : first + together])
                for number in sent if ready is None else ():
                    parts = self._parts(number)
                    rounded_fragment(
                        context, store.value, self.axes, self.fragment, store.span, False, parts
                    )
                context.out.append(self.chunks(only=sent))
            context.prepared = None

    def _parts(self, number: int) -> tuple[k.Part, ...]:
        """The steps of a chunk along rows and columns."""
        block, panel = divmod(number, self.panels)
        steps = self.departure.depth // 8
        parts = (k.Part(self.down, 2 * block, 2), k.Part(self.along, steps * panel, steps))
        return tuple(p for p in parts if p.count < p.axis.layout.steps)

    def after(self) -> list[k.Op]:
        """Behind the last instance."""
        last = [self.final] if self.departure.deferred else []
        return [*last, a.BulkDrain(self.elected)] if self.departure.bulk else last
