"""The launch that Nsight Compute watches, with the driver replaced by one on host memory."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runtime.fake_driver import fake_device, fake_driver
from tilec.jobs import profiling
from tilec.jobs.profile_child import run_once
from tilec.runtime import device
from tilec.runtime.device import Gpu

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def test_one_call_at_the_sizes_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def kernel(memory, grid, block, a, b, c, *sizes) -> None:
        seen.append(memory.at(a, 4000).view(np.float32).copy())

    driver = fake_driver({"vector_add_kernel": kernel})

    @contextmanager
    def fake_gpu():
        yield Gpu(driver, fake_device())

    monkeypatch.setattr(device, "open_gpu", fake_gpu)
    monkeypatch.setattr(profiling, "build_cubin", lambda *a: SimpleNamespace(blob=b""))
    run_once(str(SAMPLES / "vector_add.tile"), "vector_add", ["N=1000"], ["BN=256"])
    assert [name for name, *_ in driver.log] == ["vector_add_kernel"]
    assert np.isfinite(seen[0]).all() and seen[0].std() > 0
    assert driver.memory.blocks == {}
