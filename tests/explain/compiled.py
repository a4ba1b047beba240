"""Kernel IR of samples and small programs, compiled once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilec.compiler import compile_file
from tilec.ir import kernel_ir as k

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@cache
def kernels(file: str, name: str, arch: str, **defines: str) -> tuple[k.Kernel, ...]:
    """The variants of a kernel, the best first. `file` is a sample's name or a path."""
    path = file if file.endswith(".tile") else str(SAMPLES / f"{file}.tile")
    compiled = compile_file(path, kernel=name, archs=(arch,), defines=defines, stop="kernel-ir")
    return compiled.kernel(name).lowered[arch]


def best(file: str, name: str, arch: str, **defines: str) -> k.Kernel:
    """The first variant."""
    return kernels(file, name, arch, **defines)[0]
