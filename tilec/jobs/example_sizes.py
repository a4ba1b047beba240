"""The sizes at which a kernel is looked at: those of its first example."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.compiled import CompiledKernel
from tilec.runtime.arguments import CallSizes, bind_sizes
from tilec.runtime.clauses import constants, examples, find_kernel
from tilec.syntax.loading import load


def bound_sizes(file: str, kernel: CompiledKernel, settings: Mapping[str, str]) -> CallSizes:
    """The sizes of the first `example`, with `settings` before them. Raises TileError (E0711, E0712)."""
    main = load(file).main
    syntax = find_kernel(main, kernel.name)
    assert syntax is not None, f"{kernel.name} was compiled from this file"
    known = constants(main)
    offered = examples(syntax, "", known) or examples(syntax, "cpu", known) or [{}]
    names = {v.name for v in (*kernel.plan.dims, *kernel.plan.strides)}
    names |= {s.name for s in kernel.plan.scalars}
    own = {n: v for n, v in settings.items() if n in names}
    return bind_sizes(kernel.plan, own, offered[0], statics=kernel.program.statics)
