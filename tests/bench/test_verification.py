"""What `bench/verify.py` runs: sizes, NaN beyond bounds, and the sum of its results."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from verification.cases import BEYOND, _consistent, ragged  # noqa: E402
from verification.evidence import Evidence  # noqa: E402
from verification.kernels import Source, sources  # noqa: E402

from tilec.compiler import compile_file  # noqa: E402


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


def test_failures_are_counted() -> None:
    evidence = Evidence("part")
    evidence.record("one", True, "")
    evidence.record("one", False, "differs", sizes={"N": 3})
    data = evidence.as_json()
    assert data["counts"] == {"one": {"ok": 1, "failed": 1}}
    assert data["failures"] == ["one: differs"]
    assert data["cases"][1] == {"kernel": "one", "ok": False, "sizes": {"N": 3}}
