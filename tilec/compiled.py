"""What `compile` produces: the interface between the compiler and everything that uses its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilec.ir.launch import LaunchPlan
from tilec.ir.tile_ir import Program
from tilec.source.diagnostics import Diagnostic


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel of a file. `programs` is its Tile IR as analysed; `kernel_ir` its Kernel IR as text per architecture;
    `manifest` plain data: candidate, variants, transports, barriers, decisions with reasons."""

    name: str
    program: Program
    plan: LaunchPlan
    kernel_ir: Mapping[str, str]
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class CompiledFile:
    """One generated `.cu`. `dependencies` are the `.tile` files read, main first; `diagnostics` the warnings."""

    source_name: str
    archs: tuple[str, ...]
    cu: str
    header: str
    kernels: tuple[CompiledKernel, ...]
    dependencies: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """IR text after the passes that were asked for, by pass name"""

    def kernel(self, name: str) -> CompiledKernel:
        """The kernel of that name; KeyError if there is none."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)
