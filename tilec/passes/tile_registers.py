"""Registers that the tiles of a nest take in each thread, under a layout of its axis classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilec.ir import tile_ir as t
from tilec.ir.kernel_ir import LoopAxis
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.levels import SCANNED_WORDS
from tilec.passes.placement import Placement, is_inline_kind


class TileRegisters:
    """The tiles of a nest: those that are held, those that pass, and those that exist in registers only."""

    def __init__(
        self, ops: Sequence[t.Op], axes: Axes, placement: Placement, fast_slot: Sequence[AxisClass]
    ):
        self.ops = ops
        self.axes = axes
        self.placement = placement
        self.fast_slot = fast_slot

    def held_of_vector(self, width: int) -> int:
        """Registers for one vector of every held tile that runs along the fast slot."""
        words = 0
        for op in self.ops:
            for value in op.outs:
                if value.id not in self.placement.held or value.type.rank == 0:
                    continue
                if any(c is not None and c in self.fast_slot for c in self.axes.of_value(value)):
                    words += _held(op, value, width)
                    words += SCANNED_WORDS * isinstance(op, t.Scan)
            if isinstance(op, t.ReduceWith) and any(
                c is not None and c in self.fast_slot for c in self.axes.of_value(op.args[0])
            ):
                words += 2 * (len(op.outs) + 1)
        return words

    def held(self, axes: Mapping[int, LoopAxis]) -> int:
        """Registers for all held tiles under a layout."""
        total = 0
        for op in self.ops:
            for value in op.outs:
                if value.id not in self.placement.held or value.type.rank == 0:
                    continue
                count, vector = 1, 1
                for found in self.axes.of_value(value):
                    if found is not None:
                        layout = axes[found.number].layout
                        count *= layout.steps
                        vector = max(vector, layout.vector)
                total += count * _held(op, value, vector)
        return total

    def passing(self, width: int) -> int:
        """Registers for one vector of every tile that a walk loads and uses at once; two such vectors are in flight."""
        words = 0
        for op in self.ops:
            if (
                not isinstance(op, t.Load)
                or op.out.id in self.placement.held
                or op.out.type.rank == 0
            ):
                continue
            if any(c is not None and c in self.fast_slot for c in self.axes.of_value(op.out)):
                words += max(1, -(-width * max(op.out.type.dtype.bits, 8) // 32))
        return words

    def kept_values(self) -> list[t.Value]:
        """Tiles that exist in registers only: results of reductions, carried names, merges of branches."""
        found: list[t.Value] = []
        for op in self.ops:
            if isinstance(op, t.For):
                found += [c.entry for c in op.carried]
            if not is_inline_kind(op):
                found += op.outs
        return [v for v in found if v.type.rank]

    def classes_of_kept(self) -> set[int]:
        """Numbers of the classes along which such tiles run: they cannot be walked."""
        return {
            c.number for v in self.kept_values() for c in self.axes.of_value(v) if c is not None
        }

    def largest_kept(self, axes: Mapping[int, LoopAxis]) -> tuple[int, t.Value | None]:
        """Registers that a thread needs for the largest such tile, and that tile."""
        words, largest = 0, None
        for value in self.kept_values():
            own = 1
            for found in self.axes.of_value(value):
                if found is not None:
                    layout = axes[found.number].layout
                    own *= layout.vector * (1 if layout.streams else layout.steps)
            if own > words or largest is None:
                words, largest = own, value
        return words, largest


def _held(op: t.Op, value: t.Value, width: int) -> int:
    """Registers for one vector of a held tile: data as loaded, computed ones in 32 bits at least; a single loaded element has an address
    too."""
    loaded = isinstance(op, t.Load)
    bits = value.type.dtype.bits if loaded else max(value.type.dtype.bits, 32)
    return max(1, -(-width * max(bits, 8) // 32)) + (loaded and width == 1)
