"""A kernel with a tensor map, clusters and CTAs that walk several tiles, launched through pycuda's context and by the C launcher."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tests.mapped import doubled
from tilec.calling.launchers import PycudaLauncher, build_c_launcher
from tilec.runtime.arguments import CallSizes
from tilec.runtime.device import Gpu, open_gpu
from tilec.runtime.gpu_run import DeviceCall, prepare_call
from tilec.toolchain.build import compile_cubin, find_toolchain
from tilec.toolchain.driver import query_driver

pytestmark = pytest.mark.gpu

SIZES = [
    (8, 64, 64), (1, 1, 8), (20, 100, 104), (37, 1000, 1000), (1000, 640, 648), (4096, 4096, 4104), (33, 7, 9), (5, 64, 65),
]  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> Iterator[SimpleNamespace]:
    devices = query_driver().devices
    if not devices or devices[0].compute_capability != (9, 0):
        pytest.skip(
            "no GPU of compute capability 9.0: would have launched kernels with tensor maps"
        )
    compiled = doubled()
    toolchain = find_toolchain()
    cubin = compile_cubin(compiled.cu, "sm_90a", toolchain=toolchain).blob
    c = build_c_launcher(compiled, ("sm_90a",), toolchain)
    with open_gpu() as gpu:
        yield SimpleNamespace(
            gpu=gpu, kernel=compiled.kernels[0], cubin=cubin, module=gpu.load(cubin), c=c
        )


def example(m: int, n: int, lda: int) -> tuple[CallSizes, dict[str, np.ndarray], np.ndarray]:
    """Sizes, the argument, and the result."""
    flat = np.random.default_rng(m + n).standard_normal((m - 1) * lda + n).astype(np.float16)
    rows = np.lib.stride_tricks.as_strided(flat, (m, n), (2 * lda, 2))
    return CallSizes({"M": m, "N": n, "lda": lda}), {"x": flat}, 2 * rows


def clear(gpu: Gpu, call: DeviceCall) -> None:
    gpu.fill(call.buffers["y"].address, 0xFF, call.buffers["y"].size)


@pytest.mark.parametrize(("m", "n", "lda"), SIZES)
def test_both_ways_give_the_same(machine: SimpleNamespace, m: int, n: int, lda: int) -> None:
    sizes, arrays, expected = example(m, n, lda)
    gpu, kernel = machine.gpu, machine.kernel
    with prepare_call(gpu, kernel.plan, machine.module, sizes, arrays) as call:
        assert call.kernels == (("doubled_mapped",) if lda % 8 == 0 else ("doubled_kernel_any",))
        call.launch()
        call.finish()
        assert np.array_equal(call.results()["y"], expected)
        call.check_surroundings()
        places = {name: buffer.address for name, buffer in call.buffers.items()}
        for _ in range(3):
            clear(gpu, call)
            machine.c.launch(kernel, sizes, places, 0)
            call.finish()
            assert np.array_equal(call.results()["y"], expected)
        call.check_surroundings()


def test_a_stream_of_pycuda(machine: SimpleNamespace) -> None:
    sizes, arrays, expected = example(300, 520, 520)
    gpu, kernel = machine.gpu, machine.kernel
    launcher = PycudaLauncher(machine.cubin)
    with prepare_call(gpu, kernel.plan, machine.module, sizes, arrays) as call:
        places = {name: buffer.address for name, buffer in call.buffers.items()}
        stream = gpu.driver.Stream()
        for given in (stream, None):
            clear(gpu, call)
            launcher.launch(kernel, sizes, places, 0, stream=given)
            call.finish()
            assert np.array_equal(call.results()["y"], expected)


def test_more_maps_than_a_thread_keeps(machine: SimpleNamespace) -> None:
    gpu, kernel = machine.gpu, machine.kernel
    sizes, arrays, expected = example(64, 128, 128)
    with prepare_call(gpu, kernel.plan, machine.module, sizes, arrays) as call:
        places = {name: buffer.address for name, buffer in call.buffers.items()}
        for rows in [*range(64, 40, -1), *range(41, 65)]:
            clear(gpu, call)
            part = CallSizes({"M": rows, "N": 128, "lda": 128})
            machine.c.launch(kernel, part, places, 0)
            call.finish()
            got = call.results()["y"]
            assert np.array_equal(got[:rows], expected[:rows])
            assert np.isnan(got[rows:].astype(np.float32)).all()
