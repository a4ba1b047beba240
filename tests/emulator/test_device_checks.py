"""What the GPU tests ask of the device primitives, asked of the host's: lanes, atomics, conversions, memory, instructions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emit import device_checks as checks
from tests.emit.device_program import (
    UNARY,
    VALUES,
    VECTOR_ATOMICS,
    Driver,
    Library,
    compile_library,
    drivers,
)
from tests.gpu import test_primitives as on_gpu
from tilec.emulator.build import FLAGS, host_toolchain
from tilec.emulator.library import HostKernel, Memory, Schedule
from tilec.runtime.launching import ConcreteLaunch, PackedArgument
from tilec.toolchain.cache import cache_key, default_cache

LEFT_OUT = re.compile(r"^(exp|log|sqrt|sin|cos|tanh|erf|sigmoid|div|pow)\w*_double$|_strict_")
"""What is the C library's or plain C++ above it, and tested on the CPU elsewhere."""


def source_of(driver: Driver) -> str:
    """A kernel for one driver; its shared memory is declared as the compiler declares it."""
    body = re.sub(
        r"__shared__ ([\w<>]+) scratch\[(\d+)\];",
        r"struct Shared { SharedArray<\1, \2> scratch; };\n  auto& scratch = cta_shared<Shared>().scratch;",
        driver.body,
    )
    return (
        f'extern "C" __global__ void {driver.name}_kernel(const {driver.x}* xs, '
        f"const {driver.y}* ys, {driver.out}* out, int64_t n) {{\n"
        f"  const int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x;\n  if (i >= n) return;\n"
        f"  {body}\n}}\n"
        f'extern "C" __attribute__((visibility("default"))) int launch_{driver.name}('
        f"tilec_host::Launch* launch) {{\n"
        f"  return tilec_host::enter(launch, &{driver.name}_kernel);\n}}\n"
    )


class Emulated(Library):
    """The drivers on the emulator, each a kernel of 128 threads a CTA."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gpu = True

    def run(self, name: str, n: int, xs: Any, out: Any, ys: Any = None) -> Any:
        """Runs one driver on arrays."""
        arrays = [np.ascontiguousarray(xs), np.zeros(1, np.int8) if ys is None else ys, out]
        arrays[1] = np.ascontiguousarray(arrays[1])
        addresses = [a.ctypes.data for a in arrays]
        arguments = (*(PackedArgument("P", a) for a in addresses), PackedArgument("q", n))
        launch = ConcreteLaunch(name, -(-n // 128), 128, 0, 1, arguments)
        memory = [Memory(f"a{i}", a.ctypes.data, a.nbytes, i == 2) for i, a in enumerate(arrays)]
        fault, _ = HostKernel(self.path, f"launch_{name}").launch(launch, memory, Schedule())
        assert fault is None, fault
        return out


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    folder = tmp_path_factory.mktemp("emulated")
    tools = host_toolchain()
    text = "\n".join(source_of(d) for d in drivers() if not LEFT_OUT.search(d.name))
    source = folder / "drivers.cc"
    source.write_text(f'#include "tilec_host.h"\n#line 1 "drivers"\n{text}', encoding="utf-8")
    command = [str(tools.compiler.path), *FLAGS, f"-I{tools.folder}", "-shared"]
    key = cache_key("drivers", tools.identity, text)
    if kept := default_cache().get(key):
        (folder / "drivers.so").write_bytes(kept.blob)
    else:
        compile_library([*command, *tools.objects], source, folder / "drivers.so")
        default_cache().put(key, (folder / "drivers.so").read_bytes(), {"kind": "drivers"})
    return Emulated(folder / "drivers.so")


@pytest.mark.parametrize("source", VALUES)
def test_conversions(library: Emulated, source: str) -> None:
    checks.check_conversions(library, source)


def test_memory(library: Emulated) -> None:
    checks.check_vector_conversions(library)
    checks.check_partial_access(library)
    checks.check_words(library)


def test_arithmetic(library: Emulated) -> None:
    checks.check_integers(library)
    checks.check_float_arithmetic(library)
    checks.check_divisors(library)
    checks.check_half_precision(library)


@pytest.mark.parametrize("function", UNARY)
def test_mathematics(library: Emulated, function: str) -> None:
    checks.check_math(library, function, "fast", "float")


@pytest.mark.parametrize("op", sorted(on_gpu.COMBINE))
@pytest.mark.parametrize("kind", ["int32_t", "uint8_t", "int64_t", "float", "double"])
def test_reductions_and_scans(library: Emulated, op: str, kind: str) -> None:
    on_gpu.test_reductions_and_scans(library, op, kind)


def test_bits_places_order_and_flags(library: Emulated) -> None:
    on_gpu.test_sums_have_the_same_bits_in_all_threads_and_runs(library)
    on_gpu.test_places_of_extremes(library, "OpArgMax", np.argmax)
    on_gpu.test_places_of_extremes(library, "OpArgMin", np.argmin)
    on_gpu.test_reductions_with_slots_order_and_flags(library)


@pytest.mark.parametrize("kind", [*on_gpu.INTEGERS, *on_gpu.FLOATS, "f16_t", "bf16_t"])
def test_atomics(library: Emulated, kind: str) -> None:
    on_gpu.test_atomics(library, kind)
    if kind not in on_gpu.INTEGERS:
        on_gpu.test_a_nan_wins_an_atomic_maximum(library, kind)


@pytest.mark.parametrize(("kind", "length", "widths"), VECTOR_ATOMICS)
def test_vectors_of_atomics(
    library: Emulated, kind: str, length: int, widths: tuple[int, ...]
) -> None:
    on_gpu.test_vectors_of_atomics(library, kind, length, widths)
