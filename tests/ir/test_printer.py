"""Tile IR as text."""

from __future__ import annotations

from tests.ir.programs import gemm, softmax, vector_add
from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import BOOL, F32, I32
from tilec.ir.printer import format_access, format_host, format_type, print_op, print_program
from tilec.ir.symbolic import Sym, Var


def test_vector_add_reads_as_in_the_docstring() -> None:
    lines = [" ".join(line.split()) for line in print_program(vector_add()).splitlines()]
    assert lines == [
        "kernel vector_add {BN=64}",
        "in a f32[N], b f32[N]",
        "out c f32[N]",
        "nest i.1 < (N + BN - 1) // BN",
        "%1 = load a[span(BN*i.1, BN, 0, N)] f32[BN] present 0: r < -BN*i.1 + N",
        "%2 = load b[span(BN*i.1, BN, 0, N)] f32[BN] present 0: r < -BN*i.1 + N",
        "%3 = add %1 %2 f32[BN] present 0: r < -BN*i.1 + N",
        "store c[span(BN*i.1, BN, 0, N)] = %3",
    ]


def test_loops_name_what_they_carry() -> None:
    text = print_program(gemm())
    assert "for k.3 < (K + BK - 1) // BK" in text
    assert "carry %3 = %2" in text and "next %3 = %6 -> %7" in text
    assert "%6 = dot %4 %5 + %3" in text


def test_bounds_of_dimensions_are_listed() -> None:
    assert "dim C <= 131072" in print_program(softmax())


def test_every_simple_op_has_text() -> None:
    one = ir.Value(1, ir.TileType(F32, (ir.Axis(Sym.of(4), 4),)))
    flag = ir.Value(2, ir.TileType(BOOL))
    out = (ir.Value(3, ir.TileType(F32)),)
    many = (*out, ir.Value(4, ir.TileType(I32)))
    bound = ir.AtSpan(Sym.of(0), Sym.of(4))
    access = ir.Access("t", (ir.AtAll(),))
    texts = [
        print_op(ir.Constant(True, outs=out)),
        print_op(ir.FromSym(Sym.of(3), outs=out)),
        print_op(ir.Scalar("s", outs=out)),
        print_op(ir.Iota(Sym.of(0), None, Sym.of(9), outs=out)),
        print_op(ir.Full(flag, (bound, None), outs=out)),
        print_op(ir.Cast(one, outs=out)),
        print_op(ir.Bitcast(one, outs=out)),
        print_op(ir.Fill(one, flag, outs=out)),
        print_op(ir.Rearrange(one, (None, 0), outs=out)),
        print_op(ir.Reshape(one, outs=out)),
        print_op(ir.Slice(one, (2,), outs=out)),
        print_op(ir.Reduce("max", one, (0,), outs=out)),
        print_op(ir.Scan("sum", one, 0, outs=out)),
        print_op(ir.TopK(one, 0, 2, outs=many)),
        print_op(ir.Dot(one, one, None, "tf32", outs=out)),
        print_op(ir.Atomic("add", access, one)),
        print_op(ir.Assert(flag, "must hold")),
        print_op(ir.Print(("x is", flag))),
    ]
    assert [" ".join(t.split()) for t in texts] == [
        "%3 = constant true f32",
        "%3 = number 3 f32",
        "%3 = scalar s f32",
        "%3 = iota 0 - 9 f32",
        "%3 = full %2 (span(0, 4, -, -), -) f32",
        "%3 = cast %1 f32",
        "%3 = bitcast %1 f32",
        "%3 = fill %1 %2 f32",
        "%3 = rearrange %1 (new, 0) f32",
        "%3 = reshape %1 f32",
        "%3 = slice %1 (2) f32",
        "%3 = reduce max %1 axes (0) f32",
        "%3 = scan sum %1 axis 0 f32",
        "%3, %4 = topk %1 axis 0 k 2 f32 | i32",
        "%3 = dot %1 %1 as tf32 f32",
        "atomic_add t[:] %1",
        'assert %2 "must hold"',
        'print "x is" %2',
    ]


def test_branches_and_reductions_print_their_blocks() -> None:
    value = ir.Value(1, ir.TileType(F32))
    flag = ir.Value(2, ir.TileType(BOOL))
    result = ir.Value(3, ir.TileType(F32))
    constant = ir.Block((ir.Constant(1.0, outs=(value,)),))
    branch = ir.If(flag, constant, constant, (ir.Merge(value, value, result),), outs=(result,))
    region = ir.Region((value, result), ir.Block(), (value,))
    reduction = ir.ReduceWith((value,), 0, region, outs=(result,))
    nest = ir.Nest((), ir.Block((branch, reduction)))
    text = print_program(ir.Program("k", (), (), (), (nest,)))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[1:] == [
        "nest",
        "if %2",
        "%1 = constant 1.0 f32",
        "else",
        "%1 = constant 1.0 f32",
        "merge %3 = %1 else %1 f32",
        "%3 = reduce_with %1 axis 0 f32",
        "combine %1 %3",
        "pass",
        "return %1",
    ]


def test_presence_by_index_tile_and_conditions() -> None:
    axis = ir.Axis(Sym.of(4), 4, (ir.AtLeast(Sym.of(1)), ir.InRange(7, Sym.of(Var("N", "dim")))))
    assert format_type(ir.TileType(F32, (axis,))) == "f32[4]"
    index = ir.Value(7, ir.TileType(I32))
    assert format_access(ir.Access("t", (ir.AtTile(index),), True, "v")) == "v.at[%7]"
    condition = ir.HostOp(
        "and",
        (
            ir.HostOp("==", (Sym.of(Var("K", "dim")) % 8, Sym.of(0))),
            ir.HostOp("not", (ir.HostOp(">", (ir.HostScalar("s"), ir.HostNumber(0.5))),)),
        ),
    )
    assert format_host(condition) == "(((K % 8) == 0) and (not (s > 0.5)))"
