"""Size sets around the thresholds of launch plans: every compiled variant of the samples runs at one of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tilec.compiled import CompiledKernel
from tilec.compiler import compile_file
from tilec.runtime.outcome import Outcome
from tilec.runtime.report import outcomes_table
from tilec.runtime.sizes import ragged_sizes
from tilec.runtime.variant_sizes import chosen_variants, compiled_variants, covering, variant_sizes

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
KERNELS = [
    ("softmax", "softmax"),
    ("softmax", "online_softmax"),
    ("norms", "layer_norm"),
    ("norms", "rms_norm_residual"),
    ("quantised", "cast_fp8_rows"),
    ("matrix_vector_and_groups", "gemv"),
    ("vector_add", "vector_add"),
    ("gemm", "gemm_nn"),
    ("decode", "flash_decode"),
]


@cache
def compiled(file: str, kernel: str) -> CompiledKernel:
    path = str(SAMPLES / f"{file}.tile")
    return compile_file(path, kernel=kernel, stop="kernel-ir").kernel(kernel)


@pytest.mark.parametrize(("file", "kernel"), KERNELS)
def test_every_variant_runs(file: str, kernel: str) -> None:
    found = compiled(file, kernel)
    (target,) = found.plan.targets
    sets = variant_sizes(found.program, target)
    assert sets == variant_sizes(found.program, target)
    ran = {name for one in sets for name in chosen_variants(found.program, target, one)}
    assert ran == set(compiled_variants(target))
    assert len(sets) + len(ragged_sizes(found.program)) >= 20
    least = covering(found.program, target, sets)
    assert len(least) <= len(ran)
    assert ran == {n for one in least for n in chosen_variants(found.program, target, one)}


def test_thresholds_from_below_at_and_above() -> None:
    found = compiled("softmax", "softmax")
    (target,) = found.plan.targets
    extents = {one.dims["C"] for one in variant_sizes(found.program, target)}
    for threshold in (256, 1024, 4096, 16384, 65536):
        assert {threshold - 1, threshold, threshold + 1, threshold + 8} <= extents
    assert max(extents) <= 131072


def test_each_tensor_is_shifted_alone_and_all_together() -> None:
    found = compiled("vector_add", "vector_add")
    (target,) = found.plan.targets
    offsets = [dict(one.offsets) for one in variant_sizes(found.program, target)]
    for shifted in ({}, {"a": 1}, {"b": 1}, {"c": 1}, {"a": 1, "b": 1, "c": 1}):
        assert shifted in offsets


def test_the_table_counts_variants() -> None:
    names = ("k_wide", "k_any")

    def outcome(*ran: str) -> Outcome:
        return Outcome("f.tile", "k", "N=1", "ok", "GPU", variants=ran, compiled=names)

    assert "k: 1 of 2 compiled variants ran, not k_any" in outcomes_table([outcome("k_wide")])
    both = outcomes_table([outcome("k_wide"), outcome("k_any")])
    assert "k: 2 of 2 compiled variants ran" in both and "not k" not in both
