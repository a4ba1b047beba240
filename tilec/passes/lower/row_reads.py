"""Rows that the producer brings for an epilogue (`held_rows`), read by the consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k

if TYPE_CHECKING:
    from tilec.passes.lower.asynchronous import Roles


def read_rows(roles: Roles) -> None:
    """Wait for each row, read it into registers, and give its slot back."""
    context = roles.context
    for channel in roles.form.rows:
        (site,) = channel.sites
        (load,) = site.loads
        roles.wait(channel)
        name = context.names.unique(f"{load.access.tensor}_tile")
        axes = context.ordered(context.loop_axes(load.out))
        fragment = k.Fragment(name, load.out.type.dtype, axes)
        context.fragments[load.out.id] = fragment
        context.out += [
            k.Declare(fragment, None, span=load.span),
            a.RowLoad(fragment, roles.tile(site.operands[0]), span=load.span),
            *roles.release(channel),
        ]
