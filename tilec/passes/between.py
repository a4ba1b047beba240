"""Exponentials between the steps of a product: what a loop hands on to its next trip is made while the product of this trip runs.

    s = …                                      s = …
    acc += handed @ v                          for step:
    for each element of s:             ->          read operands of step + 1 ; acc += step
        w = exp2(…) ; sum += w                     w = exp2(…) ; sum += w, of some elements
        handed = w                                 next = w
                                               handed = next

A warp issues one instruction after the other, and ptxas keeps to the order in which it finds long rows of independent ones: behind the
product the exponentials of a warp would wait for it, and the tensor cores for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tilec.ir import kernel_ir as k
from tilec.ir.kernel_operands import DeclareOperands, ProductStep, ReadOperands
from tilec.ir.kernel_storage import Part
from tilec.ir.kernel_walking import inside


def run(kernel: k.Kernel) -> k.Kernel:
    """The kernel with its products and walks of that kind in this form."""
    return replace(kernel, body=_block(kernel.body))


def _block(ops: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    result: list[k.Op] = []
    for op in ops:
        match op:
            case k.Loop():
                result.append(replace(op, body=_block(op.body)))
            case k.IfUniform():
                result.append(replace(op, then=_block(op.then), otherwise=_block(op.otherwise)))
            case _:
                result.append(op)
    for n, op in enumerate(result):
        if isinstance(op, k.Product) and isinstance(op.a, k.Fragment) and op.columns_at_once:
            found = _walk_behind(result, n, op.a) if op.ahead else None
            if found is not None:
                at, walk = found
                between = result[n + 1 : at]
                return (*result[:n], *between, *_together(op, op.a, walk), *result[at + 1 :])
    return tuple(result)


def _walk_behind(ops: list[k.Op], at: int, handed: k.Fragment) -> tuple[int, k.TileLoop] | None:
    """The walk behind a product that makes what is handed on, where it and all between them may be done before the product."""
    product = ops[at]
    assert isinstance(product, k.Product)
    for n in range(at + 1, len(ops)):
        op = ops[n]
        if not isinstance(op, k.TileLoop | k.Declare | k.Let):
            return None
        names = {f.name for f in _fragments(op)}
        if product.target.name in names:
            return None
        if handed.name not in names:
            continue
        makes = [x for x in _inside(op) if isinstance(x, k.ConvertVector) and x.target == handed]
        others = [f for x in _inside(op) if x not in makes for f in _own(x) if f == handed]
        if not isinstance(op, k.TileLoop) or len(makes) != 1 or others or op.parts:
            return None
        return n, op
    return None


def _together(product: k.Product, handed: k.Fragment, walk: k.TileLoop) -> Iterator[k.Op]:
    """The product's steps with parts of the walk between them."""
    following = replace(handed, name=f"{handed.name}_next")
    yield k.Declare(following, None, span=walk.span)
    yield DeclareOperands(product, span=product.span)
    places = [
        (k_at, column)
        for k_at in range(0, product.k_extent, product.k_step)
        for column in range(0, product.col_tiles, product.columns_at_once)
    ]
    parts = _parts(walk, len(places))
    yield ReadOperands(product, 0, 0, 0, span=product.span)
    for step, (k_at, column) in enumerate(places):
        if step + 1 < len(places):
            yield ReadOperands(product, (step + 1) % 2, *places[step + 1], span=product.span)
        yield ProductStep(product, step % 2, k_at, column, span=product.span)
        for number, part in enumerate(parts):
            if number * len(places) // len(parts) == step:
                yield _into(replace(walk, parts=part), handed, following)
    yield k.CopyFragment(handed, following, span=walk.span)


def _parts(walk: k.TileLoop, steps: int) -> list[tuple[Part, ...]]:
    """The walk in parts: by its vectors' axis, and by the other one where that gives fewer parts than the product has steps."""
    fast = next((a for a in walk.axes if a.vectorised), walk.axes[-1])
    other = next((a for a in walk.axes if a is not fast), None)
    pieces = 1
    if other is not None:
        most = other.layout.steps
        divisors = [d for d in range(1, most + 1) if most % d == 0]
        pieces = next((d for d in divisors if d * fast.layout.steps >= steps), most)
    found: list[tuple[Part, ...]] = []
    for n in range(fast.layout.steps):
        for piece in range(pieces):
            part = [Part(fast, n, 1)]
            if other is not None:
                count = other.layout.steps // pieces
                part.append(Part(other, piece * count, count))
            found.append(tuple(part))
    return found


def _into(walk: k.TileLoop, handed: k.Fragment, following: k.Fragment) -> k.TileLoop:
    """The walk with its packed elements elsewhere."""

    def changed(op: k.Op) -> k.Op:
        if isinstance(op, k.ConvertVector) and op.target == handed:
            return replace(op, target=following)
        if isinstance(op, k.Elements):
            return replace(op, body=tuple(map(changed, op.body)))
        return op

    return replace(walk, body=tuple(map(changed, walk.body)))


def _inside(op: k.Op) -> Iterator[k.Op]:
    """An op and those in it."""
    yield op
    for inner in getattr(op, "body", ()):
        yield from _inside(inner)


def _own(op: k.Op) -> Iterator[k.Fragment]:
    """The fragments of an op itself."""
    if not isinstance(op, k.TileLoop | k.Elements):
        yield from _fragments(op)


def _fragments(node: Any) -> Iterator[k.Fragment]:
    """All fragments that an op names."""
    return (part for part in inside(node) if isinstance(part, k.Fragment))
