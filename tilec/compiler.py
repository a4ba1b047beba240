"""The whole compiler as one call: `.tile` file to `.cu` text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.source.diagnostics import Diagnostic, Sink, TileError, fail
from tilec.source.text import Span
from tilec.targets.table import DEFAULT_ARCH, TARGETS

if TYPE_CHECKING:
    from tilec.ir.tile_ir import Program
    from tilec.syntax import ast
    from tilec.syntax.loading import Program as Loaded


def analyse_file(
    path: str, *, kernel: str | None = None, defines: Mapping[str, str] | None = None
) -> tuple[Loaded, list[tuple[ast.Kernel, Program, object]], Sink]:
    """Parse, resolve and analyse the kernels of a file (all, or one): each with its Tile IR and candidate. Raises TileError."""
    from tilec.analysis import analyse
    from tilec.plan.parameters import make_candidate
    from tilec.syntax import ast
    from tilec.syntax.loading import load

    loaded = load(path)
    sink = Sink()
    found: list[tuple[ast.Kernel, Program, object]] = []
    kernels = [item for item in loaded.main.items if isinstance(item, ast.Kernel)]
    if kernel is not None and kernel not in [item.name for item in kernels]:
        names = ", ".join(f"`{item.name}`" for item in kernels) or "none"
        raise fail("E0703", f"`{path}` has no kernel `{kernel}`", note=f"kernels there: {names}")
    for item in kernels:
        if kernel is not None and item.name != kernel:
            continue
        candidate = make_candidate(loaded, item, defines or {}, sink)
        if candidate is None:
            continue
        program = analyse(loaded, item, loaded.main, candidate, sink)
        if program is not None:
            found.append((item, program, candidate))
    sink.raise_if_errors()
    return loaded, found, sink


def compile_file(
    path: str,
    *,
    kernel: str | None = None,
    defines: Mapping[str, str] | None = None,
    archs: Sequence[str] = (DEFAULT_ARCH,),
    print_after: Sequence[str] = (),
    command: str = "",
) -> CompiledFile:
    """Compile the kernels of a file for the given architectures. Raises TileError with every diagnostic."""
    from tilec.emit.unit import UnitKernel, render_header, render_unit
    from tilec.passes import pipeline

    loaded, found, sink = analyse_file(path, kernel=kernel, defines=defines)
    snapshots: dict[str, str] = {}
    units: list[UnitKernel] = []
    compiled: list[CompiledKernel] = []
    failures: list[Diagnostic] = []
    for item, program, candidate in found:
        try:
            unit, result = _compile_kernel(item, program, candidate, archs, print_after, snapshots, sink)
        except TileError as error:
            failures += error.diagnostics
            continue
        units.append(unit)
        compiled.append(result)
    if failures:
        raise TileError([*sink.diagnostics, *failures])
    name = loaded.main.source.name
    del pipeline
    return CompiledFile(
        name,
        tuple(archs),
        render_unit(name, command, units),
        render_header(name, units),
        tuple(compiled),
        tuple(loaded.files),
        tuple(sink.diagnostics),
        snapshots,
    )


def _compile_kernel(item, program, candidate, archs, print_after, snapshots, sink):  # type: ignore[no-untyped-def]
    raise AssertionError
