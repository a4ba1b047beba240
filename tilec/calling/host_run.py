"""Arrays in host memory: copied to a device, or to the emulator's memory, and back."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilec.calling.arguments import ArrayView
from tilec.compiled import CompiledFile, CompiledKernel
from tilec.emulator.machine import EmulatedModule, Emulator
from tilec.ir.tile_ir import Tensor
from tilec.reference.numbers import Array, storage_dtype
from tilec.runtime.arguments import (
    CallSizes,
    check_call,
    tensor_bytes,
    tensor_shape,
    tensor_strides,
)
from tilec.runtime.device import Gpu
from tilec.runtime.gpu_run import prepare_call


def emulate(compiled: CompiledFile, arch: str) -> tuple[Emulator, EmulatedModule]:
    """An emulator and the kernels of a file in it. Raises TileError (E0802) without a host compiler."""
    from tilec.emulator.build import host_toolchain

    host_toolchain()
    emulator = Emulator(arch)
    return emulator, emulator.module(compiled.source_name, compiled.cu)


def run(
    gpu: Gpu | Emulator,
    module: Any,
    kernel: CompiledKernel,
    sizes: CallSizes,
    views: Mapping[str, ArrayView],
) -> None:
    """Copy in, launch, wait, copy out. Raises TileError as `prepare_call` and at faults."""
    plan = kernel.plan
    env = sizes.environment
    check_call(plan, sizes, {n: v.address for n, v in views.items()})
    sources = {
        t.name: _bytes(views[t.name].address, tensor_bytes(t, env))
        for t in plan.parameters
        if t.role != "output"
    }
    with prepare_call(gpu, plan, module, sizes, sources) as call:
        call.launch()
        call.finish()
        results = call.results()
        call.check_surroundings()
    for tensor in plan.parameters:
        if tensor.role != "input":
            _write(tensor, sizes, views[tensor.name].address, results[tensor.name])


def _bytes(address: int, size: int) -> Array:
    """The bytes at an address as an array."""
    if not size:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _write(tensor: Tensor, sizes: CallSizes, address: int, result: Array) -> None:
    """The elements of a result at the caller's address; what lies between strided elements stays."""
    env = sizes.environment
    size = tensor_bytes(tensor, env)
    if not size:
        return
    target = _bytes(address, size)
    source = result.reshape(-1).view(np.uint8)[:size]
    if tensor.strides is None:
        target[:] = source
        return
    dtype = storage_dtype(tensor.dtype)
    shape = tensor_shape(tensor, env)
    steps = tuple(s * dtype.itemsize for s in tensor_strides(tensor, env))
    np.copyto(
        np.lib.stride_tricks.as_strided(target.view(dtype), shape, steps),
        np.lib.stride_tricks.as_strided(source.view(dtype), shape, steps),
    )
