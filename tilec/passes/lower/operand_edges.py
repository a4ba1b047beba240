"""Edges of operands in shared memory: a bulk copy brings what lies beyond the end of a tile's consumed axis, and a product would add it."""

from __future__ import annotations

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym
from tilec.passes.boxes import load_box
from tilec.passes.lower.operand_rings import OperandRings
from tilec.passes.lower.products import products_of
from tilec.passes.products import Staged
from tilec.source.text import Span


def meets(rings: OperandRings, dot: t.Dot) -> bool:
    """Whether a product is the first to read a tile with edges to clear."""
    plan = products_of(rings.context).plans[dot.out.id]
    return any(
        rings.site_of[o.source.id].first is dot and ends(rings, o) != (None, None)
        for o in (plan.a, plan.b)
        if isinstance(o, Staged)
    )


def ends(rings: OperandRings, operand: Staged) -> tuple[Sym | None, Sym | None]:
    """Where the consumed axis of a tile begins and ends inside the tensor, None where it nowhere does."""
    context = rings.context
    assert operand.load is not None
    box = load_box(context.program, operand.load, context.facts)
    first, last = box.inner[operand.k_axis]
    if operand.load.out.id in context.whole:
        last = None
    extent = _extent(rings, operand)
    home = context.definitions.loops[operand.load.out.id]
    # a rotated loop leaves the last trip, and with it the edge, to what follows
    trips = {loop.index: loop.trips for loop in home if isinstance(loop, t.For)}
    facts = context.facts.knowing(trips, ())
    if first is not None and facts.prove_nonnegative(-first):
        first = None
    if last is not None and facts.prove_nonnegative(last - extent):
        last = None
    return first, last


def ragged(
    rings: OperandRings, operand: Staged, first: Sym | None, last: Sym | None
) -> tuple[k.Expr, k.Expr, k.Expr]:
    """Where what is in a tile of its consumed axis begins and ends, and whether that is not all of it."""
    context = rings.context
    extent = _extent(rings, operand)
    begin: k.Expr = k.Literal_(0, I32) if first is None else context.index(first)
    end: k.Expr = k.Literal_(extent, I32) if last is None else context.index(last)
    conditions: list[k.Expr] = []
    if first is not None:
        conditions.append(k.Apply("gt", (begin, k.Literal_(0, I32)), BOOL))
    if last is not None:
        conditions.append(k.Apply("lt", (end, k.Literal_(extent, I32)), BOOL))
    condition = conditions[0]
    if len(conditions) > 1:
        condition = k.Apply("or", tuple(conditions), BOOL)
    return begin, end, condition


def clear(rings: OperandRings, operand: Staged, beside_zeros: bool, span: Span) -> tuple[k.Op, ...]:
    """Zeros where the consumed axis ends inside the tensor. `beside_zeros`: the other operand is in registers, which are 0 there. What has to
    stand between this and the release of the tile's slot: a fence takes long, and does not hold the product up behind its start."""
    first, last = ends(rings, operand)
    if first is None and last is None:
        return ()
    buffer = rings.buffers[operand.source.id]
    begin, end, condition = ragged(rings, operand, first, last)
    assert operand.load is not None
    interleaved = operand.load.access.tensor in rings.form.interleaved
    asks = beside_zeros and operand.k_axis == 0 and buffer.rep.is_float
    cleared = a.ClearEdges(
        rings.tile(operand), buffer, operand.k_axis, begin, end, interleaved, asks, span=span
    )
    rings.context.out.append(k.IfUniform(condition, (cleared,), span=span))
    return (k.IfUniform(condition, (a.ReadFence(),), span=span),) if asks else ()


def _extent(rings: OperandRings, operand: Staged) -> int:
    buffer = rings.buffers[operand.source.id]
    return (buffer.rows, buffer.cols)[operand.k_axis]
