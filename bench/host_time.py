"""Host time of a call: 10,000 calls of a kernel with an empty body and three tensors, without synchronisation between them.

    python bench/host_time.py --json bench/results/host_time.json

In the same run, in turn: the C launcher called from a compiled loop and a bare launch as its limit; the Python call through the
extension ("fast call"), on the default stream and on another one, with its output given and made; the same without the extension, by
pycuda and by the C launcher through ctypes; a bare launch through ctypes as their limit; `torch.add`; a kernel of Triton. The fast
call is left out, and standard error says so, where the extension could not be built. A round is 10,000 calls in one go; `short` is the same in pieces of 500, between which the GPU is waited for outside of
the time, so that the queue of launches is never full. Microseconds of a call, medians of the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from records import command

import tilec
from tilec.calling.fast_call import FAST_WAY
from tilec.compiler import compile_file
from tilec.runtime.launching import architecture_for
from tilec.toolchain.build import find_toolchain
from tilec.toolchain.shared_library import build_shared_library

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "empty.tile"
SHORT = 500
"""Calls of a piece: fewer than the driver queues."""
ELEMENTS = 1024

Timed = Callable[[int], float]
"""Microseconds a call of so many calls."""


def library(arch: str, folder: Path) -> ctypes.CDLL:
    """The generated file and the loops behind it, built for the device."""
    compiled = compile_file(str(PROGRAM), archs=(arch,))
    text = compiled.cu + (HERE / "host_loop.cuh").read_text(encoding="utf-8")
    path = folder / "host_time.so"
    build_shared_library(text, [arch], path, toolchain=find_toolchain())
    found = ctypes.CDLL(str(path))
    pointers = [ctypes.c_void_p] * 3
    for name in ("time_launcher", "time_bare"):
        function = getattr(found, name)
        function.argtypes = [ctypes.c_int, *pointers, ctypes.c_int, ctypes.c_void_p]
        function.restype = ctypes.c_double
    found.launch_bare.argtypes = [
        *pointers,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    return found


def python_loop(call: Callable[[], Any]) -> Timed:
    """Calls of a Python function."""

    def timed(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) * 1e6 / calls

    return timed


def triton_call(a: Any, b: Any, c: Any) -> Callable[[], Any] | None:
    """An empty kernel of Triton on three tensors; None without Triton."""
    try:
        from host_time_triton import empty
    except ImportError:
        return None
    return lambda: empty[(1,)](a, b, c, ELEMENTS, block=1024)


def contestants(folder: Path) -> tuple[dict[str, Timed], torch.cuda.Stream]:
    """What is timed, by name, and the stream that those beside the default one use."""
    arch = architecture_for(torch.cuda.get_device_capability())
    a, b, c = (torch.zeros(ELEMENTS, device="cuda") for _ in range(3))
    loops = library(arch, folder)
    stream = torch.cuda.Stream()
    handle = stream.cuda_stream
    places = [t.data_ptr() for t in (a, b, c)]
    kernel = tilec.compile(PROGRAM)
    by_c = tilec.compile(PROGRAM, launcher="c")
    by_pycuda = tilec.compile(PROGRAM, launcher="pycuda")

    def plain(*arguments: Any, **named: Any) -> Any:
        """As calls are without the extension: what the class's own `__call__` does."""
        return tilec.Kernel.__call__(by_c, *arguments, **named)

    def on_stream(call: Callable[[], Any]) -> Timed:
        timed = python_loop(call)

        def run(calls: int) -> float:
            with torch.cuda.stream(stream):
                return timed(calls)

        return run

    def c_loop(function: Any) -> Timed:
        def run(calls: int) -> float:
            spent = float(function(calls, *places, ELEMENTS, handle))
            if spent < 0:
                raise SystemExit("a launch failed")
            return spent

        return run

    found: dict[str, Timed] = {
        "bare launch, compiled loop": c_loop(loops.time_bare),
        "C launcher, compiled loop": c_loop(loops.time_launcher),
        "bare launch, ctypes": python_loop(
            lambda: loops.launch_bare(*places, ELEMENTS, 0, None, handle)
        ),
        "kernel(a, b, 0, c=c), fast call": python_loop(lambda: kernel(a, b, 0, c=c)),
        "kernel(a, b, 0), fast call": python_loop(lambda: kernel(a, b, 0)),
        "kernel(a, b, 0, c=c), fast call, another stream": on_stream(lambda: kernel(a, b, 0, c=c)),
        "kernel(a, b, 0), fast call, another stream": on_stream(lambda: kernel(a, b, 0)),
        "kernel(a, b, 0, c=c), default stream": python_loop(lambda: by_pycuda(a, b, 0, c=c)),
        "kernel(a, b, 0, c=c), default stream, C launcher": python_loop(
            lambda: plain(a, b, 0, c=c)
        ),
        "kernel(a, b, 0, c=c), another stream": on_stream(lambda: plain(a, b, 0, c=c)),
        "kernel(a, b, 0), another stream": on_stream(lambda: plain(a, b, 0)),
        "torch.add(a, b, out=c)": python_loop(lambda: torch.add(a, b, out=c)),
        "torch.add(a, b)": python_loop(lambda: torch.add(a, b)),
    }
    for _ in range(2):
        kernel(a, b, 0, c=c)
    if kernel.last_path != FAST_WAY:
        print(f"no fast call: the extension is not there, {kernel.last_path}", file=sys.stderr)
        found = {name: timed for name, timed in found.items() if "fast call" not in name}
    triton = triton_call(a, b, c)
    if triton is not None:
        found["Triton"] = python_loop(triton)
    return found, stream


def short(timed: Timed, calls: int) -> float:
    """The same in pieces that the queue holds."""
    pieces = []
    for _ in range(max(1, calls // SHORT)):
        pieces.append(timed(SHORT))
        torch.cuda.synchronize()
    return statistics.fmean(pieces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        timed, _stream = contestants(Path(folder))
        for one in timed.values():
            one(SHORT)  # builds, loads, warms
        torch.cuda.synchronize()
        whole: dict[str, list[float]] = {name: [] for name in timed}
        pieces: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(options.rounds):
            for name, one in timed.items():
                whole[name].append(one(options.calls))
                torch.cuda.synchronize()
                pieces[name].append(short(one, options.calls))
    rows = [
        {
            "call": name,
            "us": round(statistics.median(whole[name]), 3),
            "least_us": round(min(whole[name]), 3),
            "short_us": round(statistics.median(pieces[name]), 3),
        }
        for name in timed
    ]
    width = max(len(name) for name in timed)
    print(f"{'call':<{width}}  us     least  short")
    for row in rows:
        print(f"{row['call']:<{width}}  {row['us']:<6} {row['least_us']:<6} {row['short_us']}")
    if options.json:
        data = {
            "command": command(),
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "tilec": tilec.__version__,
            "calls": options.calls,
            "rounds": options.rounds,
            "rows": rows,
        }
        options.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
