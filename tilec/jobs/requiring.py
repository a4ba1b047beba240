"""`--require`: a lost optimisation is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilec.source.diagnostics import TileError, fail

if TYPE_CHECKING:
    from tilec.compiled import CompiledFile


def parse_required(texts: Sequence[str]) -> tuple[str, ...]:
    """The optimisations that options such as `tma,wgmma` name. Raises TileError (E0726) for a name that is none."""
    if not texts:
        return ()
    from tilec.explain.requirements import REQUIREMENTS

    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in REQUIREMENTS:
            known = ", ".join(f"`{one}`" for one in REQUIREMENTS)
            raise fail(
                "E0726",
                f"nothing that `--require` knows is named `{name}`",
                help=f"it knows {known}",
            )
    return tuple(name for name in REQUIREMENTS if name in names)


def check_required(compiled: CompiledFile, wanted: Sequence[str]) -> None:
    """Raises TileError with an E0651 for each kernel of the file, architecture and optimisation of `wanted` that was lost."""
    if not wanted:
        return
    from tilec.explain.requirements import lost

    found = [
        one
        for kernel in compiled.kernels
        for arch in compiled.archs
        for one in lost(kernel, arch, wanted)
    ]
    if found:
        raise TileError(found)
