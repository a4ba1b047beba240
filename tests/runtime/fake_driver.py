"""pycuda's driver module as far as tilec uses it, on host memory: kernels are Python functions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

BASE = 1 << 32


class Error(Exception):
    """Any failure of the driver."""


class DriverMemoryError(Error):
    """Too little memory."""


class Memory:
    """Allocations at distinct addresses with gaps between them."""

    def __init__(self, limit: int = 1 << 28) -> None:
        self.limit = limit
        self.blocks: dict[int, np.ndarray] = {}
        self.next = BASE

    def allocate(self, size: int) -> Allocation:
        if sum(b.size for b in self.blocks.values()) + size > self.limit:
            raise DriverMemoryError("cuMemAlloc failed: out of memory")
        address = self.next
        self.blocks[address] = np.zeros(size, np.uint8)
        self.next = address + (size + 8191) // 4096 * 4096
        return Allocation(self, address)

    def at(self, address: int, size: int) -> np.ndarray:
        """The bytes [address, address + size) of one block."""
        for base, block in self.blocks.items():
            if base <= address and address + size <= base + block.size:
                return block[address - base : address - base + size]
        raise Error(f"an address outside of all blocks: {address:#x} + {size}")


class Allocation:
    """What mem_alloc returns."""

    def __init__(self, memory: Memory, address: int) -> None:
        self.memory, self.address = memory, address

    def __int__(self) -> int:
        return self.address

    def free(self) -> None:
        del self.memory.blocks[self.address]


class Event:
    """A clock that advances by one microsecond an event."""

    def __init__(self, clock: list[int]) -> None:
        self.clock, self.time = clock, 0

    def record(self) -> None:
        self.clock[0] += 1
        self.time = self.clock[0]

    def time_till(self, other: Event) -> float:
        return (other.time - self.time) / 1000


Kernel = Callable[..., None]
"""Called with (memory, grid, block, *arguments)."""


def fake_driver(kernels: Mapping[str, Kernel], memory: Memory | None = None) -> SimpleNamespace:
    """The module. `log` collects what was launched."""
    store = memory or Memory()
    log: list[tuple[str, tuple[int, int], tuple[int, int, int], int]] = []
    clock = [0]

    class Function:
        def __init__(self, name: str) -> None:
            if name not in kernels:
                raise Error(f"cuModuleGetFunction failed: no {name}")
            self.name, self.format = name, ""
            self.attributes: dict[str, int] = {}

        def prepare(self, format_: str) -> None:
            self.format = format_

        def set_attribute(self, attribute: str, value: int) -> None:
            self.attributes[attribute] = value

        def prepared_async_call(self, grid, block, stream, *arguments, shared_size=0) -> None:
            if shared_size > 48 << 10 and self.attributes.get("shared", 0) < shared_size:
                raise Error("too much shared memory")
            struct.pack(self.format, *arguments)
            log.append((self.name, grid, block, shared_size))
            kernels[self.name](store, grid, block, *arguments)

    def copy_out(target: Any, address: int) -> None:
        target[...] = store.at(address, target.size)

    def copy_in(address: int, source: Any) -> None:
        store.at(address, source.size)[...] = source

    def fill(address: int, byte: int, size: int) -> None:
        store.at(address, size)[...] = byte

    def copy(target: int, source: int, size: int) -> None:
        store.at(target, size)[...] = store.at(source, size)

    return SimpleNamespace(
        Error=Error,
        MemoryError=DriverMemoryError,
        mem_alloc=store.allocate,
        mem_get_info=lambda: (store.limit, store.limit),
        memset_d8=fill,
        memcpy_htod=copy_in,
        memcpy_dtoh=copy_out,
        memcpy_dtod=copy,
        module_from_buffer=lambda blob: SimpleNamespace(get_function=Function),
        Context=SimpleNamespace(synchronize=lambda: None),
        Event=lambda: Event(clock),
        function_attribute=SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="shared"),
        device_attribute=SimpleNamespace(
            L2_CACHE_SIZE="l2", MULTIPROCESSOR_COUNT="multiprocessors"
        ),
        get_driver_version=lambda: 13000,
        memory=store,
        log=log,
    )


def fake_device(capability: tuple[int, int] = (9, 0)) -> SimpleNamespace:
    """A device of some compute capability with a small cache."""
    return SimpleNamespace(
        name=lambda: "Fake GPU",
        compute_capability=lambda: capability,
        get_attribute=lambda which: {"l2": 1 << 16, "multiprocessors": 7}[which],
    )
