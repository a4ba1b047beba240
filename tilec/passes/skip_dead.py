"""Loops of an instance that stores nothing have no trips.

    i = span(lo + t.start, BM, until=hi)                        # a sequence that ends in front of its tile number t
    for j in range(lo : min(hi, i.stop) by BN): …          ->   for j in range(… times (hi - lo - t.start > 0)): …
    o[i, h, :] = …

Where all that an instance writes lies in one span, and memory says where that ends, there are instances without any of it: the last
tiles of all sequences but the longest. What sizes alone bound is as long as the grid, so that all instances have some of it.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, sym_max, sym_min
from tilec.passes.uses import all_ops


def run(nest: t.Nest, facts: Facts) -> t.Nest:
    """The nest whose loops at its top have trips only where one of its stores writes something."""
    left = left_of(nest, facts)
    if left is None:
        return nest
    alive = _alive(left)
    known: set[int] = set()
    body: list[t.Op] = []
    for op in nest.body.ops:
        defined = all(v.kind != "value" or v.key in known for v in left.variables)
        if isinstance(op, t.For) and defined:
            op = replace(op, trips=op.trips * alive)
        known |= {v.id for v in op.outs}
        body.append(op)
    return replace(nest, body=t.Block(tuple(body)))


def where_alive(nest: t.Nest, facts: Facts) -> t.Nest:
    """The nest for instances that store something: what `run` multiplied trips by is 1 there."""
    left = left_of(nest, facts)
    if left is None:
        return nest
    ops = (
        replace(op, trips=op.trips.divided_by(_alive(left)) or op.trips)
        if isinstance(op, t.For)
        else op
        for op in nest.body.ops
    )
    return replace(nest, body=t.Block(tuple(ops)))


def _alive(left: Sym) -> Sym:
    """1 where there are coordinates left, else 0."""
    return sym_min([Sym.of(1), sym_max([Sym.of(0), left])])


def left_of(nest: t.Nest, facts: Facts) -> Sym | None:
    """The coordinates from where a span begins to where it ends, one of which everything that the nest does needs; None where there is no
    such span, where it does not end where memory says, or where all instances are known to have some."""
    effects = [
        op for op in all_ops(nest.body) if isinstance(op, t.Store | t.Atomic | t.Print | t.Assert)
    ]
    common: set[Sym] | None = None
    for op in effects:
        if not isinstance(op, t.Store | t.Atomic):
            return None
        spans = [x for x in op.access.terms if isinstance(x, t.AtSpan) and x.hi is not None]
        found = {x.hi - x.start for x in spans if x.hi is not None}
        common = found if common is None else common & found
    kinds = {s: {v.kind for v in s.variables} for s in common or ()}
    loaded = [s for s in kinds if "value" in kinds[s] and not facts.prove_nonnegative(s - 1)]
    return min(loaded, key=str) if loaded else None
