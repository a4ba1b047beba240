"""Launches with tensor maps on the emulator: what the kernel is given, and how many CTAs run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mapped import doubled
from tilec.emulator import library
from tilec.emulator.machine import Emulator
from tilec.emulator.tensor_maps import pack
from tilec.emulator.text import HOST_FILES
from tilec.ir.dtypes import BF16
from tilec.resources import resource_text
from tilec.runtime.arguments import CallSizes
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.launching import ConcreteLaunch, ConcreteMap, PackedArgument

MAP = ConcreteMap("x", 1 << 40, BF16, (100, 30), (256,), (64, 8), 128)


def test_a_map_among_the_arguments() -> None:
    launch = ConcreteLaunch("k", 2, 32, 0, 2, (PackedArgument("i", 7), MAP))
    packed = launch.packed_with(library._packed_map)
    assert packed[:4] == (7).to_bytes(4, "little")
    assert packed[128:] == pack(1 << 40, 2, (100, 30), (256,), (64, 8), 128)


def test_few_ctas_walk_many_tiles() -> None:
    if not any("tensor_load" in resource_text("templates", f"host/{f}") for f in HOST_FILES):
        pytest.skip("the emulator has no tensor copies")
    m, n, lda = 70, 200, 208
    compiled = doubled()
    (kernel,) = compiled.kernels
    emulator = Emulator("sm_90a")
    flat = np.arange((m - 1) * lda + n).astype(np.float16)
    rows = np.lib.stride_tricks.as_strided(flat, (m, n), (2 * lda, 2))
    module = emulator.module("mapped.cu", compiled.cu)
    sizes = CallSizes({"M": m, "N": n, "lda": lda})
    with prepare_call(emulator, kernel.plan, module, sizes, {"x": flat}) as call:
        ((_, launch),) = call.prepared
        assert (launch.kernel, launch.grid) == ("doubled_mapped", 2)
        call.launch()
        assert np.array_equal(call.results()["y"], 2 * rows)
        call.check_surroundings()
