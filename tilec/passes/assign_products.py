"""Variants of a nest with products: accumulator layouts for its rows and columns, copies of 16 bytes where alignment allows."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir import tile_ir as t
from tilec.ir.kernel_ir import LoopAxis, TileBuffer
from tilec.ir.launch import AllOf
from tilec.ir.layouts import AxisLayout, blocked, is_paired, is_transposable, lane_blocks
from tilec.passes.assign_layouts import Assignment, Level, Variant
from tilec.passes.axes import Axes
from tilec.passes.placement import Placement, from_memory
from tilec.passes.products import Products, Staged
from tilec.passes.uses import Definitions, operands
from tilec.plan.candidate import Candidate
from tilec.plan.product_tiles import ring_depth
from tilec.source.diagnostics import fail
from tilec.targets.occupancy import SHARED_RESERVE
from tilec.targets.table import Target

LARGEST_LOOSE_CLASS = 64
"""Coordinates that every thread may hold of an axis that is neither rows nor columns of a product."""


class ProductAssignment(Assignment):
    """As the assignment of element-wise nests, with the products' geometry given."""

    def __init__(
        self,
        program: t.Program,
        nest: t.Nest,
        axes: Axes,
        placement: Placement,
        target: Target,
        candidate: Candidate,
        products: Products,
        general_only: bool = False,
    ):
        self.general_only = general_only
        self.in_lines = True
        """whether rows of narrow tiles beside the products are taken for whole lines of 16 bytes"""
        self.candidate = candidate
        self.products = products
        self.staged: dict[int, int] = {}
        definitions = Definitions.of(nest.body)
        for plan in products.plans.values():
            for operand in (plan.a, plan.b):
                if isinstance(operand, Staged):
                    self._note_loads(operand.source, operand.source, definitions)
        super().__init__(program, nest, axes, placement, target, candidate.warps)

    def _note_loads(self, value: t.Value, operand: t.Value, definitions: Definitions) -> None:
        """Loads that run along an operand's last axis move as many elements as 16 bytes of the operand have."""
        if value.type.rank == 0 or not from_memory(operand, definitions):
            return
        op = definitions.defining[value.id]
        if isinstance(op, t.Load):
            if value.type.rank == 2:
                self.staged[id(op)] = 128 // operand.type.dtype.bits
            return
        if not isinstance(op, t.Rearrange):
            for inner in operands(op):
                self._note_loads(inner, operand, definitions)

    def variants(self) -> tuple[Variant, ...]:
        """The aligned form and the general one."""
        level = self.product_level(self.products)
        stages, stage_bytes = self._stages()
        result = []
        for name, lines in self._widths():
            conditions, divisors, accesses = self.alignment(2)
            if not accesses or self.general_only:
                continue
            result.append(
                Variant(
                    name,
                    level,
                    AllOf(tuple(conditions)),
                    tuple(divisors),
                    frozenset(accesses),
                    1,
                    self._resident(stages * stage_bytes),
                    self.products,
                    stages,
                    lines=lines,
                )
            )
        if conditions or not accesses or self.general_only:
            result.append(
                Variant("any", level, AllOf(()), (), frozenset(), 1, 1, self.products, stages)
            )
        return tuple(result)

    def _widths(self) -> Iterator[tuple[str, frozenset[int]]]:
        """The names of the aligned forms and what they load in lines, each with `in_lines` set for it: rows that are no whole lines may be
        whole pairs."""
        lines = frozenset(id(op) for op in self.accesses if self._loaded_in_lines(op))
        yield "", lines
        if lines:
            self.in_lines = False
            yield "pairs", frozenset()
            self.in_lines = True

    def _crossing(self, level: Level | None = None, batch: int = 1) -> list[t.Load]:
        """None: operands of products have ways of their own."""
        return []

    def _vector_elements(self, op: t.Load | t.Store | t.Atomic, width: int) -> int:
        """16 bytes for a staged load and for what bulk copies take away, the accumulators' pairs for an access along columns."""
        if id(op) in self.staged:
            return self.staged[id(op)]
        if self._stored_in_lines(op):
            return 8
        if self._loaded_in_lines(op):
            return 128 // self.program.tensor(op.access.tensor).dtype.bits
        if self._stored_across(op):
            return 2
        return width

    def _stored_in_lines(self, op: t.Load | t.Store | t.Atomic) -> bool:
        """Stores of 16-bit rows of accumulators: four lanes can join their pairs to 16 bytes."""
        if not isinstance(op, t.Store) or self.program.tensor(op.access.tensor).dtype.bits != 16:
            return False
        classes = self.axes.of_access(op)
        if len(classes) != 2 or classes[0] is None or classes[1] is None:
            return False
        layout = self.products.layouts.get(classes[1].number)
        rows = (
            classes[0].number in self.products.layouts
            and classes[0].number not in self.products.columns
        )
        return (
            rows
            and classes[1].number in self.products.columns
            and layout is not None
            and layout.steps % 4 == 0
        )

    def _loaded_in_lines(self, op: t.Load | t.Store | t.Atomic) -> bool:
        """Loads of narrow rows of accumulators that registers hold: four lanes can share out 16 bytes of each."""
        if not self.in_lines or not isinstance(op, t.Load):
            return False
        if op.out.id not in self.placement.held:
            return False
        classes = self.axes.of_access(op)
        if self.products.swapped or len(classes) != 2 or None in classes:
            return False
        rows, columns = (self.products.layouts.get(c.number) for c in classes if c is not None)
        if rows is None or columns is None or rows.is_blocked or columns.is_blocked:
            return False
        tensor = self.program.tensor(op.access.tensor)
        blocks = lane_blocks(tensor.dtype.bits)
        last = classes[1]
        assert last is not None
        along = last.number in self.products.columns
        return along and bool(blocks) and columns.steps % (4 * blocks) == 0

    def _stored_across(self, op: t.Load | t.Store | t.Atomic) -> bool:
        """Stores of 16-bit columns of accumulators, in pairs: of those that lanes exchange, or of rows that one thread has."""
        numbers = [None if c is None else c.number for c in self.axes.of_access(op)]
        if not isinstance(op, t.Store) or not self.products.swapped or len(numbers) != 2:
            return False
        across, along = numbers
        rows = set(self.products.layouts) - self.products.columns
        if across not in self.products.columns or along not in rows:
            return False
        layout = self.products.layouts[along]
        bits = self.program.tensor(op.access.tensor).dtype.bits
        return bits == 16 and (is_transposable(layout) or is_paired(layout))

    def _runs_along_fast(self, op: t.Load | t.Store | t.Atomic) -> bool:
        if id(op) in self.staged:
            access = op.access
            tensor = self.program.tensor(access.tensor)
            contiguous = access.view is not None or tensor.row_major[-1].constant == 1
            return (
                contiguous
                and isinstance(access.terms[-1], t.AtSpan | t.AtAll)
                and not access.pointwise
            )
        access = op.access
        if (
            not access.terms
            or not isinstance(access.terms[-1], t.AtSpan | t.AtAll)
            or access.pointwise
        ):
            return False
        tensor = self.program.tensor(access.tensor)
        if access.view is None and tensor.row_major[-1].constant != 1:
            return False
        classes = self.axes.of_access(op)
        last = classes[-1] if classes else None
        along = last is not None and last.number in self.products.columns
        return along or self._stored_across(op)

    def product_level(self, products: Products) -> Level:
        axes: dict[int, LoopAxis] = {}
        for found in self.axes.classes:
            layout: AxisLayout | None = products.layouts.get(found.number)
            if layout is None:
                if found.number in products.consumed and self._only_staged(found.number):
                    continue
                capacity = found.capacity
                if capacity is None or capacity > LARGEST_LOOSE_CLASS:
                    if self._only_staged(found.number):
                        continue
                    raise fail(
                        "E0515",
                        f"axis `{self.names[found.number]}` is neither rows nor columns of a product and too long to be held by "
                        "every thread",
                        self.nest.span,
                        help="compute with it in a nest of its own",
                    )
                layout = blocked(capacity, 1, 1, 1)
            axes[found.number] = LoopAxis(
                self.names[found.number],
                layout,
                found.extent,
                found.number in products.columns,
            )
        return Level(axes, 32 * products.warps, products.accumulators)

    def _only_staged(self, number: int) -> bool:
        """Whether an axis belongs to operands of products only."""
        for op in self.ops:
            if isinstance(op, t.Reduce | t.Store | t.Atomic):
                classes = (
                    self.axes.of_value(op.arg)
                    if isinstance(op, t.Reduce)
                    else self.axes.of_access(op)
                )
                if any(c is not None and c.number == number for c in classes):
                    return False
        return True

    def _stages(self) -> tuple[int, int]:
        """Ring depth from the shared memory of about two resident CTAs, of one where less than three stages fit; 1: each tile is
        staged where it is used. And the bytes of one trip."""
        ring = 0
        fixed = 0
        seen: set[int] = set()
        root = self.products.root
        looped = {
            root(o.load.out.id)
            for plan in self.products.plans.values()
            for o in (plan.a, plan.b)
            if isinstance(o, Staged) and o.load is not None and self._in_loop(o.load)
        }
        for plan in self.products.plans.values():
            for operand in (plan.a, plan.b):
                if not isinstance(operand, Staged) or operand.key in seen:
                    continue
                seen.add(operand.key)
                load = operand.load
                if load is not None and not self._in_loop(load) and root(load.out.id) in looped:
                    continue  # a slot of the loop's ring
                rows, cols = (
                    self.products.padded(self.axes, operand, plan, n)
                    for n in ((1, 0) if operand.turned else (0, 1))
                )
                dtype = operand.source.type.dtype
                size = TileBuffer("", dtype, rows, cols, 1, plan.opaque).bytes
                in_loop = operand.load is not None and self._in_loop(operand.load)
                ring, fixed = (ring + size, fixed) if in_loop else (ring, fixed + size)
        limit = self.target.shared_per_block_optin
        if self.candidate.stages is not None:
            stages = self.candidate.stages
        else:
            # products in a chain hide copies behind much work: two slots are enough
            least = 2 if self.products.chained else 3
            stages = ring_depth(self.target, ring, fixed, least)
        if ring * stages + fixed > limit:
            raise fail(
                "E0603",
                f"the operand tiles need {ring * stages + fixed} bytes of shared memory"
                f"{' with one stage' if stages == 1 else ''}, {self.target.arch} has {limit} for a block",
                self.nest.span,
                note=f"{stages} stage{'s' * (stages > 1)} of {ring} bytes, and {fixed} bytes that are staged once or computed",
                help=self.candidate.smaller_tiles + (", or fewer `stages`" if stages > 1 else ""),
            )
        return stages, ring + fixed // stages

    def resident(self) -> int:
        """CTAs that a multiprocessor holds, two at most."""
        stages, stage_bytes = self._stages()
        return self._resident(stages * stage_bytes)

    def ring(self) -> tuple[int, bool]:
        """Slots of the rings of operands, and whether a loop brings any. Raises TileError (E0603) where shared memory has no room for one."""
        plans = self.products.plans.values()
        staged = [o for plan in plans for o in (plan.a, plan.b) if isinstance(o, Staged)]
        looped = any(o.load is not None and self._in_loop(o.load) for o in staged)
        return self._stages()[0], looped

    def _in_loop(self, load: t.Load) -> bool:
        return any(isinstance(op, t.For) and load in op.body.ops for op in self.ops)

    def _resident(self, shared: int) -> int:
        """CTAs an SM may hold: by registers and by shared memory."""
        registers = min(255, self.products.accumulators + 64)
        threads = 32 * self.products.warps
        by_registers = self.target.registers_per_sm // (-(-registers // 8) * 8 * threads)
        by_shared = self.target.shared_per_sm // (shared + SHARED_RESERVE)
        return max(1, min(by_registers, by_shared, 2))
