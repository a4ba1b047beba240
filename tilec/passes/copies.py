"""Copies of operands whose rows begin anywhere: bulk copies want rows at multiples of 16 bytes.

a: bf16[M, K], K % 8 != 0      a_rows: bf16[M, 8 * ceil(K / 8)] in the workspace, of which a kernel fills the first K columns

The nest then runs as if that were the tensor. A copy takes time for each element and for its launch; what it saves grows with the
product. Which of the two is more follows from the target's rates and the sizes of the call: where copies do not pay, or a call comes
without a workspace, the general variant takes it. Dense tensors alone are copied: the size of the workspace is asked by dimensions.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, prod

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir import window_ops as w
from tilec.ir.dtypes import I32, I64
from tilec.ir.facts import Facts
from tilec.ir.launch import (
    Argument,
    IntegerArgument,
    Launch,
    PointerArgument,
    Spare,
    Workspace,
    product,
)
from tilec.ir.symbolic import Sym, Var, ceildiv, sym_max, sym_min
from tilec.ir.tensor_maps import ALIGNMENT
from tilec.passes.block_tables import BlockTable, Skipping
from tilec.passes.boxes import TensorBox, load_box
from tilec.passes.channels import Channel
from tilec.passes.computed import ComputedCopy
from tilec.passes.lower.names import Names, Spelling
from tilec.passes.mask_words import PackedTable, packing
from tilec.passes.prepared import THREADS, VECTORS, Copies, Prepared, RowCopy
from tilec.passes.turning import TurnedCopy, turning
from tilec.passes.uses import Definitions, all_ops
from tilec.passes.windows import SHIFTED_ACCESS
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.rates import (
    MEMORY_SHARE,
    OPERATION_CLOCKS,
    RATES,
    copy_cost,
    dram_bytes,
    launch_clocks,
)
from tilec.targets.table import Target

TABLE_SHARE = 1 / 8
"""How much of the products' time tables may take that say which trips have no effect: they may say that all have one."""
TABLE_ISSUE = 1 / 8
"""How much of its rate of operations a multiprocessor reaches on the elements of a mask's blocks: 0.1 with two loads an element and 0.3 without on
an H200."""


def plan_copies(
    program: t.Program,
    nest: t.Nest,
    channels: Collection[Channel],
    dots: Collection[t.Dot],
    target: Target,
    turned: tuple[TurnedCopy | ComputedCopy, ...] = (),
) -> Copies | None:
    """The copies of the operands that bulk copies bring, behind those that are `turned` anyway; None where rows always begin at multiples
    of 16 bytes, where a nest's work depends on more than sizes, or where nothing is known of the target's rates."""
    facts = Facts.of(program)
    boxes: dict[str, TensorBox] = {}
    for channel in channels:
        for load in (load for site in channel.sites for load in site.loads):
            box = load_box(program, load, facts)
            if boxes.setdefault(load.access.tensor, box).dims != box.dims:
                return None
    found: list[RowCopy] = []
    for name, box in boxes.items():
        tensor = program.tensor(name)
        dims = tuple(map(facts.numeric, box.dims))
        copy = RowCopy(name, _temp_name(program, name), tensor.dtype, dims)
        if facts.divides(copy.columns, copy.width) or tensor.strides is not None:
            continue
        if copy.columns.constant is None and tensor.dtype.bits >= 8:
            found.append(copy)
    return _priced(program, nest, (*turned, *found), dots, target) if found else None


def plan_turned(
    program: t.Program,
    nest: t.Nest,
    turned: tuple[TurnedCopy | ComputedCopy, ...],
    dots: Collection[t.Dot],
    target: Target,
) -> Copies | None:
    """Those that are turned or computed alone; None as in `plan_copies`."""
    return _priced(program, nest, turned, dots, target)


def plan_tables(program: t.Program, tables: Skipping, target: Target) -> Copies | None:
    """Tables of blocks that say which trips have no effect; None where nothing is known of the target's rates, or what they ask takes too much of
    the work that they may save."""
    assert tables.before is not None
    facts, rates = Facts.of(program), RATES[target.arch]
    memory = dram_bytes(target.arch)
    dots = [op for op in all_ops(tables.before.body) if isinstance(op, t.Dot)]
    bits = max(op.a.type.dtype.bits for op in dots)
    if memory is None or bits not in rates.tensor or not rates.warpgroup_share:
        return None
    asked = [copy for copy in tables.copies if isinstance(copy, BlockTable)]
    others = tuple(copy for copy in tables.copies if not isinstance(copy, BlockTable))
    copied = _priced(program, tables.before, others, dots, target) if others else None
    if others and copied is None:
        return None
    work = _work(tables.before, dots, facts, True)
    macs = min(map(_multiply_adds, dots))
    trip = TABLE_SHARE * macs / (rates.tensor[bits] * rates.warpgroup_share)
    """clocks that tables may take for each"""
    blocks: list[float] = []
    for table in asked:
        issued = table.operations / (rates.fma * TABLE_ISSUE)
        read = table.read_bits / 8 / (memory * MEMORY_SHARE)
        blocks.append(max(issued, read) * table.scanned)
        if blocks[-1] > trip and _shares(table, tables.before).constant == 1:
            return None
    if work is None:
        # how many trips there are memory says, but not in how many instances a block is asked about
        shares = sym_min(facts.numeric(_shares(table, tables.before)) for table in asked)
        needed = ceil(len(asked) * max(blocks) / trip)
        most = facts.upper_bound(shares)
        known = most is None or needed <= most
        return Copies(tables.copies, Sym.of(needed), shares) if known else None
    cost = Sym.of(0)
    for table, block in zip(asked, blocks, strict=True):
        launch = ceil(launch_clocks(target.arch) / block)
        cost = cost + (table.elements + launch) * ceil(block * 16) // max(1, int(trip * 16))
    if copied is not None:
        # both have to pay
        cost = sym_max([cost, copied.cost])
    return Copies(tables.copies, cost, work[0])


def _shares(table: BlockTable, nest: t.Nest) -> Sym:
    """In how many instances a trip asks about a block of a table."""
    found = Sym.of(1)
    for axis in nest.grid:
        entry = next((x for x in table.entry if axis.index in x.variables), None)
        if entry is None:
            found = found * axis.trips
        elif entry != Sym.of(axis.index):
            (atom,) = entry.terms[0][0]
            assert not isinstance(atom, Var)
            found = found * atom.args[1]
    return found


def _multiply_adds(dot: t.Dot) -> int:
    """Of one product."""
    axes = (*dot.out.type.axes, dot.a.type.axes[-1])
    return prod(axis.capacity or 1 for axis in axes)


def _priced(
    program: t.Program,
    nest: t.Nest,
    copies: tuple[Prepared, ...],
    dots: Collection[t.Dot],
    target: Target,
) -> Copies | None:
    computed = any(isinstance(c, ComputedCopy) for c in copies)
    # what is computed again in each instance keeps the last round of them as long as the others
    in_loop = any(isinstance(c, ComputedCopy) and c.in_loop for c in copies)
    device = REPRESENTATIVES.get(target.arch) if in_loop else None
    together = device.multiprocessors if device is not None else 1
    middle = not all(isinstance(c, RowCopy) for c in copies)
    work = _work(nest, dots, Facts.of(program), middle, together)
    if work is None and computed:
        # as often as an operand would be computed again
        return Copies(copies, Sym.of(0), Sym.of(0))
    if work is None:
        return None
    trips, macs = work
    rates = RATES[target.arch]
    cost = Sym.of(0)
    for copy in copies:
        share = rates.anywhere_share
        if isinstance(copy, TurnedCopy):
            share = rates.unpacked_share if copy.dtype.is_float else rates.warp_share
        if isinstance(copy, ComputedCopy):
            share = rates.computed_share
        costs = copy_cost(target.arch, copy.dtype.bits, share)
        if costs is None:
            return None
        again = 0.0
        if isinstance(copy, ComputedCopy):
            again = copy.operations * OPERATION_CLOCKS * costs.clock
        each = max(1, int((macs + again) / costs.element))
        launch = ceil(costs.launch / costs.element)
        cost = cost + (copy.elements + launch) // each * copy.needed
    return Copies(copies, cost, trips)


def _work(
    nest: t.Nest, dots: Collection[t.Dot], facts: Facts, middle: bool, together: int = 1
) -> tuple[Sym, int] | None:
    """The trips that products make in all instances, counted in those of the smallest one, and its multiply-adds; None where that
    depends on more than sizes, or, with `middle`, where that of an instance in the middle of the grid does. Instances count as whole
    rounds of so many `together`."""
    between = {digit.index: (digit.trips - 1) // 2 for digit in nest.grid} if middle else {}
    definitions = Definitions.of(nest.body)
    counted: list[tuple[Sym, int]] = []
    for dot in dots:
        trips = ceildiv(product(tuple(digit.trips for digit in nest.grid)), together) * together
        for loop in definitions.loops[dot.out.id]:
            if isinstance(loop, t.For):
                # where there are none, the number of trips may be negative
                own = loop.trips.substitute(between.get)
                trips = trips * (sym_max([own, 0]) if middle else own)
        trips = facts.numeric(trips)
        if any(var.kind != "dim" for var in trips.variables):
            return None
        counted.append((trips, _multiply_adds(dot)))
    if not counted:
        return None
    least = min(macs for _, macs in counted)
    total = Sym.of(0)
    for trips, macs in counted:
        total = total + trips * (macs // least)
    return total, least


def _temp_name(program: t.Program, tensor: str) -> str:
    name, number = f"{tensor}_rows", 1
    while name in program.names:
        number += 1
        name = f"{tensor}_rows_{number}"
    return name


# ---------------------------------------------------------------------------------------- workspace


def with_copies(
    places: tuple[Workspace, ...],
    total: Sym,
    copies: Collection[Copies],
    beside: tuple[t.Tensor, ...] = (),
) -> tuple[tuple[Workspace, ...], Spare | None]:
    """The workspace with room for copies, and what is `beside` them and has no place, behind `total` bytes, and how much that is."""
    found = list(places)
    end = total
    conditions: dict[t.HostExpr, None] = {}
    known = {place.tensor for place in places}
    for temp in beside:
        if temp.name not in known:
            found.append(Workspace(temp.name, end, Sym.of(256)))
            end = end + 256
    for group in copies:
        conditions[t.HostOp("and", group.conditions)] = None
        for temp in group.temps:
            if temp.name not in known:
                known.add(temp.name)
                (count,) = temp.dims
                size = ceildiv(ceildiv(count * temp.dtype.bits, 8), 256) * 256
                found.append(Workspace(temp.name, end, size))
                end = end + size
    if not conditions:
        return places, None
    parts = tuple(conditions)
    condition = parts[0] if len(parts) == 1 else t.HostOp("or", parts)
    return tuple(found), Spare(end - total, condition)


# ------------------------------------------------------------------------------------------ kernels


def copying(
    program: t.Program, copy: Prepared, base: str, suffix: str, spell: Spelling
) -> tuple[k.Kernel, Launch]:
    """The kernel that copies a tensor, and its launch in front of the nest's own. `suffix`: the end of its name."""
    if isinstance(copy, PackedTable):
        return packing(program, copy, base, suffix, spell)
    if isinstance(copy, TurnedCopy):
        return turning(program, copy, base, suffix, spell)
    assert isinstance(copy, RowCopy), "a nest that is to be lowered"
    names = Names(spell)
    for word in (*program.names, copy.temp, *(v.name for v in program.dims)):
        names.unique(word)
    row, part = names.unique("row"), names.unique("part")
    numbers = sorted(copy.columns.variables | copy.rows.variables)
    arguments: tuple[Argument, ...] = (
        PointerArgument(copy.tensor),
        PointerArgument(copy.temp),
        *(IntegerArgument(var.name, Sym.of(var)) for var in program.dims if var in numbers),
    )
    thread, at = Sym.of(Var("thread", "local")), Sym.of(Var(part, "local"))
    body = w.CopyRow(
        spell(copy.tensor),
        spell(copy.temp),
        copy.dtype,
        k.Local(row, I32),
        k.Index(copy.rows, I64, wide=True),
        k.Index(copy.columns, I32),
        k.Index(at * (THREADS * VECTORS) + thread, I32),
        copy.width,
        SHIFTED_ACCESS.get(copy.dtype.bits // 8, ALIGNMENT),
        VECTORS,
        THREADS,
    )
    kernel = k.Kernel(
        "_".join(word for word in (base, "kernel_copy", suffix) if word),
        f"{base}_copy_body",
        THREADS,
        1,
        1,
        (),
        arguments,
        ((copy.tensor, copy.dtype, False), (copy.temp, copy.dtype, True)),
        (k.GridDigit(row, copy.rows), k.GridDigit(part, copy.parts)),
        copy.grid,
        (),
        (),
        (),
        (body,),
        tuple((var, spell(var.name)) for var in numbers),
    )
    return kernel, Launch(kernel.name, copy.condition, copy.grid, THREADS, arguments)


def described(copies: Copies, launch: Launch) -> list[dict[str, object]]:
    """What the manifest says of the copies in front of a launch."""
    return [
        {
            "tensor": copy.tensor,
            "kernel": before.kernel,
            "to": copy.to,
            "where": copy.where,
        }
        for copy, before in zip(copies.rows, launch.before[-len(copies.rows) :], strict=True)
    ]
