"""Tensors that a CTA combines into in shared memory first: few elements, which many threads add to.

atomic_add(count[x[i]], 1)        instance: shared count_own = 0; atomic_add(shared count_own[x[i]], 1) …; then count[n] += count_own[n], once each

Each atomic on global memory goes to the L2, where those of one element wait for each other; one on shared memory is done by the
multiprocessor. It pays where the instances of a CTA combine several values into each element on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilec.ir import tile_ir as t
from tilec.passes.axes import Axes
from tilec.passes.uses import all_ops

MOST_BYTES = 16 << 10
"""Of such tensors in a CTA: several CTAs have room beside each other."""

LEAST_EACH = 8
"""Values for each element on average from which on it pays to clear them first and to add them up last."""

THREADS = 512
"""Of a CTA, whose instances share the elements."""

TRIPS = 8
"""Taken for a loop's."""


def private_tensors(
    program: t.Program, axes: Axes, ops: Sequence[t.Op], instances: int
) -> frozenset[str]:
    """The tensors of a nest that are combined into in shared memory, by CTAs of so many `instances`."""
    looped = {id(x) for op in ops if isinstance(op, t.For) for x in all_ops(op.body)}
    atomics: dict[str, list[t.Atomic]] = {}
    others: set[str] = set()
    for op in ops:
        if isinstance(op, t.Atomic):
            atomics.setdefault(op.access.tensor, []).append(op)
        elif isinstance(op, t.Load | t.Store):
            others.add(op.access.tensor)
    found: dict[str, None] = {}
    room = MOST_BYTES
    for name, group in atomics.items():
        tensor = program.tensor(name)
        sizes = [dim.constant for dim in tensor.dims]
        if name in others or tensor.strides is not None or tensor.dtype.bits < 32:
            continue
        if None in sizes or len({op.op for op in group}) > 1:
            continue
        elements = prod(size or 0 for size in sizes)
        values = 0
        for op in group:
            capacities = [c.capacity for c in axes.of_access(op) if c is not None]
            scattered = any(isinstance(term, t.AtTile) for term in op.access.terms)
            plain = all(isinstance(term, t.AtTile | t.AtAll) for term in op.access.terms)
            if not scattered or not plain or op.access.view is not None or None in capacities:
                values = 0
                break
            values += prod(c or 0 for c in capacities) * (TRIPS if id(op) in looped else 1)
        bytes_ = elements * tensor.dtype.bits // 8
        if values * instances >= LEAST_EACH * elements > 0 and bytes_ <= room:
            found[name] = None
            room -= bytes_
    return frozenset(found)
