"""CTAs that stay, and take instances from a counter: where memory says which of them have anything to do, and how much.

producer   instances                        producer   ring_declare; instances drawn from a counter
             lo = …; next unless alive                   lo = …; next unless alive; tell the number
             copies …                   →                copies …
                                                       tell that there are no more
consumer   instances                        consumer   ring_declare; instances as they are told
             lo = …; next unless alive                   lo = …
             products, stores                            products; what the next one is; stores

A CTA for each instance starts, sets its barriers up and waits for its first tiles each time; instances that are dealt ahead leave CTAs idle
that were dealt dead or short ones. The thread that copies draws the next number while the others work, and tells it through a ring of its own.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import I32
from tilec.ir.launch import PointerArgument
from tilec.passes.lower.roles import finds_ahead

SLOTS = 4
"""Numbers that are told ahead: as far as rings of two slots let the producer run ahead, and one that says there are no more."""


def run(kernel: k.Kernel, counter: str) -> k.Kernel:
    """The kernel with its instances drawn from the tensor `counter`; as it is where CTAs have no roles, or are asked for more at once."""
    roles = next((op for op in kernel.body if isinstance(op, a.Roles)), None)
    if roles is None or kernel.cluster > 1:
        return kernel
    taken = {b.name for b in kernel.shared} | {b.name for b in kernel.panels}
    taken |= {b.name for b in kernel.barriers}
    stem = next(s for s in ("item", "item_2", "item_3") if not any(s in name for name in taken))
    ring = f"{stem}_ring"
    tickets = a.Tickets(counter, f"{stem}_numbers", ring, f"{stem}_full", f"{stem}_free")
    tell = a.TellInstance(tickets)
    both = replace(
        roles,
        producer=(
            *_declared(roles.producer, ring, tickets, tell, False),
            replace(tell, last=True),
        ),
        consumer=_declared(roles.consumer, ring, tickets, None, True),
    )
    return replace(
        kernel,
        body=tuple(both if op is roles else op for op in kernel.body),
        # the longest first, of all loops of the grid
        grid=tuple(sorted(kernel.grid, key=lambda digit: not digit.backwards)),
        barriers=(
            *kernel.barriers,
            a.Barrier(tickets.full, SLOTS, 1),
            a.Barrier(tickets.free, SLOTS, roles.consumers // 32),
        ),
        shared=(
            *kernel.shared,
            k.SharedBuffer(tickets.numbers, I32, SLOTS, "the next instances"),
        ),
        arguments=(*kernel.arguments, PointerArgument(counter)),
        tensors=(*kernel.tensors, (counter, I32, True)),
        queue=counter,
    )


def _declared(
    ops: tuple[k.Op, ...],
    ring: str,
    tickets: a.Tickets,
    tell: a.TellInstance | None,
    filled: bool,
) -> tuple[k.Op, ...]:
    """The ops of a role with the ring of numbers; `tell`: of the producer, behind the question whether an instance has anything to do."""
    result: list[k.Op] = []
    for op in ops:
        if isinstance(op, a.Instances):
            result.append(a.RingDeclare(ring, SLOTS, filled))
            asked = [n for n, x in enumerate(op.body) if isinstance(x, a.NextUnless)]
            first = asked[-1] + 1 if asked else 0
            body = tuple(x for x in op.body if tell is not None or not isinstance(x, a.NextUnless))
            if tell is not None:
                body = (*body[:first], tell, *body[first:])
            op = replace(op, body=body, tickets=tickets, draws=tell is not None, rotated=False)
            if tell is None and op.keep:
                op = finds_ahead(op)
        result.append(op)
    return tuple(result)
