"""Kernels of the asynchronous form on the emulator: compiled once, run in every order, compared with interpreter and check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.compiler import compile_file
from tilec.emulator.build import build_kernel, host_toolchain
from tilec.emulator.library import Mode, Schedule
from tilec.emulator.machine import EmulatedModule, Emulator
from tilec.ir import asynchronous as a
from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import bind_sizes, check_call
from tilec.runtime.clauses import find_kernel
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.launching import choose_target, concrete_launches
from tilec.runtime.verify import Case, Tolerance, failures, interpreter_bounds, verify
from tilec.syntax import ast
from tilec.syntax.loading import load
from tilec.targets.table import TARGETS
from tilec.toolchain.cache import default_cache

ARCH = "sm_90a"
ORDERS: tuple[tuple[Mode, int], ...] = (("late", 0), ("early", 0), ("chaos", 1))

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """Outputs of the last order by name, and the kernels that were launched."""

    outputs: Mapping[str, Any]
    launched: tuple[str, ...]


class Program:
    """One kernel of a file, compiled for an architecture: for that with the asynchronous form where none is named."""

    def __init__(
        self,
        path: Path,
        kernel: str | None = None,
        defines: Mapping[str, Any] | None = None,
        arch: str = ARCH,
    ) -> None:
        self.arch = arch
        words = {n: str(v) for n, v in (defines or {}).items()}
        self.file: CompiledFile = compile_file(
            str(path), kernel=kernel, defines=words, archs=(arch,), command=""
        )
        self.kernel: CompiledKernel = self.file.kernels[0]
        self.files = load(str(path))
        self.module = EmulatedModule(path.name, self.file.cu, default_cache())

    def contracted(self) -> EmulatedModule:
        """The kernels with products joined with sums to multiply-adds, as nvcc does where it can."""
        tools = host_toolchain(("-O1", "-ffp-contract=fast", "-mfma", "-fexpensive-optimizations"))
        kernels = {
            low.name: build_kernel(self.file.cu, low.name, "contracted.cu", tools, default_cache())
            for low in self.kernel.lowered[self.arch]
        }
        return EmulatedModule("contracted.cu", self.file.cu, None, kernels)

    @property
    def asynchronous(self) -> set[str]:
        """Names of the kernels in which roles differ."""
        return {
            low.name
            for low in self.kernel.lowered[self.arch]
            if any(isinstance(op, a.Roles) for op in low.body)
        }

    def run(
        self,
        numbers: Mapping[str, float],
        change: Callable[[Arrays], None] | None = None,
        orders: Sequence[tuple[Mode, int]] = (),
        module: EmulatedModule | None = None,
        checked: bool = True,
    ) -> Ran:
        """Run a call in each order and verify it; `change` edits the inputs, `checked` also evaluates the check clause. Raises
        AssertionError at a difference and TileError at a fault."""
        plan = self.kernel.plan
        sizes = bind_sizes(plan, {}, dict(numbers))
        check_call(plan, sizes)
        arrays = make_inputs(self.kernel.program, sizes.numbers, dict(sizes.scalars), 7)
        if change is not None:
            change(arrays)
        syntax = find_kernel(self.files.main, self.kernel.name)
        assert syntax is not None
        if not checked:
            clauses = tuple(c for c in syntax.clauses if not isinstance(c, ast.Check))
            syntax = replace(syntax, clauses=clauses)
        case = Case(self.kernel.program, self.files, syntax, sizes, arrays, 7)
        bounds = interpreter_bounds(case)
        outputs: Arrays = {}
        # without roles a third order shows nothing that the first two do not
        for mode, seed in orders or (ORDERS if self.asynchronous else ORDERS[:2]):
            emulator = Emulator(self.arch, Schedule(mode, seed))
            with prepare_call(emulator, plan, module or self.module, sizes, arrays) as call:
                call.launch()
                outputs = call.results()
                call.check_surroundings()
            kept = dict(bounds.values)
            findings = verify(case, outputs, bounds, Tolerance())
            bounds.values.update(kept)
            wrong = failures(findings)
            assert not wrong, f"{dict(numbers)}, {mode} {seed}: {wrong}"
        return Ran(outputs, self.launched(numbers))

    def launched(self, numbers: Mapping[str, float]) -> tuple[str, ...]:
        """The kernels that a call at these sizes launches."""
        plan = self.kernel.plan
        addresses = {t.name: (n + 1) << 32 for n, t in enumerate(plan.parameters)}
        launches = concrete_launches(
            plan,
            choose_target(
                plan, (TARGETS[self.arch].compute // 10, TARGETS[self.arch].compute % 10)
            ),
            bind_sizes(plan, {}, dict(numbers)),
            addresses,
            1 << 40,
            multiprocessors=3,
        )
        return tuple(launch.kernel for launch in launches)
