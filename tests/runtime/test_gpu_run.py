"""Calls on a device, with the driver replaced by one on host memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.fake_driver import Memory, fake_device, fake_driver
from tests.runtime.plans import scaled_rows, two_steps
from tilec.runtime.arguments import CallSizes
from tilec.runtime.device import GUARD_BYTES, Gpu
from tilec.runtime.gpu_run import moved_bytes, prepare_call
from tilec.source.diagnostics import TileError

SIZES = CallSizes({"M": 6, "N": 8}, {"scale": 0.5})


def good(memory, grid, block, x, y, n, total, scale) -> None:
    values = memory.at(x, total * 2).view(ml_dtypes.bfloat16).astype(np.float32)
    memory.at(y, total * 4).view(np.float32)[...] = values * np.float32(scale)


def writes_after(memory, grid, block, x, y, n, total, scale) -> None:
    good(memory, grid, block, x, y, n, total, scale)
    memory.at(y + total * 4 + 2, 1)[...] = 0


def writes_before(memory, grid, block, x, y, n, total, scale) -> None:
    memory.at(x - 1, 1)[...] = 0


def changes_input(memory, grid, block, x, y, n, total, scale) -> None:
    memory.at(x, 1)[...] ^= 1


def run(kernel, sizes=SIZES, *, offsets=None, capability=(9, 0)):
    driver = fake_driver({"scaled_rows_v8": kernel, "scaled_rows_v1": kernel})
    gpu = Gpu(driver, fake_device(capability))
    dims = (sizes.dims["M"], sizes.dims["N"])
    x = np.arange(dims[0] * dims[1]).reshape(dims).astype(ml_dtypes.bfloat16)
    with prepare_call(gpu, scaled_rows(), gpu.load(b""), sizes, {"x": x}, offsets=offsets) as call:
        before = call.results()["y"].copy()
        call.launch()
        call.finish()
        after = call.results()["y"]
        call.check_surroundings()
    assert driver.memory.blocks == {}
    assert gpu.held_bytes == 0
    return x, before, after, driver.log, gpu


def test_a_kernel_between_its_guard_bands() -> None:
    x, before, after, log, gpu = run(good)
    assert np.isnan(before).all()
    assert np.array_equal(after, x.astype(np.float32) * np.float32(0.5))
    assert log == [("scaled_rows_v8", (2, 1), (128, 1, 1), 1024)]
    assert gpu.peak_bytes == 6 * 8 * (2 + 4)


def test_a_shifted_address_takes_the_general_launch() -> None:
    x, _, after, log, _ = run(good, offsets={"x": 1})
    assert np.array_equal(after, x.astype(np.float32) * np.float32(0.5))
    assert [name for name, *_ in log] == ["scaled_rows_v1"]


def test_an_empty_call_launches_nothing() -> None:
    _, _, after, log, _ = run(good, CallSizes({"M": 0, "N": 8}, {"scale": 1.0}))
    assert log == []
    assert after.shape == (0, 8)


@pytest.mark.parametrize(
    ("kernel", "code", "words"),
    [
        (writes_after, "E0922", "wrote outside of `y`, 3 bytes after its last byte"),
        (writes_before, "E0922", "wrote outside of `x`, 1 bytes before its first byte"),
        (changes_input, "E0924", "changed its input `x`"),
    ],
)
def test_faults_are_found(kernel, code, words) -> None:
    with pytest.raises(TileError) as error:
        run(kernel)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == code
    assert words in diagnostic.message
    assert error.value.exit_code == 4


def test_contracts_are_checked_before_anything_is_allocated() -> None:
    with pytest.raises(TileError, match="require N % 8 == 0"):
        run(good, CallSizes({"M": 1, "N": 9}, {"scale": 1.0}))


def test_another_device_is_refused() -> None:
    with pytest.raises(TileError, match="the device is sm_75"):
        run(good, capability=(7, 5))


def test_workspace_and_two_launches() -> None:
    def part(memory, grid, block, x, parts) -> None:
        assert np.isnan(memory.at(parts, 16).view(np.float32)).all()
        sums = memory.at(x, 4000).view(np.float32)
        memory.at(parts, 4 * grid[0]).view(np.float32)[...] = sums.sum() / grid[0]

    def whole(memory, grid, block, parts, s) -> None:
        memory.at(s, 4).view(np.float32)[0] = memory.at(parts, 16).view(np.float32).sum()

    driver = fake_driver({"part": part, "whole": whole})
    gpu = Gpu(driver, fake_device((8, 0)))
    x = np.ones(1000, np.float32)
    with prepare_call(gpu, two_steps(), gpu.load(b""), CallSizes({"N": 1000}), {"x": x}) as call:
        call.launch()
        assert call.results()["s"][0] == 1000
        call.check_surroundings()
        assert call.launches == 2


def test_too_little_memory() -> None:
    driver = fake_driver({}, Memory(limit=3 * GUARD_BYTES))
    gpu = Gpu(driver, fake_device())
    with pytest.raises(TileError) as error:
        gpu.allocate("x", 2 * GUARD_BYTES)
    assert error.value.diagnostics[0].code == "E0813"
    assert error.value.exit_code == 3


def test_what_the_driver_refuses() -> None:
    gpu = Gpu(fake_driver({}), fake_device())
    with (
        pytest.raises(TileError) as error,
        prepare_call(
            gpu, scaled_rows(), gpu.load(b""), SIZES, {"x": np.zeros((6, 8), ml_dtypes.bfloat16)}
        ),
    ):
        pytest.fail("the kernel is not in the module")
    assert error.value.diagnostics[0].code == "E0814"


def test_a_fault_of_the_kernel() -> None:
    driver = fake_driver({})

    def synchronize() -> None:
        raise driver.Error("cuCtxSynchronize failed: misaligned address\nmore")

    driver.Context.synchronize = synchronize
    with pytest.raises(TileError) as error:
        Gpu(driver, fake_device()).finish("while `f` ran")
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "E0923"
    assert diagnostic.notes == ("the driver says: cuCtxSynchronize failed: misaligned address",)


def test_moved_bytes_count_each_argument_once() -> None:
    assert moved_bytes(scaled_rows(), SIZES) == 6 * 8 * (2 + 4)
