"""Turns at starting products: where a warpgroup waits for its own, and where it gives it to the next.

s = q @ k[0]                        take; start s; wait; pass
for n < trips:                      for n < trips:
    o += p @ v[n]              ->       take; start s, o
    s = q @ k[n + 1]                    wait for s; pass              o is still under way: the next one queues up behind it alone
    p = …                               p = …

Products that two warpgroups start together are done together, and then both of them work while nothing is multiplied: the next
trip begins as this one did. One that may start only when the products before the other's last are done is half a trip behind from the first trip on.
"""

from __future__ import annotations

from typing import Literal

from tilec.ir import tile_ir as t
from tilec.lazy_dataclass import dataclass
from tilec.passes.lower import operand_edges
from tilec.passes.lower.operand_rings import OperandRings
from tilec.passes.lower.products import products_of
from tilec.passes.products import Staged
from tilec.passes.uses import operands


@dataclass(frozen=True)
class ProductTurn:
    """What a product does about turns: whether its warpgroup takes one in front of it, and gives it on when it has `started`, or is `done`."""

    takes: bool = False
    passes: Literal["no", "started", "done"] = "no"


def turn_of(rings: OperandRings, op: t.Dot) -> ProductTurn:
    """Of a loop with several products between which other work is done one warpgroup starts all of them while the others do that work. All
    of them clear a tile's edges together, which no one may wait for in a turn."""
    if rings.form.warpgroups < 2:
        return ProductTurn()
    around = rings.context.definitions.loops[op.out.id]
    if not around:
        return ProductTurn(True, "done") if _leads(rings, op) else ProductTurn()
    loop = around[-1]
    dots = _in_turn(rings, loop) if isinstance(loop, t.For) else []
    if not dots or not isinstance(loop, t.For):
        return ProductTurn()
    rings.turns.add(id(loop))
    takes = op is dots[0]
    if _overlaps(rings, loop, dots):
        return ProductTurn(takes, "done" if op is dots[-2] else "no")
    return ProductTurn(takes, "started" if op is dots[-1] else "no")


def _in_turn(rings: OperandRings, loop: t.For) -> list[t.Dot]:
    """The products of a loop that are started in turn; none where it has no turns."""
    dots = [x for x in loop.body.ops if isinstance(x, t.Dot)]
    if len(dots) < 2 or any(operand_edges.meets(rings, dot) for dot in dots[1:]):
        return []
    return dots


def _overlaps(rings: OperandRings, loop: t.For, dots: list[t.Dot]) -> bool:
    """Whether all of a trip's products are started one after the other, none of them waiting for another one, and each warpgroup has rows of
    its own to work on meanwhile."""
    if rings.form.products.apart:
        return False
    ops = loop.body.ops
    between = ops[ops.index(dots[0]) : ops.index(dots[-1]) + 1]
    made = {dot.out.id for dot in dots}
    return all(isinstance(op, t.Load | t.Dot) for op in between) and not any(
        value.id in made for dot in dots for value in operands(dot)
    )


def _leads(rings: OperandRings, op: t.Dot) -> bool:
    """Whether a product is the one in front of such a loop that was its first trip's, alone there."""
    ops = rings.context.nest.body.ops
    if not any(x is op for x in ops):
        return False
    at = next(n for n, x in enumerate(ops) if x is op)
    loop = next((x for x in ops[at + 1 :] if isinstance(x, t.Dot | t.For)), None)
    if not isinstance(loop, t.For):
        return False
    dots = _in_turn(rings, loop)
    return (
        bool(dots) and _overlaps(rings, loop, dots) and _tiles(rings, op) == _tiles(rings, dots[0])
    )


def _tiles(rings: OperandRings, op: t.Dot) -> set[object]:
    """The rings that a product reads from."""
    plan = products_of(rings.context).plans[op.out.id]
    return {rings.channel_of[x.source.id] for x in (plan.a, plan.b) if isinstance(x, Staged)}
