"""Launch plans of compiled samples evaluated in Python, at ragged sizes and with addresses of all alignments."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tilec.compiled import CompiledKernel
from tilec.compiler import compile_file
from tilec.runtime.arguments import bind_sizes, check_call, tensor_bytes
from tilec.runtime.launching import choose_target, concrete_launches, workspace_bytes
from tilec.runtime.sizes import ragged_sizes

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
KERNELS = [
    ("vector_add.tile", "vector_add"),
    ("softmax.tile", "softmax"),
    ("softmax.tile", "online_softmax"),
    ("norms.tile", "layer_norm"),
    ("norms.tile", "rms_norm_residual"),
]


@functools.cache
def compiled(file: str, kernel: str) -> CompiledKernel:
    return compile_file(str(SAMPLES / file), kernel=kernel, archs=("sm_80", "sm_90")).kernel(kernel)


@pytest.mark.parametrize(("file", "name"), KERNELS)
@pytest.mark.parametrize("shift", [0, 1])
def test_every_call_has_launches_iff_it_has_elements(file: str, name: str, shift: int) -> None:
    kernel = compiled(file, name)
    plan = kernel.plan
    target = choose_target(plan, (9, 0))
    assert target.arch == "sm_90"
    for numbers in ragged_sizes(kernel.program):
        sizes = bind_sizes(plan, numbers)
        addresses = {
            t.name: (n + 1 << 33) + shift * t.dtype.bits // 8 for n, t in enumerate(plan.parameters)
        }
        check_call(plan, sizes, addresses)
        assert workspace_bytes(plan, sizes) >= 0
        launches = concrete_launches(plan, target, sizes, addresses, 1 << 40, multiprocessors=132)
        written = sum(
            tensor_bytes(t, sizes.environment) for t in plan.parameters if t.role != "input"
        )
        assert launches or not written, sizes
        for launch in launches:
            assert launch.grid >= 1
            assert 32 <= launch.block <= 1024
            assert len(launch.packed) >= 8 * len(plan.parameters)
