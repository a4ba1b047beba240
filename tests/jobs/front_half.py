"""The compiler's front half as `compile_file`: real syntax, analysis and messages, a placeholder for the generated text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from tilec.analysis.analyse import analyse
from tilec.compiled import CompiledFile, CompiledKernel
from tilec.ir.kernel_ir import Kernel
from tilec.ir.launch import LaunchPlan, TargetPlan
from tilec.ir.tile_ir import Program
from tilec.plan.parameters import make_candidate
from tilec.runtime.arguments import plan_without_launches
from tilec.source.diagnostics import Sink, fail
from tilec.syntax import ast
from tilec.syntax.loading import load

CU = "__global__ void placeholder() {}\n"


def plan_of(program: Program, archs: Sequence[str]) -> LaunchPlan:
    """A plan with a target for each architecture, none of which launches anything."""
    return replace(plan_without_launches(program), targets=tuple(TargetPlan(a, ()) for a in archs))


class PrintedKernel(CompiledKernel):
    """A kernel without Kernel IR, whose text says so much."""

    @cached_property
    def kernel_ir(self) -> Mapping[str, str]:
        return {arch: f"kernel {self.name} for {arch}\n" for arch in self.lowered}


def compile_front(
    path: str,
    *,
    kernel: str | None = None,
    defines: Mapping[str, str] | None = None,
    archs: Sequence[str] = ("sm_80",),
    print_after: Sequence[str] = (),
    stop: str = "cu",
    command: str = "",
    jobs: int = 1,
) -> CompiledFile:
    """As `tilec.compiler.compile_file`, in one process whatever `jobs` says."""
    files, sink = load(path), Sink()
    kernels = []
    declared = [i for i in files.main.items if isinstance(i, ast.Kernel)]
    if kernel is not None and kernel not in [k.name for k in declared]:
        names = ", ".join(f"`{k.name}`" for k in declared)
        raise fail("E0706", f"`{path}` has no kernel `{kernel}`", help=f"it has {names}")
    for item in declared:
        if kernel is not None and item.name != kernel:
            continue
        candidate = make_candidate(item, files.scope(files.main), defines or {}, sink)
        program = candidate and analyse(files, item, files.main, candidate, sink)
        if program:
            plan = plan_of(program, archs)
            none: dict[str, tuple[Kernel, ...]] = dict.fromkeys(archs, ())
            kernels.append(
                PrintedKernel(program.name, program, plan, none, partial(dict, kernel=program.name))
            )
    sink.raise_if_errors()
    return CompiledFile(
        path,
        tuple(archs),
        f"// {command}\n{CU}",
        "#pragma once\n",
        tuple(kernels),
        files.files,
        tuple(sink.diagnostics),
        {name: f"// after {name}\n" for name in print_after if name != "nothing"},
    )
