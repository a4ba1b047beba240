"""What `tilec explain` writes into files: pictures of layouts, and the report of all passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilec.compiled import CompiledFile
    from tilec.explain.report import Observed


def write_report(
    path: str, observed: Observed, compiled: CompiledFile, source: str, explanation: str
) -> None:
    """The report of a file, whose passes were `observed` while it was compiled, as one HTML file. `explanation` is the text of
    `tilec explain`. Raises TileError (E0704)."""
    import tilec
    from tilec.explain.report import render, report
    from tilec.jobs.outputs import write_outputs

    kernels = {
        one.name: one
        for kernel in compiled.kernels
        for variants in kernel.lowered.values()
        for one in variants
    }
    found = report(observed, source, compiled.cu, kernels)
    write_outputs({path: render(found, explanation, tilec.__version__).encode()})


def write_pictures(compiled: CompiledFile, folder: str) -> None:
    """Layouts of every variant as `KERNEL.NAME.svg` in a folder, which is made if it is missing. Raises TileError (E0704)."""
    from tilec.explain.layouts import draw, pictures
    from tilec.jobs.outputs import make_folder, write_outputs

    make_folder(folder)
    several = len(compiled.archs) > 1
    drawn = {
        str(Path(folder) / f"{picture.name}{f'.{arch}' * several}.svg"): draw(picture).encode()
        for kernel in compiled.kernels
        for arch, variants in kernel.lowered.items()
        for one in variants
        for picture in pictures(one)
    }
    write_outputs(drawn)
