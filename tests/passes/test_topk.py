"""`topk` in rounds: the interpreter gives the same for them as for the op, NaN, zeros of both signs, ties and absent elements included."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.analysis.programs import ops, program
from tests.analysis.test_samples import run_and_compare
from tilec.ir import tile_ir as t
from tilec.ir.verifier import verify
from tilec.passes import topk

ROWS = """kernel k(x: {t}[R, C]) -> (v: {t}[R, {k}], p: i32[R, {k}]):
    require C <= 40
    for r in parallel(R):
        a, b = topk(x[r, :], {k}, axis=0)
        v[r, :] = a
        p[r, :] = b
"""
BLOCKS = """kernel k[B = 4](x: {t}[R, C]) -> (v: {t}[R, {k}], p: i32[R, {k}], w: {t}[{k}, C], q: i32[{k}, C]):
    require C <= 40
    for r in parallel(R by B):
        a, b = topk(x[r, :], {k}, axis=1)
        v[r, :] = a
        p[r, :] = b
    for n in parallel(1):
        rows = x[span(0, 8), :]
        a, b = topk(rows, {k}, axis=0)
        w[:, :] = a
        q[:, :] = b
"""
TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
}


def elements(dtype: str, rows: int, columns: int) -> Any:
    """Few different numbers, so that most are equal to others, and the ends of the type."""
    random = np.random.default_rng(rows * 100 + columns)
    kind = np.dtype(TYPES[dtype])
    if dtype[0] in "iu":
        ends = np.iinfo(kind)
        choices = np.array([ends.min, ends.min, ends.max, 0, 1, 7, ends.max - 1], kind)
    else:
        choices = np.array([-np.inf, np.nan, -0.0, 0.0, np.inf, 1.5, -2.0, -np.inf], np.float32)
        choices = choices.astype(kind)
    return choices[random.integers(0, len(choices), (rows, columns))]


def bits(array: Any) -> Any:
    """For a comparison in which -0 is not 0 and every NaN is one."""
    array = np.asarray(array)
    if array.dtype.kind in "iu":
        return array
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), np.float64(np.nan), wide).view(np.int64)


def check(text: str, x: Any, sizes: dict[str, int]) -> None:
    original = program(text)
    rewritten = topk.run(original)
    verify(rewritten)
    found = [op for nest in rewritten.nests for op in ops(nest.body)]
    assert not any(isinstance(op, t.TopK) for op in found)
    _, wanted = run_and_compare(original, sizes, {"x": x.copy()})
    compared, arrays = run_and_compare(rewritten, sizes, {"x": x.copy()})
    assert compared > 0
    for name, array in arrays.items():
        np.testing.assert_array_equal(bits(array), bits(wanted[name]), name)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("text", [ROWS, BLOCKS])
def test_rounds_are_topk(dtype: str, text: str) -> None:
    for rows, columns in ((5, 40), (8, 7), (3, 3), (1, 1)):
        x = elements(dtype, rows, columns)
        check(text.format(t=dtype, k=6), x, {"R": rows, "C": columns})


def test_fewer_than_k_are_followed_by_the_least_value_at_no_place() -> None:
    x = np.array([[2.0, np.nan, -np.inf]], np.float32)
    _, found = run_and_compare(
        topk.run(program(ROWS.format(t="f32", k=5))), {"R": 1, "C": 3}, {"x": x}
    )
    np.testing.assert_array_equal(found["v"], [[np.nan, 2.0, -np.inf, -np.inf, -np.inf]])
    assert found["p"].tolist() == [[1, 0, 2, -1, -1]]


def test_nothing_of_what_was_taken_is_kept() -> None:
    """A round carries one number a row beside the result: no tile as long as the axis."""
    rewritten = topk.run(program(ROWS.format(t="bf16", k=8)))
    (loop,) = (op for op in ops(rewritten.nests[0].body) if isinstance(op, t.For))
    assert [str(c.entry.type.dtype) for c in loop.carried] == ["i64", "i64"]
    assert [c.entry.type.rank for c in loop.carried] == [0, 1]
    assert sum(isinstance(op, t.Reduce) for op in loop.body.ops) == 1
