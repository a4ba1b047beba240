"""Rows that the producer brings for an epilogue (`held_rows`), read by the consumers."""

from __future__ import annotations

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.passes.lower.operand_rings import OperandRings


def read_rows(rings: OperandRings) -> None:
    """Wait for each row, read it into registers, and give its slot back."""
    context = rings.context
    for channel in rings.form.rows:
        (site,) = channel.sites
        (load,) = site.loads
        rings.wait(channel)
        name = context.names.unique(f"{load.access.tensor}_tile")
        axes = context.ordered(context.loop_axes(load.out))
        fragment = k.Fragment(name, load.out.type.dtype, axes)
        context.fragments[load.out.id] = fragment
        context.out += [
            k.Declare(fragment, None, span=load.span),
            a.RowLoad(fragment, rings.tile(site.operands[0]), span=load.span),
            *rings.release(channel),
        ]
