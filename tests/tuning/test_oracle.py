"""The intervals that candidates are verified against."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilec.compiler import analyse_file
from tilec.reference.inputs import make_inputs
from tilec.runtime import verify
from tilec.runtime.arguments import CallSizes
from tilec.runtime.arrays import empty_array
from tilec.runtime.verify import Case, Tolerance, interpreted
from tilec.source.diagnostics import TileError
from tilec.tuning import oracle
from tilec.tuning.oracle import load_oracle, prepare_oracle
from tilec.tuning.worker import chosen_case

GEMM = """\
kernel gemm[BM = 16, BN = 16, BK = 16](a: {T}[M, K], b: {T}[K, N]) -> c: {T}[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros({A}, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc{C}
    {check}
"""


def case_of(text: str, **dims: int) -> Case:
    Path("a.tile").write_text(text)
    files, (item,), _ = analyse_file("a.tile")
    sizes = CallSizes(dims)
    arrays = make_inputs(item.program, dims, {}, 0)
    return Case(item.program, files, item.syntax, sizes, arrays)


def gemm(
    dtype: str = "bf16", accumulator: str = "f32", check: str = "check c == a @ b", cast: str = ""
) -> Case:
    text = (
        GEMM.replace("{T}", dtype)
        .replace("{A}", accumulator)
        .replace("{C}", cast)
        .replace("{check}", check)
    )
    return case_of(text, M=40, N=24, K=33)


def right(case: Case) -> dict[str, Any]:
    outputs = {t.name: empty_array(t, case.sizes.environment) for t in case.written}
    interpreted(case, outputs)
    return outputs


@pytest.fixture(autouse=True)
def here(folder: Path) -> Path:
    return folder


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_what_the_interpreter_computes_is_right_and_a_far_element_is_not(dtype: str) -> None:
    case = gemm(dtype)
    judge = prepare_oracle(case, Tolerance()).judge
    outputs = right(case)
    assert judge(outputs) == ""
    outputs["c"][7, 5] += 4
    assert judge(outputs).startswith("1 of 960 elements of `c` are wrong; the first is [7, 5]")
    outputs["c"][7, 5] = np.nan
    assert "nan" in judge(outputs)


def test_integers_are_exact() -> None:
    case = gemm("i8", "i32", check="check c == (a @ b).to(i8)", cast=".to(i8)")
    judge = prepare_oracle(case, Tolerance()).judge
    outputs = right(case)
    assert judge(outputs) == ""
    outputs["c"][0, 0] += 1
    assert judge(outputs) != ""


def test_nan_and_infinities_must_be_where_they_are() -> None:
    text = "kernel logs(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 8):\n        y[i] = log(x[i])\n    check y == log(x)\n"
    case = case_of(text, N=16)
    case.arrays["x"][:4] = [-1.0, 0.0, np.inf, 1.0]
    judge = prepare_oracle(case, Tolerance()).judge
    outputs = right(case)
    assert np.isnan(outputs["y"][0])
    assert judge(outputs) == ""
    for place, value in ((0, 0.0), (1, 1.0), (2, 1e30), (3, np.nan)):
        wrong = {"y": outputs["y"].copy()}
        wrong["y"][place] = value
        assert judge(wrong) != ""


def test_elements_outside_of_the_sample_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = GEMM.replace("{T}", "bf16").replace("{A}", "f32").replace("{C}", "")
    case = case_of(text.replace("{check}", "check c == a @ b"), M=200, N=180, K=33)
    sampled = verify.interpreter_bounds(case, limit=1)
    assert not sampled.complete
    silent = np.argwhere(np.isinf(sampled.errors["c"]))
    assert len(silent) > 1000
    monkeypatch.setattr(oracle, "interpreter_bounds", lambda c: sampled)
    judged = prepare_oracle(case, Tolerance())
    outputs = right(case)
    assert judged.judge(outputs) == ""
    for place in (tuple(silent[0]), tuple(silent[-1]), (0, 0)):
        wrong = {"c": outputs["c"].copy()}
        wrong["c"][place] += 4
        assert judged.judge(wrong) != ""


def test_tolerances_replace_the_bounds() -> None:
    case = gemm()
    outputs = right(case)
    outputs["c"][7, 5] += 4
    assert prepare_oracle(case, Tolerance(atol=5.0)).judge(outputs) == ""
    assert prepare_oracle(case, Tolerance(rtol=0.0)).judge(outputs) != ""


def test_the_next_process_takes_what_the_last_one_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = gemm()
    assert load_oracle(case, tmp_path) is None
    prepare_oracle(case, Tolerance()).save(tmp_path)
    monkeypatch.setattr(oracle, "interpreter_bounds", lambda c: pytest.fail("evaluated again"))
    again = load_oracle(case, tmp_path)
    assert again is not None
    outputs = right(case)
    assert again.judge(outputs) == ""
    outputs["c"][3, 3] += 4
    assert again.judge(outputs) != ""


def test_nothing_to_verify_against_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gemm(check="")
    nothing = verify.Bounds({}, {}, "", False, "too large")
    monkeypatch.setattr(oracle, "interpreter_bounds", lambda c: nothing)
    with pytest.raises(TileError) as caught:
        prepare_oracle(case, Tolerance())
    assert caught.value.diagnostics[0].code == "E0925"


PARTS = """\
kernel parts[BC = 32](x: f32[R, C]) -> y: f32[R]:
    tune BC in (16, 32)
    for r in parallel(R by 8):
        acc = zeros(f32, r)
        for c in range(C by BC):
            acc += sum(x[r, c], axis=1).to(bf16).to(f32)
        y[r] = acc
    check y == sum(x, axis=1)
"""


def test_a_candidate_that_rounds_other_numbers_has_its_own_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows whose halves cancel in a tile of 32 columns, a tile of 16 rounds the halves."""
    case = case_of(PARTS, R=40, C=32)
    halves = np.float32(6.2) + np.arange(40, dtype=np.float32)[:, None] / 64
    case.arrays["x"][:, :16] = halves
    case.arrays["x"][:, 16:] = -halves - np.float32(0.01)
    setup = SimpleNamespace(file="a.tile", kernel="parts", defines={}, arch="sm_90")
    other = chosen_case(setup, case, {"BC": 16})  # type: ignore[arg-type]
    outputs = right(other)
    prepare_oracle(case, Tolerance()).save(tmp_path)
    for judged in (prepare_oracle(case, Tolerance()), load_oracle(case, tmp_path)):
        assert judged is not None
        assert "elements of `y` are wrong" in judged.judge(outputs)
        assert judged.judge_as(other, outputs) == ""
        wrong = {"y": outputs["y"] + np.float32(2.0)}
        assert "40 of 40 elements of `y` are wrong" in judged.judge_as(other, wrong)
    # elements that the sample does not hold are compared with the check, by the candidate's own bounds
    sampled = verify.interpreter_bounds(other)
    few = np.where(np.arange(40) < 8, sampled.errors["y"], np.inf).astype(np.float32)
    partly = verify.Bounds(sampled.values, {"y": few}, "", False)
    monkeypatch.setattr(oracle, "interpreter_bounds", lambda c: partly)
    judged = load_oracle(case, tmp_path)
    assert judged is not None
    assert judged.judge_as(other, outputs) == ""
    outputs["y"][39] += np.float32(8.0)
    partly.values["y"] = right(other)["y"]
    assert "1 of 40 elements" in judged.judge_as(other, outputs)
    exact = prepare_oracle(case, Tolerance(atol=0.001))
    assert exact.judge_as(other, outputs) == exact.judge(outputs) != ""


def test_what_a_tolerance_was_written_for_is_not_judged_by_bounds() -> None:
    """Two comparisons of one output: the one within a tolerance holds for every candidate."""
    text = PARTS.replace(
        "    check y == sum(x, axis=1)\n",
        "    check y == sum(x, axis=1)\n    check within atol 0.001:\n        y == sum(x, axis=1)\n",
    )
    case = case_of(text, R=40, C=32)
    halves = np.float32(6.2) + np.arange(40, dtype=np.float32)[:, None] / 64
    case.arrays["x"][:, :16] = halves
    case.arrays["x"][:, 16:] = -halves - np.float32(0.01)
    setup = SimpleNamespace(file="a.tile", kernel="parts", defines={}, arch="sm_90")
    other = chosen_case(setup, case, {"BC": 16})  # type: ignore[arg-type]
    outputs = right(other)
    judged = prepare_oracle(case, Tolerance())
    assert judged.judge_as(other, outputs) == judged.judge(outputs) != ""
