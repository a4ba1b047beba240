"""Calling a kernel that was built for the host. The structures are those of `templates/host/runtime.h`."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilec.emulator.tensor_maps import pack
from tilec.ir.dtypes import TF32
from tilec.runtime.launching import ConcreteLaunch, ConcreteMap

Mode = Literal["late", "early", "chaos"]
"""When asynchronous writes land: at the wait that covers them, at their issue, at random between. Who runs ahead: the lower warps and
CTAs, the higher ones, nobody in particular."""

_MODES: dict[Mode, int] = {"late": 0, "early": 1, "chaos": 2}

KINDS = ("load", "store", "shared load", "shared store")
"""What a counter counts, by its number."""

_COUNTERS = 4096


class _Allocation(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_size_t),
        ("end", ctypes.c_size_t),
        ("written", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("writable", ctypes.c_int32),
    ]


class _Fault(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("block", ctypes.c_int32),
        ("other", ctypes.c_int32),
        ("other_line", ctypes.c_int32),
        ("text", ctypes.c_char * 512),
    ]


class _Counter(ctypes.Structure):
    _fields_ = [
        ("line", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("requests", ctypes.c_int64),
        ("units", ctypes.c_int64),
        ("least", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
    ]


class _KeptStacks(ctypes.Structure):
    """Stacks of threads between launches, of one thread of Python."""

    _fields_ = [
        ("base", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("each", ctypes.c_int64),
    ]

    def __del__(self) -> None:
        if self.base:
            ctypes.CDLL(None).munmap(ctypes.c_void_p(self.base), ctypes.c_size_t(self.size))


class _Kept(threading.local):
    def __init__(self) -> None:
        self.stacks = _KeptStacks()


_kept = _Kept()


def kept_stacks() -> _KeptStacks:
    """The stacks that this thread's launches leave to those behind them; `size` in bytes."""
    return _kept.stacks


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_int64),
        ("block", ctypes.c_int32),
        ("shared_bytes", ctypes.c_int32),
        ("resident", ctypes.c_int32),
        ("mode", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("arguments", ctypes.c_char_p),
        ("allocations", ctypes.POINTER(_Allocation)),
        ("allocation_count", ctypes.c_int32),
        ("counter_capacity", ctypes.c_int32),
        ("counters", ctypes.POINTER(_Counter)),
        ("counter_count", ctypes.c_int32),
        ("counting", ctypes.c_int32),
        ("cluster", ctypes.c_int32),
        ("fault", _Fault),
        ("kept", ctypes.POINTER(_KeptStacks)),
    ]


@dataclass(frozen=True)
class Memory:
    """Memory that a kernel may use: address, bytes, and, where reads of bytes that nothing wrote are to be found, the
    address of one byte for each, not 0 where it holds a value."""

    name: str
    address: int
    size: int
    writable: bool
    written: int = 0


@dataclass(frozen=True)
class EmulatedFault:
    """What stopped a kernel. Lines are those of the `.cu`, 0 where unknown; `other` is -1 where one thread is concerned."""

    code: str
    line: int
    thread: int
    block: int
    other: int
    other_line: int
    text: str


@dataclass(frozen=True)
class Counter:
    """Requests of whole warps at one line of the `.cu`. `units` are sectors of 32 bytes, or passes over the banks of
    shared memory, `least` what the bytes touched need at least."""

    line: int
    kind: str
    requests: int
    units: int
    least: int
    bytes: int


@dataclass(frozen=True)
class Schedule:
    """How CTAs and asynchronous operations are ordered: `resident` CTAs run interleaved."""

    mode: Mode = "late"
    seed: int = 0
    resident: int = 2


class HostKernel:
    """One kernel in a shared library, by the name of its entry."""

    def __init__(self, path: Path, entry: str = "tilec_launch") -> None:
        self._entry = getattr(ctypes.CDLL(str(path)), entry)

    def launch(
        self,
        launch: ConcreteLaunch,
        memory: Sequence[Memory],
        schedule: Schedule,
        *,
        counting: bool = False,
    ) -> tuple[EmulatedFault | None, list[Counter]]:
        """Run to the end, or to the first fault; the counters are in order of lines. Raises MemoryError where the
        stacks of the threads do not fit."""
        table = (_Allocation * max(1, len(memory)))(
            *(
                _Allocation(
                    m.address, m.address + m.size, m.written or None, m.name.encode(), m.writable
                )
                for m in memory
            )
        )
        counters = (_Counter * (_COUNTERS if counting else 1))()
        call = _Launch(
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes,
            resident=schedule.resident,
            mode=_MODES[schedule.mode],
            seed=schedule.seed,
            arguments=launch.packed_with(_packed_map) or b"\0",
            allocations=table,
            allocation_count=len(memory),
            counter_capacity=len(counters),
            counters=counters,
            counting=counting,
            cluster=launch.cluster,
            kept=ctypes.pointer(kept_stacks()),
        )
        sys.stdout.flush()
        status = self._entry(ctypes.byref(call))
        if status == 2:
            raise MemoryError(f"stacks of {schedule.resident} CTAs of {launch.block} threads")
        found = [
            Counter(c.line, KINDS[c.kind], c.requests, c.units, c.least, c.bytes)
            for c in sorted(counters[: call.counter_count], key=lambda c: (c.line, c.kind))
        ]
        if status == 0:
            return None, found
        f = call.fault
        text = f.text.decode(errors="replace")
        return (
            EmulatedFault(f"E0{f.code}", f.line, f.thread, f.block, f.other, f.other_line, text),
            found,
        )


def _packed_map(wanted: ConcreteMap) -> bytes:
    return pack(
        wanted.base,
        wanted.dtype.bits // 8,
        wanted.dims,
        wanted.strides,
        wanted.box,
        wanted.swizzle,
        wanted.dtype == TF32,
    )
