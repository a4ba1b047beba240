"""What `compile` produces: the interface between the compiler and everything that uses its output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilec.ir.launch import LaunchPlan
from tilec.ir.tile_ir import Program
from tilec.lazy_dataclass import dataclass
from tilec.source.diagnostics import Diagnostic

if TYPE_CHECKING:
    from tilec.ir.kernel_ir import Kernel


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel of a file. `program` is its Tile IR as analysed; `lowered` its Kernel IR per architecture; `describe` makes the
    manifest."""

    name: str
    program: Program
    plan: LaunchPlan
    lowered: Mapping[str, tuple[Kernel, ...]]
    describe: Callable[[], Mapping[str, Any]]

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """Plain data: candidate, variants, transports, barriers, decisions with reasons."""
        return self.describe()

    @cached_property
    def kernel_ir(self) -> Mapping[str, str]:
        """The Kernel IR as text, per architecture."""
        from tilec.ir.kernel_printer import print_kernel

        return {
            arch: "\n".join(map(print_kernel, kernels)) for arch, kernels in self.lowered.items()
        }


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
    parts: Mapping[str, str] = field(default_factory=dict)
    """the variants that are units of their own, by the name of their launcher; `cu` then selects among them"""

    def kernel(self, name: str) -> CompiledKernel:
        """The kernel of that name; KeyError if there is none."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)
