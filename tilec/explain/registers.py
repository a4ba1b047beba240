"""How many registers a thread needs, estimated from the tiles that live at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilec.explain.walk import BLOCKS, all_ops, mentioned
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_operands import ProductStep
from tilec.ir.kernel_wmma import Sums, WmmaProduct
from tilec.source.text import NOWHERE, Span
from tilec.targets.table import Target

ALLOCATION = 8
"""Registers of a thread come in multiples of this (CUDA C++ Programming Guide, occupancy)."""


@dataclass(frozen=True)
class Registers:
    """An estimate for the threads that hold tiles: `tiles` words of the tiles and operands that live at once at `span`, the names of
    the largest of which are `held`, and `besides` for addresses, a vector in flight and temporaries, a figure of the target's table.
    `available` is what the launch leaves a thread."""

    tiles: int
    besides: int
    available: int
    span: Span
    held: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """Registers of a thread."""
        return self.tiles + self.besides

    @property
    def fits(self) -> bool:
        """Whether the launch leaves as many."""
        return self.total <= self.available


def registers(kernel: k.Kernel, target: Target) -> Registers:
    """The estimate. ptxas decides; `tilec profile` says what it did."""
    walk = _Lives()
    walk.block(kernel.body, NOWHERE)
    peak: list[tuple[str, int]] = []
    at = 0
    for position in range(walk.position + 1):
        for live in (walk.before(position), walk.after(position)):
            if _sum(live) > _sum(peak):
                peak, at = live, position
    held = sorted(peak, key=lambda item: (-item[1], item[0]))
    return Registers(
        _sum(held),
        _besides(kernel, target, bool(walk.operands) or walk.products, walk.between),
        _available(kernel, target),
        walk.spans.get(at, NOWHERE),
        tuple(held),
    )


def _sum(live: list[tuple[str, int]]) -> int:
    return sum(size for _, size in live)


BESIDES_BETWEEN_STEPS = 32
"""Registers beside the tiles of a thread that makes exponentials between the steps of a product: what other products need for operands of
later steps is in its tiles (ptxas 13.0 for sm_80 to sm_120: no spill)."""


def _besides(kernel: k.Kernel, target: Target, products: bool, between: bool) -> int:
    if kernel.producers:
        return target.consumer_registers_besides
    if between:
        return BESIDES_BETWEEN_STEPS
    if products:
        return target.product_registers_besides
    if any(axis.windowed for axis in kernel.axes):
        return target.window_registers
    return target.registers_besides


def _available(kernel: k.Kernel, target: Target) -> int:
    roles = next((op for op in kernel.body if isinstance(op, a.Roles)), None)
    if roles is not None and roles.consumer_registers:
        return roles.consumer_registers
    launched = kernel.threads * kernel.blocks_per_sm
    each = target.registers_per_sm // launched // ALLOCATION * ALLOCATION
    return min(target.registers_per_thread, each)


def words(fragment: k.Fragment) -> int:
    """32-bit registers of a fragment in each thread."""
    elements = prod(
        axis.layout.vector * (1 if axis.layout.streams else axis.layout.steps)
        for axis in fragment.axes
    )
    bits = fragment.rep.bits + (32 if fragment.indexed else 0)
    return -(-elements * bits // 32)


@dataclass
class _Life:
    """Where a tile is first written and last used; `grows`: element by element in a walk."""

    words: int
    first: int
    last: int
    grows: bool = False


class _Lives:
    """The life of every tile in registers. A walk is one position: what is read for the last time in it makes room, element by
    element, for what is written first. A tile from outside a loop lives as long as the loop that uses it."""

    def __init__(self) -> None:
        self.position = 0
        self.lives: dict[str, _Life] = {}
        self.operands: dict[int, int] = {}
        self.spans: dict[int, Span] = {}
        self.parts: set[int] = set()
        """positions of parts of walks"""
        self.products = False
        self.steps = False
        """whether a product is done step by step"""
        self.between = False
        """whether parts of walks stand between the steps of a product"""

    def before(self, position: int) -> list[tuple[str, int]]:
        """What lives while the operation at a position begins, its own operands and temporaries among it."""
        found = [
            (name, life.words)
            for name, life in self.lives.items()
            if life.first <= position <= life.last
            and (life.first < position or not life.grows or life.last == position)
        ]
        own = self.operands.get(position)
        return [*found, ("operands", own)] if own else found

    def after(self, position: int) -> list[tuple[str, int]]:
        """What lives behind it."""
        lives = self.lives.items()
        return [(n, life.words) for n, life in lives if life.first <= position < life.last]

    def block(self, ops: tuple[k.Op, ...], around: Span) -> None:
        before = around
        for op in ops:
            span = op.span if op.span.source.text else before
            before = span
            self.position += 1
            begin = self.position
            self.spans[begin] = span
            if isinstance(op, k.TileLoop):
                between = self.steps and bool(op.parts)
                self.between |= between
                for inner in (op, *all_ops(op.body)):
                    self._use(inner, begin, True)
                    # part after part takes the place of what it is made of, and all of it is there behind the last one
                    for name in (f.name for f in mentioned(inner) if isinstance(f, k.Fragment)):
                        life = self.lives.get(name) if between else None
                        if life is not None and life.first in self.parts:
                            life.first = begin
                if between:
                    self.parts.add(begin)
                continue
            self._use(op, begin, False)
            for name in BLOCKS:
                self.block(getattr(op, name, ()), span)
            if isinstance(op, k.Loop | a.Instances):
                self._extend(begin, self.position)

    def _use(self, op: k.Op, position: int, walked: bool) -> None:
        if isinstance(op, k.Declare):
            # another tile of a name that an earlier loop or branch has used
            if (known := self.lives.pop(op.fragment.name, None)) is not None:
                self.lives[f"{op.fragment.name} of {known.first}"] = known
            if op.initial is None:
                return  # nothing is in it yet
        for leaf in mentioned(op):
            if isinstance(leaf, k.Fragment) and leaf.axes and not leaf.local:
                self._live(leaf.name, words(leaf), position, walked)
            elif isinstance(leaf, Sums):
                self._live(leaf.name, 8 * leaf.rows * leaf.cols, position, False)
        match op:
            case k.Product():
                columns = op.columns_at_once or op.col_tiles
                left = 0 if isinstance(op.a, k.Fragment) else 4 * op.row_tiles
                self.operands[position] = (left + 2 * columns) * (2 if op.ahead else 1)
            case ProductStep():
                self.steps = True
                columns = op.product.columns_at_once or op.product.col_tiles
                self.operands[position] = 2 * (4 * op.product.row_tiles + 2 * columns)
            case WmmaProduct():
                # fragments of 16 x 16 elements in 32 lanes, of f16 twice (CUDA guide: their layout is not specified)
                self.operands[position] = 8 * op.sums.rows + 8
            case a.WarpgroupProduct():
                self.products = True
            case _:
                pass

    def _live(self, name: str, size: int, position: int, grows: bool) -> None:
        known = self.lives.setdefault(name, _Life(size, position, position, grows))
        known.last = position

    def _extend(self, begin: int, end: int) -> None:
        for life in self.lives.values():
            if life.first < begin <= life.last:
                life.last = end
