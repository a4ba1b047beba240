"""Trips without effect: which masks empty them, what they may carry, and the kinds of numbers that proofs are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.passes.scheduled import Source, interpret
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BF16, BOOL, F16, F32, I32
from tilec.ir.verifier import verify
from tilec.passes import block_tables
from tilec.passes import number_kinds as n
from tilec.passes.idle_trips import NotIdle, proved
from tilec.passes.number_kinds import Number

ATTENTION = """
import std.softmax

kernel k[D = 16, BM = 32, BN = 32](
    q: bf16[H, S, D], k: bf16[H, S, D], v: bf16[H, S, D], doc: i32[S], valid: bool[S], length: i32) -> (o: f32[H, S, D], n: f32[H, S]):
    for h, i in parallel(H, S by BM):
        m = full(f32, -inf, i)
        l = zeros(f32, i)
        acc = zeros(f32, i, D)
        for j in range(0 : min(S, i.stop) by BN):
            seen = doc[i][:, None] == doc[j][None, :]
            s = (q[h, i, :] @ k[h, j, :].T) * 0.25
            STEP
        o[h, i, :] = acc
        n[h, i] = l
"""
SOFTMAX = "m, l, acc = softmax.step((m, l, acc), where(seen, s, -inf), v[h, j, :])"
PLAIN = "l += sum(p, axis=1)\n            acc += p.to(bf16) @ v[h, j, :]"
OWN = """new = maximum(m, max(where(seen, s, -inf), axis=1))
            ref = where(new == -inf, 0.0, new)
            p = WEIGHTS
            l = l * exp(m - ref) + sum(p, axis=1)
            acc = acc * exp(m - ref)[:, None] + p.to(bf16) @ v[h, j, :]
            m = new"""
IDLE = {
    "softmax": SOFTMAX,
    "a mask of rows": SOFTMAX.replace("seen", "valid[i][:, None]"),
    "one mask in another": SOFTMAX.replace("where(seen, s, -inf)", "where(i[:, None] >= j[None, :], where(seen, s, -inf), -inf)"),
    "a mask of exponentials": OWN.replace("WEIGHTS", "where(seen, exp(s - ref[:, None]), 0.0)"),
    "a sigmoid": f"p = where(seen, sigmoid(s), 0.0)\n            {PLAIN}",
    "squares": f"p = where(seen, maximum(s, 0.0) * maximum(s, 0.0), 0.0)\n            {PLAIN}",
}  # fmt: skip
REFUSED = {
    "trips are counted": (f"{SOFTMAX}\n            l += 1.0", "l"),
    "masked scores are 0": (SOFTMAX.replace("-inf", "0.0"), "m"),
    "masked scores are only small": (SOFTMAX.replace("-inf", "-1e30"), "m"),
    "inf - inf": (OWN.replace("WEIGHTS", "exp(where(seen, s, -inf) - new[:, None])").replace("ref = where(new == -inf, 0.0, new)", "ref = new"), "l"),
    "sums shrink": (SOFTMAX + "\n            acc *= 0.5", "acc"),
    "weights of masked elements": (f"p = sigmoid(where(seen, s, 0.0))\n            {PLAIN}", "l"),
    "a product with what may be infinite": (f"p = where(seen, s, 0.0) * exp(s)\n            {PLAIN}", "l"),
    "a maximum has a least value": (SOFTMAX.replace("(m, l", "(maximum(m, -5.0), l"), "m"),
}  # fmt: skip


def found(step: str, folder: Path) -> tuple[Source, t.For]:
    source = Source(ATTENTION.replace("STEP", step), folder)
    (loop,) = (op for op in source.nest.body.ops if isinstance(op, t.For))
    return source, loop


def mask_of(loop: t.For) -> t.Value:
    """The first mask that memory has a part in: of those there are one."""
    wheres = [op for op in loop.body.ops if isinstance(op, t.Elementwise) and op.op == "where"]
    return next(op.args[0] for op in wheres if op.args[0].type.rank == 2)


@pytest.mark.parametrize("name", list(IDLE))
def test_trips_that_are_skipped(name: str, tmp_path: Path) -> None:
    """The program with tables computes the same, in value."""
    source, _ = found(IDLE[name], tmp_path)
    made, reason = block_tables.skipping(source.program, source.nest)
    assert made is not None, reason
    blocks = "valid_blocks_32" if "rows" in name else "doc_blocks_32_32"
    temps = [table.temp for table in made.copies]
    assert temps == [blocks, "v_wild_32"]
    tables = [nest for table in made.copies for nest in table.program.nests]
    program = replace(made.program, nests=(*tables, made.nest))
    verify(program)
    assert any(isinstance(op, t.If) for loop in made.nest.body.ops if isinstance(loop, t.For) for op in loop.body.ops)  # fmt: skip
    sizes = {"H": 1, "S": 90}
    want, got = (interpret(p, sizes, {"length": 50}) for p in (source.program, program))
    for name_ in ("o", "n"):
        assert np.array_equal(want[name_], got[name_], equal_nan=True)


@pytest.mark.parametrize("name", list(REFUSED))
def test_trips_that_have_an_effect(name: str, tmp_path: Path) -> None:
    step, changed = REFUSED[name]
    source, loop = found(step, tmp_path)
    with pytest.raises(NotIdle, match=f"`{changed}`"):
        proved(source.nest, loop, mask_of(loop))
    assert block_tables.skipping(source.program, source.nest)[0] is None


def test_a_second_loop_begins_where_the_first_one_ended(tmp_path: Path) -> None:
    first = "for u in range(S by BN):\n            m, l, acc = softmax.step((m, l, acc), q[h, i, :] @ k[h, u, :].T, v[h, u, :])\n        for j"
    text = ATTENTION.replace("STEP", SOFTMAX).replace("for j", first)
    source = Source(text, tmp_path)
    *_, loop = (op for op in source.nest.body.ops if isinstance(op, t.For))
    assert proved(source.nest, loop, mask_of(loop)).finite
    # of another sum nothing is known in front of the loop
    other = Source(text.replace("for j", "l += n_before[h, i]\n        for j", 1).replace("length: i32", "length: i32, n_before: f32[H, S]"), tmp_path)  # fmt: skip
    *_, loop = (op for op in other.nest.body.ops if isinstance(op, t.For))
    with pytest.raises(NotIdle):
        proved(other.nest, loop, mask_of(loop))


def test_zeros_whose_sign_is_asked_for(tmp_path: Path) -> None:
    """-0 + 0 is 0, which a sum that is divided by shows."""
    text = ATTENTION.replace("STEP", SOFTMAX)
    source = Source(text.replace("= acc\n", "= 1.0 / acc\n"), tmp_path)
    (loop,) = (op for op in source.nest.body.ops if isinstance(op, t.For))
    with pytest.raises(NotIdle, match="divided by"):
        proved(source.nest, loop, mask_of(loop))


def test_places_that_meet_are_no_places(tmp_path: Path) -> None:
    step = "l = max(where(seen, l[:, None] - l[None, :], -inf), axis=1)"
    source = Source(ATTENTION.replace("STEP", step).replace("by BN", "by BM"), tmp_path)
    (loop,) = (op for op in source.nest.body.ops if isinstance(op, t.For))
    with pytest.raises(NotIdle, match="two axes"):
        proved(source.nest, loop, mask_of(loop))


# ---- kinds of numbers

NUMBERS = np.array(
    [-np.inf, -3e38, -1e20, -2.0, -1.0, -0.75, -1e-20, -1e-45, -0.0, 0.0, 1e-45, 1e-20, 0.3, 1.0, 1.5, 80.0, 1e20, 3e38, np.inf, np.nan],
    np.float32,
)  # fmt: skip
UNARY = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "floor": np.floor, "ceil": np.ceil, "round": np.round, "abs": np.abs, "neg": np.negative,
    "sin": np.sin, "cos": np.cos,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def kind(x: np.generic) -> int:
    return n.constant(x.item()).kinds


def test_every_result_is_of_a_kind_that_is_expected() -> None:
    with np.errstate(all="ignore"):
        for name, function in UNARY.items():
            for x in NUMBERS:
                expected = n.elementwise(name, (Number(kind(x)),), F32).kinds
                assert kind(np.float32(function(x))) & expected, (name, x)
        for name, other in BINARY.items():
            for x in NUMBERS:
                for y in NUMBERS:
                    result = other(x, y)
                    expected = n.elementwise(name, (Number(kind(x)), Number(kind(y))), F32).kinds
                    assert kind(result) & expected, (name, x, y)
        for dtype, stored in ((F16, np.float16), (F32, np.float32), (I32, np.int32)):
            for x in NUMBERS[np.isfinite(NUMBERS)] if dtype is I32 else NUMBERS:
                result = float(x.astype(stored)) if abs(x) < 1e9 or dtype is not I32 else 0.0
                assert n.constant(result).kinds & n.cast(Number(kind(x)), F32, dtype).kinds


def test_exact_results_are_what_was_carried() -> None:
    for one in n.kinds_in(n.FLOATS):
        x = Number(one, same=7)
        zero = n.elementwise("sub", (x, x), F32)
        assert zero.kinds == (n.ZERO if x.is_finite else n.NAN)
        weight = n.elementwise("exp", (zero,), F32)
        assert weight.one is x.is_finite
        scaled = n.elementwise("mul", (x, weight), F32)
        assert (scaled.same == 7) is x.is_finite
        assert n.elementwise("add", (x, Number(n.ZERO)), F32).same == 7
        assert n.elementwise("max", (Number(n.NEG_INF), x), F32).same == 7
        assert n.elementwise("max", (Number(n.NEG), x), F32).same is None
        assert n.cast(x, F32, BF16).same is None and n.cast(x, F32, F32).same == 7
    both = Number(n.BOOLS)
    assert n.elementwise("where", (both, Number(n.POS, 7), Number(n.POS, 8)), F32) == Number(n.POS)
    assert n.elementwise("and", (both, Number(n.FALSE)), BOOL).kinds == n.FALSE


def test_sums_of_elements() -> None:
    parts = [Number(n.POS), Number(n.NAN)]
    assert n.folded("sum", parts, F32, some=True).kinds == n.NAN
    assert n.folded("sum", parts[:1], F32, some=True).kinds == n.POS | n.INF
    assert n.folded("sum", parts[:1], F32, some=False).kinds == n.POS | n.INF | n.ZERO
    assert n.folded("max", [Number(n.NEG_INF)], F32, some=False).kinds == n.NEG_INF
    assert n.folded("sum", [Number(n.NEG | n.POS)], F32, some=True).kinds & n.NAN  # inf and -inf
    assert n.folded("any", [Number(n.FALSE)], BOOL, some=False).kinds == n.FALSE
    assert n.folded("argmax", parts, I32, some=True) == Number(n.INTEGERS)
