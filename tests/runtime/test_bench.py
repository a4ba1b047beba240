"""Timing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.runtime.fake_driver import fake_device, fake_driver
from tilec.runtime import bench
from tilec.runtime.device import Gpu
from tilec.toolchain.cache import Cache


def test_quantiles_lie_between_neighbours() -> None:
    assert bench.quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert bench.quantile([1.0, 2.0], 0.2) == pytest.approx(1.2)
    assert bench.quantile([5.0], 0.8) == 5.0


def test_rates_are_those_of_the_median() -> None:
    timing = bench.summarize("read", [10.0, 20.0, 90.0], 4e6, 2e9, 400.0)
    assert (timing.mean, timing.median) == (40.0, 20.0)
    assert timing.gigabytes_per_second == pytest.approx(200.0)
    assert timing.teraflops == pytest.approx(100.0)
    assert timing.share == pytest.approx(0.5)
    without = bench.summarize("write", [1.0], None, None, None)
    assert (without.gigabytes_per_second, without.teraflops, without.share) == (None, None, None)


def test_both_flushes_are_reported_where_they_differ() -> None:
    read = bench.summarize("read", [100.0], None, None, None)
    near, far = (
        replace(read, flush="write", median=101.0),
        replace(read, flush="write", median=103.0),
    )
    assert bench.both_where_different(read, near) == (read,)
    assert bench.both_where_different(read, far) == (read, far)


def test_each_timed_launch_follows_a_flush() -> None:
    gpu = Gpu(fake_driver({}), fake_device())
    calls: list[str] = []
    flush: Any = calls.append
    times = bench.measure(gpu, flush, "read", lambda: calls.append("launch"))
    assert len(times) == bench.RUNS_MOST
    assert calls == ["read", "launch"] * (bench.WARM_UP + 3 + bench.RUNS_MOST)
    assert all(t == pytest.approx(1.0) for t in times)


def test_the_copy_ceiling_is_measured_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(bench, "_COPY_BYTES", 1 << 20)
    driver = fake_driver({})
    gpu, cache = Gpu(driver, fake_device()), Cache(tmp_path)
    first = bench.copy_bandwidth(gpu, cache)
    assert first == pytest.approx(2 * (1 << 20) / 1e-3 / 1e6)
    assert driver.memory.blocks == {}
    assert gpu.peak_bytes == 0
    driver.mem_alloc = None
    assert bench.copy_bandwidth(gpu, cache) == first
