"""Loads in other extents: through views where those have the elements as neighbours, else point by point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import I32
from tilec.ir.symbolic import Sym, sym_max, sym_min
from tilec.passes.reindex.shapes import ONE, Group, Shape
from tilec.passes.reindex.twins import Stuck, Twins

if TYPE_CHECKING:
    from tilec.passes.reindex.reshaping import Reshaping


class Loading:
    """Makes loads of other extents."""

    def __init__(self, twins: Twins, shaping: Reshaping):
        self.twins = twins
        self.shaping = shaping

    def load(self, op: t.Load, value: t.Value, shape: Shape) -> t.Value:
        """The elements of a load in another shape. Raises Stuck where they can be absent along what is merged or split, or are gathered."""
        self.shaping.need_present(value, shape)
        if op.access.pointwise:
            return self._points(op, value, shape)
        try:
            return self._loaded(op, value, shape)
        except Stuck:
            return self._by_points(op, value, shape)

    def _dims(self, access: t.Access) -> tuple[Sym, ...]:
        if access.view is not None:
            return next(v.dims for v in self.twins.views if v.name == access.view)
        return self.twins.program.tensor(access.tensor).dims

    def _loaded(self, op: t.Load, value: t.Value, shape: Shape) -> t.Value:
        """A load through a view of the tensor, then axes of extent 1 added and dropped."""
        twins = self.twins
        tensor = twins.program.tensor(op.access.tensor)
        if tensor.strides is not None:
            raise Stuck(value, f"is loaded from `{tensor.name}`, which is not dense")
        dims = self._dims(op.access)
        # the number of each term's dimension, by axis of the tile
        homes = [n for n, term in enumerate(op.access.terms) if not isinstance(term, t.AtScalar)]
        new_dims: list[Sym] = []
        terms: list[t.IndexTerm] = []
        loaded: list[t.Axis] = []
        done = 0
        for group in shape.groups:
            own = [homes[n] for n in group.old]
            if group.plain:
                continue
            first, last = own[0], own[-1]
            if own != list(range(first, last + 1)):
                raise Stuck(value, "is loaded with an index between the axes that are merged")
            new_dims += dims[done:first]
            terms += op.access.terms[done:first]
            inner = [shape.extents[n] for n in group.new]
            found = self._viewed(
                value, dims[first : last + 1], op.access.terms[first : last + 1], inner
            )
            new_dims += [dim for dim, _ in found]
            terms += [term for _, term in found]
            done = last + 1
        new_dims += dims[done:]
        terms += op.access.terms[done:]
        if (
            tensor.dtype.bits == 4
            and new_dims[-1].constant is not None
            and new_dims[-1].constant % 2
        ):
            raise Stuck(value, f"is read from `{tensor.name}`, which has two elements in a byte")
        for group in shape.groups:
            if group.plain:
                loaded += [value.type.axes[n] for n in group.old]
            else:
                loaded += [self.shaping.axis(shape.extents[n]) for n in group.new]
        name = self._view(tensor, tuple(new_dims))
        access = replace(op.access, view=name, terms=tuple(terms))
        type_ = replace(value.type, axes=tuple(loaded))
        new = twins.add(replace(op, access=access), value, type_)
        return self.shaping.shaped(new, shape.extents)

    def _viewed(
        self,
        value: t.Value,
        dims: Sequence[Sym],
        terms: Sequence[t.IndexTerm],
        extents: Sequence[Sym],
    ) -> list[tuple[Sym, t.IndexTerm]]:
        """Dimensions and terms of a view in which neighbouring dimensions have other extents: merged, then split."""
        size, start, count = ONE, Sym.of(0), ONE
        for n, (dim, term) in enumerate(zip(dims, terms, strict=True)):
            match term:
                case t.AtAll():
                    first, extent = Sym.of(0), dim
                case _:
                    # what an index tile selects can be absent, a scalar has no axis
                    assert isinstance(term, t.AtSpan)
                    first, extent = term.start, term.extent
            if n and extent != dim:
                raise Stuck(
                    value, "is loaded in part along an axis that is merged into another one"
                )
            size, start, count = size * dim, start * dim + first, count * extent
        inner = ONE
        for extent in extents[1:]:
            inner = inner * extent
        quotients = [part.divided_by(inner) for part in (size, start)]
        number = inner.constant
        if quotients[0] is None and number and self.twins.facts.divides(size, number):
            quotients[0] = size // inner
        outer, place = quotients
        if outer is None or place is None:
            raise Stuck(
                value, "does not begin and end at multiples of the new extents in its tensor"
            )
        if start == Sym.of(0) and count == size:
            head: t.IndexTerm = t.AtAll()
            outer = extents[0]
        else:
            head = t.AtSpan(place, extents[0])
        rest: list[tuple[Sym, t.IndexTerm]] = [(extent, t.AtAll()) for extent in extents[1:]]
        return [(outer, head), *rest]

    def _view(self, tensor: t.Tensor, dims: tuple[Sym, ...]) -> str:
        views = self.twins.views
        own = [v for v in views if v.tensor == tensor.name]
        for view in own:
            if view.dims == dims:
                return view.name
        views.append(t.View(f"{tensor.name}.{len(own) + 1}", tensor.name, dims))
        return views[-1].name

    # ---- point by point

    def _points(self, op: t.Load, value: t.Value, shape: Shape) -> t.Value:
        """A pointwise load, whose index tiles take the shape. One of several axes keeps several: what is out of range there is 0, not
        absent."""
        if len(shape.extents) == 1:
            wide = Shape.between([a.extent for a in value.type.axes], (ONE, *shape.extents))
            return self.shaping.shaped(self._points(op, value, wide), shape.extents)
        rank = value.type.rank
        terms: list[t.IndexTerm] = []
        for term in op.access.terms:
            match term:
                case t.AtScalar():
                    terms.append(term)
                    continue
                case t.AtTile():
                    tile = term.index
                case _:
                    assert isinstance(term, t.AtSpan)
                    tile = self._span(term, value, value.type.axes[-1])
            added = rank - tile.type.rank
            if added:
                order = (*[None] * added, *range(tile.type.rank))
                axes = (*[t.Axis(ONE, 1)] * added, *tile.type.axes)
                spread = t.Rearrange(arg=tile, axes=order, span=op.span)
                tile = self.twins.add(spread, value, replace(tile.type, axes=axes))
            terms.append(t.AtTile(self.shaping.operand(tile, value, shape)))
        access = replace(op.access, terms=tuple(terms))
        type_ = self.shaping.type_of(value.type, shape)
        return self.twins.add(replace(op, access=access), value, type_)

    def _by_points(self, op: t.Load, value: t.Value, shape: Shape) -> t.Value:
        """A load of blocks as a pointwise one: the coordinates follow from the number of an element among those that are merged or
        split."""
        access = op.access
        if any(isinstance(term, t.AtTile) for term in access.terms):
            raise Stuck(value, "is gathered")
        if self.twins.program.tensor(access.tensor).dtype.bits == 4:
            raise Stuck(value, f"is read from `{access.tensor}`, which has two elements in a byte")
        terms: list[t.IndexTerm] = []
        axis = 0
        for term, dim in zip(access.terms, self._dims(access), strict=True):
            if isinstance(term, t.AtScalar):
                terms.append(term)
                continue
            if isinstance(term, t.AtSpan):
                low = Sym.of(0) if term.lo is None else sym_max([term.lo, 0])
                high = dim if term.hi is None else sym_min([term.hi, dim])
                span = replace(term, lo=low, hi=high)
            else:
                span = t.AtSpan(Sym.of(0), dim)
            group = shape.group_of(axis)
            if group.plain:
                tile = self._along(span, value, axis, group, shape)
            else:
                tile = self._in_group(span, value, axis, group, shape)
            terms.append(t.AtTile(tile))
            axis += 1
        new = replace(op, access=replace(access, terms=tuple(terms), pointwise=True))
        return self.twins.add(new, value, self.shaping.type_of(value.type, shape))

    def _span(self, term: t.AtSpan, value: t.Value, axis: t.Axis) -> t.Value:
        """A span as a tile; `axis` has its presence."""
        own = t.Axis(term.extent, self.twins.facts.upper_bound(term.extent), axis.presence)
        iota = t.Iota(start=term.start, lo=term.lo, hi=term.hi, span=value.span)
        return self.twins.add(iota, value, t.TileType(I32, (own,)))

    def _along(
        self, term: t.AtSpan, value: t.Value, axis: int, group: Group, shape: Shape
    ) -> t.Value:
        """Coordinates along an axis that stays, of extent 1 along the others."""
        tile = self._span(term, value, value.type.axes[axis])
        wide = [n for n in group.new if shape.extents[n] == value.type.axes[axis].extent != ONE]
        order = tuple(0 if n in wide else None for n in range(len(shape.extents)))
        axes = tuple(tile.type.axes[0] if n in wide else t.Axis(ONE, 1) for n in range(len(order)))
        spread = t.Rearrange(arg=tile, axes=order, span=value.span)
        return self.twins.add(spread, value, t.TileType(I32, axes))

    def _in_group(
        self, term: t.AtSpan, value: t.Value, axis: int, group: Group, shape: Shape
    ) -> t.Value:
        """Coordinates along an axis that is merged or split."""
        count = Sym.of(1)
        behind = Sym.of(1)
        for n in group.old:
            count = count * value.type.axes[n].extent
            if n > axis:
                behind = behind * value.type.axes[n].extent
        extents = tuple(extent if n in group.new else ONE for n, extent in enumerate(shape.extents))
        number = self._span(t.AtSpan(Sym.of(0), count), value, t.Axis(count, None))
        number = self.shaping.shaped(number, extents)
        number = self._with(number, "floordiv", behind, value)
        if any(value.type.axes[n].extent != ONE for n in group.old if n < axis):
            number = self._with(number, "mod", value.type.axes[axis].extent, value)
        return self._with(number, "add", term.start, value)

    def _with(self, tile: t.Value, op: t.ElementwiseName, sym: Sym, value: t.Value) -> t.Value:
        if sym == Sym.of(0 if op == "add" else 1):
            return tile
        scalar = self.twins.add(t.FromSym(sym=sym, span=value.span), value, t.TileType(I32))
        new = t.Elementwise(op=op, args=(tile, scalar), span=value.span)
        return self.twins.add(new, value, tile.type)
