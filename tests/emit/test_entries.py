"""Entry points by themselves: the same bodies and the same machine code, and no launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.emit.entries import entries_text, entry_names
from tilec.toolchain.build import compile_cubin, find_toolchain

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("sample", ["gemm", "softmax", "vector_add", "cross_entropy"])
def test_each_entry_point_is_found_and_kept(sample: str, arch: str) -> None:
    found = compile_file(str(SAMPLES / f"{sample}.tile"), archs=(arch,))
    names = entry_names(found.cu)
    assert set(names) == {k.name for one in found.kernels for k in one.lowered[arch]}
    assert entry_names(entries_text(found.cu, names)) == names
    for name in names:
        text = entries_text(found.cu, {name})
        assert entry_names(text) == (name,)
        assert text.count("__global__") == 1
        assert text.count("{") == text.count("}")
        assert "cudaStream_t" not in text and "<<<" not in text


def test_a_name_that_is_not_there() -> None:
    cu = compile_file(str(SAMPLES / "vector_add.tile")).cu
    with pytest.raises(KeyError, match="another"):
        entries_text(cu, {"vector_add_kernel", "another"})


def test_machine_code_is_the_same() -> None:
    """What nvcc reports of each entry point is what it reports of it in the whole file."""
    cu = compile_file(str(SAMPLES / "vector_add.tile")).cu
    tools = find_toolchain()
    whole = {k.kernel: k for k in compile_cubin(cu, "sm_80", toolchain=tools).report}
    (name, *_) = entry_names(cu)
    alone = compile_cubin(entries_text(cu, {name}), "sm_80", toolchain=tools).report
    assert len(whole) > 1 and alone == (whole[name],)
