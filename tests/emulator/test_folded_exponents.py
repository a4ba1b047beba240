"""Exponentials beside products as powers of two: numbers far from 1, ties, infinities, NaN, masks, and forms that do not fold."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator.asynchronous import ARCH, Arrays, Program

D, TILE = 64, 64
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
ATTENTION = """kernel k(q: bf16[S, 64], k: bf16[T, 64], v: bf16[T, 64], scale: f32) -> (o: f32[S, 64], lse: f32[S]):
    require {require}
    for i in parallel(S by 64):
        m = full(f32, -inf, i)
        l = full(f32, {begin}, i)
        acc = zeros(f32, i, 64){before}
        for j in range(T by 64):
            s = (q[i, :] @ k[j, :].T) * scale{mask}
            m_new = maximum(m, max(s, axis=1))
            ref = where(m_new == -inf, 0.0, m_new)
            p = exp(s - ref[:, None])
            alpha = exp(m - ref){inside}
            l = l * alpha + sum(p, axis=1)
            acc = acc * alpha[:, None] + p.to(bf16) @ v[j, :]
            m = m_new
        o[i, :] = acc / where(l == 0.0, 1.0, l)[:, None]
        lse[i] = {lse}
"""
PLAIN = """kernel k(q: bf16[S, 64], k: bf16[T, 64], v: bf16[T, 64], scale: f32) -> (o: f32[S, 64], lse: f32[S]):
    require scale > 0.0
    for i in parallel(S by 64):
        l = zeros(f32, i)
        acc = zeros(f32, i, 64)
        for j in range(T by 64):
            s = (q[i, :] @ k[j, :].T) * scale
            p = exp({argument})
            l = l + sum(p, axis=1)
            acc = acc + p.to(bf16) @ v[j, :]
        o[i, :] = acc
        lse[i] = l
"""
S, T = 72, 200
"""Two blocks of rows, four of keys, the last of each a part."""


def attention(**parts: str) -> str:
    given = {
        "require": "scale > 0.0", "begin": "0.0", "before": "", "mask": "", "inside": "",
        "lse": "m + log(l)",
    }  # fmt: skip
    return ATTENTION.format(**{**given, **parts})


@cache
def compiled(text: str, folder: Path) -> Program:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    program = Program(path, arch=folder.name)
    assert bool(program.asynchronous) == (folder.name == ARCH)
    return program


@pytest.fixture(scope="module", params=[ARCH])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for files, named after the architecture: with products of warpgroups. Those of warps have the same ops (`test_kept_references`,
    `test_chained_warps`)."""
    place = tmp_path_factory.mktemp("exponents") / str(request.param)
    place.mkdir()
    return place


def exact(arrays: Arrays) -> None:
    """Small integers of which scores are exact: a query is one element of a key, times a power of two."""
    random = np.random.default_rng(3)
    q, k = arrays["q"], arrays["k"]
    q[:] = 0
    q[np.arange(len(q)), np.arange(len(q)) % D] = 1
    k[:] = random.integers(-9, 10, k.shape)


def weighed(arrays: Arrays, scale: float, mask: Any = None) -> tuple[Any, Any, Any]:
    """Rows' values, log-sums and the sums of magnitudes that a value's rounding is relative to, in float64."""
    q, k, v = (arrays[n].astype(np.float64) for n in "qkv")
    s = q @ k.T * scale
    if mask is not None:
        s = mask(s)
    top = np.maximum(s.max(axis=1), -1e300)
    p = np.exp(s - top[:, None])
    total = p.sum(axis=1)
    with np.errstate(divide="ignore"):
        lse = top + np.log(total)
    total = np.where(total == 0, 1, total)[:, None]
    return p @ v / total, lse, p @ np.abs(v) / total


def close(ran: Any, arrays: Arrays, scale: float, mask: Any = None) -> None:
    """Values within the rounding of weights to bf16 (2^-9 each) and some of f32; log-sums within that of their f32 operands."""
    o, lse, size = weighed(arrays, scale, mask=mask)
    np.testing.assert_array_less(np.abs(ran.outputs["o"] - o), size * 2.0**-8 + 1e-30)
    np.testing.assert_allclose(ran.outputs["lse"], lse, rtol=2.0**-22, atol=2.0**-18)


def run(
    program: Program, change: Any, scale: float = 0.125, module: Any = None
) -> tuple[Any, Arrays]:
    """A call in every order, compared with the interpreter; its inputs."""
    kept: Arrays = {}

    def both(arrays: Arrays) -> None:
        change(arrays)
        kept.update(arrays)

    return program.run({"S": S, "T": T, "scale": scale}, both, module=module), kept


@pytest.mark.parametrize("power", [0, 10, 26, 29, 31, 33, 100, -20])
def test_rows_of_any_magnitude(power: int, folder: Path) -> None:
    def change(arrays: Arrays) -> None:
        exact(arrays)
        # rows of the size of 1 between them
        q = arrays["q"]
        q[::3] = (q[::3].astype(np.float64) * 2.0**power).astype(q.dtype)
        q[1::3] = (q[1::3].astype(np.float64) * -(2.0**power)).astype(q.dtype)

    close(*run(compiled(attention(), folder), change), 0.125)


@pytest.mark.parametrize("first", [0, 70, 130])
def test_ties_of_the_maximum_across_blocks(first: int, folder: Path) -> None:
    def change(arrays: Arrays) -> None:
        exact(arrays)
        arrays["q"][::3] *= 2**12
        arrays["k"][first] = arrays["k"][199] = 40

    close(*run(compiled(attention(), folder), change), 0.125)


@pytest.mark.parametrize("power", [24, 30, 33, 60])
def test_neighbouring_numbers_are_maxima_of_different_blocks(power: int, folder: Path) -> None:
    """Where their multiples in bits are rounded to one number, the smaller still weighs nothing."""

    def change(arrays: Arrays) -> None:
        q, k = arrays["q"], arrays["k"]
        q[:], k[:] = 0, 0
        # neighbours in f32: a bf16 number, and the same with 1 added to the last of 24 bits
        q[:, 0] = ((1 + np.arange(S) % 128 / 128) * 2.0**power).astype(q.dtype)
        q[:, 1] = 2.0 ** (power - 23)
        k[:, 0] = -1
        k[3] = k[150] = 0
        k[3, 0] = k[150, 0] = 1
        k[150, 1] = 1

    close(*run(compiled(attention(), folder), change), 0.125)


@pytest.mark.skipif("fma" not in CPU, reason="no multiply-add on this machine")
@pytest.mark.parametrize("power", [0, 12, 20, 24, 26, 33])
def test_a_maximum_of_many_blocks_where_sums_are_contracted(power: int, folder: Path) -> None:
    """The maximum of the first block is that of all: what is behind it counts as it is, however many blocks there are."""

    def change(arrays: Arrays) -> None:
        q, k = arrays["q"], arrays["k"]
        q[:], k[:] = 0, -1
        q[:, 0] = ((1 + np.arange(S) % 128 / 128) * 2.0**power).astype(q.dtype)
        k[5, 0] = k[100, 0] = k[180, 0] = k[199, 0] = 1

    program = compiled(attention(), folder)
    close(*run(program, change, module=program.contracted()), 0.125)


def test_infinities_and_nan_stay_in_their_rows(folder: Path) -> None:
    def change(arrays: Arrays) -> None:
        exact(arrays)
        q, k = arrays["q"], arrays["k"]
        k[:, :4] = np.abs(k[:, :4].astype(np.float32)).astype(k.dtype) + 1
        q[:8] = 0
        q[0, 0], q[1, 1], q[2, 2] = np.inf, np.nan, -np.inf
        q[70, 3] = np.inf

    ran, _arrays = run(compiled(attention(), folder), change)
    o, lse = ran.outputs["o"], ran.outputs["lse"]
    spoilt = np.isin(np.arange(S), (0, 1, 70))
    assert (o[2] == 0).all() and lse[2] == -np.inf
    lse[2] = 0
    assert np.isnan(o[spoilt]).all() and np.isnan(lse[spoilt]).all()
    assert np.isfinite(o[~spoilt]).all() and np.isfinite(lse[~spoilt]).all()


def test_infinite_scores(folder: Path) -> None:
    """A score of +inf makes its row NaN, as in NumPy; rows of -inf alone are 0."""

    def change(arrays: Arrays) -> None:
        q, k = arrays["q"], arrays["k"]
        q[:], k[:] = 3e38, 1
        k[100] = 1e-38
        q[1::2] = -3e38

    ran, _ = run(compiled(attention(), folder), change)
    o, lse = ran.outputs["o"], ran.outputs["lse"]
    assert np.isnan(o[::2]).all() and np.isnan(lse[::2]).all()
    assert np.isfinite(o[1::2]).all() and np.isfinite(lse[1::2]).all()


MASKS = {"-inf": -np.inf, "-1e9": -1e9, "-1e30": -1e30}


@pytest.mark.parametrize("constant", list(MASKS))
def test_masks_with_rows_that_see_nothing(constant: str, folder: Path) -> None:
    text = attention(mask=f"\n            s = where(i[:, None] - 30 >= j[None, :], s, {constant})")
    ran, arrays = run(compiled(text, folder), exact)

    def mask(s: Any) -> Any:
        seen = np.arange(S)[:, None] - 30 >= np.arange(T)[None, :]
        return np.where(seen, s, MASKS[constant])

    close(ran, arrays, 0.125, mask)
    if constant == "-inf":
        assert (ran.outputs["o"][:30] == 0).all() and (ran.outputs["lse"][:30] == -np.inf).all()
    else:
        mean = arrays["v"].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(ran.outputs["o"][:30], np.tile(mean, (30, 1)), atol=2.0**-8)


@pytest.mark.parametrize("scale", [-0.125, 0.0, 0.125])
def test_a_scale_of_unknown_sign(scale: float, folder: Path) -> None:
    text = attention(require="S > 0")
    close(*run(compiled(text, folder), exact, scale), scale)


ARGUMENTS = {
    "s": lambda s: s,
    "s - 5.0": lambda s: s - 5,
    "5.0 - s": lambda s: 5 - s,
    "s * 0.5": lambda s: s / 2,
    "s - s * 2.0": lambda s: -s,
}


@pytest.mark.parametrize("argument", list(ARGUMENTS))
def test_exponentials_without_a_running_maximum(argument: str, folder: Path) -> None:
    ran, arrays = run(compiled(PLAIN.format(argument=argument), folder), exact)
    q, k, v = (arrays[n].astype(np.float64) for n in "qkv")
    p = np.exp(ARGUMENTS[argument](q @ k.T * 0.125))
    size = p @ np.abs(v)
    np.testing.assert_array_less(np.abs(ran.outputs["o"] - p @ v), size * 2.0**-8)
    np.testing.assert_allclose(ran.outputs["lse"], p.sum(axis=1), rtol=2.0**-17)


@pytest.mark.parametrize("begin", ["1.0", "0.25"])
def test_a_sum_that_does_not_begin_with_0(begin: str, folder: Path) -> None:
    # times alpha of the first trip, which is 0: the maximum before is -inf; so the rows begin with a number
    text = attention(begin=begin).replace("full(f32, -inf, i)", "full(f32, 0.0, i)")
    ran, arrays = run(compiled(text, folder), exact)
    q, k, _v = (arrays[n].astype(np.float64) for n in "qkv")
    p = np.exp(q @ k.T * 0.125)
    expected = np.log(p.sum(axis=1) + float(begin))
    np.testing.assert_allclose(ran.outputs["lse"], expected, rtol=2.0**-18)


ELSEWHERE = {
    "added up": ("w = w + m_new", lambda tops: np.cumsum(tops, axis=1)[:, -1]),
    "compared": (
        "w = w + where(m_new > m, 1.0, 0.0)",
        lambda tops: 1.0 + (np.diff(tops, axis=1) > 0).sum(axis=1),
    ),
    "compared with a number": (
        "w = w + where(m_new > 0.75, 1.0, 0.0)",
        lambda tops: (tops > 0.75).sum(axis=1).astype(np.float64),
    ),
    "the sum of scores": ("w = w + sum(p * s, axis=1)", None),
}


@pytest.mark.parametrize("name", list(ELSEWHERE))
def test_the_maximum_is_used_elsewhere(name: str, folder: Path) -> None:
    statement, expected = ELSEWHERE[name]
    text = attention(
        before="\n        w = zeros(f32, i)", inside=f"\n            {statement}", lse="w"
    )
    ran, arrays = run(compiled(text, folder), exact)
    s = arrays["q"].astype(np.float64) @ arrays["k"].astype(np.float64).T * 0.125
    tops = np.stack([s[:, :n].max(axis=1) for n in (64, 128, 192, 200)], axis=1)
    if expected is None:
        wanted = np.zeros(S)
        for n, at in enumerate(range(0, T, TILE)):
            part = s[:, at : at + TILE]
            wanted += (np.exp(part - tops[:, n : n + 1]) * part).sum(axis=1)
        np.testing.assert_allclose(ran.outputs["lse"], wanted, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(ran.outputs["lse"], expected(tops))


@pytest.mark.parametrize("power", [0, 33, 100])
def test_scores_that_others_read_are_the_scores(power: int, folder: Path) -> None:
    # far from 0 a row's reference is subtracted for its exponentials, and for nothing else
    def change(arrays: Arrays) -> None:
        exact(arrays)
        q = arrays["q"]
        q[::2] = (q[::2].astype(np.float64) * 2.0**power).astype(q.dtype)

    text = attention(
        before="\n        w = zeros(f32, i)",
        inside="\n            w = w + sum(where(s > 0.0, 1.0, 0.0), axis=1)",
        lse="w",
    )
    program = compiled(text, folder)
    assert "any_lane(" in program.file.cu
    ran, arrays = run(program, change)
    s = arrays["q"].astype(np.float64) @ arrays["k"].astype(np.float64).T
    np.testing.assert_array_equal(ran.outputs["lse"], (s > 0).sum(axis=1))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("column", [0, 5, 66, 199])
def test_one_element_takes_its_row_far(column: int, sign: int, folder: Path) -> None:
    """A vote on what each thread holds sees what the maximum of the whole row will be, whichever lane holds it."""

    def change(arrays: Arrays) -> None:
        q, k = arrays["q"], arrays["k"]
        q[:] = 0
        q[:, 0] = 1
        k[:] = 0
        k[:, 0] = -(2.0**60) if sign < 0 else 0
        k[column, 0] = sign * 2.0**40

    ran, arrays = run(compiled(attention(), folder), change)
    v = arrays["v"].astype(np.float64)
    wanted = np.broadcast_to(v[column], ran.outputs["o"].shape)
    np.testing.assert_allclose(ran.outputs["o"], wanted, rtol=2.0**-8, atol=1e-30)


def test_warps_vote_before_lanes_exchange(folder: Path) -> None:
    text = compiled(attention(), folder).file.cu
    begins = {ARCH: "for (int j_tile", "sm_80": "= OpMax<float>::identity()"}
    body = text[text.index(begins[folder.name]) :]
    assert body.index("= any_lane(") < body.index("lane_reduce<OpMax") < body.index("seldom();")
    # the usual factor stands in front of the branch, the other one in it
    assert body.index("] = in_bits;") < body.index("seldom();") < body.index("? s_2 : in_bits;")


@pytest.mark.parametrize("keys", [1, 63, 64, 65, 128])
def test_a_whole_first_tile_passes_its_masks_by(keys: int, folder: Path) -> None:
    program = compiled(attention(), folder)
    text = program.file.cu
    if folder.name == ARCH:  # warps have no registers for a branch around them
        first = text[text.index("if (T - 64 >= 0) {") :]
        whole, masked = first[: first.index("any_far")].split("} else {")
        assert "-INFINITY" not in whole and "-INFINITY" in masked
    kept: Arrays = {}

    def change(arrays: Arrays) -> None:
        exact(arrays)
        kept.update(arrays)

    ran = program.run({"S": S, "T": keys, "scale": 0.125}, change)
    close(ran, kept, 0.125)


def test_rows_are_divided_by_once(tmp_path: Path) -> None:
    """A quotient by what a row has in common is as close as any, over the full range of float32."""
    text = """kernel k(a: bf16[M, 64], b: bf16[64, N], d: f32[M]) -> c: f32[M, N]:
    for i, j in parallel(M by 64, N by 64):
        acc = zeros(f32, i, j)
        w = full(f32, inf, i)
        for k in range(64 by 64):
            acc += a[i, k] @ b[k, j]
            w = minimum(w, d[i])
        c[i, j] = acc / where(w == 0.0, 1.0, w)[:, None]
"""
    (tmp_path / "k.tile").write_text(text, encoding="utf-8")
    program = Program(tmp_path / "k.tile")
    assert "divisor_reciprocal(" in program.file.cu
    kept: Arrays = {}

    def change(arrays: Arrays) -> None:
        random = np.random.default_rng(11)
        arrays["a"][:] = random.integers(-3, 4, arrays["a"].shape)
        arrays["b"][:] = random.integers(-3, 4, arrays["b"].shape)
        sizes = np.float32(2.0) ** random.integers(-120, 120, arrays["d"].shape).astype(np.float32)
        arrays["d"][:] = sizes * random.choice(np.array([1, -1.5, 1.25], np.float32), sizes.shape)
        arrays["d"][:4] = [0, 2.0**-130, -3e38, 1.0]
        kept.update(arrays)

    ran = program.run({"M": 70, "N": 66}, change)
    a, b, d = (kept[n].astype(np.float64) for n in "abd")
    with np.errstate(over="ignore"):
        wanted = (a @ b / np.where(d == 0, 1, d)[:, None]).astype(np.float32)
    step = np.spacing(np.maximum(np.abs(wanted), np.float32(2.0**-126)))
    found = ran.outputs["c"]
    finite = np.isfinite(wanted)
    assert (np.abs(found[finite] - wanted[finite]) <= 3 * step[finite]).all()
    assert (found[~finite] == wanted[~finite]).all()
