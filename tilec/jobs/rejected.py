"""Candidates beside the one that was chosen, and why they were not: for `tilec explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilec.source.diagnostics import TileError

if TYPE_CHECKING:
    from tilec.compiled import CompiledKernel

REJECTED_SHOWN = 2
"""Candidates beside the chosen one that are shown."""


def rejected_candidates(
    file: str, kernel: CompiledKernel, defines: Mapping[str, str], arch: str
) -> list[str]:
    """Up to two neighbours of the chosen tile sizes, each with why it was not taken: the passes' own refusal, or what it would cost.
    Tile sizes that the user set are left as they are."""
    manifest = kernel.manifest
    own = {
        name: int(manifest["candidate"][name])
        for name in kernel.program.tiles
        if manifest["origin"].get(name) in ("auto", "default") and name not in defines
    }
    found: list[str] = []
    for name, value in sorted(own.items(), key=lambda item: -item[1]):
        for other in (2 * value, value // 2):
            if other < 1 or len(found) == REJECTED_SHOWN:
                continue
            found.append(_compared(file, kernel, {**defines, name: str(other)}, name, other, arch))
    return found


def _compared(
    file: str, kernel: CompiledKernel, defines: Mapping[str, str], name: str, value: int, arch: str
) -> str:
    from tilec.compiler import compile_file

    try:
        other = compile_file(
            file, kernel=kernel.name, defines=defines, archs=(arch,), stop="kernel-ir"
        ).kernel(kernel.name)
    except TileError as error:
        return f"{name} = {value}: refused, {error.diagnostics[0].message}"
    costs, own = _costs(other, arch), _costs(kernel, arch)
    if costs == own:
        return f"{name} = {value}: as many threads, registers and shared bytes; only measuring tells them apart"
    return f"{name} = {value}: {costs}, against {own}"


def _costs(kernel: CompiledKernel, arch: str) -> str:
    variant = kernel.manifest["targets"][arch][0]
    waste = variant.get("products", {}).get("padding_waste", 0.0)
    parts = [
        f"{variant['threads']} threads",
        f"{variant['held_registers']} registers",
        f"{variant['shared_bytes']} bytes shared",
    ]
    return ", ".join(parts) + (f", {waste:.1%} padding" if waste else "")
