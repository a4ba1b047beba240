"""Running kernel text that a test wrote, on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tilec.emulator.library import Counter, Mode, Schedule
from tilec.emulator.machine import EmulatedModule, Emulator
from tilec.emulator.tensor_maps import pack
from tilec.runtime.launching import ConcreteLaunch, PackedArgument
from tilec.source.diagnostics import Diagnostic, TileError

CODES = {
    np.dtype(np.int32): "i",
    np.dtype(np.int64): "q",
    np.dtype(np.float32): "f",
    np.dtype(np.float64): "d",
}


SCHEDULES = [("late", 0), ("early", 0), ("chaos", 1), ("chaos", 2), ("chaos", 3)]
every_schedule = pytest.mark.parametrize(("mode", "seed"), SCHEDULES)


@dataclass(frozen=True)
class Map:
    """A tensor map of the array that is argument `place`; the map's own axes, the fastest first. `pitch`: bytes of a row,
    where those are not contiguous. Maps come before all other arguments."""

    place: int
    box: Sequence[int]
    swizzle: int = 0
    dims: Sequence[int] = ()
    pitch: int = 0


def map_of(given: Map, array: np.ndarray[Any, Any], address: int) -> bytes:
    """The 128 bytes."""
    item = array.itemsize
    dims = list(given.dims) or list(array.shape[::-1])
    strides = [given.pitch or dims[0] * item]
    for count in dims[1:-1]:
        strides.append(strides[-1] * count)
    return pack(address, item, dims, strides[: len(dims) - 1], given.box, given.swizzle)


def kernel(parameters: str, body: str, threads: int = 128, cluster: int = 1) -> str:
    """The text of a kernel `k` whose body knows its `thread`."""
    attribute = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    return (
        f'extern "C" __global__ void {attribute}__launch_bounds__({threads}, 1)\n'
        f"k({parameters}) {{\nconst int thread = threadIdx.x;\n{body}\n}}"
    )


def floats(rows: int, cols: int) -> np.ndarray[Any, Any]:
    """Different numbers, none of them 0."""
    return np.arange(rows * cols, dtype=np.float32).reshape(rows, cols) + 1


def cu_of(body: str, kernel: str = "k") -> str:
    """A `.cu` around kernel text. A body without a kernel becomes that of `k`, its parameters on the first line."""
    if "__global__" not in body:
        parameters, _, rest = body.strip().partition("\n")
        body = f'extern "C" __global__ void __launch_bounds__(32, 1)\n{kernel}({parameters}) {{\n{rest}\n}}'
    return f"// before\n// kernel begin\n{body}\n// kernel end\n"


@cache
def module_of(cu: str) -> EmulatedModule:
    """The kernels of a text, built once."""
    return EmulatedModule("test.cu", cu, None)


def run(
    body: str,
    *arguments: Any,
    grid: int = 1,
    block: int = 32,
    mode: Mode = "late",
    seed: int = 0,
    resident: int = 2,
    counting: bool = False,
    kernel: str = "k",
    offsets: dict[int, int] | None = None,
    shared: int = 0,
    cluster: int = 1,
) -> list[Counter]:
    """Run a kernel; arrays are copied to the emulator and back. Raises TileError at a fault."""
    emulator = Emulator("sm_80", Schedule(mode, seed, resident), counting=counting, cache=None)
    packed: list[Any] = []
    buffers = []
    for place, argument in enumerate(arguments):
        if isinstance(argument, Map):
            packed.append(argument)
        elif isinstance(argument, np.ndarray):
            offset = (offsets or {}).get(place, 0)
            buffer = emulator.allocate(f"a{place}", argument.nbytes, offset=offset)
            emulator.upload(buffer, argument.reshape(-1).view(np.uint8))
            buffers.append((buffer, argument))
            packed.append(PackedArgument("P", buffer.address))
        else:
            value = np.asarray(argument)
            packed.append(PackedArgument(CODES[value.dtype], value.item()))
    addresses = {buffer.name: buffer.address for buffer, _ in buffers}
    packed = [
        PackedArgument("128s", map_of(a, np.asarray(arguments[a.place]), addresses[f"a{a.place}"]))
        if isinstance(a, Map)
        else a
        for a in packed
    ]
    launch = ConcreteLaunch(kernel, grid, block, shared, cluster, tuple(packed))
    module = module_of(cu_of(body))
    emulator.launch(emulator.prepare(module, [launch]))
    for buffer, array in buffers:
        emulator.download(buffer, array)
    return emulator.counters.get(kernel, [])


def fault(body: str, *arguments: Any, **how: Any) -> Diagnostic:
    """The one message that running a kernel gives."""
    try:
        run(body, *arguments, **how)
    except TileError as error:
        (diagnostic,) = error.diagnostics
        assert error.exit_code == 4
        return diagnostic
    raise AssertionError("the kernel ran without a fault")
