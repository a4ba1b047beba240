"""Walks of Kernel IR find what is inside, in order."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import F32, I32
from tilec.ir.kernel_walking import follows, inside, mentions, substituted
from tilec.ir.layouts import blocked
from tilec.ir.symbolic import Sym, Var

AXIS = k.LoopAxis("c", blocked(8, 1, 1, 1), Sym.of(8))


def test_an_outer_node_comes_before_its_inner_ones() -> None:
    left, right = k.Local("left", F32), k.Local("right", F32)
    total = k.Apply("add", (left, k.Apply("neg", (right,), F32)), F32)
    let = k.Let("total", F32, total)
    nodes = [x for x in inside((let, left)) if isinstance(x, k.Op | k.Apply | k.Local)]
    assert nodes == [let, total, left, total.args[1], right, left]
    assert mentions((let,), "right") and not mentions(let, "other")


def test_a_size_follows_an_axis_that_it_names() -> None:
    along = k.Index(Sym.of(Var(AXIS.coordinate, "local")) // 2 + 1, I32)
    other = k.Index(Sym.of(Var("other", "local")) + Sym.of(Var(AXIS.coordinate, "dim")), I32)
    assert follows(k.Let("x", I32, along), AXIS) and not follows((other, AXIS), AXIS)


def test_a_variable_is_another_one_wherever_it_stands() -> None:
    trip, other = Var("j", "trip", 3), Var("j_2", "trip", -1)

    def loop(var: Var) -> tuple[k.Op, ...]:
        let = k.Let("x", I32, k.Index(Sym.of(var) // 2 + Sym.of(Var("j", "trip", 4)), I32))
        return (k.Loop("j_2", k.Literal_(4, I32), (let,)),)

    assert substituted(loop(trip), {trip: Sym.of(other)}) == loop(other)
