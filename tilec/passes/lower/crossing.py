"""A loaded tile by way of shared memory: read along its rows, kept by columns, see `tilec.passes.crossing`."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.layouts import blocked
from tilec.passes.crossing import pitch, vector_of
from tilec.passes.levels import power_of_two_in
from tilec.passes.lower.access import coordinate
from tilec.passes.lower.body import Body
from tilec.passes.lower.context import Context
from tilec.passes.lower.vectors import load_op


def cross(context: Context, op: t.Load) -> None:
    """The tile into shared memory, zeros where it is absent; reads of it come from there."""
    rep = op.out.type.dtype
    name = op.access.tensor
    rows, columns = (
        a.layout.steps * a.layout.threads * a.layout.vector
        for a in context.loop_axes(op.out)
        if a is not None
    )
    vector = vector_of(columns, rep.bits) if id(op) in context.variant.aligned else 1
    threads = context.variant.level.threads
    across = columns // vector
    across = min(power_of_two_in(across), threads)
    down = threads // across
    row = k.LoopAxis(
        context.names.unique(f"{name}_row"),
        blocked(-(-rows // down), down, across, 1),
        op.out.type.axes[0].extent,
    )
    column = k.LoopAxis(
        context.names.unique(f"{name}_col"),
        blocked(columns // (vector * across), across, 1, vector),
        op.out.type.axes[1].extent,
        True,
    )
    for axis in (row, column):
        context.extra_axes.append(axis)
        for word in (axis.coordinate, axis.element, axis.lane, axis.step, f"{axis.name}_sub"):
            context.names.used.add(word)
    apart = pitch(rows, rep.bits)
    buffer = k.SharedBuffer(
        context.names.unique(f"{name}_columns"),
        rep,
        columns * apart,
        f"a tile of `{name}` by columns",
    )
    context.shared.append(buffer)
    body = Body(context, (row, column))
    address = body.address(op.access, (row, column), writable=False, span_op=op)
    fragment = k.Fragment(body.local_name(f"{name}_part"), rep, (column,), local=True)
    load = load_op(context, op, fragment, address, column)
    place = coordinate(column) * apart + coordinate(row)
    inside = row.layout.steps * down <= rows
    bound = k.Apply("lt", (k.Index(coordinate(row), I32), k.Literal_(rows, I32)), BOOL)
    store = k.StoreShared(buffer.name, k.Index(place, I32), k.Element(fragment, rep))
    context.out.append(
        k.TileLoop(
            (row, column),
            () if inside else (bound,),
            (*body.prelude, load, k.Elements((), (store,), span=op.span)),
            span=op.span,
        )
    )
    context.names.release(body.local_names)
    context.crossed[op.out.id] = buffer.name, apart
