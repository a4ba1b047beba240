"""Operands that are computed ahead tile by tile: those whose tiles hang on nothing but the trips that count them.

    for i, j in parallel(M by BM, N by BN):            in front:  for j, k in parallel(N by BN, K by BK):
        for k in range(K by BK):                  ->                  w_computed[j, k] = load w[j, k].to(bf16) * load s[j][:, None]
            b = w[j, k].to(bf16) * s[j][:, None]
            acc += a[i, k] @ b.T                                      acc += a[i, k] @ (load w_computed[j, k]).T

Each tile is made once and not by every instance that multiplies it. What it is made of may be gathered, or looked up by a number that follows
from the trips (`k // 128`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.schedule.clone import Cloner, Numbers
from tilec.passes.uses import all_ops, syms_of


class Unknown(Exception):
    """An operand is made of more than what is known ahead."""


@dataclass(frozen=True)
class TileAhead:
    """A nest for a tile: its grid, the ops that make `value`, the dims of what is made, and where a tile is `written` by the nest and
    `read` by the one that multiplies it."""

    grid: tuple[t.GridAxis, ...]
    ops: tuple[t.Op, ...]
    value: t.Value
    dims: tuple[Sym, ...]
    written: tuple[t.IndexTerm, ...]
    read: tuple[t.IndexTerm, ...]
    in_loop: bool
    """each trip of a loop has another tile"""


def tile_ahead(nest: t.Nest, numbers: Numbers, chain: Sequence[t.Op], value: t.Value) -> TileAhead:
    """The nest for a tile that a chain of ops makes. Raises Unknown where there is none."""
    trips = _trips(nest)
    spans = _spans(chain)
    counting: list[Var] = []
    for axis in value.type.axes:
        found = spans.get(axis.extent, set())
        if len(found) != 1 or not found <= set(trips):
            raise Unknown
        counting += found
    moving = {v for op in chain for sym in _all_syms(op) for v in sym.variables}
    if len(set(counting)) < len(counting) or any(v.kind in ("value", "local") for v in moving):
        raise Unknown
    others = sorted({v for v in moving if v.kind == "trip"} - set(counting))
    if not set(others) <= set(trips):
        raise Unknown
    # loops are numbered from 1, and have fewer numbers than there are values
    own = {v: Var(v.name, "trip", numbers.next + n) for n, v in enumerate((*others, *counting))}
    numbers.next += len(own)
    cloner = Cloner(numbers, {}, {v: Sym.of(new) for v, new in own.items()}, {})
    grid = [t.GridAxis(own[v].name, own[v], trips[v]) for v in others]
    dims = [trips[v] for v in others]
    written: list[t.IndexTerm] = [t.AtScalar(Sym.of(own[v])) for v in others]
    read: list[t.IndexTerm] = [t.AtScalar(Sym.of(v)) for v in others]
    for axis, var in zip(value.type.axes, counting, strict=True):
        dim = _dim(axis, var, trips[var])
        start, here = axis.extent * Sym.of(var), axis.extent * Sym.of(own[var])
        grid.append(t.GridAxis(own[var].name, own[var], trips[var], axis.extent))
        dims.append(dim)
        written.append(t.AtSpan(here, axis.extent, hi=dim))
        read.append(t.AtSpan(start, axis.extent, hi=dim))
    ops = cloner.ops(chain)
    return TileAhead(
        tuple(grid),
        tuple(ops),
        cloner.value(value),
        tuple(dims),
        tuple(written),
        tuple(read),
        not moving.isdisjoint(trips.keys() - {axis.index for axis in nest.grid}),
    )


def _trips(nest: t.Nest) -> Mapping[Var, Sym]:
    """The numbers of trips of the grid's and of the body's loops that sizes alone say."""
    found = {axis.index: axis.trips for axis in nest.grid}
    found |= {op.index: op.trips for op in all_ops(nest.body) if isinstance(op, t.For)}
    return {
        var: trips
        for var, trips in found.items()
        if all(v.kind in ("dim", "tile") for v in trips.variables)
    }


def _spans(chain: Sequence[t.Op]) -> Mapping[Sym, set[Var]]:
    """By extent the trips that count the spans of so many coordinates in a chain, from 0 on."""
    found: dict[Sym, set[Var]] = {}
    for op in chain:
        starts: list[tuple[Sym, Sym]] = []
        if isinstance(op, t.Load):
            spans = [term for term in op.access.terms if isinstance(term, t.AtSpan)]
            starts += [(span.start, span.extent) for span in spans]
        elif isinstance(op, t.Iota):
            starts.append((op.start, op.out.type.axes[0].extent))
        for start, extent in starts:
            for var in start.variables:
                if var.kind == "trip" and start == extent * Sym.of(var):
                    found.setdefault(extent, set()).add(var)
    return found


def _dim(axis: t.Axis, var: Var, trips: Sym) -> Sym:
    """How many coordinates an axis has over all trips."""
    if not axis.presence:
        return trips * axis.extent
    limits = [c.limit for c in axis.presence if isinstance(c, t.Below)]
    if len(limits) != 1 or len(axis.presence) > 1:
        raise Unknown
    dim = limits[0] + axis.extent * Sym.of(var)
    if any(v.kind not in ("dim", "tile") for v in dim.variables):
        raise Unknown
    return dim


def _all_syms(op: t.Op) -> list[Sym]:
    """The symbolic integers of an op, those of its type's constraints too."""
    found = list(syms_of(op))
    for value in op.outs:
        for axis in value.type.axes:
            found += [c.limit for c in axis.presence if isinstance(c, t.Below | t.AtLeast)]
            found += [c.size for c in axis.presence if isinstance(c, t.InRange)]
    return found
