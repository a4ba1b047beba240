"""What an SM of each architecture does in a clock, for bounds on the time of a kernel.

Sources: CUDA C++ Programming Guide, "Arithmetic Instructions" (MUFU, FMA); NVIDIA's architecture white papers and data sheets of the
devices in `devices.py` (dense products with 32-bit accumulators; the L2 cache gives each SM up to 64 bytes a clock, the A100 5120
bytes in all). What warpgroups have on an H200 was measured by `bench/engine_rates.py` (bench/results/engine_rates.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilec.targets.devices import REPRESENTATIVES


@dataclass(frozen=True)
class Rates:
    """Of one SM in one clock. `tensor`: multiply-adds of products by the bits of an operand (32: tf32), absent where the tensor cores
    have none; `mufu`: special functions; `fma`, `fma64`: multiply-adds on f32 and f64; `l2_bytes`: from or to the L2 cache."""

    tensor: Mapping[int, int]
    mufu: int = 16
    fma: int = 128
    fma64: int = 2
    l2_bytes: float = 64.0
    warp_share: float = 1.0
    """how much of the tensor rate products of warps reach, where those of warpgroups reach all of it: measured on an H200
    (bench/results/mma_limit.jsonl)"""
    warpgroup_share: float = 0.0
    """how much products of warpgroups reach of large matrices, 0 where there are none: measured on an H200"""
    anywhere_share: float = 0.0
    """the same of products of warps whose operands' rows begin anywhere, so that elements are moved one by one"""
    computed_share: float = 0.0
    """the same of products of warps that compute an operand, again for each tile of the other one"""
    unpacked_share: float = 0.0
    """the same of chained products of warps on 8-bit floats, which ptxas widens first"""
    sustained: Mapping[int, float] = field(default_factory=dict)
    """how much of the tensor rate at the device's highest clock products of warpgroups reach for good, by the bits of an operand: random
    operands take so much power that the clock falls, to 1.6 of 1.98 GHz on an H200, where 16-bit ones had 858 to 894 TFLOP/s. Absent
    where it was not measured"""
    product_issue: float = 0.0
    """how much of what a quarter of an SM starts in a clock products of warpgroups take, 0 where it was not measured: with the tensor cores
    at their full rate multiply-adds reach 0.42 a clock of 0.98, and with those at theirs nothing is left of the products"""
    cache_bytes: float = 0.0
    """the most that bulk copies brought into an SM where many read the same, 0 where that was not measured"""


RATES: dict[str, Rates] = {
    "sm_75": Rates({8: 1024, 16: 512}, fma=64),
    "sm_80": Rates({8: 2048, 16: 1024, 32: 512, 64: 64}, fma=64, fma64=32, l2_bytes=5120 / 108),
    "sm_86": Rates({8: 1024, 16: 512, 32: 256}),
    "sm_87": Rates({8: 2048, 16: 1024, 32: 512}),
    "sm_89": Rates({8: 1024, 16: 512, 32: 256}),
    "sm_90": Rates({8: 4096, 16: 2048, 32: 1024, 64: 128}, fma64=64, warp_share=0.643),
    "sm_90a": Rates(
        {8: 4096, 16: 2048, 32: 1024, 64: 128},
        fma64=64,
        warp_share=0.643,
        warpgroup_share=0.7,
        anywhere_share=0.07,
        computed_share=0.17,
        unpacked_share=0.06,
        sustained={16: 0.84},
        product_issue=0.575,
        cache_bytes=92.5,
    ),
    "sm_100": Rates({8: 8192, 16: 4096, 32: 2048, 64: 64}, fma64=64),
    "sm_103": Rates({8: 8192, 16: 4096, 32: 2048}),
    "sm_120": Rates({8: 512, 16: 256, 32: 128}),
}
"""By `--arch`."""


def clock_gigahertz(arch: str) -> float | None:
    """The clock at which the representative device has the tensor rate of its data sheet; None where there is no such device."""
    device = REPRESENTATIVES.get(arch)
    if device is None:
        return None
    flops = 2 * RATES[arch].tensor[16] * device.multiprocessors
    return device.tensor_teraflops * 1e3 / flops


def bound_gigahertz(arch: str) -> float | None:
    """The highest clock that the representative device has, which bounds are told in; None where there is no such device."""
    device = REPRESENTATIVES.get(arch)
    return (device and device.boost_gigahertz) or clock_gigahertz(arch)


def sheet_share(arch: str) -> float:
    """How much of the tensor rate at its highest clock the representative device has by its data sheet."""
    clock, highest = clock_gigahertz(arch), bound_gigahertz(arch)
    return clock / highest if clock and highest else 1.0


def sustained_share(arch: str, bits: int) -> float:
    """How much of that rate products of warpgroups on operands of `bits` bits have at most."""
    return RATES[arch].sustained.get(bits, sheet_share(arch))


def dram_bytes(arch: str) -> float | None:
    """Bytes of DRAM for one SM in a clock, all SMs busy; None where there is no representative device."""
    device, clock = REPRESENTATIVES.get(arch), clock_gigahertz(arch)
    if device is None or clock is None:
        return None
    return device.dram_gigabytes / (clock * device.multiprocessors)


MEMORY_SHARE = 0.7
"""How much of the DRAM's rate a copy reaches."""

CROWDED_SHARE = 0.5
"""How much of the L2's rate a product of few rows may ask for: with 0.39 of it (16 rows, tiles of 64 columns) wider tiles gain nothing on an
H200, with 0.62 (64 rows) up to 5 % of the time, with 0.93 (128 rows) 5 to 13 %; nothing between was measured."""


def is_crowded(arch: str, rows: int, columns: int) -> bool:
    """Whether tiles of so many columns ask for so much of the L2 while memory brings them as fast as it can: with each byte of a column
    comes as much of the rows as the tile is narrower than they are many."""
    memory = dram_bytes(arch)
    if memory is None:
        return False
    return (1 + rows / columns) * memory > CROWDED_SHARE * RATES[arch].l2_bytes


LAUNCH_MICROSECONDS = 3.0
"""A kernel in front of another one in a stream, whatever it does."""


OPERATION_CLOCKS = 0.1
"""Of an SM for one operation, or the load, of an element of an operand that products of warps compute: on an H200 products whose right operand
is converted from 8 bits take 0.2 clocks an element more than others, with 4 bits, a zero point and a scale 0.4."""


@dataclass(frozen=True)
class CopyCost:
    """What copying takes, in multiply-adds of a product: of an element, of a launch, and of a clock of an SM. So many take as much longer
    where elements are moved one by one than where warpgroups multiply."""

    element: float
    launch: float
    clock: float


def copy_cost(arch: str, bits: int, share: float) -> CopyCost | None:
    """The cost of copying elements of `bits` bits for a product that otherwise reaches this share of the tensor rate; None where the rates
    are not known, or nothing is saved."""
    rates, memory, clock = RATES[arch], dram_bytes(arch), clock_gigahertz(arch)
    tensor = rates.tensor.get(bits)
    if not share or not rates.warpgroup_share or tensor is None or memory is None or clock is None:
        return None
    saved = (1 / share - 1 / rates.warpgroup_share) / tensor
    """clocks of an SM for a multiply-add"""
    if saved <= 0:
        return None
    moved = 2 * bits / 8 / (memory * MEMORY_SHARE)
    return CopyCost(moved / saved, launch_clocks(arch) / saved, 1 / saved)


def launch_clocks(arch: str) -> float:
    """Clocks of all SMs of the representative device that a kernel in front of another one takes, whatever it does."""
    clock = clock_gigahertz(arch)
    assert clock is not None
    return LAUNCH_MICROSECONDS * 1e3 * clock * REPRESENTATIVES[arch].multiprocessors


STEP_CLOCKS = 510
"""Clocks of a step of chained products beside its elements: barriers, turns, what is done once a row."""
TILE_CLOCKS = 4700
"""Clocks of a tile beside its steps: first loads, first and last product, what leaves."""
STEP_SHARE = 0.8
"""How much of its limit, special functions or tensor cores, a step reaches with its elements. All three are from the clocks of
warpgroups and the rates of long rows on an H200: 2430 a step of 192 x 128 elements of 64 channels, 1790 of 256 x 64."""


def step_clocks(arch: str, elements: int, multiply_adds: int, bits: int) -> int | None:
    """Clocks of a step of chained products that makes so many elements, an exponential of each, by so many multiply-adds on operands of
    `bits` bits; None where products of warpgroups are not known to be as fast as that."""
    rates = RATES[arch]
    tensor = rates.tensor.get(bits)
    if not rates.warpgroup_share or tensor is None:
        return None
    limit = max(elements / rates.mufu, multiply_adds / tensor)
    return round(STEP_CLOCKS + limit / STEP_SHARE)


FUNCTIONS: dict[tuple[str, str], tuple[int, int, int]] = {
    ("exp2", "fast"): (1, 0, 0),
    ("exp", "fast"): (1, 1, 0),
    ("log2", "fast"): (1, 0, 0),
    ("log", "fast"): (1, 1, 0),
    ("sqrt", "fast"): (1, 1, 0),
    ("rsqrt", "fast"): (1, 0, 0),
    ("div", "fast"): (1, 2, 0),
    ("div_by", "fast"): (0, 2, 0),
    ("divisor_scale", "fast"): (0, 0, 0),
    ("divisor_reciprocal", "fast"): (1, 1, 0),
    ("tanh", "half"): (1, 0, 0),
    ("tanh", "fast"): (0, 3, 0),
    ("tanh_near", "fast"): (0, 6, 0),
    ("sigmoid", "half"): (1, 2, 0),
    ("sigmoid", "fast"): (2, 6, 0),
    ("erf", "fast"): (1, 9, 0),
    ("sin", "fast"): (0, 9, 0),
    ("cos", "fast"): (0, 9, 0),
    ("pow", "fast"): (2, 12, 0),
    ("div", "strict"): (1, 6, 0),
    ("sqrt", "strict"): (1, 6, 0),
    ("rsqrt", "strict"): (1, 6, 0),
    ("log", "strict"): (0, 12, 0),
    ("log2", "strict"): (0, 12, 0),
}
"""(MUFU, f32 multiply-adds, f64 multiply-adds) that a function on f32 takes at least, read off the device primitives in
`templates/device/math.cuh` and the code that nvcc makes of them; by name and accuracy."""

THROUGH_DOUBLE = (0, 0, 12)
"""The same of a function that is computed on f64: its polynomial."""


def function_cost(op: str, math: str, bits: int) -> tuple[int, int, int] | None:
    """What one call takes, None for an operation that is no function. The accuracy `half` falls back on `fast`."""
    known = {name for name, _ in FUNCTIONS}
    if op not in known:
        return None
    if bits == 64:
        return THROUGH_DOUBLE
    return FUNCTIONS.get((op, math)) or FUNCTIONS.get(
        (op, "fast" if math == "half" else ""), THROUGH_DOUBLE
    )
