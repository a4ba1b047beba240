"""The transformations for engines that work beside each other: which loops they change, and that results stay what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.passes.scheduled import Source, bounds, interpret
from tilec.ir import tile_ir as t
from tilec.passes.schedule import schedule
from tilec.passes.schedule.clone import Numbers
from tilec.passes.schedule.exponent import fold_exponents
from tilec.passes.schedule.order import rows_first
from tilec.passes.schedule.partial import defer_sums
from tilec.passes.uses import all_ops

ATTENTION = """kernel k(q: bf16[S, 32], k: bf16[T, 32], v: bf16[T, 32], scale: f32) -> (o: f32[S, 32], lse: f32[S]):
    require scale > 0.0
    for i in parallel(S by 64):
        m = full(f32, -inf, i)
        l = zeros(f32, i)
        acc = zeros(f32, i, 32)
        for j in range(T by 16):
            s = (q[i, :] @ k[j, :].T) * scale
            m_new = maximum(m, max(s, axis=1))
            ref = where(m_new == -inf, 0.0, m_new)
            p = exp(s - ref[:, None])
            alpha = exp(m - ref)
            l = l * alpha + sum(p, axis=1)
            acc = acc * alpha[:, None] + p.to(bf16) @ v[j, :]
            m = m_new
        o[i, :] = acc / where(l == 0.0, 1.0, l)[:, None]
        lse[i] = m + log(l)
"""
SIZES = [{"S": 70, "T": n} for n in (0, 5, 16, 17, 32, 90)]
"""No trip, one, two, several; whole and in part."""


def changed(*pairs: tuple[str, str], text: str = ATTENTION) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def loops(block: t.Block) -> list[t.For]:
    return [op for op in block.ops if isinstance(op, t.For)]


def within(nest: t.Nest) -> Iterator[t.Op]:
    """All ops of its loops."""
    for loop in loops(nest.body):
        yield from all_ops(loop.body)


# ---- rotation

ROTATED = {
    "attention": ATTENTION,
    "a mask": changed(
        (
            "            m_new =",
            "            s = where(i[:, None] >= j[None, :], s, -inf)\n            m_new =",
        )
    ),
    "no rescale": changed(("acc * alpha[:, None] + ", "acc + ")),
    "two factors": changed(("acc * alpha[:, None] + ", "acc * alpha[:, None] * 0.5 + ")),
    "an idle scalar": changed(
        ("        l = zeros(f32, i)\n", "        l = zeros(f32, i)\n        n = 0\n"),
        ("            m = m_new\n", "            m = m_new\n            n = n + 3\n"),
        ("m + log(l)", "m + log(l) + n.to(f32)"),
    ),
    "bounds of its own": changed(("range(T by 16)", "range(7 : min(T, i.stop - 20) by 16)")),
    "no state but the sum of products": """kernel k(q: bf16[S, 32], k: bf16[T, 32], v: bf16[T, 32], scale: f32) -> o: f32[S, 32]:
    for i in parallel(S by 64):
        acc = full(f32, 2.0, i, 32)
        for j in range(T by 16):
            acc = acc + tanh(q[i, :] @ k[j, :].T).to(bf16) @ v[j, :]
        o[i, :] = acc * scale
""",
    "two later products": """kernel k(q: bf16[S, 32], k: bf16[T, 32], v: bf16[T, 32], scale: f32) -> (o: f32[S, 32], z: f32[S, 32]):
    for i in parallel(S by 64):
        acc = zeros(f32, i, 32)
        more = zeros(f32, i, 32)
        for j in range(T by 16):
            kj = k[j, :]
            p = tanh((q[i, :] @ kj.T) * scale).to(bf16)
            acc = acc + p @ v[j, :]
            more = more * 0.5 + p @ kj
        o[i, :] = acc
        z[i, :] = more
""",
}


@pytest.mark.parametrize("name", list(ROTATED))
def test_a_rotated_loop_computes_the_same(name: str, tmp_path: Path) -> None:
    source = Source(ROTATED[name], tmp_path)
    nest, done = source.rotated()
    assert done
    before, after = loops(source.nest.body)[0], loops(nest.body)[0]
    assert after.trips == before.trips - 1
    # the earliest product of a trip stands in front of the later ones, which read what is carried
    entries = {c.entry.id for c in after.carried}
    dots = [op for op in after.body.ops if isinstance(op, t.Dot)]
    assert dots[0].a.id not in entries and {d.a.id for d in dots[1:]} <= entries
    program = source.with_nest(nest)
    for sizes in SIZES:
        one, other = (interpret(p, sizes, {"scale": 0.25}) for p in (source.program, program))
        for output in one:
            np.testing.assert_array_equal(one[output], other[output], str(sizes))


NOT_ROTATED = {
    "one product": """kernel k(a: bf16[M, K], b: bf16[K, N]) -> c: f32[M, N]:
    for i, j in parallel(M by 64, N by 16):
        acc = zeros(f32, i, j)
        for k in range(K by 16):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
""",
    "the earlier product reads what is carried": changed(
        ("q[i, :] @ k[j, :].T", "(q[i, :] * m[:, None].to(bf16)) @ k[j, :].T")
    ),
    "the work reads the later product's sum": changed(
        ("s = (q[i, :] @ k[j, :].T) * scale", "s = (q[i, :] @ k[j, :].T) * scale + sum(acc, axis=1)[:, None]")
    ),
    "the later product's sum is stored in the loop": changed(
        ("            m = m_new\n", "            m = m_new\n            w[i, :] = acc\n"),
        ("lse: f32[S])", "lse: f32[S], w: f32[S, 32])"),
    ),
    "the later product is no sum": changed(("acc * alpha[:, None] + p.to(bf16) @ v[j, :]", "p.to(bf16) @ v[j, :]")),
    "the sum is no accumulator of its own": changed(
        ("acc = acc * alpha[:, None] + p.to(bf16) @ v[j, :]", "acc = acc * acc + p.to(bf16) @ v[j, :]")
    ),
    "a loop around": changed(
        ("            s = (q[i, :] @ k[j, :].T) * scale\n",
         "            s = zeros(f32, i, j)\n            for n in range(2):\n                s = s + (q[i, :] @ k[j, :].T) * scale\n")
    ),
    "both products read tiles alone": """kernel k(q: bf16[S, 32], k: bf16[T, 32]) -> (o: f32[S, T], z: f32[S, T]):
    for i in parallel(S by 64):
        for j in range(T by 16):
            o[i, j] = q[i, :] @ k[j, :].T
            z[i, j] = (q[i, :] @ k[j, :].T) * 2.0
""",
}  # fmt: skip


@pytest.mark.parametrize("name", list(NOT_ROTATED))
def test_what_is_not_rotated(name: str, tmp_path: Path) -> None:
    source = Source(NOT_ROTATED[name], tmp_path)
    nest, done = source.rotated()
    assert not done and nest.body == source.nest.body


def test_a_subscript_from_memory_is_not_read_for_a_trip_that_is_not_there(tmp_path: Path) -> None:
    paged = changed(
        ("v: bf16[T, 32], scale", "v: bf16[T, 32], page: i32[T], scale"),
        ("            s =", "            at = page[j.start]\n            s ="),
        ("v[j, :]", "v[span(at, 16), :]"),
    )
    assert not Source(paged, tmp_path).rotated()[1]
    sure = changed(
        ("    require scale > 0.0\n", "    require scale > 0.0 and T >= 1\n"), text=paged
    )
    assert Source(sure, tmp_path).rotated()[1]


# ---- exponentials


def folded(text: str, folder: Path) -> tuple[Source, t.Nest, bool]:
    source = Source(text, folder)
    return (source, *fold_exponents(source.program, source.nest, Numbers(source.program.nests)))


FOLDED = {
    "attention": (ATTENTION, True),
    "the factor first": (changed((") * scale\n", ")\n            s = scale * s\n")), True),
    "a factor of unknown sign": (changed(("scale > 0.0", "S > 0")), False),
    "two factors": (changed(("* scale", "* (scale * 0.5)")), True),
    "a number": (changed(("* scale", "* 0.125")), True),
    "a negative number": (changed(("* scale", "* -0.125")), False),
    "a sum": (changed(("* scale", "* scale + 1.5")), True),
    "not a scalar": (changed(("* scale", "* scale - abs(scale * m)[:, None] * 0.0")), False),
    "a finite mask": (
        changed(
            (
                "            m_new =",
                "            s = where(i[:, None] >= j[None, :], s, -1e9)\n            m_new =",
            )
        ),
        True,
    ),
    "a maximum that begins with a number": (
        changed(("full(f32, -inf, i)", "full(f32, -3.0, i)")),
        True,
    ),
}


@pytest.mark.parametrize("name", list(FOLDED))
def test_exponentials_are_folded(name: str, tmp_path: Path) -> None:
    text, in_units = FOLDED[name]
    source, nest, done = folded(text, tmp_path)
    assert done
    found = list(within(nest))
    assert not any(isinstance(op, t.Elementwise) and op.op == "exp" for op in found)
    # a tile's element takes one multiply-add in front of its power of two
    tiles = [op.op for op in found if isinstance(op, t.Elementwise) and op.out.type.rank == 2]
    assert tiles.count("fma") == 1 and tiles.count("exp2") == 1
    scaled = [
        op
        for op in found
        if isinstance(op, t.Elementwise)
        and op.op == "mul"
        and op.out.type.rank == 2
        and any(not v.type.rank for v in op.args)
    ]
    assert bool(scaled) != in_units
    for sizes in SIZES:
        one = interpret(source.program, sizes, {"scale": 0.25})
        other = interpret(source.with_nest(nest), sizes, {"scale": 0.25})
        for output in one:
            np.testing.assert_allclose(one[output], other[output], rtol=1e-5, atol=1e-5)


NOT_FOLDED = {
    "exact mathematics": changed(("    require", "    schedule math = strict\n    require")),
    "no product in the loop": """kernel k(x: f32[S, T]) -> y: f32[S]:
    for i in parallel(S by 64):
        l = zeros(f32, i)
        for j in range(T by 16):
            l = l + sum(exp(x[i, j]), axis=1)
        y[i] = l
""",
    "rows alone": changed(("exp(s - ref[:, None])", "tanh(s - ref[:, None])")),
}


@pytest.mark.parametrize("name", list(NOT_FOLDED))
def test_what_is_not_folded(name: str, tmp_path: Path) -> None:
    source, nest, done = folded(NOT_FOLDED[name], tmp_path)
    assert not done and nest is source.nest


# ---- sums

SUMS: Mapping[str, tuple[str, bool]] = {
    "attention": (ATTENTION, True),
    "no factor": (changed(("l * alpha + sum(p, axis=1)", "l + sum(p, axis=1)")), True),
    "the other way round": (changed(("l * alpha + sum(p, axis=1)", "sum(p, axis=1) + alpha * l")), True),
    "it begins with another number": (changed(("l = zeros(f32, i)", "l = full(f32, 1.0, i)")), True),
    "it is read in the loop": (
        changed(("alpha[:, None] + ", "(alpha + l * 0.0)[:, None] + ")), False,
    ),
    "what is added is read too": (
        changed(("l = l * alpha + sum(p, axis=1)", "t = sum(p, axis=1)\n            l = l * alpha + t"),
                ("m = m_new", "m = m_new + t * 0.0")), False,
    ),
    "it is added twice": (changed(("l * alpha + sum(p, axis=1)", "l + l + sum(p, axis=1)")), False),
    "a maximum": (changed(("l * alpha + sum(p, axis=1)", "maximum(l, max(p, axis=1))")), False),
    "a difference": (changed(("l * alpha + sum(p, axis=1)", "l * alpha - sum(p, axis=1)")), False),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SUMS))
def test_which_sums_stay_with_their_lanes(name: str, tmp_path: Path) -> None:
    text, expected = SUMS[name]
    source = Source(text, tmp_path)
    nest, done = defer_sums(source.nest, Numbers(source.program.nests))
    partial = [op for op in within(nest) if isinstance(op, t.Reduce) and op.partial]
    combined = [op for op in nest.body.ops if isinstance(op, t.Combine)]
    assert done == expected
    assert len(partial) == len(combined) == int(expected)
    if expected:
        (loop,) = loops(nest.body)
        assert combined[0].arg in [c.result for c in loop.carried]


# ---- all of them


TERMS = {
    "a distance": ("s + scale * (j[None, :] - i[:, None]).to(f32)", True),
    "a number of the trip": ("s * (j.start + 1).to(f32)", True),
    "a number of the row": ("s + scale * i[:, None].to(f32)", False),
    "a mask": ("where(j[None, :] % 3 == 0, s, -inf)", False),
    "a mask that is added": ("s + (j[None, :] % 3 == 0).to(f32)", False),
}


@pytest.mark.parametrize("name", list(TERMS))
def test_where_maxima_would_move_in_every_trip_the_loop_runs_backwards(
    name: str, tmp_path: Path
) -> None:
    term, backwards = TERMS[name]
    scores = "            s = (q[i, :] @ k[j, :].T) * scale\n"
    text = changed((scores, f"{scores}            s = {term}\n"))
    source = Source(text, tmp_path)
    steps = schedule(source.program, source.nest).steps
    assert {"rotate", "keep_references"} <= set(steps)
    assert ("backwards" in steps) == backwards


def test_the_steps_of_attention_and_of_a_product(tmp_path: Path) -> None:
    source = Source(ATTENTION, tmp_path)
    steps = schedule(source.program, source.nest).steps
    assert steps == (
        "fold_exponents", "defer_sums", "rotate", "keep_references", "rows_first",
    )  # fmt: skip
    source = Source(NOT_ROTATED["one product"], tmp_path)
    scheduled = schedule(source.program, source.nest)
    assert scheduled.steps == () and scheduled.nest.body == source.nest.body


KEPT = {"attention", "a mask", "two factors", "an idle scalar", "bounds of its own"}
"""Those that go on with a reference of an earlier trip, where there is one scale for all roundings else."""


@pytest.mark.parametrize("name", [*ROTATED])
def test_the_whole_schedule_is_within_the_bounds(name: str, tmp_path: Path) -> None:
    source = Source(ROTATED[name], tmp_path)
    scheduled = schedule(source.program, source.nest)
    assert "rotate" in scheduled.steps
    assert ("keep_references" in scheduled.steps) == (name in KEPT)
    program = source.with_nest(scheduled.nest)
    for sizes in SIZES:
        found = interpret(program, sizes, {"scale": 0.25})
        for output, (value, bound) in bounds(source.program, sizes, {"scale": 0.25}).items():
            same = (value == found[output]) | (np.isnan(value) & np.isnan(found[output]))
            with np.errstate(invalid="ignore"):
                assert (same | (np.abs(value - found[output]) <= bound)).all(), (sizes, output)


@pytest.mark.parametrize("name", [*ROTATED])
def test_the_schedule_with_one_scale_computes_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(ROTATED[name], tmp_path)
    monkeypatch.setattr("tilec.passes.schedule.run.rescalings", lambda nest: ())
    scheduled = schedule(source.program, source.nest)
    assert "rotate" in scheduled.steps and "keep_references" not in scheduled.steps
    program = source.with_nest(scheduled.nest)
    for sizes in SIZES:
        one, other = (interpret(p, sizes, {"scale": 0.25}) for p in (source.program, program))
        for output in one:
            np.testing.assert_allclose(one[output], other[output], rtol=1e-5, atol=2e-5)


# ---- the order of a body


def test_rows_come_in_front_of_elements(tmp_path: Path) -> None:
    source = Source(ATTENTION, tmp_path)
    numbers = Numbers(source.program.nests)
    nest, _ = fold_exponents(source.program, source.nest, numbers)
    ordered = replace(nest, body=rows_first(nest.body))

    def ranks(nest: t.Nest) -> list[int]:
        powers = [op for op in within(nest) if isinstance(op, t.Elementwise) and op.op == "exp2"]
        return [op.out.type.rank for op in powers]

    assert (ranks(nest), ranks(ordered)) == ([2, 1], [1, 2])
    # a product, a load and a store stay where they are
    fixed = [
        [type(op) for op in within(n) if isinstance(op, t.Load | t.Dot)] for n in (nest, ordered)
    ]
    assert fixed[0] == fixed[1]
    for sizes in SIZES:
        one, other = (
            interpret(source.with_nest(n), sizes, {"scale": 0.25}) for n in (nest, ordered)
        )
        for output in one:
            np.testing.assert_array_equal(one[output], other[output], str(sizes))
