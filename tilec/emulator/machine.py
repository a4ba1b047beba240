"""The emulator as a device: memory with guard bands, kernels, launches; what `tilec.runtime.gpu_run` asks of a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.build import build_kernel, host_toolchain
from tilec.emulator.library import Counter, EmulatedFault, HostKernel, Memory, Schedule
from tilec.emulator.text import place_of
from tilec.reference.numbers import Array
from tilec.runtime.device import GUARD_BYTES, GUARD_PATTERN, Buffer, broken_band
from tilec.runtime.launching import ConcreteLaunch
from tilec.source.diagnostics import Diagnostic, TileError
from tilec.source.text import Source, Span
from tilec.toolchain.cache import Cache, default_cache


@dataclass
class EmulatedModule:
    """The kernels of one `.cu`, each built when it is first launched."""

    name: str
    cu: str
    cache: Cache | None
    kernels: dict[str, HostKernel] = field(default_factory=dict)

    def kernel(self, name: str) -> HostKernel:
        """A kernel by the name of its `__global__` function. Raises TileError (E0802, E7003)."""
        if name not in self.kernels:
            self.kernels[name] = build_kernel(
                self.cu, name, self.name, host_toolchain(), self.cache
            )
        return self.kernels[name]


@dataclass
class Emulator:
    """A device on the CPU. `sources` are the `.tile` files by name, to show the line of a fault."""

    arch: str
    schedule: Schedule = field(default_factory=Schedule)
    counting: bool = False
    build_too: bool = False
    """whether the `.cu` is also built by nvcc, where there is one"""
    sources: Mapping[str, Source] = field(default_factory=dict)
    cache: Cache | None = field(default_factory=default_cache)
    multiprocessors: int = 3
    """so few that kernels whose CTAs walk several instances do"""
    peak_bytes: int = 0
    held_bytes: int = 0
    counters: dict[str, list[Counter]] = field(default_factory=dict)
    """of the launches since they were last taken, by kernel"""
    _held: dict[int, Buffer] = field(default_factory=dict, repr=False)
    _protected: set[int] = field(default_factory=set, repr=False)

    @property
    def name(self) -> str:
        """For the table of results."""
        return "emulator"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability whose code is run."""
        major, minor = divmod(int(self.arch.removeprefix("sm_").rstrip("af")), 10)
        return major, minor

    # ---- memory

    def allocate(self, name: str, size: int, *, offset: int = 0) -> Buffer:
        """`size` bytes `offset` bytes after a 4096-byte boundary, guard bands around them filled."""
        before = GUARD_BYTES + offset
        block: Array = np.empty(before + size + 2 * GUARD_BYTES, np.uint8)
        base = -(-block.ctypes.data // GUARD_BYTES) * GUARD_BYTES
        buffer = Buffer(name, base + before, size, before, GUARD_BYTES, block)
        self.fill(base, GUARD_PATTERN, before)
        self.fill(buffer.address + size, GUARD_PATTERN, GUARD_BYTES)
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        self._held[buffer.address] = buffer
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's memory back."""
        del self._held[buffer.address]
        self._protected.discard(buffer.address)
        self.held_bytes -= buffer.size

    def protect(self, buffer: Buffer) -> None:
        """A store to this buffer is a fault from now on."""
        self._protected.add(buffer.address)

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set `size` bytes."""
        ctypes.memset(address, byte, size)

    def upload(self, buffer: Buffer, data: Array) -> None:
        """Copy a contiguous array into the buffer."""
        if data.nbytes:
            ctypes.memmove(buffer.address, np.ascontiguousarray(data).ctypes.data, data.nbytes)

    def download(self, buffer: Buffer, into: Array) -> None:
        """Copy the buffer's bytes into a contiguous array of that many bytes."""
        if buffer.size:
            ctypes.memmove(into.ctypes.data, buffer.address, into.nbytes)

    def broken_guard(self, buffer: Buffer) -> str:
        """Where a guard band was written to, in words; empty if both are whole."""
        return broken_band(buffer, _bytes_at)

    # ---- kernels

    def module(self, name: str, cu: str) -> EmulatedModule:
        """The kernels of a `.cu`; `name` is shown in messages."""
        return EmulatedModule(name, cu, self.cache)

    def prepare(
        self, module: EmulatedModule, launches: Sequence[ConcreteLaunch]
    ) -> list[tuple[EmulatedModule, ConcreteLaunch]]:
        """Builds what the launches need. Raises TileError (E0802, E7003)."""
        for launch in launches:
            module.kernel(launch.kernel)
        return [(module, launch) for launch in launches]

    def launch(self, prepared: Iterable[tuple[EmulatedModule, ConcreteLaunch]]) -> None:
        """Run launches in order. Raises TileError (E0930 to E0946) at the first fault."""
        memory = [
            Memory(b.name, b.address, b.size, b.address not in self._protected)
            for b in self._held.values()
        ]
        for module, launch in prepared:
            fault, counters = module.kernel(launch.kernel).launch(
                launch, memory, self.schedule, counting=self.counting
            )
            if self.counting:
                self.counters.setdefault(launch.kernel, []).extend(counters)
            if fault is not None:
                raise self.explain(fault, module, launch)

    def take_counters(self, module: EmulatedModule) -> tuple[dict[str, Any], ...]:
        """What was counted since the last call: for each kernel and line of the `.tile` file the requests of warps, the
        sectors of 32 bytes of global memory, or the passes over the banks of shared memory, and how many of them the
        bytes need at least."""
        found: dict[tuple[str, str, int, str], list[int]] = {}
        for kernel, counters in self.counters.items():
            for c in counters:
                place = place_of(module.cu, c.line)
                file, line = (place.file, place.line) if place else ("", 0)
                totals = found.setdefault((kernel, file, line, c.kind), [0, 0, 0, 0])
                for i, value in enumerate((c.requests, c.units, c.least, c.bytes)):
                    totals[i] += value
        self.counters = {}
        names = ("requests", "units", "least", "bytes")
        return tuple(
            {
                "kernel": kernel,
                "file": file,
                "line": line,
                "kind": kind,
                **dict(zip(names, totals, strict=True)),
            }
            for (kernel, file, line, kind), totals in found.items()
        )

    def finish(self, doing: str) -> None:
        """Nothing is left to wait for."""

    # ---- messages

    def explain(
        self, fault: EmulatedFault, module: EmulatedModule, launch: ConcreteLaunch
    ) -> TileError:
        """The message for a fault: which thread, which line of the `.tile` file and of the generated one."""
        place = place_of(module.cu, fault.line)
        where = f" at {place.file}:{place.line}" if place else ""
        lines = module.cu.splitlines()
        notes = [
            f"thread {fault.thread} of CTA {fault.block}, {launch.grid} CTAs of {launch.block} threads"
        ]
        if 0 < fault.line <= len(lines):
            notes.append(
                f"line {fault.line} of the generated code: `{lines[fault.line - 1].strip()}`"
            )
        if 0 < fault.other_line <= len(lines) and fault.other_line != fault.line:
            text = lines[fault.other_line - 1].strip()
            notes.append(f"thread {fault.other} was at line {fault.other_line}: `{text}`")
        return TileError(
            [
                Diagnostic(
                    fault.code,
                    f"`{launch.kernel}` {fault.text}{where}",
                    self._span(place.file, place.line) if place else None,
                    notes=tuple(notes),
                    helps=(
                        "this is a fault of tilec: please report it with the program and the sizes",
                    )
                    if fault.code != "E0937"
                    else (),
                )
            ]
        )

    def _span(self, file: str, line: int) -> Span | None:
        source = self.sources.get(file)
        if source is None:
            return None
        start = sum(len(text) for text in source.text.splitlines(keepends=True)[: line - 1])
        text = source.line(line)
        indent = len(text) - len(text.lstrip())
        return Span(source, start + indent, start + len(text.rstrip()))


def _bytes_at(address: int, size: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
