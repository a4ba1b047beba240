"""Parts of values: constant slices, moved to where elements come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym
from tilec.passes.axes import term_axes
from tilec.passes.reindex.twins import Stuck, Twins, consumed, own_region

Cut = tuple[int, int] | None
"""Start and extent of what is left of an axis; None: all of it."""
Cuts = tuple[Cut, ...]


class Slicing:
    """Makes parts. `reshaped` gives a value in other extents, for slices of reshapes."""

    def __init__(self, twins: Twins, reshaped: Callable[[t.Value, tuple[Sym, ...]], t.Value]):
        self.twins = twins
        self.reshaped = reshaped

    def part(self, value: t.Value, cuts: Cuts) -> t.Value:
        """The part of a tile. Raises Stuck where one of its ops has to be done as a whole."""
        twins = self.twins
        value = twins.resolved(value)
        if not any(cuts):
            return value
        known = twins.known.get((value.id, cuts))
        if known is None:
            known = twins.structured(
                value, cuts, lambda type_: self.type_of(type_, cuts), lambda v: self.part(v, cuts)
            )
        if known is None:
            known = self._made(twins.defining[value.id], value, cuts)
        twins.known[value.id, cuts] = known
        return known

    def type_of(self, type_: t.TileType, cuts: Cuts) -> t.TileType:
        """Type of a part."""
        axes = tuple(self._axis(a, c) for a, c in zip(type_.axes, cuts, strict=True))
        return replace(type_, axes=axes)

    def _axis(self, axis: t.Axis, cut: Cut) -> t.Axis:
        if cut is None:
            return axis
        start, extent = cut
        facts = self.twins.facts
        kept: list[t.Constraint] = []
        for constraint in axis.presence:
            match constraint:
                case t.Below(limit):
                    if not facts.prove_nonnegative(limit - start - extent):
                        kept.append(t.Below(limit - start))
                case t.AtLeast(limit):
                    if not facts.prove_nonnegative(start - limit):
                        kept.append(t.AtLeast(limit - start))
                case t.InRange():
                    index = self.twins.values[constraint.index]
                    if not index.type.axes[0].is_one:
                        index = self.part(index, (cut,))
                    kept.append(replace(constraint, index=index.id))
        return t.Axis(Sym.of(extent), extent, tuple(kept))

    def _made(self, op: t.Op, value: t.Value, cuts: Cuts) -> t.Value:
        twins = self.twins
        if isinstance(op, t.ReduceWith):
            args = tuple(self.part(a, _around(cuts, op)) for a in op.args)
            region = own_region(op.combine, twins.numbers)
            new = replace(op, args=args, combine=region)
            outs = twins.add_like(new, op, lambda type_: self.type_of(type_, cuts))
            for old, out in zip(op.outs, outs, strict=True):
                twins.known[old.id, cuts] = out
            return twins.known[value.id, cuts]
        if isinstance(op, t.Reshape):
            return self.part(self.reshaped(op.arg, tuple(a.extent for a in op.out.type.axes)), cuts)
        if isinstance(op, t.Slice):
            return self.part(op.arg, _nested(op, cuts))
        # what the type speaks of comes first
        type_ = self.type_of(value.type, cuts)
        return twins.add(self._twin(op, value, cuts), value, type_)

    def _twin(self, op: t.Op, value: t.Value, cuts: Cuts) -> t.Op:
        match op:
            case t.Elementwise():
                return replace(op, args=tuple(self._broadcast(a, cuts) for a in op.args))
            case t.Cast() | t.Bitcast() | t.Fill():
                return replace(op, arg=self.part(op.arg, cuts))
            case t.Iota():
                assert cuts[0] is not None
                return replace(op, start=op.start + cuts[0][0])
            case t.Full():
                bounds = tuple(
                    b if b is None or c is None else _shifted(b, c)
                    for b, c in zip(op.bounds, cuts, strict=bool(op.bounds))
                )
                return replace(op, bounds=bounds)
            case t.Load():
                return replace(op, access=self._access(op, value, cuts))
            case t.Rearrange():
                inner: list[Cut] = [None] * op.arg.type.rank
                for source, cut in zip(op.axes, cuts, strict=True):
                    if source is not None:
                        inner[source] = cut
                return replace(op, arg=self.part(op.arg, tuple(inner)))
            case t.Reduce():
                return replace(op, arg=self.part(op.arg, _around(cuts, op)))
            case t.Scan():
                cut = cuts[op.axis]
                if cut is not None and cut[0] > 0:
                    raise Stuck(value, "is a scan along the axis that is sliced")
                return replace(op, arg=self.part(op.arg, cuts))
            case t.Dot():
                a = self._broadcast(op.a, (*cuts[:-1], None))
                b = self._broadcast(op.b, (*cuts[:-2], None, cuts[-1]))
                more = op.accumulate
                return replace(op, a=a, b=b, accumulate=more and self._broadcast(more, cuts))
            case _:
                raise Stuck(value, f"is computed as a whole (`{type(op).__name__}`)")

    def _broadcast(self, value: t.Value, cuts: Cuts) -> t.Value:
        """The part of an operand, whose axes of extent 1 and scalars are the same for all parts."""
        if not value.type.rank:
            return value
        own = tuple(None if a.is_one else c for a, c in zip(value.type.axes, cuts, strict=True))
        return self.part(value, own)

    def _access(self, op: t.Load, value: t.Value, cuts: Cuts) -> t.Access:
        access = op.access
        tensor = self.twins.program.tensor(access.tensor)
        terms: list[t.IndexTerm] = []
        for n, (term, along) in enumerate(zip(access.terms, term_axes(access), strict=True)):
            own = tuple(cuts[k] for k in along)
            match term:
                case t.AtSpan() | t.AtAll():
                    cut = own[0]
                    last = n == len(access.terms) - 1
                    if cut is not None and last and tensor.dtype.bits == 4 and cut[0] % 2:
                        raise Stuck(
                            value, f"is read from `{tensor.name}`, which has two elements in a byte"
                        )
                    if isinstance(term, t.AtSpan) and term.extent.constant == 1:
                        cut = None
                    if cut is None:
                        terms.append(term)
                    elif isinstance(term, t.AtSpan):
                        terms.append(_shifted(term, cut))
                    else:
                        terms.append(t.AtSpan(Sym.of(cut[0]), Sym.of(cut[1])))
                case t.AtTile():
                    terms.append(t.AtTile(self._broadcast(term.index, own)))
                case _:
                    terms.append(term)
        return replace(access, terms=tuple(terms))


def _shifted(term: t.AtSpan, cut: tuple[int, int]) -> t.AtSpan:
    """Part of a span, with the bounds of the whole."""
    start, extent = cut
    return replace(term, start=term.start + start, extent=Sym.of(extent))


def _around(cuts: Cuts, op: t.Reduce | t.ReduceWith) -> Cuts:
    """Cuts of what is reduced: all of the axes that disappear."""
    kept = iter(cuts)
    arg = op.arg if isinstance(op, t.Reduce) else op.args[0]
    gone = consumed(op)
    return tuple(None if n in gone else next(kept) for n in range(arg.type.rank))


def cuts_of(op: t.Slice) -> Cuts:
    """What a slice leaves of each axis."""
    found: list[Cut] = []
    for start, axis, old in zip(op.starts, op.out.type.axes, op.arg.type.axes, strict=True):
        extent = axis.extent.constant
        whole = axis.extent == old.extent or extent is None
        found.append(None if whole else (start, extent or 0))
    return tuple(found)


def _nested(op: t.Slice, cuts: Cuts) -> Cuts:
    """Cuts of a slice's argument that leave a part of the slice."""
    found: list[Cut] = []
    for outer, inner in zip(cuts_of(op), cuts, strict=True):
        if outer is None or inner is None:
            found.append(outer or inner)
        else:
            found.append((outer[0] + inner[0], inner[1]))
    return tuple(found)
