"""From a file to a kernel that can be called."""

from __future__ import annotations

import os
from typing import Any

from tilec.calling.kernel import Device, Kernel, Launcher
from tilec.calling.signature import define_text
from tilec.syntax import ast


def compile_kernel(
    file: str | os.PathLike[str],
    kernel: str | None = None,
    *,
    arch: str | None = None,
    device: Device = "auto",
    launcher: Launcher = "auto",
    nvcc: str | None = None,
    tuned: bool = True,
    **defines: Any,
) -> Kernel:
    """A kernel of a `.tile` file: the one named, else the first. `defines` are bracket parameters: numbers, bools, dtypes
    (`"f16"`, `torch.float16`). `arch` is an architecture other than the device's; `device="cpu"` runs on the emulator;
    `launcher` chooses how a GPU is reached; `tuned=False` leaves out what `tilec tune` found.

    Raises TileError with every error of the program.
    """
    from tilec.analysing import no_kernel
    from tilec.jobs.requests import check_source, parse_archs
    from tilec.syntax.loading import load

    path = os.fspath(file)
    check_source(path)
    if arch is not None:
        parse_archs((arch,))
    module = load(path).main
    kernels = [item for item in module.items if isinstance(item, ast.Kernel)]
    syntax = next((k for k in kernels if kernel is None or k.name == kernel), None)
    if syntax is None:
        raise no_kernel(path, kernel, [k.name for k in kernels])
    texts = {name: define_text(value) for name, value in defines.items()}
    found = Kernel(
        path,
        syntax.name,
        syntax,
        texts,
        arch=arch,
        device=device,
        launcher=launcher,
        nvcc=nvcc,
        tuned=tuned,
    )
    _check_program(found, syntax)
    return found


def _check_program(kernel: Kernel, syntax: ast.Kernel) -> None:
    """Every error of the program now rather than at the first call, unless a bracket parameter is still open."""
    from tilec.compiler import analyse_file

    if all(b.default is not None or b.name in kernel.defines for b in syntax.brackets):
        analyse_file(kernel.file, kernel=kernel.name, defines=kernel.defines)
