"""What ptxas says of some entry points of a text: nvcc compiles those that a test is about, and no others."""

from __future__ import annotations

from tilec.emit.entries import entries_text, entry_names
from tilec.toolchain.build import compile_cubin, find_toolchain
from tilec.toolchain.losses import losses


def said_of(text: str, *without: str) -> tuple[str, ...]:
    """Spills, stack frames, serialised products and the like, for sm_90a, of all entry points whose name does not end in one of `without`."""
    names = [n for n in entry_names(text) if not n.endswith(without)]
    assert names
    built = compile_cubin(entries_text(text, names), "sm_90a", toolchain=find_toolchain())
    return losses(built.ptxas)
