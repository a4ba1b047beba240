"""What of a nest's indices a tile hangs on, so that it is made once for all instances and trips that have the same.

A key's block is the same for all rows of queries, though the loop that brings it ends where those do; heads of a group have one block of
values; a window has as many trips as it is wide, wherever it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.facts import split_extreme
from tilec.ir.symbolic import Apply, Sym, Var, ceildiv, sym_max, sym_min
from tilec.ir.walking import operands, syms_of


def loosened(program: t.Program, chain: Sequence[t.Op]) -> tuple[list[t.Op], dict[int, t.Value]]:
    """The ops without bounds of spans by instances and trips that nothing else hangs on, and their values: a block of more elements is emptied
    by its mask, or finite, no more often."""
    if any(isinstance(op, t.Reduce | t.Fill | t.Full) for op in chain):
        return list(chain), {}
    needed = {v for op in map(_without_bounds, chain) for s in syms_of(op) for v in s.variables}

    def is_kept(sym: Sym) -> bool:
        return all(v.kind not in ("trip", "value") or v in needed for v in sym.variables)

    def bound(end: Sym | None, op: str) -> Sym | None:
        if end is None or is_kept(end):
            return end
        inner = end.terms[0][0][0] if len(end.terms) == 1 and len(end.terms[0][0]) == 1 else None
        if not isinstance(inner, Apply) or inner.op != op or end.terms[0][1] != 1:
            return None
        kept = [a for a in inner.args if is_kept(a)]
        return (sym_min if op == "min" else sym_max)(kept) if kept else None

    def part(node: Any) -> Any:
        match node:
            case t.Value():
                return values.get(node.id, node)
            case t.AtSpan():
                return replace(node, lo=bound(node.lo, "max"), hi=bound(node.hi, "min"))
            case t.Access():
                return replace(node, terms=part(node.terms))
            case t.AtTile():
                return t.AtTile(part(node.index))
            case tuple():
                return tuple(map(part, node))
            case _:
                return node

    values: dict[int, t.Value] = {}
    found: list[t.Op] = []
    ends: dict[t.Constraint, t.Constraint] = {}
    """what a tensor's own end says in place of a bound"""
    for op in chain:
        if isinstance(op, t.Load) and not op.access.pointwise:
            places = zip(op.access.terms, dims_of(program, op), strict=True)
            spans = [place for place in places if not isinstance(place[0], t.AtScalar)]
            for axis, (term, dim) in zip(op.out.type.axes, spans, strict=True):
                for c in axis.presence if isinstance(term, t.AtSpan) else ():
                    assert isinstance(term, t.AtSpan)
                    end = t.Below(dim - term.start) if isinstance(c, t.Below) else t.AtLeast(-term.start)  # fmt: skip
                    if ends.setdefault(c, end) != end:
                        return list(chain), {}  # two tensors end elsewhere
        changed = {f.name: part(getattr(op, f.name)) for f in fields(op) if f.name not in ("outs", "span")}  # fmt: skip
        if isinstance(op, t.Iota):
            changed |= {"lo": bound(op.lo, "max"), "hi": bound(op.hi, "min")}
        for out in op.outs:
            axes = []
            for axis in out.type.axes:
                kept = (c if is_kept(_limit(c)) else ends.get(c) for c in axis.presence)
                presence = dict.fromkeys(c for c in kept if c is not None)
                axes.append(replace(axis, presence=tuple(presence)))
            values[out.id] = replace(out, type=replace(out.type, axes=tuple(axes)))
        found.append(replace(op, outs=tuple(values[v.id] for v in op.outs), **changed))
    return found, values


def read_by(value: t.Value, chain: Sequence[t.Op]) -> list[t.Op]:
    """Those of the ops that a value is made by."""
    needed = {value.id}
    found: list[t.Op] = []
    for op in reversed(chain):
        if any(out.id in needed for out in op.outs):
            needed |= {v.id for v in operands(op)}
            needed |= {v.key for v in variables(op) if v.kind == "value"}
            found.insert(0, op)
    return found


def _without_bounds(op: t.Op) -> t.Op:
    if isinstance(op, t.Iota):
        return replace(op, lo=None, hi=None)
    if isinstance(op, t.Load):
        terms = tuple(
            replace(term, lo=None, hi=None) if isinstance(term, t.AtSpan) else term
            for term in op.access.terms
        )
        return replace(op, access=replace(op.access, terms=terms))
    return op


def dims_of(program: t.Program, op: t.Load) -> tuple[Sym, ...]:
    """The dimensions that a load's indices are of."""
    view = next((v for v in program.views if v.name == op.access.view), None)
    return program.tensor(op.access.tensor).dims if view is None else view.dims


def is_gathered(value: t.Value) -> bool:
    """Whether an index tile says what of a value is present."""
    return any(isinstance(c, t.InRange) for axis in value.type.axes for c in axis.presence)


def _limit(constraint: t.Constraint) -> Sym:
    return constraint.size if isinstance(constraint, t.InRange) else constraint.limit


def coarser(var: Var, trips: Sym, chain: Iterable[t.Op]) -> tuple[Sym, Sym]:
    """By what ops tell instances from each other that differ in one number, and how many of that there are: by the number itself, or always by its
    quotient, as the heads of a group are."""
    read = {sym for op in chain for sym in _syms(op) if var in sym.variables}
    if len(read) == 1:
        (sym,) = read
        atom = sym.terms[0][0][0] if len(sym.terms) == 1 and len(sym.terms[0][0]) == 1 else None
        if sym.terms[0][1] == 1 and isinstance(atom, Apply) and atom.op == "//":
            whole, divisor = atom.args
            if whole == Sym.of(var) and (divisor.constant or 0) > 0:
                return sym, ceildiv(trips, divisor)
    return Sym.of(var), trips


def variables(op: t.Op) -> frozenset[Var]:
    """The variables of an op's symbolic integers and of its results' presence."""
    return frozenset(v for sym in _syms(op) for v in sym.variables)


def _syms(op: t.Op) -> list[Sym]:
    syms = list(syms_of(op))
    for value in op.outs:
        for axis in value.type.axes:
            syms.append(axis.extent)
            syms += map(_limit, axis.presence)
    return syms


def bound_of(sym: Sym, trips: Mapping[Var, Sym], upper: bool) -> Sym | None:
    """The least number known that is no less than a polynomial in any instance, or the greatest that is no greater; None where sizes say nothing."""
    # of several that bound it one may have nothing in it that moves, as the ends of a window have not from each other
    fixed = [part for part in split_extreme(sym, "min" if upper else "max") if _is_size(part)]
    if fixed:
        return sym_min(fixed) if upper else sym_max(fixed)
    total = Sym.of(0)
    for monomial, coefficient in sym.terms:
        product = Sym.of(coefficient)
        if len(monomial) > 1 and any(isinstance(atom, Apply) for atom in monomial):
            return None  # factors may be negative
        for atom in monomial:
            part = _atom_bound(atom, trips, upper == (coefficient > 0))
            if part is None:
                return None
            product = product * part
        total = total + product
    return total


def _atom_bound(atom: Var | Apply, trips: Mapping[Var, Sym], upper: bool) -> Sym | None:
    if isinstance(atom, Var):
        if atom.kind in ("dim", "tile"):
            return Sym.of(atom)
        if atom in trips:
            return trips[atom] - 1 if upper else Sym.of(0)
        return None
    if atom.op in ("//", "%"):
        whole, divisor = atom.args
        inner = bound_of(whole, trips, upper) if atom.op == "//" and _is_size(divisor) else None
        return None if inner is None else inner // divisor
    found = [bound_of(a, trips, upper) for a in atom.args]
    known = [b for b in found if b is not None]
    if not known or (len(known) < len(found) and upper != (atom.op == "min")):
        return None
    return sym_min(known) if atom.op == "min" else sym_max(known)


def _is_size(sym: Sym) -> bool:
    """Whether a number is the same for all instances and trips, and sizes alone say what it is."""
    return all(v.kind in ("dim", "tile") for v in sym.variables)
