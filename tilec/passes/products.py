"""Products: which instruction each `@` becomes, where its operands come from, how the warps share it.

An operand is *staged* where loads (and arithmetic on them) make it: a copy to shared memory, ahead of its use where a
loop allows it. It stays in *registers* where it is the left operand and is made from another product's accumulators,
whose registers are those of a left operand. Rows of all products of a nest are spread over the warps alike, columns
too; a nest that reduces along columns, or feeds accumulators to another product, keeps whole rows in one warp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, I8, U8, DType
from tilec.ir.layouts import AxisLayout, fragment_columns, fragment_rows
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.loops_in_turn import loops_in_turn
from tilec.passes.placement import from_memory
from tilec.passes.uses import Definitions, all_ops
from tilec.plan.product_tiles import split_rows, warps_of
from tilec.source.diagnostics import fail
from tilec.targets.table import Product, Target

MMA_NAMES: dict[tuple[DType, DType], str] = {
    (BF16, BF16): "MmaBf16",
    (F16, F16): "MmaF16",
    (F32, F32): "MmaTf32",
    (I8, I8): "MmaS8",
    (U8, U8): "MmaU8",
    (F8E4M3, F8E4M3): "MmaE4m3",
    (F8E5M2, F8E5M2): "MmaE5m2",
}
"""The device primitive of an instruction by its operands."""

MOST_ROW_WARPS = 12
"""Warps that share the rows of a tile, each block of 16 rows one."""

MOST_ACCUMULATORS = 224
"""Of a thread of products of warps."""
WHOLE_ROWS_FROM = 64
"""Rows from which a row of accumulators stays within one warp: fewer would leave warps idle."""


@dataclass(frozen=True)
class Staged:
    """An operand in shared memory. `source` is the value as it is stored, rows first; `k_axis` the axis of it that the product
    consumes; `load` the op where it is a plain load, else None (computed element by element). `turned`: it must be stored
    transposed, with the consumed axis along rows, since the instruction cannot read elements of its width across."""

    source: t.Value
    k_axis: int
    load: t.Load | None
    turned: bool = False

    @property
    def key(self) -> int:
        """What its tile in shared memory is known by: a value that is stored transposed for one product is another tile for the others."""
        return ~self.source.id if self.turned else self.source.id


@dataclass(frozen=True)
class InRegisters:
    """A left operand made from accumulators."""

    source: t.Value


@dataclass(frozen=True)
class ProductPlan:
    """One `@`. `mma` names the device primitive of the instruction ("" for wmma); `k_extent` is the consumed extent, padded to
    the instruction's."""

    op: t.Dot
    product: Product
    mma: str
    a: Staged | InRegisters
    b: Staged
    k_extent: int

    @property
    def opaque(self) -> bool:
        """Whether sums are kept in fragments of which nobody knows where an element is."""
        return self.product.form == "wmma"


@dataclass
class Products:
    """The products of a nest and the geometry they share: warps along rows and columns, layouts by class number, padded extents of
    classes that are only consumed."""

    target: Target
    plans: dict[int, ProductPlan] = field(default_factory=dict)
    """by id of the Dot's result"""
    warps: int = 4
    row_warps: int = 4
    layouts: dict[int, AxisLayout] = field(default_factory=dict)
    columns: frozenset[int] = frozenset()
    consumed: dict[int, int] = field(default_factory=dict)
    accumulators: int = 0
    carried: Mapping[int, int] = field(default_factory=dict)
    """accumulators among them that are not a product's own, but what a loop carries, by id of the name's entry"""
    is_handed_on: bool = False
    """a loop hands a left operand in registers on to its next trip"""
    waste: float = 0.0
    origin: Mapping[int, int] = field(default_factory=dict)
    """of a copied product's result the one that it is a copy of: both are in the same registers"""
    in_turn: Mapping[int, int] = field(default_factory=dict)
    """the loop that a root's accumulators, or a carried tile, are of, where those of different loops take the same registers"""
    apart: frozenset[int] = frozenset()
    """classes of columns that warpgroups with the same rows share out"""
    swapped: bool = False
    """products are computed transposed: their columns are the instruction's rows"""

    @property
    def chained(self) -> bool:
        """Whether a product's left operand is made from another one's accumulators: registers are short."""
        return any(isinstance(plan.a, InRegisters) for plan in self.plans.values())

    def root(self, number: int) -> int:
        """The value that one is a copy of, or itself."""
        return self.origin.get(number, number)

    def distinct(self) -> list[ProductPlan]:
        """One plan for each set of accumulators."""
        found: dict[int, ProductPlan] = {}
        for number, plan in self.plans.items():
            found.setdefault(self.origin.get(number, number), plan)
        return list(found.values())

    @property
    def beside(self) -> int:
        """Accumulators that are not a product's own."""
        return self.at_once(self.carried.items())

    def at_once(self, sizes: Iterable[tuple[int, int]]) -> int:
        """What tiles take together, given as ids (a product's result, a carried name) with sizes: of loops in turn the largest."""
        together, by_loop = 0, {-1: 0}
        for number, size in sizes:
            loop = self.in_turn.get(self.root(number))
            if loop is None:
                together += size
            else:
                by_loop[loop] = by_loop.get(loop, 0) + size
        return together + max(by_loop.values())

    def padded(self, axes: Axes, operand: Staged, plan: ProductPlan, axis: int) -> int:
        """Extent of an operand's axis in shared memory, as it is in its source: room for every product that reads it, along one of its
        axes or along the other."""
        vector = 128 // operand.source.type.dtype.bits
        readers = [(operand, plan)] + [
            (other, reader)
            for reader in self.plans.values()
            for other in (reader.a, reader.b)
            if isinstance(other, Staged) and other.key == operand.key
        ]
        extent = 0
        for other, reader in readers:
            if axis == other.k_axis:
                extent = max(extent, reader.k_extent)
                continue
            found = axes.of(other.source, axis)
            own = 16 if found is None else self.layouts[found.number].capacity
            extent = max(extent, own)
        return -(-extent // vector) * vector if axis == 1 else extent


Form = Literal["auto", "mma", "wmma", "wgmma"]
"""What `schedule mma = …` asks for."""


def plan_products(
    nest: t.Nest,
    axes: Axes,
    target: Target,
    warps: int | None,
    form: Form = "auto",
    origin: Mapping[int, int] | None = None,
    chained: tuple[int, ...] = (16,),
    most: int = MOST_ACCUMULATORS,
) -> Products | None:
    """The products of a nest, None where it has none; `origin` as in `Scheduled`; `chained`: bits of operands that accumulators may be left
    ones of; `most`: accumulators of a thread. Raises E0514 where the target has no instruction of
    the form for the operands, E0515 where their axes would have to lie in two ways."""
    dots = [op for op in all_ops(nest.body) if isinstance(op, t.Dot)]
    if not dots:
        return None
    rows, columns = _roles(axes, dots)
    definitions = Definitions.of(nest.body)

    def shared_out(whole: bool) -> Products:
        found = Products(target, origin=origin or {})
        for op in dots:
            left = chained if whole else ()
            found.plans[op.out.id] = _plan(op, axes, definitions, target, left, form)
        found.in_turn = loops_in_turn(nest.body, found.origin)
        found.is_handed_on = any(
            isinstance(plan.a, InRegisters)
            and isinstance(definitions.defining.get(plan.a.source.id), t.For)
            for plan in found.plans.values()
        )
        _geometry(nest, axes, found, rows, columns, warps, whole)
        return found

    many = max((c.capacity or 1 for c in rows), default=1) >= WHOLE_ROWS_FROM
    found = shared_out(many)
    if many and found.accumulators > most:
        # what a warp has no room for whole, several share out: left operands then go through shared memory
        found = shared_out(False)
    if found.accumulators > most:
        raise fail(
            "E0601",
            f"the products of this nest hold {found.accumulators} accumulators a thread, more than its registers",
            nest.span,
            help="use smaller tiles, or more warps with `schedule warps = 8`",
        )
    return found


def _plan(
    op: t.Dot,
    axes: Axes,
    definitions: Definitions,
    target: Target,
    chained: tuple[int, ...],
    form: Form,
) -> ProductPlan:
    if op.a.type.rank != 2 or op.b.type.rank != 2:
        raise fail(
            "E0510",
            "products of tiles with leading batch axes cannot be compiled to CUDA yet",
            op.span,
            help="give the batch axis its own `parallel` range",
        )
    product, mma = select(op, target, form)
    a = _operand(op, product, 1, definitions, chained if product.form == "mma" else ())
    b = _operand(op, product, 0, definitions, ())
    consumed = axes.of(op.a, 1) or axes.of(op.b, 0)
    extent = 1 if consumed is None else _static(consumed, op)
    assert not isinstance(b, InRegisters)
    return ProductPlan(op, product, mma, a, b, -(-extent // product.k) * product.k)


def select(op: t.Dot, target: Target, form: Form) -> tuple[Product, str]:
    """The instruction for a product's operands; where no form is asked for, `mma` before `wmma`."""
    a, b = op.a.type.dtype, op.b.type.dtype
    forms = ("mma", "wmma") if form == "auto" else (form,)
    offered = [p for f in forms for p in target.products if p.form == f and (p.a, p.b) in MMA_NAMES]
    for product in offered:
        if (product.a, product.b) != (a, b) or (product.tf32 and op.precision != "tf32"):
            continue
        if product.form == "wmma":
            return product, ""
        if a == F16 and product.k == 8:
            product = Product("mma", a, b, product.acc, 16, 8, 16)
        return product, MMA_NAMES[a, b]
    have = sorted({f"{p.a}" + (" (as tf32)" if p.tf32 else "") for p in offered})
    which = "" if form == "auto" else f"`{form}` "
    hints = [
        "use `dot(a, b, as = tf32)`"
        if a == b == F32 and "f32 (as tf32)" in have
        else f"convert the operands with `.to({have[0]})`"
    ]
    if op.span.called is not None and op.span.source.library:
        hints = [f"convert the arguments of the call with `.to({have[0]})`"]
    if form == "wmma" and any((p.a, p.b) == (a, b) and p.form == "mma" for p in target.products):
        hints.append("leave `mma = wmma` out")
    raise fail(
        "E0514",
        f"{target.arch} has no tensor-core {which}product of {a} and {b}",
        op.span,
        note=f"products {'of this form ' if which else ''}there take: {', '.join(have)}",
        help=", or ".join(hints),
    )


def _static(found: AxisClass, op: t.Dot) -> int:
    if found.capacity is None or not found.static:
        raise fail(
            "E0515",
            f"an operand of `@` has the run-time extent {found.extent}",
            op.span,
            help="walk it with `for k in range(… by BK)`",
        )
    return found.capacity


def origin_of(value: t.Value, axis: int, definitions: Definitions) -> tuple[t.Value, int]:
    """What transpositions make a tile of, and which axis of that is its `axis`."""
    while True:
        inner = definitions.defining.get(value.id)
        if isinstance(inner, t.Rearrange) and inner.arg.type.rank == 2 and None not in inner.axes:
            axis, value = int(inner.axes[axis] or 0), inner.arg
            continue
        return value, axis


def _operand(
    op: t.Dot, product: Product, k_axis: int, definitions: Definitions, chained: tuple[int, ...]
) -> Staged | InRegisters:
    """Where the operand that is consumed along `k_axis` comes from; transpositions are read through. `chained`: as in `plan_products`."""
    value = op.a if k_axis == 1 else op.b
    base, axis = origin_of(value, k_axis, definitions)
    inner = definitions.defining.get(base.id)
    across = (8,) if product.form == "wmma" else (8, 32)
    turned = axis == 0 and base.type.dtype.bits in across
    if from_memory(base, definitions):
        plain = isinstance(inner, t.Load) and not inner.access.pointwise
        return Staged(base, axis, inner if plain and isinstance(inner, t.Load) else None, turned)
    if axis == 1 and value.type.dtype.bits in chained:
        return InRegisters(base)
    return Staged(base, axis, None, turned)


def _roles(axes: Axes, dots: list[t.Dot]) -> tuple[list[AxisClass], list[AxisClass]]:
    rows: dict[int, AxisClass] = {}
    columns: dict[int, AxisClass] = {}
    for op in dots:
        for k, side in ((0, rows), (1, columns)):
            found = axes.of(op.out, k)
            assert found is not None
            side[found.number] = found
            _static(found, op)
    both = set(rows) & set(columns)
    if both:
        raise fail(
            "E0515",
            "one axis is the rows of one product and the columns of another",
            dots[0].span,
            help="store one of the results to a `temp` in a nest of its own",
        )
    return list(rows.values()), list(columns.values())


def _geometry(
    nest: t.Nest,
    axes: Axes,
    found: Products,
    rows: list[AxisClass],
    columns: list[AxisClass],
    warps: int | None,
    whole: bool,
) -> None:
    """Warps along rows and columns, and the layouts that follow. `whole`: rows that are reduced, or are left operands, stay within one warp."""
    ops = list(all_ops(nest.body))
    numbers = {c.number for c in columns}
    row_extent = max((c.capacity or 1 for c in rows), default=1)
    whole_rows = any(isinstance(p.a, InRegisters) for p in found.plans.values()) or any(
        whole
        and isinstance(op, t.Reduce)
        and any((c := axes.of(op.arg, n)) is not None and c.number in numbers for n in op.axes)
        for op in ops
    )
    column_extent = max((c.capacity or 1 for c in columns), default=1)
    sizes = []
    for plan in found.distinct():
        m, n = axes.of(plan.op.out, 0), axes.of(plan.op.out, 1)
        down = 16 if m is None else max(16, m.capacity or 16)
        sizes.append((plan.op.out.id, down * (8 if n is None else max(8, n.capacity or 8))))
    carried = _carried_beside(nest, axes, rows, columns)
    total = found.at_once((*sizes, *carried))
    count = warps or warps_of(total, row_extent, None if whole_rows else column_extent)
    if warps is None:
        if whole_rows and row_extent >= 128:
            count = max(count, 8)
        if whole_rows and row_extent % 48 == 0 and row_extent // 16 <= MOST_ROW_WARPS:
            count = row_extent // 16  # three warps for 48 rows, and no row twice
    row_warps = _row_warps(count, row_extent, column_extent, whole_rows)
    column_warps = 1 if whole_rows else count // row_warps
    found.warps, found.row_warps = row_warps * column_warps, row_warps
    for c in rows:
        tiles = -(-(c.capacity or 1) // (16 * row_warps))
        while 16 * row_warps * tiles < _consumed_extent(axes, found, c):
            tiles += 1
        found.layouts[c.number] = fragment_rows(tiles, row_warps, 32)
    for c in columns:
        tiles = -(-(c.capacity or 1) // (8 * column_warps))
        pairs = any(isinstance(p.a, InRegisters) or p.opaque for p in found.plans.values())
        if (tiles > 1 or pairs) and tiles % 2:
            tiles += 1
        while 8 * column_warps * tiles < _consumed_extent(axes, found, c):
            tiles += 1
        found.layouts[c.number] = fragment_columns(tiles, column_warps, 32 * row_warps)
    found.columns = frozenset(numbers)
    needed = used = 0
    sizes = []
    for plan in found.distinct():
        m, n = axes.of(plan.op.out, 0), axes.of(plan.op.out, 1)
        padded_m = 16 * row_warps if m is None else found.layouts[m.number].capacity
        padded_n = 8 * column_warps if n is None else found.layouts[n.number].capacity
        sizes.append((plan.op.out.id, padded_m * padded_n // (32 * found.warps)))
        used += padded_m * padded_n * plan.k_extent
        needed += (
            (1 if m is None else m.capacity or 1)
            * (1 if n is None else n.capacity or 1)
            * plan.k_extent
        )
        for operand, k_axis in ((plan.op.a, 1), (plan.op.b, 0)):
            consumed = axes.of(operand, k_axis)
            if consumed is not None and consumed.number not in found.layouts:
                extent = max(found.consumed.get(consumed.number, 0), plan.k_extent)
                found.consumed[consumed.number] = extent
    found.carried = {n: -(-size // (32 * found.warps)) for n, size in carried}
    found.accumulators = found.at_once((*sizes, *found.carried.items()))
    found.waste = 1 - needed / used if used else 0.0


def _consumed_extent(axes: Axes, found: Products, side: AxisClass) -> int:
    """Padded coordinates of an axis of accumulators that another product consumes: the threads that hold them fill its operand
    to the end."""
    extents = [0]
    for plan in found.plans.values():
        for value, k_axis in ((plan.op.a, 1), (plan.op.b, 0)):
            consumed = axes.of(value, k_axis)
            if consumed is not None and consumed.number == side.number:
                extents.append(plan.k_extent)
    return max(extents)


def _carried_beside(
    nest: t.Nest, axes: Axes, rows: list[AxisClass], columns: list[AxisClass]
) -> list[tuple[int, int]]:
    """Words of tiles with rows and columns that a loop carries beside the products' own accumulators, by id of the name's entry."""
    dots = [op for op in all_ops(nest.body) if isinstance(op, t.Dot)]
    results = {op.out.id for op in dots}
    own = {op.accumulate.id for op in dots if op.accumulate is not None}
    sides = ({c.number for c in rows}, {c.number for c in columns})
    words: list[tuple[int, int]] = []
    for op in all_ops(nest.body):
        if not isinstance(op, t.For):
            continue
        for carried in op.carried:
            found = axes.of_value(carried.entry)
            if carried.next.id in results or carried.entry.id in own or len(found) != 2:
                continue
            first, second = found
            if (
                first is not None
                and second is not None
                and first.number in sides[0]
                and second.number in sides[1]
            ):
                area = (first.capacity or 1) * (second.capacity or 1)
                bits = min(32, carried.entry.type.dtype.bits)
                words.append((carried.entry.id, area * bits // 32))
    return words


def _row_warps(count: int, row_extent: int, column_extent: int, whole_rows: bool) -> int:
    """Warps along the rows; all of them where rows stay whole."""
    if not whole_rows:
        return split_rows(count, row_extent, column_extent)
    most = max(1, -(-row_extent // 16))
    return most if count == most else min(count, _floor_power(most))


def _floor_power(number: int) -> int:
    return 1 << (number.bit_length() - 1)
