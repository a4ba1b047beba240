"""Resident CTAs by arithmetic, against values that the CUDA occupancy calculator gives."""

from __future__ import annotations

import pytest

from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.occupancy import occupancy
from tilec.targets.table import TARGETS

KNOWN = [
    # arch, threads, registers, shared bytes -> CTAs, occupancy, limiter
    ("sm_90", 128, 32, 0, 16, 1.0, "none"),
    ("sm_90", 256, 32, 0, 8, 1.0, "none"),
    ("sm_90", 256, 33, 0, 6, 0.75, "registers"),  # 40 registers are given: 48 warps
    ("sm_90", 256, 64, 0, 4, 0.5, "registers"),
    ("sm_90", 256, 128, 0, 2, 0.25, "registers"),
    ("sm_90", 384, 168, 0, 1, 0.1875, "registers"),
    ("sm_90", 128, 255, 0, 2, 0.125, "registers"),
    ("sm_90", 64, 20, 0, 32, 1.0, "none"),
    ("sm_90", 32, 20, 0, 32, 0.5, "CTAs"),
    ("sm_90", 1024, 32, 0, 2, 1.0, "none"),
    ("sm_90", 1024, 65, 0, 0, 0.0, "registers"),
    ("sm_90", 128, 32, 98304, 2, 0.125, "shared memory"),
    ("sm_90", 128, 32, 232448, 1, 0.0625, "shared memory"),
    ("sm_90", 128, 32, 232449, 0, 0.0, "shared memory"),
    ("sm_90", 768, 32, 0, 2, 0.75, "registers"),  # 64 warps of registers hold two CTAs of 24
    ("sm_80", 128, 32, 49152, 3, 0.1875, "shared memory"),
    ("sm_80", 128, 32, 163840, 1, 0.0625, "shared memory"),
    ("sm_86", 256, 32, 0, 6, 1.0, "none"),
    ("sm_86", 1024, 32, 0, 1, 2 / 3, "warps"),
    ("sm_86", 32, 32, 0, 16, 1 / 3, "CTAs"),
    ("sm_75", 256, 64, 0, 4, 1.0, "none"),
    ("sm_75", 128, 32, 32768, 2, 0.25, "shared memory"),
]


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "ctas", "share", "limiter"), KNOWN
)
def test_known_values(arch, threads, registers, shared, ctas, share, limiter) -> None:
    found = occupancy(TARGETS[arch], threads, registers, shared)
    assert (found.ctas, found.limiter) == (ctas, limiter)
    assert found.share == pytest.approx(share)
    assert found.warps == ctas * -(-threads // 32)


@pytest.mark.parametrize("arch", list(TARGETS))
def test_more_of_a_resource_never_allows_more(arch: str) -> None:
    target = TARGETS[arch]
    for threads in (32, 128, 224, 512):
        by_registers = [occupancy(target, threads, r, 0).ctas for r in range(1, 257)]
        assert by_registers == sorted(by_registers, reverse=True)
        by_shared = [occupancy(target, threads, 32, s).ctas for s in range(0, 240_000, 777)]
        assert by_shared == sorted(by_shared, reverse=True)
        assert occupancy(target, threads, 32, 0).share <= 1


def test_representatives_are_of_known_architectures() -> None:
    assert set(REPRESENTATIVES) <= set(TARGETS)
