"""Values in other extents, moved to views of the tensors that elements come from."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import I32
from tilec.ir.symbolic import Sym
from tilec.passes.reindex.loading import Loading
from tilec.passes.reindex.shapes import ONE, Group, Shape
from tilec.passes.reindex.slicing import Slicing, cuts_of
from tilec.passes.reindex.twins import Stuck, Twins, consumed, own_region


class Reshaping:
    """Makes values of other extents, and parts of values with `parts`."""

    def __init__(self, twins: Twins):
        self.twins = twins
        self.parts = Slicing(twins, self.shaped)
        self.loading = Loading(twins, self)

    def shaped(self, value: t.Value, extents: tuple[Sym, ...]) -> t.Value:
        """The tile in these extents, row-major. Raises Stuck where its elements do not come in that order."""
        twins = self.twins
        value = twins.resolved(value)
        old = tuple(a.extent for a in value.type.axes)
        if old == extents:
            return value
        wanted = ("shape", *extents)
        known = twins.known.get((value.id, wanted))
        if known is not None:
            return known
        shape = Shape.between(old, extents)
        if shape.is_plain:
            known = self._rearranged(value, shape)
        else:
            known = twins.structured(
                value,
                wanted,
                lambda type_: self.type_of(type_, shape),
                lambda v: self.shaped(v, extents),
            )
        if known is None:
            known = self._made(twins.defining[value.id], value, shape)
        twins.known[value.id, wanted] = known
        return known

    def type_of(self, type_: t.TileType, shape: Shape) -> t.TileType:
        """Type in other extents: axes that stay keep their presence, the others are fully present."""
        axes = [self.axis(extent) for extent in shape.extents]
        for group in shape.groups:
            if not group.plain:
                continue
            sources = [n for n in group.old if type_.axes[n].extent != ONE]
            for place in group.new:
                if shape.extents[place] != ONE:
                    axes[place] = type_.axes[sources.pop(0)]
        return replace(type_, axes=tuple(axes))

    def axis(self, extent: Sym) -> t.Axis:
        """A fully present axis."""
        return t.Axis(extent, self.twins.facts.upper_bound(extent))

    def _rearranged(self, value: t.Value, shape: Shape) -> t.Value:
        """Axes of extent 1 added and dropped."""
        axes: list[int | None] = [None] * len(shape.extents)
        for group in shape.groups:
            sources = [n for n in group.old if value.type.axes[n].extent != ONE]
            for place in group.new:
                if shape.extents[place] != ONE:
                    axes[place] = sources.pop(0)
        op = t.Rearrange(arg=value, axes=tuple(axes), span=self.twins.defining[value.id].span)
        return self.twins.add(op, value, self.type_of(value.type, shape))

    def _made(self, op: t.Op, value: t.Value, shape: Shape) -> t.Value:
        twins = self.twins
        type_ = self.type_of(value.type, shape)
        match op:
            case t.Reshape():
                return self.shaped(op.arg, shape.extents)
            case t.Slice():
                return self.shaped(self.parts.part(op.arg, cuts_of(op)), shape.extents)
            case t.Elementwise():
                args = tuple(self.operand(a, value, shape) for a in op.args)
                return twins.add(replace(op, args=args), value, type_)
            case t.Fill():
                self.need_present(op.arg, shape)
                arg = self.shaped(op.arg, shape.extents)
                axes = op.axes
                if axes is not None:
                    axes = tuple(k for n in axes for k in shape.group_of(n).new)
                return twins.add(replace(op, arg=arg, axes=axes), value, type_)
            case t.Cast() | t.Bitcast():
                arg = self.shaped(op.arg, shape.extents)
                return twins.add(replace(op, arg=arg), value, type_)
            case t.Full():
                return twins.add(replace(op, bounds=_bounds(op, shape)), value, type_)
            case t.Iota():
                return self.counted(op, value, shape)
            case t.Load():
                return self.loading.load(op, value, shape)
            case t.Rearrange():
                return self._transposed(op, value, shape)
            case t.Reduce() | t.ReduceWith():
                return self._reduced(op, value, shape)
            case t.Scan():
                group = shape.group_of(op.axis)
                if not group.plain:
                    raise Stuck(value, "is a scan along an axis that is merged or split")
                arg = self.shaped(op.arg, shape.extents)
                axis = next(n for n in group.new if shape.extents[n] != ONE)
                return twins.add(replace(op, arg=arg, axis=axis), value, type_)
            case t.Dot():
                raise Stuck(
                    value, "is a product, whose rows and columns are neither merged nor split"
                )
            case _:
                raise Stuck(value, f"is computed as a whole (`{type(op).__name__}`)")

    def operand(self, arg: t.Value, value: t.Value, shape: Shape) -> t.Value:
        """An operand of an element-wise op, whose axes of extent 1 stay so."""
        if not arg.type.rank:
            return arg
        extents = list(shape.extents)
        for group in shape.groups:
            ones = [n for n in group.old if arg.type.axes[n].extent == ONE]
            wide = [n for n in group.old if value.type.axes[n].extent != ONE]
            if group.plain:
                kept = [n for n in group.new if shape.extents[n] != ONE]
                for old, new in zip(wide, kept, strict=True):
                    extents[new] = arg.type.axes[old].extent
            elif set(wide) <= set(ones):
                for n in group.new:
                    extents[n] = ONE
            elif set(wide) & set(ones):
                raise Stuck(value, "is broadcast along some of the axes that are merged")
        return self.shaped(arg, tuple(extents))

    def need_present(self, value: t.Value, shape: Shape) -> None:
        """Raises Stuck where an element can be absent along an axis that does not stay."""
        for group in shape.groups:
            if not group.plain and any(value.type.axes[n].presence for n in group.old):
                raise Stuck(value, "can be absent along an axis that is merged or split")

    def counted(self, op: t.Iota, value: t.Value, shape: Shape) -> t.Value:
        """Row-major numbers of the new axes."""
        twins = self.twins
        rank = len(shape.extents)
        total: t.Value | None = None
        behind = ONE
        for place in range(rank - 1, -1, -1):
            extent = shape.extents[place]
            if extent == ONE:
                continue
            axis = self.axis(extent)
            start = op.start if total is None else Sym.of(0)
            iota = twins.add(t.Iota(start=start, span=op.span), value, t.TileType(I32, (axis,)))
            one = t.Axis(ONE, 1)
            axes = tuple(axis if n == place else one for n in range(rank))
            order = tuple(0 if n == place else None for n in range(rank))
            part = twins.add(
                t.Rearrange(arg=iota, axes=order, span=op.span), value, t.TileType(I32, axes)
            )
            if total is None:
                total = part
            else:
                scale = twins.add(t.FromSym(sym=behind, span=op.span), value, t.TileType(I32))
                mul = t.Elementwise(op="mul", args=(part, scale), span=op.span)
                part = twins.add(mul, value, t.TileType(I32, axes))
                axes = tuple(
                    a if not a.is_one else b for a, b in zip(axes, total.type.axes, strict=True)
                )
                add = t.Elementwise(op="add", args=(part, total), span=op.span)
                total = twins.add(add, value, t.TileType(I32, axes))
            behind = behind * extent
        assert total is not None
        return total

    def _transposed(self, op: t.Rearrange, value: t.Value, shape: Shape) -> t.Value:
        """A transposition of what is reshaped instead: the axes of a group must be neighbours in front of it too."""
        moved: list[tuple[list[int], Group]] = []
        for group in shape.groups:
            named = [op.axes[n] for n in group.old]
            sources = [n for n in named if n is not None and not op.arg.type.axes[n].is_one]
            if sources:
                moved.append((sources, group))
        moved.sort(key=lambda found: found[0])
        order = [n for sources, _ in moved for n in sources]
        if order != sorted(order):
            raise Stuck(value, "is transposed, and what is merged lies apart in front of that")
        extents = [shape.extents[n] for _, group in moved for n in group.new]
        arg = self.shaped(op.arg, tuple(extents))
        places = [n for _, group in moved for n in group.new]
        axes = tuple(places.index(n) if n in places else None for n in range(len(shape.extents)))
        return self.twins.add(
            replace(op, arg=arg, axes=axes), value, self.type_of(value.type, shape)
        )

    def _reduced(self, op: t.Reduce | t.ReduceWith, value: t.Value, shape: Shape) -> t.Value:
        """A reduction of what is reshaped instead, along axes that stay."""
        args = (op.arg,) if isinstance(op, t.Reduce) else op.args
        old = args[0].type.axes
        gone = consumed(op)
        kept = [n for n in range(len(old)) if n not in gone]
        extents: list[Sym] = []
        axes: list[int] = []
        position = 0
        for group in shape.groups:
            own = [kept[n] for n in group.old]
            if not group.plain and own and own != list(range(own[0], own[0] + len(own))):
                raise Stuck(value, "is a reduction of an axis between those that are merged")
            first = own[0] if own else position
            for n in range(position, first):
                axes.append(len(extents))
                extents.append(old[n].extent)
            if group.plain:
                last = own[-1] + 1 if own else first
                between = [n for n in range(first, last) if n in gone]
                if between:
                    raise Stuck(value, "is a reduction of an axis between those that are kept")
            extents += [shape.extents[n] for n in group.new]
            position = own[-1] + 1 if own else first
        for n in range(position, len(old)):
            axes.append(len(extents))
            extents.append(old[n].extent)
        new = tuple(self.shaped(a, tuple(extents)) for a in args)
        if isinstance(op, t.Reduce):
            return self.twins.add(
                replace(op, arg=new[0], axes=tuple(axes)), value, self.type_of(value.type, shape)
            )
        region = own_region(op.combine, self.twins.numbers)
        twin = replace(op, args=new, axis=axes[0], combine=region)
        outs = self.twins.add_like(twin, op, lambda type_: self.type_of(type_, shape))
        for one, out in zip(op.outs, outs, strict=True):
            self.twins.known[one.id, ("shape", *shape.extents)] = out
        return outs[[o.id for o in op.outs].index(value.id)]


def _bounds(op: t.Full, shape: Shape) -> tuple[t.AtSpan | None, ...]:
    if not op.bounds:
        return ()
    bounds: list[t.AtSpan | None] = [None] * len(shape.extents)
    for group in shape.groups:
        if not group.plain:
            continue
        sources = [n for n in group.old if op.out.type.axes[n].extent != ONE]
        for place in group.new:
            if shape.extents[place] != ONE:
                bounds[place] = op.bounds[sources.pop(0)]
    return tuple(bounds)
