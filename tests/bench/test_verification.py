"""What `bench/verify.py` runs: sizes, NaN beyond bounds, and the sum of its results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from records import compact  # noqa: E402
from verification.cases import BEYOND, Job, _consistent, ragged  # noqa: E402
from verification.evidence import Evidence  # noqa: E402
from verification.extremes import DRAWS, large  # noqa: E402
from verification.kernels import Source, sources  # noqa: E402
from verification.repeated import repeated_sizes, unordered  # noqa: E402

from tilec.compiler import compile_file  # noqa: E402
from tilec.runtime.arguments import CallSizes  # noqa: E402


def bf16(*shape: int) -> np.ndarray:
    return np.ones(shape, ml_dtypes.bfloat16)


def test_rows_outside_of_all_sequences_are_nan() -> None:
    starts = np.array([0, 30, 60, 70], np.int32)
    arrays = {"starts": starts, "q": bf16(70, 2, 4), "k": bf16(70, 2, 4), "v": bf16(70, 2, 4)}
    BEYOND["packed"](arrays)
    assert starts.tolist() == [10, 30, 56, 56]
    for name in ("q", "k", "v"):
        nan = np.isnan(arrays[name].astype(np.float32)).all(axis=(1, 2))
        assert np.flatnonzero(~nan).tolist() == list(range(10, 56))


def test_keys_beyond_a_length_are_nan() -> None:
    arrays = {"length": np.array([3, 0, 5], np.int32), "k": bf16(3, 2, 5, 4), "v": bf16(3, 2, 5, 4)}
    BEYOND["flash_decode"](arrays)
    for name in ("k", "v"):
        nan = np.isnan(arrays[name].astype(np.float32)).all(axis=(1, 3))
        assert (~nan).sum(axis=1).tolist() == [3, 0, 5]


def test_unused_tokens_and_experts_are_nan() -> None:
    arrays = {"x": bf16(5, 4), "gate": bf16(3, 4, 4), "up": bf16(3, 4, 4)}
    arrays |= {"token": np.array([0, -1, 4], np.int32), "expert_of_block": np.array([1], np.int32)}
    BEYOND["moe_swiglu"](arrays)
    assert np.isnan(arrays["x"].astype(np.float32)).all(axis=1).tolist() == [0, 1, 1, 1, 0]
    assert np.isnan(arrays["up"].astype(np.float32)).all(axis=(1, 2)).tolist() == [1, 0, 1]


def test_groups_have_as_many_ends_as_experts_and_one() -> None:
    assert _consistent({"E": 3, "E1": 1}) == {"E": 3, "E1": 4}
    assert _consistent({"E": 0, "TOKENS": 5}) == {"E": 1, "TOKENS": 5}


@pytest.mark.parametrize("source", sources(), ids=lambda s: s.kernel)
def test_every_sample_has_twenty_size_sets(source: Source) -> None:
    compiled = compile_file(source.path, kernel=source.kernel, stop="tile-ir")
    from dataclasses import replace

    from tilec.runtime.arguments import plan_without_launches

    kernel = compiled.kernels[0]
    kernel = replace(kernel, plan=plan_without_launches(kernel.program))
    compiled = replace(compiled, kernels=(kernel,))
    found = ragged(SimpleNamespace(source=source, compiled=compiled, kernel=kernel))
    assert len(found) >= 20


def test_a_kernel_is_a_line() -> None:
    evidence = Evidence("part")
    evidence.record("one", True, "", sizes={"M": 3, "scale": 0.5}, compared=6, against=["check"])
    evidence.record(
        "one", False, "differs", sizes={"M": 4, "scale": 0.5}, special="(NaN)", compared=8
    )
    data = evidence.as_json()
    assert data["failures"] == ["one: differs"]
    assert data["kernels"] == [
        {
            "kernel": "one",
            "ok": 1,
            "failed": 1,
            "sizes": ["M=3 scale=0.5", "M=4 scale=0.5 (NaN)"],
            "compared": 14,
            "against": ["check"],
        }
    ]
    text = compact(data)
    assert json.loads(text) == data
    assert len(text.splitlines()) == 13


def test_sizes_at_which_rings_end() -> None:
    source = sources(only=["gemm_bias_relu"])[0]
    compiled = compile_file(source.path, kernel=source.kernel, archs=("sm_90a",))
    kernel = compiled.kernels[0]
    found = repeated_sizes(SimpleNamespace(source=source, compiled=compiled, kernel=kernel))
    step, rows = kernel.program.tiles["BK"], kernel.program.tiles["BM"]
    trips = {-(-s.dims["K"] // step) for s in found if s.dims["M"] > 8 * rows}
    assert trips == {1, 2, 3}
    assert {s.dims["K"] % step for s in found} >= {0, step - 1, step - 8}
    assert any(s.dims["M"] <= rows for s in found)
    assert not unordered(kernel)


def test_ends_of_types_leave_indices_alone() -> None:
    source = sources(only=["flash_decode"])[0]
    program = compile_file(source.path, kernel=source.kernel, stop="tile-ir").kernels[0].program
    sizes = CallSizes({"B": 2, "H": 8, "T": 40}, {"scale": 0.1})
    for draw in DRAWS:
        arrays = draw(Job(source, sizes), program)
        assert (arrays["length"] >= 0).all() and (arrays["length"] <= 40).all()
    assert np.abs(large(Job(source, sizes), program)["q"].astype(np.float64)).max() > 2.0**50
