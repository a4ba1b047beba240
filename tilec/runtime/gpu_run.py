"""One call of one kernel on the GPU or the emulator: arguments between guard bands, poisoned outputs, launches from the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.machine import Emulator
from tilec.ir.launch import LaunchPlan
from tilec.ir.tile_ir import Tensor
from tilec.reference.numbers import Array, storage_dtype
from tilec.runtime.arguments import CallSizes, check_call, tensor_bytes
from tilec.runtime.arrays import empty_array, poison
from tilec.runtime.device import Buffer, Gpu
from tilec.runtime.launching import choose_target, concrete_launches, workspace_bytes
from tilec.source.diagnostics import fail

WORKSPACE = "the workspace"


@dataclass
class DeviceCall:
    """A call that is ready to be launched. Made by `prepare_call`."""

    gpu: Gpu | Emulator
    plan: LaunchPlan
    sizes: CallSizes
    buffers: dict[str, Buffer]
    prepared: list[tuple[Any, Any]]
    kernels: tuple[str, ...] = ()
    """names of what is launched, in order"""
    uploaded: Mapping[str, Array] = field(repr=False, default_factory=dict)

    @property
    def launches(self) -> int:
        """How many kernels one call launches."""
        return len(self.prepared)

    def launch(self) -> None:
        """Enqueue the launches."""
        self.gpu.launch(self.prepared)

    def finish(self) -> None:
        """Wait. Raises TileError (E0923) where a kernel faulted."""
        self.gpu.finish(f"while `{self.plan.name}` ran at {self.sizes}")

    def results(self) -> dict[str, Array]:
        """Outputs and `inout` parameters in storage form."""
        found = {}
        for tensor in self.plan.parameters:
            if tensor.role != "input":
                found[tensor.name] = self._download(tensor)
        return found

    def check_surroundings(self) -> None:
        """Raises TileError: E0922 where a guard band was written to, E0924 where an input changed."""
        for name, buffer in self.buffers.items():
            if place := self.gpu.broken_guard(buffer):
                shown = name if name == WORKSPACE else f"`{name}`"
                raise fail(
                    "E0922",
                    f"`{self.plan.name}` at {self.sizes} wrote outside of {shown}, {place}",
                    help="this is a fault of tilec: please report it with the program and the sizes",
                )
        for tensor in self.plan.parameters:
            if tensor.role == "input" and tensor.name in self.uploaded:
                before = self.uploaded[tensor.name].reshape(-1).view(np.uint8)
                after = self._download(tensor).reshape(-1).view(np.uint8)
                if not np.array_equal(before[: after.size], after):
                    raise fail(
                        "E0924",
                        f"`{self.plan.name}` at {self.sizes} changed its input `{tensor.name}`",
                    )

    def _download(self, tensor: Tensor) -> Array:
        array = empty_array(tensor, self.sizes.environment)
        self.gpu.download(self.buffers[tensor.name], array)
        return array


@contextmanager
def prepare_call(
    gpu: Gpu | Emulator,
    plan: LaunchPlan,
    module: Any,
    sizes: CallSizes,
    arrays: Mapping[str, Array],
    *,
    offsets: Mapping[str, int] | None = None,
) -> Iterator[DeviceCall]:
    """Arguments on the device, launches evaluated; the memory is given back at the end of the block.

    `module` holds the machine code, or gives it for the names of what is launched. `arrays` hold inputs and `inout` parameters; outputs are poisoned. `offsets` shifts a parameter's address by so many
    elements. Raises TileError as `check_call`, `Gpu.allocate` and `Gpu.prepare`.
    """
    env = sizes.environment
    check_call(plan, sizes)
    target = choose_target(plan, gpu.capability)
    buffers: dict[str, Buffer] = {}
    uploaded: dict[str, Array] = {}
    try:
        for tensor in plan.parameters:
            itemsize = storage_dtype(tensor.dtype).itemsize
            shift = {**sizes.offsets, **(offsets or {})}.get(tensor.name, 0) * itemsize
            buffer = gpu.allocate(tensor.name, tensor_bytes(tensor, env), offset=shift)
            buffers[tensor.name] = buffer
            if tensor.role == "output":
                gpu.fill(buffer.address, poison(tensor.dtype), buffer.size)
            else:
                data = arrays[tensor.name].reshape(-1).view(np.uint8)[: buffer.size]
                gpu.upload(buffer, data)
                uploaded[tensor.name] = arrays[tensor.name]
                if tensor.role == "input" and isinstance(gpu, Emulator):
                    gpu.protect(buffer)
        base = 0
        if needed := workspace_bytes(plan, sizes):
            buffers[WORKSPACE] = gpu.allocate(WORKSPACE, needed)
            gpu.fill(buffers[WORKSPACE].address, poison_workspace(), needed)
            base = buffers[WORKSPACE].address
        addresses = {t.name: buffers[t.name].address for t in plan.parameters}
        check_call(plan, sizes, addresses, base if plan.workspace else None)
        launches = concrete_launches(
            plan, target, sizes, addresses, base, multiprocessors=gpu.multiprocessors
        )
        kernels = tuple(launch.kernel for launch in launches)
        if callable(module):
            module = module(kernels)
        yield DeviceCall(
            gpu, plan, sizes, buffers, gpu.prepare(module, launches), kernels, uploaded
        )
    finally:
        for buffer in buffers.values():
            gpu.free(buffer)


def launched(gpu: Gpu, plan: LaunchPlan, sizes: CallSizes) -> tuple[str, ...]:
    """Names of what a call with arrays where `prepare_call` puts them launches, in order."""
    addresses = {}
    for number, tensor in enumerate(plan.parameters):
        shift = sizes.offsets.get(tensor.name, 0) * storage_dtype(tensor.dtype).itemsize
        addresses[tensor.name] = (number + 1 << 40) + shift
    target = choose_target(plan, gpu.capability)
    base = 1 << 50
    found = concrete_launches(
        plan, target, sizes, addresses, base, multiprocessors=gpu.multiprocessors
    )
    return tuple(launch.kernel for launch in found)


def poison_workspace() -> int:
    """The byte that a workspace is filled with: NaN in all float dtypes."""
    return 0xFF


def moved_bytes(plan: LaunchPlan, sizes: CallSizes) -> int:
    """Bytes that a call moves at least: each input read once, each output written once, `inout` both."""
    env = sizes.environment
    return sum(tensor_bytes(t, env) * (2 if t.role == "inout" else 1) for t in plan.parameters)
