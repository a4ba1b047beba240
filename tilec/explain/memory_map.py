"""Where each buffer lies in a CTA's shared memory, and between which lines it is in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilec.explain.walk import BLOCKS, mentioned
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.source.text import NOWHERE, Span

Placed = k.SharedBuffer | k.TileBuffer | a.PanelBuffer | a.Barrier


@dataclass(frozen=True)
class Place:
    """One member of the CTA's shared memory: `bytes` from `offset` on, `slots` of which each is used by itself. `placement` says how
    rows lie. `first`, `last`: the places in the source of the first and the last use, None where nothing uses it; `loops`: loops
    around every use, outermost first."""

    buffer: Placed
    offset: int
    bytes: int
    slots: int
    placement: str
    first: Span | None
    last: Span | None
    loops: tuple[str, ...]

    @property
    def name(self) -> str:
        """The member's name in the generated code."""
        return self.buffer.name


def memory_map(kernel: k.Kernel) -> list[Place]:
    """The members of the kernel's struct of shared memory in order, laid out as the host compiler and nvcc lay out a struct."""
    members: list[tuple[Placed, int, int]] = [
        (panel, panel.bytes, panel.alignment) for panel in kernel.panels
    ]
    for array in kernel.shared:
        width = max(1, array.rep.bits // 8)
        element = 2 * max(width, 4) if array.indexed else width
        alignment = max(width, 4) if array.indexed else width
        members.append((array, array.count * element, alignment))
    members += [(tile, tile.bytes, 128) for tile in kernel.tiles]
    members += [(barrier, barrier.bytes, 8) for barrier in kernel.barriers]
    names = {buffer.name for buffer, _, _ in members}
    uses = _Uses(names)
    uses.block(kernel.body, NOWHERE, ())
    places: list[Place] = []
    offset = 0
    for buffer, size, alignment in members:
        offset = -(-offset // alignment) * alignment
        spans, loops = uses.found.get(buffer.name, ([], ()))
        spans = sorted(spans, key=lambda span: span.line)
        first, last = (spans[0], spans[-1]) if spans else (None, None)
        slots = 1 if isinstance(buffer, k.SharedBuffer) else buffer.slots
        places.append(Place(buffer, offset, size, slots, placement(buffer), first, last, loops))
        offset += size
    return places


def placement(buffer: Placed) -> str:
    """How the rows of a buffer lie, against bank conflicts."""
    match buffer:
        case a.PanelBuffer() if buffer.rows == 1:
            return "one row"
        case a.PanelBuffer():
            return f"panels of {buffer.panel} columns, swizzle of {buffer.span} bytes"
        case k.TileBuffer():
            if buffer.plain and buffer.rep.bits == 8:
                return "panels of 16 columns"
            if buffer.pitch != buffer.cols:
                return f"rows {buffer.pitch} elements apart"
            chunks = buffer.cols * buffer.rep.bits // 128
            if buffer.plain or (chunks % 8 and chunks & (chunks - 1)):
                return "rows at an odd number of chunks"
            return f"swizzle of {min(chunks, 8) * 16} bytes" if chunks > 1 else "dense"
        case a.Barrier():
            return f"{buffer.arrivals} arrival{'s' * (buffer.arrivals != 1)} a phase"
        case k.SharedBuffer():
            return buffer.purpose


class _Uses:
    """Spans of the operations that mention each buffer, and the loops that are around all of them."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.found: dict[str, tuple[list[Span], tuple[str, ...]]] = {}

    def block(self, ops: tuple[k.Op, ...], around: Span, loops: tuple[str, ...]) -> None:
        before = around
        for op in ops:
            # what no line of the program stands for belongs to what precedes it
            span = op.span if op.span.source.text else before
            before = span
            for name in dict.fromkeys(self._named(op)):
                spans, common = self.found.get(name, ([], loops))
                shared = tuple(x for x, y in zip(common, loops, strict=False) if x == y)
                if span.source.text:
                    spans.append(span)
                self.found[name] = (spans, shared)
            inner = (*loops, op.name) if isinstance(op, k.Loop) else loops
            for field in BLOCKS:
                self.block(getattr(op, field, ()), span, inner)

    def _named(self, op: k.Op) -> Iterator[str]:
        for leaf in mentioned(op):
            if isinstance(leaf, str) and leaf in self.names:
                yield leaf
