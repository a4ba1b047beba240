"""The rules of Tile IR: what keeps them passes, each breach is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.ir.programs import Bench, axis, gemm, softmax, vector_add
from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import BF16, BOOL, F32, I32, DType
from tilec.ir.symbolic import Sym, Var
from tilec.ir.verifier import InternalFault, verify


@pytest.mark.parametrize("build", [vector_add, softmax, gemm])
def test_well_formed_programs_pass(build: Callable[[], ir.Program]) -> None:
    assert verify(build()) is None


def value(id_: int, dtype: DType = F32, *extents: int) -> ir.Value:
    """A value of constant extents."""
    return ir.Value(id_, ir.TileType(dtype, tuple(axis(e) for e in extents)))


X = value(1, F32, 4, 8)
FLAG = value(2, BOOL)
INDEX = value(3, I32, 4)
SCALAR = value(4, F32)
HALF = value(5, BF16, 8, 4)
GIVEN = (
    ir.Load(ir.Access("x", (ir.AtAll(), ir.AtAll())), outs=(X,)),
    ir.Constant(True, outs=(FLAG,)),
    ir.Load(ir.Access("n", (ir.AtAll(),)), outs=(INDEX,)),
    ir.Constant(1.0, outs=(SCALAR,)),
    ir.Load(ir.Access("h", (ir.AtAll(), ir.AtAll())), outs=(HALF,)),
)


def program(*ops: ir.Op) -> ir.Program:
    """One instance of the given values and `ops`."""
    dims = (Sym.of(4), Sym.of(8))
    tensors = (
        ir.Tensor("x", F32, dims, "input"),
        ir.Tensor("n", I32, (Sym.of(4),), "input"),
        ir.Tensor("h", BF16, (Sym.of(8), Sym.of(4)), "input"),
        ir.Tensor("y", F32, dims, "output"),
    )
    return ir.Program("k", tensors, (), (), (ir.Nest((), ir.Block((*GIVEN, *ops))),))


ALL = (ir.AtAll(), ir.AtAll())
N = Sym.of(Var("nowhere", "dim"))
GOOD: list[ir.Op] = [
    ir.Elementwise("add", (X, SCALAR), outs=(value(9, F32, 4, 8),)),
    ir.Elementwise("lt", (X, X), outs=(value(9, BOOL, 4, 8),)),
    ir.Elementwise("where", (FLAG, X, SCALAR), outs=(value(9, F32, 4, 8),)),
    ir.Rearrange(X, (1, None, 0), outs=(value(9, F32, 8, 1, 4),)),
    ir.Reshape(X, outs=(value(9, F32, 32),)),
    ir.Slice(X, (0, 4), outs=(value(9, F32, 4, 4),)),
    ir.Reduce("argmax", X, (1,), outs=(value(9, I32, 4),)),
    ir.Scan("max", X, 0, outs=(value(9, F32, 4, 8),)),
    ir.TopK(X, 1, 2, outs=(value(9, F32, 4, 2), value(10, I32, 4, 2))),
    ir.Dot(X, HALF, outs=(value(9, F32, 4, 4),)),
    ir.Store(ir.Access("y", ALL), SCALAR),
    ir.Load(ir.Access("x", (ir.AtTile(INDEX), ir.AtAll())), outs=(value(9, F32, 4, 8),)),
    ir.Load(ir.Access("x", (ir.AtTile(INDEX), ir.AtTile(INDEX)), True), outs=(value(9, F32, 4),)),
    ir.Print(("x", SCALAR)),
    ir.Iota(Sym.of(3), outs=(value(9, I32, 4),)),
    ir.Full(SCALAR, outs=(value(9, F32, 4),)),
    ir.Fill(X, SCALAR, outs=(value(9, F32, 4, 8),)),
    ir.Bitcast(X, outs=(value(9, I32, 4, 8),)),
    ir.Cast(X, outs=(value(9, BF16, 4, 8),)),
]


@pytest.mark.parametrize("op", GOOD, ids=lambda o: type(o).__name__)
def test_ops_that_keep_the_rules(op: ir.Op) -> None:
    assert verify(program(op)) is None


OUT = value(9, F32, 4, 8)
BAD: list[tuple[ir.Op, str]] = [
    (ir.Elementwise("add", (X, value(77, F32)), outs=(OUT,)), "not defined"),
    (ir.Elementwise("add", (X, value(1, F32, 4, 8)), outs=(OUT,)), "not the object"),
    (ir.Elementwise("add", (X, X), outs=(X,)), "defined twice"),
    (ir.Elementwise("add", (X, HALF), outs=(OUT,)), "do not agree"),
    (ir.Elementwise("add", (X, FLAG), outs=(OUT,)), "differ in dtype"),
    (ir.Elementwise("add", (X,), outs=(OUT,)), "takes 2 arguments"),
    (ir.Elementwise("and", (X, X), outs=(OUT,)), "and of f32"),
    (ir.Elementwise("exp", (INDEX,), outs=(value(9, I32, 4),)), "exp of i32"),
    (ir.Elementwise("shl", (FLAG, FLAG), outs=(value(9, BOOL),)), "shl of bool"),
    (ir.Elementwise("where", (SCALAR, X, X), outs=(OUT,)), "not bool"),
    (ir.Elementwise("lt", (X, X), outs=(OUT,)), "result is f32[4, 8], not bool[4, 8]"),
    (ir.Constant(True, outs=(value(9, F32),)), "constant True of dtype f32"),
    (ir.Constant(0.5, outs=(value(9, I32),)), "constant 0.5 of dtype i32"),
    (ir.FromSym(N, outs=(value(9, I32),)), "not in scope"),
    (ir.FromSym(Sym.of(Var("v", "value", 4)), outs=(value(9, I32),)), "no integer scalar"),
    (ir.FromSym(Sym.of(Var("t", "trip", 4)), outs=(value(9, I32),)), "not in scope"),
    (ir.Scalar("eps", outs=(value(9, F32),)), "no scalar parameter"),
    (ir.Iota(Sym.of(0), outs=(OUT,)), "one axis"),
    (ir.Full(X, outs=(OUT,)), "not a scalar"),
    (ir.Load(ir.Access("z", ALL), outs=(OUT,)), "no tensor"),
    (ir.Load(ir.Access("x", ALL[:1]), outs=(OUT,)), "1 terms for 2"),
    (ir.Load(ir.Access("x", ALL, view="w"), outs=(OUT,)), "no view"),
    (ir.Load(ir.Access("x", (ir.AtTile(X), ir.AtAll())), outs=(OUT,)), "not an integer"),
    (ir.Load(ir.Access("x", ALL, True), outs=(OUT,)), "pointwise"),
    (ir.Bitcast(X, outs=(value(9, BF16, 4, 8),)), "different widths"),
    (ir.Fill(X, FLAG, outs=(OUT,)), "%2 is not f32"),
    (ir.Rearrange(X, (0,), outs=(value(9, F32, 4),)), "dropped"),
    (ir.Rearrange(X, (0, 0, 1), outs=(OUT,)), "twice"),
    (ir.Reshape(X, outs=(value(9, F32, 31),)), "reshape of 32"),
    (ir.Slice(X, (0, 6), outs=(value(9, F32, 4, 4),)), "leaves extent"),
    (ir.Reduce("sum", X, (2,), outs=(OUT,)), "axis out of range"),
    (ir.Reduce("any", X, (1,), outs=(value(9, F32, 4),)), "any of f32"),
    (ir.Reduce("argmax", X, (0, 1), outs=(value(9, I32),)), "one axis"),
    (ir.Scan("sum", X, 3, outs=(OUT,)), "axis out of range"),
    (ir.Dot(X, X, outs=(OUT,)), "do not agree"),
    (ir.Dot(INDEX, X, outs=(OUT,)), "two axes"),
    (ir.Dot(X, HALF, FLAG, outs=(value(9, F32, 4, 4),)), "accumulator is not f32"),
    (ir.Store(ir.Access("x", ALL), X), "input and is written"),
    (ir.Store(ir.Access("y", ALL), FLAG), "not of the tensor's dtype"),
    (ir.Atomic("add", ir.Access("y", ALL), HALF), "not of the tensor's dtype"),
    (ir.Assert(SCALAR, ""), "not bool"),
    (ir.Print((X,)), "not a scalar"),
    (ir.If(SCALAR, ir.Block(), ir.Block()), "not bool"),
    (ir.For("t", Var("t", "dim"), Sym.of(3), (), ir.Block()), "not a trip number"),
    (ir.For("t", Var("t", "trip"), N, (), ir.Block()), "not in scope"),
    (
        ir.For(
            "t",
            Var("t", "trip"),
            Sym.of(3),
            (ir.Carried(X, value(20, BF16, 4, 8), X, OUT),),
            ir.Block(),
            outs=(OUT,),
        ),
        "%1 is f32[4, 8] and %20 is bf16[4, 8]",
    ),
    (
        ir.If(FLAG, ir.Block(), ir.Block(), (ir.Merge(X, X, OUT),), outs=()),
        "results of the branch",
    ),
]


@pytest.mark.parametrize(("op", "rule"), BAD, ids=[f"{n}-{r}" for n, (_, r) in enumerate(BAD)])
def test_breaches_are_named(op: ir.Op, rule: str) -> None:
    with pytest.raises(InternalFault) as caught:
        verify(program(op))
    assert rule in str(caught.value)


def test_values_of_a_loop_end_with_it() -> None:
    inner = value(30, F32, 4, 8)
    body = ir.Block((ir.Elementwise("neg", (X,), outs=(inner,)),))
    loop = ir.For("t", Var("t", "trip", 1), Sym.of(2), (), body)
    verify(program(loop))
    with pytest.raises(InternalFault, match="%30 is used where it is not defined"):
        verify(program(loop, ir.Elementwise("neg", (inner,), outs=(OUT,))))


def test_regions_take_two_tuples_of_scalars() -> None:
    a, b, c = value(30), value(31), value(32)
    body = ir.Block((ir.Elementwise("add", (a, b), outs=(c,)),))
    good = ir.ReduceWith((X,), 1, ir.Region((a, b), body, (c,)), outs=(value(9, F32, 4),))
    assert verify(program(good)) is None
    with pytest.raises(InternalFault, match="inputs of combine"):
        verify(program(replace(good, combine=ir.Region((a,), body, (c,)))))


def test_a_filled_tile_is_present_and_capacity_is_the_extent() -> None:
    partly = ir.Axis(Sym.of(4), 4, (ir.Below(Sym.of(3)),))
    out = ir.Value(9, ir.TileType(F32, (partly, axis(8))))
    with pytest.raises(InternalFault, match="not fully present"):
        verify(program(ir.Fill(X, SCALAR, outs=(out,))))
    wrong = ir.Value(9, ir.TileType(F32, (ir.Axis(Sym.of(4), 5), axis(8))))
    with pytest.raises(InternalFault, match="capacity 5"):
        verify(program(ir.Elementwise("neg", (X,), outs=(wrong,))))


def test_names_are_unique_and_views_have_tensors() -> None:
    base = vector_add()
    with pytest.raises(InternalFault, match="one name"):
        verify(replace(base, tensors=(*base.tensors, base.tensors[0])))
    with pytest.raises(InternalFault, match="no tensor"):
        verify(replace(base, views=(ir.View("v", "q", (Sym.of(1),)),)))


def test_bench_programs_are_well_formed() -> None:
    bench = Bench()
    bench.output("y", bench.spanned("x", F32, (3, 5), (4, 8)))
    assert verify(bench.program()) is None
