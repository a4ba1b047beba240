"""Launches with tensor maps through the driver's library, which is one on host memory here."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cpp.recorded_launcher import recorded_map
from tests.mapped import doubled
from tests.runtime.fake_driver import fake_device, fake_driver
from tilec.calling.launchers import PycudaLauncher
from tilec.ir.dtypes import BF16
from tilec.runtime import device
from tilec.runtime.arguments import CallSizes
from tilec.runtime.cuda_driver import CudaDriver, DriverError
from tilec.runtime.device import Gpu
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.launching import ConcreteLaunch, ConcreteMap, PackedArgument
from tilec.source.diagnostics import TileError
from tilec.toolchain.host_compiler import find_host_compiler

MAP = ConcreteMap("x", 1 << 40, BF16, (100, 30), (256,), (64, 8), 128)
LAUNCH = ConcreteLaunch(
    "k", 6, 128, 100 << 10, 2, (PackedArgument("i", 7), MAP, PackedArgument("P", 1 << 33), MAP)
)
IMAGE = b"other 4\nk 4 128 8 128\n"
SIZES = CallSizes({"M": 20, "N": 100, "lda": 104})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("driver") / "libcuda.so"
    source = Path(__file__).with_name("fake_libcuda.cc")
    compiler = str(find_host_compiler(None).path)
    subprocess.check_call([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", path])
    return str(path)


@pytest.fixture
def driver(library: str, monkeypatch: pytest.MonkeyPatch) -> CudaDriver:
    found = CudaDriver(library)
    monkeypatch.setattr(device, "cuda_driver", lambda: found)
    return found


def launched(library: str) -> list[list[str]]:
    """The words of each launch so far."""
    text = ctypes.CDLL(library).log_of
    text.restype = ctypes.c_char_p
    return [line.split() for line in text().decode().splitlines()]


def modules(library: str) -> int:
    return int(ctypes.CDLL(library).modules_loaded())


def test_parameters_of_a_launch(driver: CudaDriver, library: str) -> None:
    module = driver.load(IMAGE)
    launch = driver.prepare(module, LAUNCH)
    launch()
    launch(SimpleNamespace(handle=1 << 20))
    driver.unload(module)
    first, second = launched(library)[-2:]
    assert first[:5] == ["k", "6", "128", str(100 << 10), "0"]
    assert second[:5] == ["k", "6", "128", str(100 << 10), str(1 << 20)]
    values = [bytes.fromhex(word) for word in first[5:]]
    assert values == [
        (7).to_bytes(4, "little"),
        recorded_map(MAP),
        (1 << 33).to_bytes(8, "little"),
        recorded_map(MAP),
    ]
    assert first[5:] == second[5:]


def test_arguments_lie_as_members_of_a_structure() -> None:
    assert LAUNCH.offsets == (0, 128, 256, 384)
    packed = LAUNCH.packed_with(lambda _: b"m" * 128)
    assert len(packed) == 512
    assert packed[:4] == (7).to_bytes(4, "little")
    assert packed[128:256] == packed[384:] == b"m" * 128
    plain = ConcreteLaunch("k", 1, 32, 0, 1, (PackedArgument("B", 1), PackedArgument("q", -1)))
    assert plain.packed_with(lambda _: b"") == plain.packed


def test_what_the_driver_refuses(driver: CudaDriver) -> None:
    module = driver.load(IMAGE)
    with pytest.raises(DriverError, match="cuModuleGetFunction answers CUDA_ERROR_NOT_FOUND"):
        driver.prepare(module, replace(LAUNCH, kernel="nothing"))
    with pytest.raises(DriverError, match="cuFuncSetAttribute answers CUDA_ERROR_INVALID_VALUE"):
        driver.prepare(module, replace(LAUNCH, shared_bytes=1 << 20))
    odd = replace(MAP, strides=(258,))
    with pytest.raises(DriverError, match="cuTensorMapEncodeTiled answers CUDA_ERROR_INVALID"):
        driver.prepare(module, replace(LAUNCH, arguments=(odd,)))
    with pytest.raises(DriverError, match="no cuNothing: it is older than CUDA 12"):
        driver._call("cuNothing")
    with pytest.raises(DriverError, match="cannot be loaded"):
        CudaDriver("libnothing.so.1")
    driver.unload(module)


def test_a_call_with_maps_on_a_gpu(driver: CudaDriver, library: str) -> None:
    kernel = doubled().kernels[0]
    gpu = Gpu(fake_driver({}), fake_device())
    module = gpu.load(b"doubled_mapped 128 8 4 4\n")
    x = np.zeros(20 * 104, np.float16)
    with prepare_call(gpu, kernel.plan, module, SIZES, {"x": x}) as call:
        call.launch()
        place = call.buffers["x"].address
    words = launched(library)[-1]
    assert words[:5] == ["doubled_mapped", "6", "128", "0", "0"]
    bytes_ = bytes.fromhex(words[5])
    assert int.from_bytes(bytes_[:8], "little") == place
    assert modules(library) == 1
    gpu.unload()
    assert modules(library) == 0


def test_a_refusal_names_the_kernel(driver: CudaDriver) -> None:
    kernel = doubled().kernels[0]
    gpu = Gpu(fake_driver({}), fake_device())
    arrays = {"x": np.zeros(20 * 104, np.float16)}
    with (
        pytest.raises(TileError, match="refused preparing `doubled_mapped`") as error,
        prepare_call(gpu, kernel.plan, gpu.load(b"another 8\n"), SIZES, arrays),
    ):
        pytest.fail("the kernel is not in the module")
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.notes == ("cuModuleGetFunction answers CUDA_ERROR_NOT_FOUND",)
    gpu.unload()


def test_the_python_function_launches_on_a_stream(
    driver: CudaDriver, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = doubled().kernels[0]
    gpu = Gpu(fake_driver({}), fake_device())
    launcher = PycudaLauncher(b"")
    launcher._loaded[False] = (gpu, gpu.load(b"doubled_mapped 128 8 4 4\n"))
    fake = SimpleNamespace(Context=SimpleNamespace(get_device=lambda: None))
    monkeypatch.setattr("tilec.calling.launchers.import_pycuda", lambda: fake)
    places = {"x": 1 << 40, "y": 1 << 41}
    for handle in (0, 96):
        stream = SimpleNamespace(handle=handle) if handle else None
        launcher.launch(kernel, SIZES, places, 0, stream=stream, foreign=False)
        assert launched(library)[-1][:5] == ["doubled_mapped", "6", "128", "0", str(handle)]
    assert modules(library) == 1, "the module is loaded once"
    gpu.unload()
