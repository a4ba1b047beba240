"""`python -m tilec.toolchain.matrix`: compile `.cu` files with several nvcc for several architectures.

Prints one line for each nvcc and architecture, a line for each fault and a count; `--json` writes all of it. The exit
status is 1 if anything failed, spilled, has a stack frame or lost performance by ptxas' own word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

import tilec
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import Built, Toolchain, compile_cubin, find_toolchain
from tilec.toolchain.cache import Cache, default_cache
from tilec.toolchain.losses import losses
from tilec.toolchain.ptxas import KernelResources

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
"""The architectures that are compiled unless told otherwise."""

STRICT = ("-Werror", "all-warnings")
"""A warning is a failure."""


@dataclass(frozen=True)
class Cell:
    """One file compiled by one nvcc for one architecture; `fault` is empty if it is as it should be."""

    file: str
    nvcc: str
    arch: str
    fault: str
    kernels: tuple[KernelResources, ...]


def arch_of(file: Path, arch: str) -> str | None:
    """The architecture to compile `file` for, None if it is for another one.

    A file named `gemm.sm_90a.cu` holds code for that architecture only; another one is for all.
    """
    named = file.suffixes[-2][1:] if len(file.suffixes) > 1 else ""
    if not named.startswith("sm_"):
        return arch
    return arch if named == arch else None


def compile_cell(file: Path, arch: str, toolchain: Toolchain, cache: Cache | None) -> Cell:
    """Compile one file strictly and judge what ptxas says."""
    cell = Cell(file.name, toolchain.nvcc.release, arch, "", ())
    text = file.read_text(encoding="utf-8")
    try:
        built = compile_cubin(text, arch, toolchain=toolchain, options=STRICT, cache=cache)
    except TileError as error:
        first = error.diagnostics[0]
        return replace(cell, fault="; ".join([f"{first.code}: {first.message}", *first.notes]))
    return replace(cell, fault=judge(built), kernels=built.report)


def judge(built: Built) -> str:
    """What is wrong with a build by ptxas' own word; empty if nothing."""
    return "; ".join(losses(built.ptxas))


def run_matrix(
    files: Sequence[Path], toolchains: Sequence[Toolchain], archs: Sequence[str], cache: Cache
) -> list[Cell]:
    """Every file with every toolchain for every architecture, in that order."""
    return [
        compile_cell(file, arch, toolchain, cache)
        for toolchain in toolchains
        for named in archs
        for file in files
        if (arch := arch_of(file, named)) is not None
    ]


def as_json(cells: Sequence[Cell]) -> dict[str, Any]:
    """Plain data with the counts first."""
    return {
        "tilec": tilec.__version__,
        "flags": list(STRICT),
        "compiled": len(cells),
        "faults": sum(1 for c in cells if c.fault),
        "cells": [asdict(c) for c in cells],
    }


def table(cells: Sequence[Cell]) -> list[str]:
    """The lines to print."""
    lines = [
        f"{'nvcc':<12} {'arch':<9} {'files':>5} {'kernels':>7} {'most registers':>14} {'faults':>6}"
    ]
    for nvcc, arch in dict.fromkeys((c.nvcc, c.arch) for c in cells):
        row = [c for c in cells if (c.nvcc, c.arch) == (nvcc, arch)]
        kernels = [k for c in row for k in c.kernels]
        most = max((k.registers for k in kernels), default=0)
        faults = sum(1 for c in row if c.fault)
        lines.append(f"{nvcc:<12} {arch:<9} {len(row):>5} {len(kernels):>7} {most:>14} {faults:>6}")
    lines += [f"fault: {c.file} with {c.nvcc} for {c.arch}: {c.fault}" for c in cells if c.fault]
    lines.append(f"{len(cells)} compiled, {sum(1 for c in cells if c.fault)} with faults")
    return lines


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--nvcc", "nvccs", multiple=True, metavar="PATH", help="An nvcc; repeat for more.")
@click.option("--arch", "archs", multiple=True, default=ARCHITECTURES, help="Repeat for more.")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Write all results here."
)
def main(
    files: tuple[Path, ...],
    nvccs: tuple[str, ...],
    archs: tuple[str, ...],
    json_path: Path | None,
) -> None:
    """Compile FILES (default: tests/golden/*.cu) with each nvcc for each architecture."""
    chosen = list(files) or sorted(Path("tests/golden").glob("*.cu"))
    if not chosen:
        raise click.UsageError("there are no `.cu` files in tests/golden")
    cache = default_cache()
    try:
        toolchains = [find_toolchain(n, cache=cache) for n in nvccs or (None,)]
    except TileError as error:
        click.echo("\n".join(d.render() for d in error.diagnostics), err=True)
        raise SystemExit(error.exit_code) from None
    cells = run_matrix(chosen, toolchains, archs, cache)
    click.echo("\n".join(table(cells)))
    if json_path:
        json_path.write_text(json.dumps(as_json(cells), indent=2) + "\n", encoding="utf-8")
    raise SystemExit(1 if any(c.fault for c in cells) else 0)


if __name__ == "__main__":
    main()
