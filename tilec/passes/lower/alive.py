"""Instances that store nothing: a role that walks instances goes on to the next one.

for item: …                                 for item: …
  lo = starts[n]                              lo = starts[n]
  hi = starts[n + 1]                   ->     hi = starts[n + 1]
  loads, products, stores                     next unless hi - lo - BM * t > 0
                                              loads, products, stores
"""

from __future__ import annotations

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import BOOL, I32
from tilec.passes.lower.context import Context
from tilec.passes.skip_dead import left_of


def where_alive(context: Context, body: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """The body of an instance, of which one that stores nothing does no more than find that out."""
    left = left_of(context.nest, context.facts)
    if left is None:
        return body
    alive = k.Apply("gt", (context.index(left), k.Literal_(0, I32)), BOOL)
    names = {context.value_names[v.key] for v in left.variables if v.kind == "value"}
    known = [n for n, op in enumerate(body) if isinstance(op, k.Let) and op.name in names]
    first = max(known, default=-1) + 1
    return (*body[:first], a.NextUnless(alive), *body[first:])
