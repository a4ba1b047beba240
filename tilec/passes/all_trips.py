"""Calls in which no block of a mask is empty: a kernel of its own runs all trips, without a walk over the table.

    launch  table                  the flag is 1 where a block is empty
    launch  look at the values     ends at once where the flag is 0
    launch  … skipping             ends at once where the flag is 0
    launch  … skipping_none        ends at once where the flag is 1

What memory says the host does not know, so that all are launched. A kernel that ends at once takes some 2 microseconds, the walk of a
loop that skips nothing 2 to 4 % of its time, and the look at the values as long as reading them.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import I32
from tilec.ir.launch import PointerArgument
from tilec.passes.block_tables import BlockTable, Skipping
from tilec.passes.forms import Form
from tilec.passes.mask_words import PackedTable, placed
from tilec.passes.prepared import Prepared


def all_trips(found: Skipping) -> Skipping | None:
    """The same without a branch: a loop over all trips, by words where the other one has them. None where there are several masks, or blocks that no
    instance asks about; and where numbers are compared or indices: documents and lengths empty blocks, and pay for the launch (on an H200 0.7 %)."""
    masks = [x for x in found.copies if isinstance(x, BlockTable) and not x.finite]
    if len(masks) != 1 or found.before is None:
        return None
    (mask,) = masks
    if not mask.flag:
        return None
    nest = found.before
    for op in nest.body.ops:
        if isinstance(op, t.For) and not all(v.kind in ("dim", "tile") for v in op.trips.variables):
            return None
    if isinstance(mask, PackedTable):
        nest = replace(nest, body=t.Block(tuple(placed(nest.body.ops, mask, []))))
    nests = tuple(nest if other is found.nest else other for other in found.program.nests)
    program = replace(found.program, nests=nests)
    return replace(found, program=program, nest=nest)


def flag_of(form: Form) -> str:
    """The temp that says whether a form has trips to skip, "" where there is no other form beside it."""
    copies = form.variant.copies
    if form.beside is None or copies is None:
        return ""
    return next((x.flag for x in copies.rows if isinstance(x, BlockTable) and x.flag), "")


def is_asked(copy: Prepared) -> bool:
    """Whether a table is for blocks alone that are skipped: it says of values whether one is not finite."""
    return isinstance(copy, BlockTable) and copy.finite


def ended(kernel: k.Kernel, flag: str, zero: bool, early: bool = False) -> k.Kernel:
    """The kernel where its work is for calls in which some block is empty (`zero`), or none: it ends at once in others. `early`: it begins
    while the one in front of it ends."""
    return replace(
        kernel,
        body=(e.EndWhere(flag, zero), *kernel.body),
        arguments=(*kernel.arguments, PointerArgument(flag)),
        tensors=(*kernel.tensors, (flag, I32, False)),
        early=early,
    )
