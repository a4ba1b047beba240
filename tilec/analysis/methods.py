"""Methods of tiles, views of tensors, `.T`, and indexing of tiles with `None` and constant slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    Known,
    Poison,
    SpanTile,
    TensorRef,
    Tile,
    TupleOf,
    TypeOf,
    describe,
)
from tilec.analysis.presence import simplify
from tilec.ir.dtypes import BOOL, DType
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import (
    AtLeast,
    Axis,
    Below,
    Bitcast,
    Cast,
    Constraint,
    Fill,
    InRange,
    Rearrange,
    Reshape,
    Slice,
    TileType,
    Value,
    View,
)
from tilec.syntax import ast

METHODS = ("to", "fill", "reshape", "bitcast")
"""Methods of tiles and scalars."""


def call_method(
    cx: Context, owner: Entity, name: str, arguments: list[Entity], keywords: Mapping[str, Entity]
) -> Entity:
    """`owner.name(arguments)`."""
    if any(isinstance(e, Poison) for e in (owner, *arguments, *keywords.values())):
        return POISON
    if keywords:
        return cx.error("E0208", f"`.{name}` takes no keyword `{next(iter(keywords))}`")
    if name == "view" and isinstance(owner, TensorRef):
        return _view(cx, owner, arguments)
    if name == "reshape":
        return _reshape(cx, owner, arguments)
    if len(arguments) != 1:
        return cx.error("E0207", f"`.{name}` takes one argument, not {len(arguments)}")
    match name, arguments[0]:
        case "to", TypeOf(dtype):
            return convert(cx, owner, dtype)
        case "bitcast", TypeOf(dtype):
            return _bitcast(cx, owner, dtype)
        case "fill", filler:
            return _fill(cx, owner, filler)
        case _, other:
            return cx.error(
                "E0321",
                f"`.{name}` takes a dtype, not {describe(other)}",
                help=f"write `.{name}(f32)`",
            )


def convert(cx: Context, owner: Entity, dtype: DType) -> Entity:
    """`.to(dtype)`: a strong value of that dtype."""
    weak = dtype if isinstance(owner, Known) and cx.fits(owner.value, dtype) else None
    value = cx.materialise(owner, weak, "tile")
    if value is None:
        return POISON
    if value.type.dtype == dtype:
        return Tile(value)
    return Tile(cx.emit(Cast(arg=value), TileType(dtype, value.type.axes)))


def _bitcast(cx: Context, owner: Entity, dtype: DType) -> Entity:
    value = cx.materialise(owner, None, "tile")
    if value is None:
        return POISON
    if value.type.dtype.bits != dtype.bits or BOOL in (dtype, value.type.dtype) != (BOOL, BOOL):
        return cx.error(
            "E0318",
            f"`.bitcast` from `{value.type.dtype}` to `{dtype}`: the widths differ"
            if value.type.dtype.bits != dtype.bits
            else "`.bitcast` of a truth value",
            help=f"choose a dtype of {value.type.dtype.bits} bits, or convert with `.to({dtype})`",
        )
    return Tile(cx.emit(Bitcast(arg=value), TileType(dtype, value.type.axes)))


def _fill(cx: Context, owner: Entity, filler: Entity) -> Entity:
    value = cx.materialise(owner, None, "tile")
    if value is None:
        return POISON
    number = cx.materialise(filler, value.type.dtype, "number")
    if number is None:
        return POISON
    if number.type.axes:
        return cx.error("E0321", f"`.fill` takes a scalar, not {describe(filler)}")
    if number.type.dtype != value.type.dtype:
        return cx.error(
            "E0304",
            f"`.fill` of `{value.type.dtype}` with `{number.type.dtype}`",
            help=f"convert the number with `.to({value.type.dtype})`",
        )
    axes = tuple(Axis(a.extent, a.capacity) for a in value.type.axes)
    return Tile(cx.emit(Fill(arg=value, value=number), TileType(value.type.dtype, axes)))


def _extents(cx: Context, arguments: list[Entity]) -> list[Sym] | None:
    """The extents of `.reshape(a, b)` or `.reshape((a, b))`; None after a message."""
    if len(arguments) == 1 and isinstance(arguments[0], TupleOf):
        arguments = list(arguments[0].elements)
    extents: list[Sym] = []
    for argument in arguments:
        extent = (
            argument.extent if isinstance(argument, SpanTile) else cx.sym_of(argument, "an extent")
        )
        if extent is None:
            return None
        extents.append(extent)
    if not extents:
        cx.error("E0207", "an empty list of extents")
        return None
    return extents


def _product(extents: list[Sym]) -> Sym:
    total = Sym.of(1)
    for extent in extents:
        total = total * extent
    return total


def _reshape(cx: Context, owner: Entity, arguments: list[Entity]) -> Entity:
    extents = _extents(cx, arguments)
    value = cx.materialise(owner, None, "tile")
    if extents is None or value is None:
        return POISON
    old = [a.extent for a in value.type.axes]
    if _product(old) != _product(extents):
        return cx.error(
            "E0317",
            f"`.reshape` of [{', '.join(map(str, old))}] to [{', '.join(map(str, extents))}] changes the number of elements",
            help="write every extent; their product is the tile's number of elements",
        )
    axes: list[Axis] = []
    kept = _kept_axes(old, extents)
    for position, extent in enumerate(extents):
        axis = value.type.axes[kept[position]] if position in kept else cx.axis(extent)
        axes.append(axis)
    for position, axis in enumerate(value.type.axes):
        if position not in kept.values() and axis.presence and not axis.is_one:
            return cx.error(
                "E0404",
                f"`.reshape` merges or splits axis {position}, which can be absent",
                help="fill it first: `x.fill(0).reshape(…)`",
            )
    return Tile(cx.emit(Reshape(arg=value), TileType(value.type.dtype, tuple(axes))))


def _kept_axes(old: list[Sym], new: list[Sym]) -> dict[int, int]:
    """New axis number -> old one, for those that row-major reinterpretation leaves alone: the same extent with the same
    number of elements behind."""
    behind: dict[tuple[Sym, Sym], int] = {}
    total = Sym.of(1)
    for position in range(len(old) - 1, -1, -1):
        behind[(old[position], total)] = position
        total = total * old[position]
    kept: dict[int, int] = {}
    total = Sym.of(1)
    for position in range(len(new) - 1, -1, -1):
        if (new[position], total) in behind and new[position].constant != 1:
            kept[position] = behind[(new[position], total)]
        total = total * new[position]
    return kept


def _view(cx: Context, owner: TensorRef, arguments: list[Entity]) -> Entity:
    extents = _extents(cx, arguments)
    if extents is None:
        return POISON
    tensor = cx.tensors[owner.name]
    if tensor.strides is not None:
        return cx.error("E0317", f"`{owner.name}` has strides; only a dense tensor has views")
    if _product(list(tensor.dims)) != _product(extents) and not _divides_out(
        cx, tensor.dims, extents
    ):
        return cx.error(
            "E0317",
            f"the view [{', '.join(map(str, extents))}] of `{owner.name}` [{', '.join(map(str, tensor.dims))}] "
            "has another number of elements",
            help="the products of both must be the same expression, `require` a divisor where one is divided: "
            "`require K % 4 == 0` for `.view(M, K // 4, 4)`",
        )
    for view in cx.views:
        if view.tensor == owner.name and view.dims == tuple(extents):
            return TensorRef(owner.name, owner.dtype, view.dims, view.name)
    name = f"{owner.name}.{sum(v.tensor == owner.name for v in cx.views) + 1}"
    cx.views.append(View(name, owner.name, tuple(extents)))
    return TensorRef(owner.name, owner.dtype, tuple(extents), name)


def _divides_out(cx: Context, dims: tuple[Sym, ...], extents: list[Sym]) -> bool:
    """Whether both products are equal under the known divisors."""
    return cx.facts.prove_equal(_product(list(dims)), _product(extents))


def transpose(cx: Context, owner: Tile) -> Entity:
    """`.T`: the last two axes swapped."""
    axes = owner.type.axes
    if len(axes) < 2:
        return cx.error(
            "E0313",
            f"`.T` needs two axes, not {describe(owner)}",
            help="make a column of a vector with `x[:, None]`",
        )
    order = (*range(len(axes) - 2), len(axes) - 1, len(axes) - 2)
    type_ = TileType(owner.type.dtype, tuple(axes[i] for i in order))
    return Tile(cx.emit(Rearrange(arg=owner.value, axes=order), type_), owner.weak)


def _quotient(cx: Context, value: Value) -> str:
    """A note on an axis of a span that was divided and has stayed an axis, "" where there is none."""
    for axis in value.type.axes:
        by = cx.quotients.get(axis.extent)
        if by is not None:
            return (
                f"a span of {axis.extent} divided by {by} is a number for each coordinate here; "
                f"`require {by} % {axis.extent} == 0` makes it one number"
            )
    return ""


def index_value(
    cx: Context, owner: Tile | SpanTile, terms: list[Entity | ast.Slice | ast.NewAxis]
) -> Entity:
    """`x[:, None]`, `kv[:, 0:512]`."""
    value = owner.value if isinstance(owner, Tile) else cx.iota(owner)
    weak = isinstance(owner, Tile) and owner.weak
    given = [t for t in terms if not isinstance(t, ast.NewAxis)]
    if len(given) != value.type.rank:
        return cx.error(
            "E0302",
            f"{describe(owner)} has {value.type.rank} axes but is indexed with {len(given)}",
            note=_quotient(cx, value) if len(given) < value.type.rank else "",
            help="write `:` for each axis and `None` for each new one",
        )
    starts: list[int] = []
    axes: list[Axis] = []
    for index, axis in zip(given, value.type.axes, strict=True):
        if not isinstance(index, ast.Slice):
            return cx.error(
                "E0314",
                f"a tile is indexed with `:`, `None` and constant slices, not with {describe(index)}",
                help="index the tensor before it is loaded, or choose with `where` and a reduction",
            )
        cut = _cut(cx, index, axis)
        if cut is None:
            return POISON
        starts.append(cut[0])
        axes.append(cut[1])
    if any(isinstance(t, ast.Slice) and (t.lower or t.upper) for t in given):
        value = cx.emit(
            Slice(arg=value, starts=tuple(starts)), TileType(value.type.dtype, tuple(axes))
        )
    if len(given) == len(terms):
        return Tile(value, weak)
    order: list[int | None] = []
    shape: list[Axis] = []
    for term in terms:
        if isinstance(term, ast.NewAxis):
            order.append(None)
            shape.append(cx.axis(Sym.of(1)))
        else:
            number = sum(o is not None for o in order)
            order.append(number)
            shape.append(value.type.axes[number])
    return Tile(
        cx.emit(Rearrange(arg=value, axes=tuple(order)), TileType(value.type.dtype, tuple(shape))),
        weak,
    )


def _cut(cx: Context, term: ast.Slice, axis: Axis) -> tuple[int, Axis] | None:
    """(start, axis) of one axis' slice; None after a message."""
    if term.lower is None and term.upper is None:
        return 0, axis
    bounds: list[int | None] = []
    for bound in (term.lower, term.upper):
        number = None
        if bound is not None:
            number = cx.static_number(cx.evaluate(cx, bound), "the bound of a slice")
            if number is None:
                return None
        bounds.append(number)
    size = axis.extent.constant
    lo, hi = bounds[0] or 0, bounds[1] if bounds[1] is not None else size
    if size is None or hi is None:
        cx.error(
            "E0319",
            f"a slice of an axis of extent `{axis.extent}`, which is no program parameter",
            help="slice the tensor with a span, or make the extent a literal or a program parameter",
        )
        return None
    if not 0 <= lo <= hi <= size:
        cx.error(
            "E0319",
            f"the slice {lo}:{hi} is outside an axis of {size}",
            help="an index never wraps around; count from 0",
        )
        return None
    return lo, _cut_axis(cx, axis, lo, hi)


def _cut_axis(cx: Context, axis: Axis, lo: int, hi: int) -> Axis:
    """The axis of the coordinates from lo on and below hi."""
    moved: list[Constraint] = []
    for constraint in axis.presence:
        match constraint:
            case Below(limit):
                moved.append(Below(limit - lo))
            case AtLeast(limit):
                moved.append(AtLeast(limit - lo))
            case InRange(index):
                moved.append(replace(constraint, index=_part(cx, index, lo, hi)))
    extent = Sym.of(hi - lo)
    return cx.axis(extent, simplify(moved, extent, cx.facts))


def _part(cx: Context, index: int, lo: int, hi: int) -> int:
    """The id of the part of an index tile that selects the part of an axis."""
    value = cx.index_tiles[index]
    (axis,) = value.type.axes
    if axis.is_one or (lo == 0 and axis.extent.constant == hi):
        return index
    cut = _cut_axis(cx, axis, lo, hi)
    part = cx.emit(Slice(arg=value, starts=(lo,)), TileType(value.type.dtype, (cut,)))
    cx.index_tiles[part.id] = part
    return part.id
