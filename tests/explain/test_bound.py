"""Bounds against what a person counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain.compiled import best
from tilec.explain.bound import ENGINES, Bound, bounds
from tilec.ir import kernel_ir as k
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.rates import RATES, bound_gigahertz, clock_gigahertz
from tilec.targets.table import TARGETS

SUSTAINED = RATES["sm_90a"].sustained[16]
THROUGH_CACHE = RATES["sm_90a"].cache_bytes


def loop(kernel: k.Kernel, arch: str, name: str) -> Bound:
    """The bound of the first loop of that name."""
    return next(bound for bound in bounds(kernel, arch) if bound.loop == name)


def instance(kernel: k.Kernel, arch: str) -> Bound:
    return loop(kernel, arch, "")


def test_a_product_on_warpgroups_is_bound_by_the_tensor_cores() -> None:
    kernel = best("gemm", "gemm_nn", "sm_90a", BM="128", BN="256", BK="64")
    bound = loop(kernel, "sm_90a", "k_tile")
    # 2048 multiply-adds a clock, of which power leaves SUSTAINED; of b each CTA of a cluster of two brings half
    assert bound.clocks["tensor"] == pytest.approx(128 * 256 * 64 / 2048 / SUSTAINED)
    assert bound.clocks["memory"] == (128 * 64 * 2 + 64 * 256 * 2 / 2) / THROUGH_CACHE
    assert bound.limit == "tensor"
    peak = 2 * 2048 * 132 * 1.98 * SUSTAINED / 1e3
    assert bound.at_most == f"{peak:.0f} TFLOP/s on H200"
    assert bound.clocks["MUFU"] == bound.clocks["FMA"] == 0
    # products alone take a part of what is started
    assert 0 < bound.clocks["issue"] < 128 * 256 * 64 / 2048


def test_the_same_product_on_warps() -> None:
    kernel = best("gemm", "gemm_nn", "sm_80", BM="128", BN="128", BK="64")
    bound = loop(kernel, "sm_80", "k_tile")
    assert bound.clocks["tensor"] == 128 * 128 * 64 / 1024
    assert bound.clocks["memory"] == pytest.approx(2 * 128 * 64 * 2 / (5120 / 108))
    assert bound.at_most == "312 TFLOP/s on A100 40 GB"
    # c is this instance's alone, so it goes at the rate of the DRAM
    own = 128 * 128 * 2
    per_clock = 1555.0 / (312e3 / (2 * 1024 * 108) * 108)
    assert instance(kernel, "sm_80").clocks["memory"] == pytest.approx(own / per_clock)


@pytest.mark.parametrize("depth", ["128", "64"])
def test_attention(depth: str) -> None:
    kernel = best("attention", "attention", "sm_90a", D=depth, BM="128", BN="128")
    bound = loop(kernel, "sm_90a", "j_tile")
    products = 2 * 128 * 128 * int(depth) / 2048
    assert bound.clocks["tensor"] == pytest.approx(products / SUSTAINED)
    # an exponential for each score, and none for rows, whose references rarely move
    assert bound.clocks["MUFU"] == 128 * 128 / 16
    assert bound.clocks["memory"] == 2 * 128 * int(depth) * 2 / THROUGH_CACHE
    # at least: a multiply-add in front of the exponential, and the sum
    assert bound.clocks["FMA"] >= 2 * 128 * 128 / 128
    assert bound.clocks["FMA"] < 1.1 * 2 * 128 * 128 / 128 + 32
    # those, a conversion for two weights, and what the products take
    started = bound.clocks["issue"] - RATES["sm_90a"].product_issue * products
    assert started == pytest.approx(bound.clocks["FMA"] + 128 * 128 / 2 / 128, abs=8)
    assert bound.limit == "tensor"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_rows_are_bound_by_memory(arch: str) -> None:
    kernel = best("softmax", "softmax", arch)
    bound = instance(kernel, arch)
    columns = kernel.axes[0].layout.capacity
    device = REPRESENTATIVES[arch]
    clock = bound_gigahertz(arch)
    assert clock is not None
    moved = 2 * 2 * columns * kernel.batch
    assert bound.clocks["memory"] == pytest.approx(
        moved * clock * device.multiprocessors / device.dram_gigabytes
    )
    # both walks after the maximum have an exponential; the divisor is prepared once a thread
    assert bound.clocks["MUFU"] == (2 * columns * kernel.batch + kernel.threads) / 16
    assert bound.limit == "memory"
    assert bound.at_most == f"{device.dram_gigabytes:.0f} GB/s on {device.name}"


PROGRAM = """
kernel one[BC = 1024](x: f32[N]) -> y: f32[N]:
    for i in parallel(N by BC):
        v = x[i]
        y[i] = {}

    check y == x
    example N = 4096
"""


@pytest.mark.parametrize(
    ("expression", "fma", "mufu", "alu"),
    [
        ("v", 0, 0, 0),
        ("v + 1.0", 1, 0, 0),
        ("v * 2.0 + 1.0", 1, 0, 0),
        ("v * 2.0 * 3.0", 2, 0, 0),
        ("exp2(v)", 0, 1, 0),
        ("exp(v)", 1, 1, 0),
        ("maximum(v, 0.0) + 1.0", 1, 0, 1),
        ("where(v < 2.0, v, 1.0)", 0, 0, 1),
        ("rsqrt(v) + sqrt(v)", 2, 2, 0),
    ],
)
def test_operations_of_an_element(
    expression: str, fma: int, mufu: int, alu: int, tmp_path: Path
) -> None:
    path = tmp_path / f"one_{abs(hash(expression))}.tile"
    path.write_text(PROGRAM.format(expression))
    kernel = best(str(path), "one", "sm_90")
    clocks = instance(kernel, "sm_90").clocks
    elements = 1024 * kernel.batch
    assert clocks["FMA"] == fma * elements / 128
    assert clocks["MUFU"] == mufu * elements / 16
    assert clocks["issue"] == (fma + alu) * elements / 128
    assert clocks["memory"] > 2 * 4 * elements / 64


def test_what_a_row_needs_once_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "once.tile"
    path.write_text(PROGRAM.format("v * exp(x[0])"))
    clocks = instance(best(str(path), "one", "sm_90"), "sm_90").clocks
    assert clocks["MUFU"] <= 1024 / 16 / 4


def test_every_architecture_has_rates() -> None:
    assert set(RATES) == set(TARGETS)
    assert set(REPRESENTATIVES) <= set(RATES)
    for arch in REPRESENTATIVES:
        clock = clock_gigahertz(arch)
        # a clock between those of the slowest and the fastest of these devices
        assert clock is not None and 1.3 < clock < 2.7
    kernel = best("gemm", "gemm_nn", "sm_87")
    bound = loop(kernel, "sm_87", "k_tile")
    assert bound.at_most == "" and set(bound.clocks) == set(ENGINES)


def test_what_neighbours_read_too_does_not_come_from_the_dram() -> None:
    """Windows of keys overlap, and grouped heads share theirs: both go at the rate of the L2 cache."""
    window = best("attention_variants", "sliding_window", "sm_90a")
    keys = loop(window, "sm_90a", "j_tile")
    constants = dict(window.constants)
    assert keys.clocks["memory"] == 2 * constants["BN"] * 128 * 2 / THROUGH_CACHE
    grouped = best("attention", "attention", "sm_90a", G="4")
    assert loop(grouped, "sm_90a", "j_tile").clocks["memory"] == 2 * 128 * 128 * 2 / THROUGH_CACHE


def test_keys_of_one_sequence_come_from_the_dram() -> None:
    decode = best("decode", "flash_decode", "sm_90")
    bound = loop(decode, "sm_90", "j_tile")
    assert bound.limit == "memory"
    assert bound.clocks["memory"] > 2 * 128 * 128 * 2 / 64


def test_f8_of_warps_is_multiplied_as_16_bits_on_hopper() -> None:
    kernel = best("quantised", "gemm_fp8_blocks", "sm_90")
    bound = loop(kernel, "sm_90", "k_tile")
    constants = dict(kernel.constants)
    macs = constants["BM"] * constants["BN"] * constants["BK"]
    sheet = clock_gigahertz("sm_90") / bound_gigahertz("sm_90")
    assert bound.clocks["tensor"] == pytest.approx(macs / (2048 * 0.643) / sheet)
    ada = best("quantised", "gemm_fp8_blocks", "sm_89")
    assert loop(ada, "sm_89", "k_tile").clocks["tensor"] == macs / 1024
