"""The kernel that fills the L2 cache builds without a word from nvcc."""

from __future__ import annotations

import pytest

from tilec.resources import resource_text
from tilec.toolchain.build import compile_cubin, find_toolchain


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_it_builds_clean(arch: str) -> None:
    built = compile_cubin(
        resource_text("templates", "bench/read_buffer.cuh"),
        arch,
        toolchain=find_toolchain(),
        options=("-Werror", "all-warnings"),
    )
    (kernel,) = built.report
    assert kernel.clean
    assert b"read_buffer" in built.blob
