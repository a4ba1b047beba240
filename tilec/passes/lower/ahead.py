"""What a CTA's first copies read, asked of the L2 before they can be started: they need barriers, those of a pair of CTAs both CTAs', and
those of a kernel that begins early the end of the kernel in front of it.

the first thread behind the consumers     the others
tensor_ahead a, b                         set the barriers
                    all meet
producer: for each instance: for each tile: tensor_load …
"""

from __future__ import annotations

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym, Var
from tilec.passes.boxes import load_box
from tilec.passes.lower.asynchronous import Roles
from tilec.passes.lower.shares import RANK, splits


def ahead(roles: Roles, nest: t.Nest) -> tuple[k.Op, ...]:
    """The copies of the first trip of all loops in a CTA's first instance: once for each operand, since more of them keep the unit that copies
    busy when it should start the copies themselves (on an H200 two trips of 48 KB lose what one gains). Only where CTAs share operands or
    begin early; others start theirs as soon. What the kernel in front still writes is written to the L2 too."""
    form, context = roles.form, roles.context
    if form.sharing is None and not form.streams:
        return ()
    known = {digit.index for digit in nest.grid}
    found: list[k.Op] = []
    for channel in form.channels:
        if channel.again is not None:
            continue
        site = channel.sites[0]
        first: dict[Var, Sym] = {
            loop.index: RANK if splits(roles.sums, loop) else Sym.of(0)
            for loop in site.home
            if isinstance(loop, t.For)
        }
        for operand, load in zip(site.operands, site.loads, strict=True):
            box = load_box(context.program, load, context.facts)
            start = [s.substitute(first.get) for s in reversed(box.start)]
            if any(
                v not in known and v.kind in ("trip", "value") for s in start for v in s.variables
            ):
                continue
            buffer = roles.buffers[operand.source.id]
            share, peers = roles.share_of(buffer, load)
            found.append(
                a.TensorAhead(
                    roles.map_of_load(buffer, load),
                    buffer,
                    tuple(context.index(s) for s in start),
                    len(box.dims) - 1 - box.row,
                    share,
                    peers,
                )
            )
    return tuple(found)
