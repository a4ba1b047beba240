"""The least time of whole launches, against arithmetic on paper."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import pytest

from tests.explain.compiled import SAMPLES, best, kernels
from tilec.compiler import compile_file
from tilec.explain.total import total
from tilec.jobs.explaining import ExplainRequest, explain_file
from tilec.jobs.totals import bound_launches
from tilec.source.diagnostics import TileError
from tilec.targets.rates import RATES

CLOCK = 1980
"""Of an H200, in a microsecond."""
PEAK, DRAM = 2 * 2048 * 132 * CLOCK * RATES["sm_90a"].sustained[16], 4800e3
"""Operations that power allows and bytes of an H200 in a microsecond."""
RESULTS = Path(__file__).parents[2] / "bench" / "results"


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 4096), (512, 1024, 640)])
def test_a_product(m: int, n: int, k: int) -> None:
    found = total(
        best("gemm", "gemm_nn", "sm_90a", BM="128", BN="256", BK="64"),
        "sm_90a",
        {"M": m, "N": n, "K": k},
        2 * (m * k + k * n + m * n),
    )
    assert found is not None
    # tiles are 128 x 256 x 64: these sizes are multiples of them
    assert found.flops == 2 * m * n * k
    assert found.microseconds["tensor"] == pytest.approx(2 * m * n * k / PEAK)
    assert found.limit == "tensor" and found.device == "H200"


def test_ragged_tiles_count_whole() -> None:
    kernel = best("gemm", "gemm_nn", "sm_90a", BM="128", BN="256", BK="64")
    found = total(kernel, "sm_90a", {"M": 129, "N": 257, "K": 65}, 0)
    assert found is not None and found.flops == 2 * 256 * 512 * 128


def test_causal_blocks_are_those_below_the_diagonal() -> None:
    kernel = best("attention", "attention", "sm_90a", CAUSAL="true", BM="128", BN="128")
    length, heads = 2048, 16
    sizes = {"B": 2, "H": heads, "S": length, "T": length, "scale": 0.1}
    found = total(kernel, "sm_90a", sizes, 0)
    blocks = sum(ceil((128 * i + 128) / 128) for i in range(length // 128))
    assert found is not None
    assert found.flops == 2 * heads * blocks * 2 * (2 * 128 * 128 * 128)


@pytest.mark.parametrize("columns", [256, 8192])
def test_rows(columns: int) -> None:
    from tests.explain.compiled import kernels

    rows = 4096
    kernel = next(
        one
        for one in kernels("softmax", "softmax", "sm_90")
        if one.axes[0].layout.capacity == columns
    )
    found = total(kernel, "sm_90", {"R": rows, "C": columns}, 4 * rows * columns)
    assert found is not None and found.limit == "memory"
    assert found.least == pytest.approx(4 * rows * columns / DRAM)
    # exponentials in both walks behind the maximum, and a divisor for each thread
    each = 2 * columns + kernel.threads // kernel.batch
    assert found.microseconds["MUFU"] == pytest.approx(rows * each / 16 / (132 * CLOCK), rel=1e-3)


def test_rows_that_are_walked() -> None:
    kernel = best("softmax", "online_softmax", "sm_90")
    rows, columns = 512, 100_000
    found = total(kernel, "sm_90", {"R": rows, "C": columns}, 0)
    assert found is not None
    # read twice, written once, in whole blocks of a walk
    assert found.least == pytest.approx(6 * rows * columns / DRAM, rel=0.05)


def test_tiles_that_fill_a_ring_are_counted_once() -> None:
    kernel = best("gemm", "gemm_nn", "sm_80", BM="128", BN="128", BK="64")
    found = total(kernel, "sm_80", {"M": 128, "N": 128, "K": 64}, 0)
    assert found is not None
    clock = 312e3 / (2 * 1024 * 108)  # GHz
    through = (2 * 128 * 64 * 2 + 128 * 128 * 2) / (5120 / 108) / (clock * 1e3 * 108)
    own = 128 * 128 * 2 / 1555e3
    assert found.microseconds["memory"] == pytest.approx(max(through, own))


def test_what_hangs_on_loaded_values_has_no_total() -> None:
    packed = best("attention_variants", "packed", "sm_90")
    sizes = {"TOTAL": 512, "H": 2, "NSEQ1": 3, "longest": 256, "scale": 0.1}
    assert total(packed, "sm_90", sizes, 0) is None
    gemm = best("gemm", "gemm_nn", "sm_87")
    assert total(gemm, "sm_87", {"M": 1, "N": 1, "K": 1}, 0) is None, "no device to speak of"


def test_the_command_bounds_the_variant_that_is_launched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(SAMPLES / "gemm.tile")
    request = ExplainRequest(
        path, "gemm_nn", arch="sm_90a", settings=("M=8192", "N=8192", "K=8192")
    )
    assert explain_file(request) == 0
    said = [line.strip() for line in capsys.readouterr().out.splitlines() if "at least" in line]
    assert len(said) == 1
    assert said[0].startswith("at M = 8192, K = 8192, N = 8192: at least 1223 us on H200 by tensor")
    assert said[0].endswith("899 TFLOP/s")
    compiled = compile_file(path, kernel="gemm_nn", archs=("sm_90a",), stop="kernel-ir")
    odd = bound_launches(path, compiled, ("K=4095",))
    assert set(odd) == {"gemm_nn_kernel_copy", "gemm_nn_kernel_copied"}
    small = bound_launches(path, compiled, ("M=64", "N=72", "K=65"))
    assert set(small) == {"gemm_nn_kernel_any"}


@pytest.mark.parametrize(("setting", "code"), [("X=3", "E0712"), ("M=x", "E0712"), ("M", "E0705")])
def test_sizes_that_are_wrong(setting: str, code: str) -> None:
    with pytest.raises(TileError) as error:
        explain_file(ExplainRequest(str(SAMPLES / "gemm.tile"), settings=(setting,)))
    assert [d.code for d in error.value.diagnostics] == [code]


def test_warpgroups_that_stop_by_themselves_count_their_own_trips() -> None:
    # in front of it stands the variant with wide steps, for longer rows
    kernel = kernels("attention", "attention", "sm_90a", CAUSAL="true", D="64")[1]
    length = 1024
    sizes = {"B": 1, "H": 2, "S": length, "T": length, "scale": 0.1}
    found = total(kernel, "sm_90a", sizes, 0)
    # parts of 64 rows, steps of 64 keys
    steps = sum(part + 1 for part in range(length // 64))
    assert found is not None
    assert found.flops == 2 * steps * 2 * (2 * 64 * 64 * 64)


def test_nothing_that_was_measured_is_faster() -> None:
    """Products, ours and by hand and those of rivals; a form of attention that is bound by more than its products."""
    speeds = [
        value
        for name in ("warpgroups", "warpgroups_attention", "variants", "variants_heads")
        for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]
        for key, value in row.items()
        if key.endswith("tflops") and row["case"] != "f8"
    ]
    limits = json.loads((RESULTS / "engine_rates.json").read_text())["products"]
    speeds += [row["tflops"] for row in limits if "tflops" in row]
    assert len(speeds) > 80 and max(speeds) < PEAK / 1e6
    forms = RESULTS.parent / "attention_forms.tile"
    sizes = {"B": 4, "H": 16, "S": 4096, "scale": 0.1, "cap": 50.0}
    found = total(best(str(forms), "soft_cap", "sm_90a"), "sm_90a", sizes, 0)
    measured = json.loads((RESULTS / "variants.json").read_text())["rows"]
    assert found is not None and found.limit == "issue"
    assert found.least < next(row["us"] for row in measured if row["case"] == "soft cap")
