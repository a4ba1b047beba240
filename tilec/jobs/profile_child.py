"""One launch of one kernel, in a process of its own for ncu to watch: `python -m tilec.jobs.profile_child`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from tilec.compiled import CompiledKernel
from tilec.jobs.requests import parse_pairs
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


def run_once(file: str, name: str, settings: Sequence[str], defines: Sequence[str]) -> None:
    """Make inputs, launch once, wait. Raises TileError."""
    from tilec.compiler import compile_file
    from tilec.jobs.profiling import build_cubin
    from tilec.reference.inputs import make_inputs
    from tilec.runtime.device import open_gpu
    from tilec.runtime.gpu_run import prepare_call
    from tilec.runtime.launching import architecture_for

    with open_gpu() as gpu:
        arch = architecture_for(gpu.capability)
        compiled = compile_file(
            file, kernel=name, defines=parse_pairs(defines, "-D"), archs=(arch,)
        )
        kernel = compiled.kernel(name)
        sizes = bound_sizes(file, kernel, parse_pairs(settings, "-s"))
        arrays = make_inputs(kernel.program, sizes.numbers, dict(sizes.scalars))
        module = gpu.load(build_cubin(compiled, arch, None).blob)
        with prepare_call(gpu, kernel.plan, module, sizes, arrays) as call:
            call.launch()
            call.finish()


if __name__ == "__main__":
    file_, name_, settings_, defines_ = sys.argv[1:5]
    run_once(file_, name_, settings_.split(), defines_.split())
