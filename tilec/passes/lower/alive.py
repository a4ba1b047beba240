"""Bodies of instances: those that store nothing, where a role that walks instances goes on to the next one, and what is made anew in each.

for item: …                                 for item: …
  lo = starts[n]                              lo = starts[n]
  hi = starts[n + 1]                   ->     hi = starts[n + 1]
  loads, products, stores                     next unless hi - lo - BM * t > 0
                                              loads, products, stores
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.facts import Facts
from tilec.ir.kernel_walking import follows
from tilec.passes.lower.context import Context
from tilec.passes.skip_dead import left_of


def where_alive(context: Context, body: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """The body of an instance, of which one that stores nothing does no more than find that out."""
    left = left_of(context.nest, Facts.of(context.program))
    if left is None:
        return body
    alive = k.Apply("gt", (context.index(left), k.Literal_(0, I32)), BOOL)
    names = {context.value_names[v.key] for v in left.variables if v.kind == "value"}
    known = [n for n, op in enumerate(body) if isinstance(op, k.Let) and op.name in names]
    first = max(known, default=-1) + 1
    return (*body[:first], a.NextUnless(alive), *body[first:])


def renewed(body: tuple[k.Op, ...], axes: Iterable[k.LoopAxis]) -> tuple[k.Op, ...]:
    """An instance's body with what follows from coordinates of accumulators computed behind its last loop, not in front of all
    instances."""
    last = max((n for n, op in enumerate(body) if isinstance(op, k.Loop)), default=None)
    if last is None:
        return body
    behind = body[last + 1 :]
    moved = tuple(x for x in axes if not x.layout.is_blocked and follows(behind, x))
    return (*body[: last + 1], a.Renew(moved), *behind) if moved else body
