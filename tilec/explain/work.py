"""What the threads and engines of a CTA do in each trip of a loop: operations by kind, bytes of global memory."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias

from tilec.explain.addresses import Addresses, Traffic
from tilec.explain.walk import leaves
from tilec.ir import asynchronous as a
from tilec.ir import covering_ops as c
from tilec.ir import exchanges as e
from tilec.ir import kernel_filters as f
from tilec.ir import kernel_ir as k
from tilec.ir import window_ops as w
from tilec.ir.atomic_ops import AtomicElement, AtomicShared, AtomicVector
from tilec.ir.dtypes import I32
from tilec.ir.kernel_operands import ProductStep
from tilec.ir.kernel_walking import follows
from tilec.ir.kernel_wmma import WmmaProduct
from tilec.ir.shares import AddShare
from tilec.source.text import NOWHERE
from tilec.targets.rates import RATES, function_cost, sheet_share, sustained_share
from tilec.targets.table import TARGETS

Scope: TypeAlias = "k.Loop | k.TileLoop | None"
"""What trips are of: a loop, a walk along an axis, or None for an instance."""


@dataclass
class Work:
    """What a CTA does in a trip. `macs`: clocks that the tensor cores take for good, `asynchronous`: those of products of warpgroups at full rate;
    `mufu`, `fma`, `fma64`, `alu`: operations of all threads; `own`, `common`: bytes that no other instance, or several, ask for;
    `traffic`: bytes by tensor, and in what pieces."""

    macs: float = 0.0
    asynchronous: float = 0.0
    flops: float = 0.0
    mufu: float = 0.0
    fma: float = 0.0
    fma64: float = 0.0
    alu: float = 0.0
    own: float = 0.0
    common: float = 0.0
    traffic: list[Traffic] = field(default_factory=list)
    computed: set[k.Expr] = field(default_factory=set)
    """sums and products: what is written twice is computed once"""


COUNTED = tuple(f.name for f in fields(Work) if f.type == "float")
"""What is added up."""


def scopes(kernel: k.Kernel, arch: str) -> list[tuple[Scope, Work]]:
    """The work of each loop in the order of the kernel; that of an instance outside of loops (None) comes first."""
    return count(kernel, arch).found


def count(kernel: k.Kernel, arch: str) -> Counter:
    """The same with what is around each loop."""
    counter = Counter(kernel, arch)
    counter.block(kernel.body, _Place(None, counter.whole))
    return counter


@dataclass(frozen=True)
class _Place:
    """Where an operation stands: the loop whose trip it belongs to, how many threads do it together (times what is written several
    times), the axes that are walked around it with their steps, whether each element is walked, and whether parts of the axes are."""

    scope: Scope
    threads: float
    axes: tuple[tuple[k.LoopAxis, float], ...] = ()
    elements: bool = False
    parts: bool = False

    def times(self, along: frozenset[str] | None = None) -> float:
        """How often all threads together do what depends on the axes named `along`, None: on all of them."""
        total = self.threads
        for axis, steps in self.axes:
            if along is None or axis.name in along:
                total *= steps * (axis.layout.vector if self.elements and axis.vectorised else 1)
        return total


class Counter:
    """Adds up work by loop. `found` are the scopes, `around` says of which scope's trips those of a loop (by its identity) are part,
    `values` what variables are set to; `filtered`: a branch hangs on loaded values, so that not all trips do what is counted."""

    def __init__(self, kernel: k.Kernel, arch: str) -> None:
        self.kernel = kernel
        self.arch, self.rates = arch, RATES[arch]
        self.found: list[tuple[Scope, Work]] = [(None, Work())]
        self.around: dict[int, Scope] = {}
        self.values: dict[str, k.Expr] = {}
        self.filtered = False
        self._ahead = False
        """whether tiles are brought that a loop's first trips would bring"""
        self.whole = float(kernel.workers)
        wider = {p.a for p in TARGETS[arch].products if p.unpacked}
        # as many bits as the tensor cores multiply: some products of 8 bits are of 16 there
        self.bits = {t.name: 16 if t.rep in wider else t.rep.bits for t in kernel.tiles}
        self.bits |= {t.name: t.rep.bits for t in kernel.panels}
        self.addresses = Addresses(kernel)
        self.span = NOWHERE
        self.products: dict[str, bool] = {}
        self.along: dict[str, frozenset[str]] = {}

    # ---- where

    def work(self, scope: Scope) -> Work:
        """The work of a scope, found by identity: equal loops may follow each other."""
        return next(work for known, work in self.found if known is scope)

    def open(self, scope: k.Loop | k.TileLoop, around: Scope) -> None:
        """A loop inside the trips of `around`."""
        self.found.append((scope, Work()))
        self.around[id(scope)] = around

    def block(self, ops: tuple[k.Op, ...], place: _Place) -> None:
        for op in ops:
            self.op(op, place)

    def op(self, op: k.Op, place: _Place) -> None:
        if op.span.source.text:
            self.span = op.span  # else it belongs to what precedes it
        match op:
            case k.Loop():
                self._loop(op, place)
            case k.TileLoop():
                self._walk(op, place)
            case k.Elements():
                self.block(op.body, replace(place, elements=True))
            case k.IfUniform():
                self._branch(op, place)
            case k.IfAnyLane():
                self.block(op.otherwise, place)  # the other arm is taken seldom
            case a.Roles():
                self._roles(op, place)
            case a.Instances() | e.InstanceQueue():
                self.block(op.body, replace(place, scope=None))
            case f.Question():
                self.filtered = True
            case w.IfWhole():
                self.block(op.then, place)  # all vectors but a row's first and last
            case _:
                self._leaf(op, place)

    def _loop(self, op: k.Loop, place: _Place) -> None:
        if isinstance(op.trips, k.Literal_ | k.Index) and op.first is None:
            trips = op.trips.value if isinstance(op.trips, k.Literal_) else op.trips.sym.constant
            if trips is not None:
                # so few trips are a way to write the same several times, or fill a ring in front of its loop
                outer = self._ahead
                self._ahead |= any(isinstance(x, k.Commit) for x in op.body)
                self.block(op.body, replace(place, threads=place.threads * int(trips)))
                self._ahead = outer
                return
        self.open(op, place.scope)
        self.block(op.body, replace(place, scope=op))

    def _walk(self, op: k.TileLoop, place: _Place) -> None:
        walked: list[tuple[k.LoopAxis, float]] = []
        for axis in op.axes:
            part = op.part(axis)
            held = part.count if part else axis.layout.steps
            walked.append((axis, 1 if axis.layout.streams else held))
        parts = place.parts or any(op.part(axis) is not None for axis in op.axes)
        inner = replace(place, axes=(*place.axes, *walked), parts=parts)
        if any(axis.layout.streams for axis in op.axes):
            self.open(op, place.scope)
            inner = replace(inner, scope=op)
        self.block(op.body, inner)

    def _branch(self, op: k.IfUniform, place: _Place) -> None:
        """Of two branches the one with more work: they do the same with and without masks. What one of a cluster's CTAs does for all
        is counted for each as its part."""
        self.filtered |= self._is_loaded(op.condition)
        if any(isinstance(x, AddShare) for x in op.then):
            place = replace(place, threads=place.threads / self.kernel.cluster)
        if not op.otherwise:
            self.block(op.then, place)
            return
        mark, before = len(self.found), _copied(self.work(place.scope))
        self.block(op.then, place)
        then, opened = _copied(self.work(place.scope)), self.found[mark:]
        del self.found[mark:]
        _restore(self.work(place.scope), before)
        self.block(op.otherwise, place)
        now = self.work(place.scope)
        if _weight(then) >= _weight(now):
            _restore(now, then)
            self.found[mark:] = opened

    def _roles(self, op: a.Roles, place: _Place) -> None:
        """What the producer brings belongs to the trips of the consumers' loop of the same name."""
        whole, self.whole = self.whole, float(op.consumers)
        self.block(op.consumer, replace(place, threads=self.whole))
        outer, self.found = self.found, [(None, Work())]
        self.block(op.producer, replace(place, threads=1.0))
        for scope, brought in self.found:
            owners = [
                work
                for known, work in outer
                if (known is None and scope is None)
                or (
                    isinstance(known, k.Loop)
                    and isinstance(scope, k.Loop)
                    and known.name == scope.name
                )
            ]
            for owner in owners:
                owner.own += brought.own
                owner.common += brought.common
                owner.traffic += brought.traffic
            if not owners:
                outer.append((scope, brought))
        self.found, self.whole = outer, whole

    # ---- what

    def _leaf(self, op: k.Op, place: _Place) -> None:
        work = self.work(place.scope)
        match op:
            case k.Pointer():
                self.addresses.pointer(op)
            case k.Let():
                self.addresses.depends[op.name] = self.addresses.digits_of(op.value)
                self.values[op.name] = op.value
                self.along[op.name] = self._along(op.value, place)
                # its product may be added where the name is read: then both are one instruction
                self.products[op.name] = isinstance(op.value, k.Apply) and op.value.op == "mul"
                self._expression(op.value, work, place)
            case k.Assign():
                self._expression(op.value, work, place)
            case k.LetDivisor():
                self._expression(k.Apply("div", (op.value, op.value), op.value.rep), work, place)
            case k.Accumulate():
                self._expression(op.value, work, place)
                fused = isinstance(op.value, k.Apply) and op.value.op == "mul"
                if op.op in ("sum", "prod") and op.target.rep.is_float and not fused:
                    self._arithmetic(op.target.rep.bits, place.times(), work)
                if op.op in ("max", "min") and op.target.rep.is_float:
                    work.alu += place.times()
            case k.AccumulateVector():
                work.alu += replace(place, elements=True).times()
            case k.WidenVector() | k.ConvertVector():
                self._converted(op, work, place)
            case k.Product():
                self._product(op, op.k_extent, work, place)
            case ProductStep():
                self._product(op.product, op.product.k_step, work, place, op.share)
            case WmmaProduct():
                macs = 256 * op.sums.rows * op.sums.cols * op.k_extent * (self.whole / 32)
                share = self.rates.warp_share * sheet_share(self.arch)
                self._multiply(macs, self.bits[op.b.buffer], work, place, share)
            case a.WarpgroupProduct():
                macs = 64 * op.blocks * op.columns * op.k_extent * (self.whole / 128)
                bits = self.bits[op.b.buffer]
                self._multiply(macs, bits, work, place, sustained_share(self.arch, bits))
                if bits in self.rates.sustained:  # what others take was not measured
                    work.asynchronous += macs * place.threads / self.whole / self.rates.tensor[bits]
            case a.TensorCopy():
                self._brought(op, op.coordinates, work)
            case a.SendChunks():
                self._send(op)
            case k.CopyAsync():
                self._access(op, (16, op.rep.bits // 8, 128 // op.rep.bits), op.rep.bits, place)
            case k.LoadVector() | w.LoadWindow() | w.LoadShifted():
                bits = self.addresses.widths.get(op.pointer, op.target.rep.bits)
                aligned = not isinstance(op, k.LoadVector) or op.aligned
                self._access(op, _vector(op.target, bits, aligned), bits, place)
            case k.StoreVector() | w.StoreWindow():
                aligned = isinstance(op, w.StoreWindow) or op.aligned
                bits = op.rep.bits
                self._access(op, _vector(op.source, bits, aligned), bits, place)
            case c.LoadCovering():
                element = op.rep.bits // 8
                pieces = (op.width * element, element, op.width)
                self._access(op, pieces, op.rep.bits * op.stride, place)
            case c.StoreWoven():
                element = op.rep.bits // 8
                pieces = (op.width * element, element, op.width)
                self._access(op, pieces, op.rep.bits * len(op.sources), place)
            case AtomicVector():
                _, element, width = _vector(op.source, op.rep.bits, True)
                self._access(op, (op.bytes, element, width), op.rep.bits, place)
            case w.CopyRow():
                for tensor, store in ((op.source, False), (op.target, True)):
                    moved = 16.0 * op.vectors * op.step
                    traffic = Traffic(op, self.span, tensor, moved, store=store)
                    self._bytes(traffic, (op.row, op.first), work)
            case w.TurnTile():
                for tensor, store in ((op.source, False), (op.target, True)):
                    traffic = Traffic(op, self.span, tensor, 64 * self.whole, store=store)
                    self._bytes(traffic, (op.offset, op.row_first, op.column_first), work)
            case w.PackTile():
                size = op.height * op.width
                for tensor, moved, store in ((op.source, size, False), (op.target, size / 8, True)):
                    traffic = Traffic(op, self.span, tensor, moved, store=store)
                    self._bytes(traffic, (op.offset, op.row_first, op.column_first), work)
            case w.InterleaveRow():
                for tensor, store in ((op.source, False), (op.target, True)):
                    traffic = Traffic(op, self.span, tensor, 16 * self.whole, store=store)
                    self._bytes(traffic, (op.row, op.first), work)
            case k.StoreElement() | AtomicElement():
                self._expression(op.value, work, place)
                self._single(op, self.addresses.widths.get(op.pointer, 32), place)
            case AtomicShared() | k.StoreShared() | e.StoreCluster() | e.SendCluster():
                self._expression(op.value, work, place)
            case k.StoreTile():
                if op.value is not None:
                    self._expression(op.value, work, place)
            case _:
                pass

    def _product(
        self, op: k.Product, extent: int, work: Work, place: _Place, share: float = 1.0
    ) -> None:
        """A product of warps over `extent` elements of the consumed axis, of a share of its columns."""
        macs = 16 * op.row_tiles * 8 * op.col_tiles * extent * (self.whole / 32) * share
        share = self.rates.warp_share * sheet_share(self.arch)
        self._multiply(macs, self.bits[op.b.buffer], work, place, share)

    def _multiply(self, macs: float, bits: int, work: Work, place: _Place, share: float) -> None:
        times = place.threads / self.whole
        rate = self.rates.tensor.get(bits)
        work.flops += 2 * macs * times
        if rate is None:  # emulated by multiply-adds of the threads
            self._arithmetic(bits, macs * times, work)
        else:
            work.macs += macs * times / (rate * share)

    @staticmethod
    def _arithmetic(bits: int, times: float, work: Work) -> None:
        if bits == 64:
            work.fma64 += times
        else:
            work.fma += times

    @staticmethod
    def _converted(op: k.WidenVector | k.ConvertVector, work: Work, place: _Place) -> None:
        """Pairs of floats become a word of two halves by one instruction, and each half a float by one."""
        narrow, wide = op.source.rep.bits, op.target.rep.bits
        if isinstance(op, k.ConvertVector):
            narrow, wide = wide, narrow
        if (narrow, wide) == (16, 32) and op.source.rep.is_float and op.target.rep.is_float:
            times = replace(place, elements=True).times()
            work.alu += times / 2 if isinstance(op, k.ConvertVector) else times

    def _expression(self, expr: k.Expr, work: Work, place: _Place, fused: bool = False) -> None:
        """Operations of an expression; `fused`: it is a product that is added at once."""
        match expr:
            case k.Apply():
                # what does not depend on an axis is done once for all of its steps
                times = place.times(self._along(expr, place))
                cost = function_cost(expr.op, expr.math, expr.rep.bits)
                if cost is not None and expr.rep.is_float:
                    work.mufu += cost[0] * times
                    work.fma += cost[1] * times
                    work.fma64 += cost[2] * times
                elif expr.op in ("add", "sub", "mul", "fma") and expr.rep.is_float and not fused:
                    if expr in work.computed and not place.parts:
                        return
                    work.computed.add(expr)
                    self._arithmetic(expr.rep.bits, times, work)
                elif expr.op in ("max", "min") and expr.rep.is_float:
                    work.alu += times
                elif expr.op == "where" and expr.rep.is_float:
                    # what is computed for one side alone can be predicated in place of being chosen
                    computed = any(isinstance(arg, k.Apply) for arg in expr.args[1:])
                    work.alu += 0 if computed else times
                added = expr.op in ("add", "sub") and expr.rep.is_float
                for arg in expr.args:
                    product = added and isinstance(arg, k.Apply) and arg.op == "mul"
                    if added and isinstance(arg, k.Local) and self.products.pop(arg.name, False):
                        self._arithmetic(expr.rep.bits, -times, work)
                        added = False
                    self._expression(arg, work, place, product)
                    added = added and not product
            case k.LaneReduce():
                self._expression(expr.arg, work, place)
                if expr.op in ("sum", "prod") and expr.rep.is_float:
                    steps = expr.lanes.bit_length() - 1
                    self._arithmetic(expr.rep.bits, steps * place.times(), work)
            case k.Memory():
                bits = self.addresses.widths.get(expr.pointer, expr.rep.bits)
                self._single(expr, bits, place)
            case _:
                pass

    def _along(self, expr: k.Expr, place: _Place) -> frozenset[str]:
        """Names of the axes around that an expression depends on."""
        found: set[str] = set()
        for leaf in leaves(expr):
            if isinstance(leaf, k.Fragment):
                found |= {axis.name for axis in leaf.axes}
            elif isinstance(leaf, k.Local):
                found |= self.along.get(leaf.name, frozenset())
        found |= {axis.name for axis, _ in place.axes if follows(expr, axis)}
        return frozenset(found)

    def _is_loaded(self, expr: k.Expr) -> bool:
        """Whether an expression hangs on memory."""
        for leaf in leaves(expr):
            if isinstance(leaf, k.Memory):
                return True
            if isinstance(leaf, k.Local) and leaf.name in self.values:
                inner = self.values[leaf.name]
                if inner is not expr and self._is_loaded(inner):
                    return True
        return False

    # ---- bytes

    def _bytes(self, moved: Traffic, address: tuple[object, ...], work: Work) -> None:
        """What is stored, and what only this instance reads, goes to the DRAM."""
        if self._ahead:
            return
        if moved.store or self.addresses.digits_of(*address) >= self.addresses.digits:
            work.own += moved.total
        else:
            work.common += moved.total
        work.traffic.append(moved)

    def _brought(self, op: a.TensorCopy, address: tuple[k.Expr, ...], work: Work) -> None:
        """A tile by bulk copies, or this CTA's part of it."""
        total = op.buffer.slot_bytes / (op.peers if op.share != "none" else 1)
        tensor = self.addresses.of_map(op.map)
        self._bytes(Traffic(op, self.span, tensor, total), address, work)

    def _send(self, op: a.SendChunks) -> None:
        """A tile that leaves chunk by chunk in some trips of a loop counts once an instance; what is left of it, and of the last one, is
        the same tile."""
        work = self.work(None)
        left = op.trips is not None or (op.trip is None and not op.only)
        if left and any(isinstance(t.op, a.SendChunks) for t in work.traffic):
            return
        count = len(op.only) or op.blocks * op.panels
        chunk = op.buffer.rows * op.buffer.cols * op.buffer.rep.bits / 8
        total = count * chunk * self.whole / 32
        tensor = self.addresses.of_map(op.map) if op.rows is None else op.rows.pointer
        self._bytes(Traffic(op, self.span, tensor, total, store=True), (), work)

    def _access(
        self,
        op: k.CopyAsync
        | k.LoadVector
        | k.StoreVector
        | c.LoadCovering
        | c.StoreWoven
        | AtomicVector
        | w.LoadWindow
        | w.LoadShifted
        | w.StoreWindow,
        vector: tuple[int, int, int],
        bits: int,
        place: _Place,
    ) -> None:
        """A vector in each step of the axes around; `vector`: bytes at a time and of an element, and neighbours in a thread."""
        store = isinstance(op, k.StoreVector | AtomicVector | w.StoreWindow | c.StoreWoven)
        total = self.addresses.elements(tuple(axis for axis, _ in place.axes)) * bits / 8
        for axis, held in place.axes:
            total *= 1 if axis.layout.streams else held / axis.layout.steps
        moved = Traffic(op, self.span, self.addresses.tensor(op.pointer), total, *vector, store)
        address = (k.Local(op.pointer, I32), getattr(op, "offset", None))
        self._bytes(moved, address, self.work(place.scope))

    def _single(
        self, op: k.StoreElement | AtomicElement | k.Memory, bits: int, place: _Place
    ) -> None:
        """An element for each place along the axes that its address follows."""
        axes = tuple(axis for axis, _ in place.axes if follows(op.offset, axis))
        total = self.addresses.elements(axes) * bits / 8
        tensor, store = self.addresses.tensor(op.pointer), not isinstance(op, k.Memory)
        moved = Traffic(op, self.span, tensor, total, *_vector(None, bits, False), store)
        self._bytes(moved, (k.Local(op.pointer, I32), op.offset), self.work(place.scope))


def _vector(fragment: k.Fragment | None, bits: int, aligned: bool) -> tuple[int, int, int]:
    """Bytes that one instruction moves, those of an element, and the neighbours that a thread holds; None: one element."""
    axes = fragment.axes if fragment is not None else ()
    width = next((x.layout.vector for x in axes if x.vectorised), 1)
    element = max(1, bits // 8)
    return min(16, width * bits // 8) if aligned else element, element, width


def _weight(work: Work) -> float:
    return work.macs + work.mufu + work.fma + work.fma64 + work.alu + work.own + work.common


def _copied(work: Work) -> Work:
    """A copy."""
    return replace(work, traffic=list(work.traffic), computed=set(work.computed))


def _restore(work: Work, saved: Work) -> None:
    for name, value in vars(saved).items():
        setattr(work, name, value)
