"""The same kernel text on the GPU and on the emulator: outputs compared bit by bit.

Kernels without transcendental functions and without float reductions or products must agree in every bit; of the others the
number that differs is counted, their results are verified by bound elsewhere.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from tests.known_faults.cases import texts
from tilec.compiled import CompiledKernel
from tilec.emulator.machine import Emulator, Schedule
from tilec.ir import tile_ir as t
from tilec.passes.uses import all_ops
from tilec.reference.numbers import Array
from tilec.runtime.arguments import CallSizes
from tilec.runtime.device import Gpu, open_gpu
from tilec.runtime.gpu_run import prepare_call
from tilec.source.diagnostics import TileError
from verification.cases import Job, example, inputs, ragged
from verification.evidence import Evidence
from verification.kernels import Ready, Source, build_all, sources

SIZES = 4
INEXACT = frozenset(
    {
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tanh",
        "erf",
        "sigmoid",
        "pow",
        "div",
        "fma",
    }
)
"""Operations whose rounding the hardware's approximations decide."""

Outputs = dict[str, Array]


def exact(kernel: CompiledKernel) -> bool:
    """Whether nothing in a kernel leaves its bits to the order or the accuracy of an operation. A product followed by a sum may be
    contracted on the GPU and not on the CPU."""
    for nest in kernel.program.nests:
        for op in all_ops(nest.body):
            match op:
                case t.Dot() if op.out.type.dtype.is_float:
                    return False
                case t.Reduce() if op.op in ("sum", "prod") and op.out.type.dtype.is_float:
                    return False
                case t.Atomic() if op.value.type.dtype.is_float:
                    return False
                case t.Elementwise() if op.out.type.dtype.is_float:
                    if op.op in INEXACT or op.op == "mul":
                        return False
                case _:
                    pass
    return True


def bits(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Compare every sample and every program of the known faults."""
    evidence = Evidence("bits")
    folder = Path(tempfile.mkdtemp())
    paths = []
    for name, text in texts().items():
        path = folder / f"{name}.tile"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    wanted: list[Source] = [*sources(paths, only), *sources(None, only)]
    ready, refused = build_all(wanted, arch, "cubin", jobs)
    for source, error in refused:
        evidence.notes.append(f"{source.kernel} is refused: {error}")
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        # copies of this process, which are made before it opens the GPU
        pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=get_context("fork")))
        waiting = [pool.submit(_emulated, item, arch) for item in ready]
        device = Emulator(arch, Schedule("early")) if dry else stack.enter_context(open_gpu())
        for item, emulated in zip(ready, waiting, strict=True):
            try:
                second = emulated.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                evidence.notes.append(f"{item.source.kernel} was not reached in time")
                emulated.cancel()
                continue
            _compare(evidence, item, device, second)
    return evidence


def _calls(item: Ready) -> list[CallSizes]:
    """The smallest calls in which every size is positive."""
    try:
        calls = [c for c in ragged(item) if all(n > 0 for n in c.dims.values())]
    except TileError:  # a program without an example for the GPU
        calls = [example(item, "cpu")]
    return sorted(calls, key=lambda c: sum(c.dims.values()))[:SIZES]


def _emulated(item: Ready, arch: str) -> list[Outputs | str]:
    """What the emulator writes in each call of a kernel, or what it reports."""
    machine = Emulator(arch)
    found: list[Outputs | str] = []
    for sizes in _calls(item):
        try:
            found.append(_outputs(item, machine, sizes))
        except TileError as error:
            found.append(str(error))
    return found


def _compare(
    evidence: Evidence, item: Ready, device: Gpu | Emulator, emulated: list[Outputs | str]
) -> None:
    kernel = item.kernel
    kind = "exact" if exact(kernel) else "approximate"
    for sizes, second in zip(_calls(item), emulated, strict=True):
        try:
            if isinstance(second, str):
                raise RuntimeError(second)
            first = _outputs(item, device, sizes)
        except (TileError, RuntimeError) as error:
            evidence.record(
                f"{kind} kernels",
                False,
                f"{kernel.name} at {sizes}: {error}",
                program=kernel.name,
                sizes=str(sizes),
            )
            continue
        differing = sum(int(np.count_nonzero(first[n] != second[n])) for n in first)
        if kind == "exact":
            words = f"{kernel.name} at {sizes}: {differing} bytes differ"
            evidence.record(
                "exact kernels", differing == 0, words, program=kernel.name, sizes=str(sizes)
            )
        else:
            evidence.add(
                "approximate kernels", "equal bits" if differing == 0 else "differing bits"
            )


def _outputs(item: Ready, machine: Gpu | Emulator, sizes: CallSizes) -> Outputs:
    """The bytes of every output."""
    arrays = inputs(Job(item.source, sizes, beyond=False), item.kernel.program)
    if isinstance(machine, Emulator):
        module = machine.module(item.kernel.name, item.compiled.cu)
    else:
        module = machine.load(item.built.blob)
    with prepare_call(machine, item.kernel.plan, module, sizes, arrays) as call:
        call.launch()
        call.finish()
        return {n: a.reshape(-1).view(np.uint8).copy() for n, a in call.results().items()}
