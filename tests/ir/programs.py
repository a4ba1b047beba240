"""Tile IR built by hand: what the analysis makes of a few small kernels, and programs around one op."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import BF16, F32, DType
from tilec.ir.symbolic import Sym, Var, ceildiv, sym_min


class Builder:
    """Numbers values and collects ops."""

    def __init__(self) -> None:
        self.count = 0
        self.ops: list[ir.Op] = []

    def value(self, dtype: DType, *axes: ir.Axis | Sym | int) -> ir.Value:
        """A new value; an int or a Sym is a fully present axis."""
        self.count += 1
        full = tuple(a if isinstance(a, ir.Axis) else axis(a) for a in axes)
        return ir.Value(self.count, ir.TileType(dtype, full))

    def add(self, op: ir.Op) -> ir.Value:
        """Append an op with one result."""
        self.ops.append(op)
        return op.out

    def block(self) -> ir.Block:
        """The ops so far, which a new block then leaves behind."""
        block = ir.Block(tuple(self.ops))
        self.ops = []
        return block


def axis(extent: Sym | int, *presence: ir.Constraint, capacity: int | None = None) -> ir.Axis:
    """An axis; its capacity is its number where it has one."""
    sym = Sym.of(extent)
    return ir.Axis(sym, sym.constant if sym.constant is not None else capacity, presence)


def dim(name: str) -> Sym:
    """A run-time size."""
    return Sym.of(Var(name, "dim"))


def vector_add(block: int = 64) -> ir.Program:
    """`c[i] = a[i] + b[i]` over spans of BN."""
    n, bn = dim("N"), Sym.of(Var("BN", "tile"))
    trip = Var("i", "trip", 1)
    start = bn * Sym.of(trip)
    part = ir.AtSpan(start, bn, Sym.of(0), n)
    cut = ir.Axis(bn, block, (ir.Below(n - start),))
    build = Builder()
    a = build.add(ir.Load(ir.Access("a", (part,)), outs=(build.value(F32, cut),)))
    b = build.add(ir.Load(ir.Access("b", (part,)), outs=(build.value(F32, cut),)))
    c = build.add(ir.Elementwise("add", (a, b), outs=(build.value(F32, cut),)))
    build.ops.append(ir.Store(ir.Access("c", (part,)), c))
    tensors = (
        ir.Tensor("a", F32, (n,), "input"),
        ir.Tensor("b", F32, (n,), "input"),
        ir.Tensor("c", F32, (n,), "output"),
    )
    nest = ir.Nest((ir.GridAxis("i", trip, ceildiv(n, bn), bn),), build.block())
    return ir.Program(
        "vector_add",
        tensors,
        (),
        (Var("N", "dim"),),
        (nest,),
        tiles={"BN": block},
        statics={"BN": block},
    )


def softmax() -> ir.Program:
    """Rows of `exp(x - max) / sum`."""
    r, c = dim("R"), dim("C")
    trip = Var("r", "trip", 1)
    row = axis(c, capacity=131072)
    part = (ir.AtScalar(Sym.of(trip)), ir.AtAll())
    build = Builder()
    x = build.add(ir.Load(ir.Access("x", part), outs=(build.value(BF16, row),)))
    wide = build.add(ir.Cast(x, outs=(build.value(F32, row),)))
    top = build.add(ir.Reduce("max", wide, (0,), outs=(build.value(F32),)))
    moved = build.add(ir.Elementwise("sub", (wide, top), outs=(build.value(F32, row),)))
    e = build.add(ir.Elementwise("exp", (moved,), outs=(build.value(F32, row),)))
    total = build.add(ir.Reduce("sum", e, (0,), outs=(build.value(F32),)))
    y = build.add(ir.Elementwise("div", (e, total), outs=(build.value(F32, row),)))
    out = build.add(ir.Cast(y, outs=(build.value(BF16, row),)))
    build.ops.append(ir.Store(ir.Access("y", part), out))
    tensors = (ir.Tensor("x", BF16, (r, c), "input"), ir.Tensor("y", BF16, (r, c), "output"))
    nest = ir.Nest((ir.GridAxis("r", trip, r),), build.block())
    dims = (Var("R", "dim"), Var("C", "dim"))
    return ir.Program("softmax", tensors, (), dims, (nest,), upper={Var("C", "dim"): 131072})


def gemm(block: int = 16, depth: int = 8) -> ir.Program:
    """`acc += a[i, k] @ b[k, j]` over square blocks."""
    m, n, k = dim("M"), dim("N"), dim("K")
    bm, bk = Sym.of(Var("BM", "tile")), Sym.of(Var("BK", "tile"))
    ti, tj, tk = Var("i", "trip", 1), Var("j", "trip", 2), Var("k", "trip", 3)
    rows = ir.AtSpan(bm * Sym.of(ti), bm, Sym.of(0), m)
    columns = ir.AtSpan(bm * Sym.of(tj), bm, Sym.of(0), n)
    middle = ir.AtSpan(bk * Sym.of(tk), bk, Sym.of(0), k)
    i = ir.Axis(bm, block, (ir.Below(m - bm * Sym.of(ti)),))
    j = ir.Axis(bm, block, (ir.Below(n - bm * Sym.of(tj)),))
    inner = ir.Axis(bk, depth, (ir.Below(k - bk * Sym.of(tk)),))
    build = Builder()
    zero = build.add(ir.Constant(0.0, outs=(build.value(F32),)))
    start = build.add(ir.Full(zero, (rows, columns), outs=(build.value(F32, i, j),)))
    before = build.ops
    build.ops = []
    entry = build.value(F32, i, j)
    a = build.add(ir.Load(ir.Access("a", (rows, middle)), outs=(build.value(BF16, i, inner),)))
    b = build.add(ir.Load(ir.Access("b", (middle, columns)), outs=(build.value(BF16, inner, j),)))
    after = build.add(ir.Dot(a, b, entry, outs=(build.value(F32, i, j),)))
    body = build.block()
    build.ops = before
    result = build.value(F32, i, j)
    carried = ir.Carried(start, entry, after, result)
    build.ops.append(ir.For("k", tk, ceildiv(k, bk), (carried,), body, outs=(result,)))
    build.ops.append(ir.Store(ir.Access("c", (rows, columns)), result))
    tensors = (
        ir.Tensor("a", BF16, (m, k), "input"),
        ir.Tensor("b", BF16, (k, n), "input"),
        ir.Tensor("c", F32, (m, n), "output"),
    )
    grid = (ir.GridAxis("i", ti, ceildiv(m, bm), bm), ir.GridAxis("j", tj, ceildiv(n, bm), bm))
    return ir.Program(
        "gemm",
        tensors,
        (),
        tuple(Var(name, "dim") for name in ("M", "K", "N")),
        (ir.Nest(grid, build.block()),),
        tiles={"BM": block, "BK": depth},
        statics={"BM": block, "BK": depth},
    )


class Bench:
    """A program of one instance: whole-tensor loads, the ops under test, whole-tensor stores."""

    def __init__(self) -> None:
        self.build = Builder()
        self.tensors: list[ir.Tensor] = []

    def input(self, name: str, dtype: DType, *shape: int) -> ir.Value:
        """A tensor, loaded whole."""
        dims = tuple(Sym.of(n) for n in shape)
        self.tensors.append(ir.Tensor(name, dtype, dims, "input"))
        access = ir.Access(name, (ir.AtAll(),) * len(shape))
        return self.build.add(ir.Load(access, outs=(self.build.value(dtype, *shape),)))

    def spanned(
        self, name: str, dtype: DType, present: Sequence[int], extents: Sequence[int]
    ) -> ir.Value:
        """A tensor of shape `present`, loaded by spans of greater extents: what lies past it is absent."""
        dims = tuple(Sym.of(n) for n in present)
        self.tensors.append(ir.Tensor(name, dtype, dims, "input"))
        terms = tuple(ir.AtSpan(Sym.of(0), Sym.of(e)) for e in extents)
        axes = [
            axis(e, *((ir.Below(Sym.of(n)),) if n < e else ()))
            for n, e in zip(present, extents, strict=True)
        ]
        return self.build.add(
            ir.Load(ir.Access(name, terms), outs=(self.build.value(dtype, *axes),))
        )

    def output(self, name: str, value: ir.Value) -> None:
        """A tensor as large as `value`, which is stored to it."""
        dims = tuple(a.extent for a in value.type.axes)
        self.tensors.append(ir.Tensor(name, value.type.dtype, dims, "output"))
        access = ir.Access(name, tuple(ir.AtSpan(Sym.of(0), d) for d in dims))
        self.build.ops.append(ir.Store(access, value))

    def program(self, scalars: tuple[ir.ScalarInput, ...] = ()) -> ir.Program:
        """One instance of everything so far."""
        nest = ir.Nest((), self.build.block())
        return ir.Program("bench", tuple(self.tensors), scalars, (), (nest,))


def least(*args: Sym | int) -> Sym:
    """The least of symbolic integers."""
    return sym_min(args)
