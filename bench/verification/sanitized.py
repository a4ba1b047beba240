"""Launches kernels of shared libraries once each, for a checking tool around it: python -m verification.sanitized JOBS.pickle

The driver library alone makes memory: one allocation of exactly its bytes for each argument, so that an access beyond it is
outside of all memory that there is. Prints a line for each kernel.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilec.compiled import CompiledKernel
from tilec.runtime.arguments import CallSizes, tensor_bytes
from tilec.runtime.arrays import poison
from verification.calls import Call


@dataclass(frozen=True)
class Launched:
    """One call: the kernel, its library, sizes, and the inputs' bytes."""

    kernel: CompiledKernel
    library: Path
    sizes: CallSizes
    arrays: dict[str, Any]


class Memory:
    """Device memory by the driver API, in the primary context that the launchers use."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self.check(self.cuda.cuCtxSetCurrent(context))
        self.held: list[int] = []

    def check(self, status: int) -> None:
        """Raises RuntimeError for a status of the driver that is not 0."""
        if status:
            raise RuntimeError(f"the driver answers {status}")

    def bytes(self, size: int, fill: int = 0xFF) -> int:
        """The address of `size` bytes."""
        if not size:
            return 0
        address = ctypes.c_uint64()
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        self.check(self.cuda.cuMemsetD8_v2(address, ctypes.c_ubyte(fill), ctypes.c_size_t(size)))
        self.held.append(address.value)
        return address.value

    def upload(self, address: int, array: Any) -> None:
        """Copy an array's bytes."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if data.size:
            source = data.ctypes.data_as(ctypes.c_void_p)
            size = ctypes.c_size_t(data.size)
            self.check(self.cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), source, size))

    def free(self) -> None:
        """Give everything back."""
        for address in self.held:
            self.cuda.cuMemFree_v2(ctypes.c_uint64(address))
        self.held.clear()


def main() -> int:
    """Launch all; 1 where a launcher refuses or a kernel faults."""
    with open(sys.argv[1], "rb") as file:
        calls: list[Launched] = pickle.load(file)
    memory = Memory()
    for one in calls:
        call = Call(one.kernel, one.library)
        env = one.sizes.environment
        places = {}
        for tensor in one.kernel.plan.parameters:
            size = tensor_bytes(tensor, env)
            places[tensor.name] = memory.bytes(size, poison(tensor.dtype))
            if tensor.role != "output" and size:
                memory.upload(
                    places[tensor.name], one.arrays[tensor.name].reshape(-1).view(np.uint8)[:size]
                )
        status = call(places, one.sizes, memory.bytes(call.workspace_bytes(one.sizes)))
        finished = memory.cuda.cuCtxSynchronize()
        print(f"{one.kernel.name} at {one.sizes}: status {status}, {finished}", flush=True)
        if status or finished:
            print(call.error, file=sys.stderr)
            return 1
        memory.free()
    return 0


if __name__ == "__main__":
    sys.exit(main())
