"""Axes, accesses, structure and faults of Tile IR against NumPy written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.programs import Bench, Builder, axis, vector_add
from tests.reference.running import execute, partial
from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import BF16, BOOL, F32, I32, U4, DType
from tilec.ir.symbolic import Sym, Var
from tilec.ir.verifier import verify
from tilec.reference.interpreter import Instance, Interpreter
from tilec.reference.numbers import array_shape, storage_dtype, unpack
from tilec.source.diagnostics import TileError

Array = np.ndarray[Any, Any]


# ---- moving axes


def test_axes_move_with_their_presence() -> None:
    bench, x, data = partial()
    moved = bench.build.value(F32, x.type.axes[1], 1, x.type.axes[0])
    turned = bench.build.add(ir.Rearrange(x, (1, None, 0), outs=(moved,)))
    bench.output("y", turned)
    found = execute(bench, {"x": data})["y"]
    np.testing.assert_array_equal(found[:5, 0, :3], data.T)
    assert (found[5:] == 1).all() and (found[:, :, 3] == 1).all()


def test_reshape_keeps_whole_axes() -> None:
    bench = Bench()
    x = bench.spanned("x", F32, (3, 4), (4, 4))
    rows = axis(4, ir.Below(Sym.of(3)))
    flat = bench.build.value(F32, rows, 2, 2)
    bench.output("y", bench.build.add(ir.Reshape(x, outs=(flat,))))
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = execute(bench, {"x": data})["y"]
    np.testing.assert_array_equal(found[:3], data.reshape(3, 2, 2))
    assert (found[3] == 1).all()


def test_slices() -> None:
    bench, x, data = partial()
    cut = bench.build.value(F32, x.type.axes[0], axis(4, ir.Below(Sym.of(3))))
    bench.output("y", bench.build.add(ir.Slice(x, (0, 2), outs=(cut,))))
    found = execute(bench, {"x": data})["y"]
    np.testing.assert_array_equal(found[:3, :3], data[:, 2:])
    assert (found[:, 3] == 1).all()


def test_spans_as_values_and_fills() -> None:
    bench = Bench()
    present = axis(4, ir.AtLeast(Sym.of(1)), ir.Below(Sym.of(3)))
    iota = ir.Iota(Sym.of(-2), Sym.of(-1), Sym.of(1), outs=(bench.build.value(I32, present),))
    bench.output("i", bench.build.add(iota))
    two = bench.build.add(ir.FromSym(Sym.of(2), outs=(bench.build.value(F32),)))
    bound = ir.AtSpan(Sym.of(0), Sym.of(4), Sym.of(0), Sym.of(2))
    value = bench.build.value(F32, axis(4, ir.Below(Sym.of(2))), 2)
    bench.output("f", bench.build.add(ir.Full(two, (bound, None), outs=(value,))))
    found = execute(bench, {})
    assert found["i"].tolist() == [1, -1, 0, 1]
    assert found["f"].tolist() == [[2, 2], [2, 2], [1, 1], [1, 1]]


# ---- accesses


def test_gathers_and_scatters_skip_what_is_out_of_range() -> None:
    bench = Bench()
    index = bench.input("i", I32, 4)
    bench.tensors.append(ir.Tensor("x", F32, (Sym.of(3), Sym.of(2)), "input"))
    rows = axis(4, ir.InRange(index.id, Sym.of(3)))
    load = ir.Load(
        ir.Access("x", (ir.AtTile(index), ir.AtAll())), outs=(bench.build.value(F32, rows, 2),)
    )
    picked = bench.build.add(load)
    bench.output("y", picked)
    bench.tensors.append(ir.Tensor("z", F32, (Sym.of(3), Sym.of(2)), "output"))
    bench.build.ops.append(ir.Store(ir.Access("z", (ir.AtTile(index), ir.AtAll())), picked))
    data = np.arange(2, 8, dtype=np.float32).reshape(3, 2)
    found = execute(bench, {"i": np.array([2, -1, 3, 0], np.int32), "x": data})
    assert found["y"].tolist() == [[6, 7], [1, 1], [1, 1], [2, 3]]
    assert found["z"].tolist() == [[2, 3], [1, 1], [6, 7]]


def test_pointwise_access_is_zero_out_of_range_and_absent_with_one_axis() -> None:
    bench = Bench()
    i, j = bench.input("i", I32, 3, 1), bench.input("j", I32, 1, 2)
    k = bench.input("k", I32, 3)
    bench.tensors.append(ir.Tensor("x", F32, (Sym.of(3), Sym.of(2)), "input"))
    two = ir.Access("x", (ir.AtTile(i), ir.AtTile(j)), True)
    bench.output("y", bench.build.add(ir.Load(two, outs=(bench.build.value(F32, 3, 2),))))
    bench.tensors.append(ir.Tensor("v", F32, (Sym.of(4),), "input"))
    one = ir.Access("v", (ir.AtTile(k),), True)
    part = bench.build.value(F32, axis(3, ir.InRange(k.id, Sym.of(4))))
    loaded = bench.build.add(ir.Load(one, outs=(part,)))
    bench.output("z", loaded)
    bench.tensors.append(ir.Tensor("w", F32, (Sym.of(4),), "output"))
    bench.build.ops.append(ir.Store(ir.Access("w", (ir.AtTile(k),), True), loaded))
    found = execute(
        bench,
        {
            "i": np.array([[0], [2], [5]], np.int32),
            "j": np.array([[1, -1]], np.int32),
            "k": np.array([3, 4, 0], np.int32),
            "x": np.arange(2, 8, dtype=np.float32).reshape(3, 2),
            "v": np.arange(2, 6, dtype=np.float32),
        },
    )
    assert found["y"].tolist() == [[3, 0], [7, 0], [0, 0]]
    assert found["z"].tolist() == [5, 1, 2]
    assert found["w"].tolist() == [2, 1, 1, 5]


@pytest.mark.parametrize("dtype", [F32, I32, BF16, U4])
def test_atomics_add_equal_coordinates_once_each(dtype: DType) -> None:
    bench = Bench()
    index = bench.input("i", I32, 4)
    bench.tensors.append(ir.Tensor("y", dtype, (Sym.of(2),), "inout"))
    one = bench.build.add(
        ir.Constant(1 if dtype.is_integer else 1.0, outs=(bench.build.value(dtype),))
    )
    whole = bench.build.add(ir.Full(one, outs=(bench.build.value(dtype, 4),)))
    bench.build.ops.append(ir.Atomic("add", ir.Access("y", (ir.AtTile(index),)), whole))
    out = np.zeros(array_shape((2,), dtype), storage_dtype(dtype))
    Interpreter(bench.program(), {}, {"i": np.array([1, 1, -5, 0], np.int32), "y": out}).run()
    wide = unpack(out, (2,), dtype) if dtype == U4 else out.astype(np.float64)
    assert wide.tolist() == [1, 2]


def test_atomic_extremes() -> None:
    bench = Bench()
    x = bench.input("x", F32, 3)
    for op in ("max", "min"):
        bench.tensors.append(ir.Tensor(op, F32, (Sym.of(3),), "inout"))
        bench.build.ops.append(ir.Atomic(op, ir.Access(op, (ir.AtAll(),)), x))
    arrays = {n: np.zeros(3, np.float32) for n in ("max", "min")}
    Interpreter(bench.program(), {}, {"x": np.array([1, -2, 3], np.float32), **arrays}).run()
    assert arrays["max"].tolist() == [1, 0, 3] and arrays["min"].tolist() == [0, -2, 0]


def test_strides_and_views() -> None:
    build = Builder()
    strided = ir.Tensor("x", F32, (Sym.of(2), Sym.of(3)), "input", (Sym.of(1), Sym.of(4)))
    dense = ir.Tensor("d", F32, (Sym.of(6),), "input")
    out = ir.Tensor("y", F32, (Sym.of(2), Sym.of(3)), "output", (Sym.of(5), Sym.of(1)))
    view = ir.View("v", "d", (Sym.of(2), Sym.of(3)))
    whole = (ir.AtAll(), ir.AtAll())
    a = build.add(ir.Load(ir.Access("x", whole), outs=(build.value(F32, 2, 3),)))
    b = build.add(ir.Load(ir.Access("d", whole, view="v"), outs=(build.value(F32, 2, 3),)))
    c = build.add(ir.Elementwise("add", (a, b), outs=(build.value(F32, 2, 3),)))
    build.ops.append(ir.Store(ir.Access("y", whole), c))
    program = ir.Program("k", (strided, dense, out), (), (), (ir.Nest((), build.block()),), (view,))
    verify(program)
    flat = np.arange(10, dtype=np.float32)
    y = np.full(8, -1, np.float32)
    arrays = {"x": flat, "d": np.arange(6, dtype=np.float32) * 100, "y": y}
    Interpreter(program, {}, arrays).run()
    assert y.tolist() == [0, 104, 208, -1, -1, 301, 405, 509]


# ---- structure and faults


def counted(trips: Sym) -> ir.Program:
    """A loop that adds 1."""
    bench = Bench()
    build = bench.build
    start = build.add(ir.Constant(0.0, outs=(build.value(F32),)))
    one = build.add(ir.Constant(1.0, outs=(build.value(F32),)))
    before, build.ops = build.ops, []
    entry, result = build.value(F32), build.value(F32)
    after = build.add(ir.Elementwise("add", (entry, one), outs=(build.value(F32),)))
    body = build.block()
    build.ops = before
    loop = ir.For(
        "t",
        Var("t", "trip", 1),
        trips,
        (ir.Carried(start, entry, after, result),),
        body,
        outs=(result,),
    )
    build.ops.append(loop)
    bench.output("y", result)
    program = bench.program()
    return ir.Program("k", program.tensors, (), (Var("N", "dim"),), program.nests)


@pytest.mark.parametrize(("size", "count"), [(5, 5), (0, 0), (-3, 0)])
def test_loops_run_their_trips(size: int, count: int) -> None:
    program = counted(Sym.of(Var("N", "dim")))
    verify(program)
    y = np.full((), -1, np.float32)
    Interpreter(program, {"N": size}, {"y": y}).run()
    assert y == count


@pytest.mark.parametrize("flag", [True, False])
def test_branches(flag: bool) -> None:
    bench = Bench()
    build = bench.build
    condition = bench.input("x", BOOL)
    before, build.ops = build.ops, []
    a = build.add(ir.Constant(1.0, outs=(build.value(F32),)))
    then = build.block()
    b = build.add(ir.Constant(2.0, outs=(build.value(F32),)))
    otherwise = build.block()
    build.ops = before
    result = build.value(F32)
    build.ops.append(ir.If(condition, then, otherwise, (ir.Merge(a, b, result),), outs=(result,)))
    bench.output("y", result)
    assert execute(bench, {"x": np.asarray(flag)})["y"] == (1 if flag else 2)


@pytest.mark.parametrize("present", [0, 1, 5])
def test_reduction_with_a_function(present: int) -> None:
    bench = Bench()
    x = bench.spanned("x", F32, (2, present), (2, 6))
    build = bench.build
    before, build.ops = build.ops, []
    a, b = build.value(F32), build.value(F32)
    two = build.add(ir.Constant(2.0, outs=(build.value(F32),)))
    product = build.add(ir.Elementwise("mul", (a, b), outs=(build.value(F32),)))
    half = build.add(ir.Elementwise("div", (product, two), outs=(build.value(F32),)))
    region = ir.Region((a, b), build.block(), (half,))
    build.ops = before
    out = build.value(F32, 2)
    build.ops.append(ir.ReduceWith((x,), 1, region, outs=(out,)))
    bench.output("y", out)
    data = np.arange(1, 1 + 2 * present, dtype=np.float32).reshape(2, present)
    found = execute(bench, {"x": data})["y"]
    if present:
        np.testing.assert_allclose(found, data.prod(1) / 2.0 ** (present - 1))
    assert found.shape == (2,)


def test_scalar_index_out_of_range_is_a_fault() -> None:
    bench = Bench()
    n = bench.input("n", I32)
    bench.tensors.append(ir.Tensor("x", F32, (Sym.of(3),), "input"))
    index = ir.AtScalar(Sym.of(Var("n", "value", n.id)))
    bench.output(
        "y", bench.build.add(ir.Load(ir.Access("x", (index,)), outs=(bench.build.value(F32),)))
    )
    data = np.arange(3, dtype=np.float32)
    assert execute(bench, {"n": np.asarray(2, np.int32), "x": data})["y"] == 2
    for wrong in (3, -1):
        arrays = {"n": np.asarray(wrong, np.int32), "x": data, "y": np.zeros((), np.float32)}
        with pytest.raises(TileError) as caught:
            Interpreter(
                ir.Program(
                    "k", tuple(bench.tensors), (), (), (ir.Nest((), ir.Block(tuple(_ops(bench)))),)
                ),
                {},
                arrays,
            ).run()
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "E0902"
        assert diagnostic.message == f"index {wrong} of dimension 0 of `x` is not in 0 … 2"


def _ops(bench: Bench) -> tuple[ir.Op, ...]:
    """Ops of the program that `bench` has handed out."""
    n = ir.Value(1, ir.TileType(I32))
    out = ir.Value(2, ir.TileType(F32))
    index = ir.AtScalar(Sym.of(Var("n", "value", 1)))
    return (
        ir.Load(ir.Access("n", ()), outs=(n,)),
        ir.Load(ir.Access("x", (index,)), outs=(out,)),
        ir.Store(ir.Access("y", ()), out),
    )


def test_assertions_and_prints() -> None:
    bench = Bench()
    flag = bench.input("x", BOOL)
    bench.build.ops += [ir.Print(("flag is", flag)), ir.Assert(flag, "it holds")]
    program = bench.program()
    lines: list[str] = []
    Interpreter(program, {}, {"x": np.asarray(True)}, write=lines.append).run()
    assert lines == ["flag is True"]
    with pytest.raises(TileError, match="assertion failed: it holds") as caught:
        Interpreter(program, {}, {"x": np.asarray(False)}, write=lines.append).run()
    assert caught.value.diagnostics[0].code == "E0903"


def test_scalars_have_a_default_or_a_value() -> None:
    bench = Bench()
    value = bench.build.add(ir.Scalar("s", outs=(bench.build.value(F32),)))
    bench.output("y", value)
    program = bench.program((ir.ScalarInput("s", F32),))
    y = np.zeros((), np.float32)
    with pytest.raises(TileError) as caught:
        Interpreter(program, {}, {"y": y})
    assert caught.value.diagnostics[0].code == "E0730"
    Interpreter(program, {}, {"y": y}, {"s": 0.1}).run()
    assert y == np.float32(0.1)


def test_arguments_that_do_not_fit() -> None:
    program = vector_add()
    good = {n: np.zeros(5, np.float32) for n in "abc"}
    for change, text in (
        ({"a": np.zeros(5)}, "element type float64"),
        ({"a": np.zeros(6, np.float32)}, "shape (6,), not (5,)"),
    ):
        with pytest.raises(TileError) as caught:
            Interpreter(program, {"N": 5}, {**good, **change})
        assert caught.value.diagnostics[0].code == "E0904"
        assert text in caught.value.diagnostics[0].message
    with pytest.raises(TileError) as caught:
        Interpreter(program, {"N": 5}, {"a": good["a"], "b": good["b"]})
    assert caught.value.diagnostics[0].code == "E0904"
    with pytest.raises(TileError) as caught:
        Interpreter(program, {}, good)
    assert caught.value.diagnostics[0].code == "E0731"


def test_chosen_instances_alone_are_run() -> None:
    program = vector_add(4)
    arrays = {n: np.ones(10, np.float32) for n in "ab"} | {"c": np.zeros(10, np.float32)}
    machine = Interpreter(program, {"N": 10}, arrays)
    assert machine.grid(0) == (3,)
    machine.run([Instance(0, (2,))])
    assert arrays["c"].tolist() == [0] * 8 + [2, 2]
