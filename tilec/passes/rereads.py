"""Performance warnings about rows that fit neither registers nor shared memory: they are read again where they are used.

row = x[r, :]          more than 65536 elements of `C` do not fit a CTA's registers
m = max(row)           reads the row
s = sum(exp(row - m))  reads it again
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilec.ir import tile_ir as t
from tilec.passes.assign_layouts import Variant
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.placement import Placement
from tilec.passes.uses import Definitions, all_ops
from tilec.source.diagnostics import Diagnostic
from tilec.source.text import Span


def rereads(
    nest: t.Nest, axes: Axes, placement: Placement, variants: Sequence[Variant]
) -> tuple[Diagnostic, ...]:
    """W0601 for the loads of the nest that a walked variant does several times; one for each source line.

    Where there are variants for aligned rows only those are looked at: no bound helps the others.
    """
    found: dict[tuple[str, int], Diagnostic] = {}
    variants = [v for v in variants if v.aligned] or variants
    walked = frozenset().union(*(v.level.streams for v in variants))
    definitions = Definitions.of(nest.body)
    for op in all_ops(nest.body):
        if not isinstance(op, t.Load) or op.out.type.rank == 0:
            continue
        reads = sum(_times(sink, op, definitions) for sink in placement.sinks[op.out.id])
        along = [c for c in axes.of_value(op.out) if c is not None and c.number in walked]
        if reads < 2 or not along:
            continue
        place = (op.span.source.name, op.span.line)
        if place not in found:
            found[place] = _warning(op.access.tensor, op.span, reads, along[0], variants)
    return tuple(found.values())


def _times(sink: t.Op, load: t.Load, definitions: Definitions) -> int:
    """How often a sink of a load is walked, in loops of a known number of trips."""
    if not sink.outs or isinstance(sink, t.For | t.If):
        return 1
    around = set(map(id, definitions.loops[load.out.id]))
    loops = [op for op in definitions.loops[sink.outs[0].id] if id(op) not in around]
    return prod(op.trips.constant or 1 for op in loops if isinstance(op, t.For))


def _warning(
    tensor: str, span: Span, reads: int, along: AxisClass, variants: Sequence[Variant]
) -> Diagnostic:
    held = [
        v.level.axes[along.number].layout.capacity
        for v in variants
        if along.number in v.level.axes and along.number not in v.level.streams
    ]
    size = str(along.extent)
    helps: tuple[str, ...] = ()
    if along.capacity is None:
        why = f"`{size}` has no upper bound"
    elif along.static:
        why = f"a tile has {along.capacity} elements along that axis"
        helps = ("a smaller tile keeps them in registers",)
    else:
        why = f"the bound on `{size}` is {along.capacity}"
    longest = f"rows of more than {max(held)} elements" if held else "rows"
    if held and not along.static:
        helps = (f"`require {size} <= {max(held)}` keeps every row in registers",)
    return Diagnostic(
        "W0601",
        f"{longest} of `{tensor}` do not fit registers and are read {reads} times",
        span,
        notes=(why,),
        helps=helps,
    )
