"""One launch of one kernel, in a process of its own for ncu to watch: `python -m tilec.jobs.profile_child`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tilec.jobs.example_sizes import bound_sizes
from tilec.jobs.requests import parse_pairs


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
