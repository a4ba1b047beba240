"""What lies behind the last product of a nest: which loads need not wait for it.

for k …: acc += a[i, k] @ b[k, j]           bias[j] is fetched before the last product is done: its latency is hidden, and the
c[i, j] = relu(acc + bias[j])               accumulators are the only tile that the statement needs beside it
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir import tile_ir as t
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import Axes
from tilec.passes.placement import Placement, is_inline_kind
from tilec.passes.products import Products
from tilec.passes.uses import Definitions, operands, syms_of


@dataclass(frozen=True)
class Epilogue:
    """The loads that stores behind the last loop need. `early` (ids of their values): those that can be made before the loop's end,
    of what memory holds when the kernel starts, at places that are known, as many as fit. `words`: registers of all of them, None
    where one has another layout. `late`: whether there are others than the early ones."""

    early: frozenset[int]
    words: int | None
    late: bool


def plan_epilogue(
    program: t.Program,
    nest: t.Nest,
    axes: Axes,
    placement: Placement,
    products: Products,
    definitions: Definitions,
    room: int,
) -> Epilogue:
    """The epilogue of a nest whose loads may take `room` registers beside the accumulators."""
    loops = [n for n, op in enumerate(nest.body.ops) if isinstance(op, t.For)]
    if not loops:
        return Epilogue(frozenset(), None, True)
    before = {v.id for op in nest.body.ops[: loops[-1]] for v in op.outs}
    loads: dict[int, t.Load] = {}
    for op in nest.body.ops[loops[-1] + 1 :]:
        if isinstance(op, t.Store):
            loads |= {load.out.id: load for load in _loads(op.value, definitions)}
    found = _chosen(program, axes, placement, products, before, loads, room)
    # beside a late load, and what it brings, half of them
    return (
        _chosen(program, axes, placement, products, before, loads, room // 2)
        if found.late
        else found
    )


def _chosen(
    program: t.Program,
    axes: Axes,
    placement: Placement,
    products: Products,
    before: set[int],
    loads: dict[int, t.Load],
    room: int,
) -> Epilogue:
    early: set[int] = set()
    total: int | None = 0
    for number, load in loads.items():
        words = register_words(load.out, axes, products)
        if words is None:
            total = None
            continue
        if total is not None:
            total += words
        known = all(
            v.key in before for s in syms_of(load) for v in s.variables if v.kind == "value"
        )
        constant = program.tensor(load.access.tensor).role == "input" and not operands(load)
        whole = all(c is not None for c in axes.of_value(load.out)) and load.out.type.rank > 1
        if not whole and number not in placement.held and known and constant and words <= room:
            early.add(number)
            room -= words
    return Epilogue(frozenset(early), total, len(early) < len(loads))


def _loads(value: t.Value, definitions: Definitions) -> Iterator[t.Load]:
    """The loads of tiles that evaluating a value element by element makes."""
    op = definitions.defining.get(value.id)
    if value.type.rank == 0 or op is None or not is_inline_kind(op):
        return
    if isinstance(op, t.Load):
        yield op
    for inner in operands(op):
        yield from _loads(inner, definitions)


def register_words(value: t.Value, axes: Axes, products: Products) -> int | None:
    """Registers of a tile in accumulators' layout; None where an axis has no such layout."""
    count, vector = 1, 1
    for found in axes.of_value(value):
        if found is None:
            continue
        layout = products.layouts.get(found.number)
        if layout is None:
            return None
        count *= layout.steps
        vector *= layout.vector if found.number in products.columns else 1
    return count * -(-vector * max(value.type.dtype.bits, 8) // 32)
