"""Builds with the real nvcc of this machine, and failures with stand-ins."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.toolchain.conftest import FakeNvcc
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import (
    Toolchain,
    compile_cubin,
    compile_object,
    compile_ptx,
    disassemble,
    find_toolchain,
)
from tilec.toolchain.cache import Cache
from tilec.toolchain.shared_library import build_shared_library

KERNEL = """\
#include <cuda_bf16.h>
extern "C" __global__ void reverse(const float* a, __nv_bfloat16* b) {
    __shared__ float s[128];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    b[threadIdx.x] = __float2bfloat16(s[127 - threadIdx.x]);
}
extern "C" int answer() { return 42; }
"""
SPILLING = """\
extern "C" __global__ void __launch_bounds__(1024, 2) heavy(float* a, int n) {
    float x[100];
    for (int i = 0; i < 100; i++) x[i] = a[i * n];
    for (int j = 0; j < n; j++) {
#pragma unroll
        for (int i = 0; i < 100; i++) x[i] = x[i] * x[(i + 7) % 100] + a[j * i];
    }
    for (int i = 0; i < 100; i++) a[i * n + 1] = x[i];
    a[3] = x[n % 100];
}
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain()


def test_cubin_with_its_report(toolchain: Toolchain) -> None:
    built = compile_cubin(KERNEL, "sm_90", toolchain=toolchain)
    assert built.blob[:4] == b"\x7fELF"
    (kernel,) = built.report
    assert (kernel.kernel, kernel.arch, kernel.static_shared) == ("reverse", "sm_90", 512)
    assert kernel.clean
    assert kernel.barriers == 1
    assert 0 < kernel.registers < 64


def test_spills_are_seen(toolchain: Toolchain) -> None:
    (kernel,) = compile_cubin(SPILLING, "sm_90", toolchain=toolchain).report
    assert kernel.spills
    assert kernel.stack_frame > 0


def test_ptx_and_object(toolchain: Toolchain) -> None:
    ptx = compile_ptx(KERNEL, "sm_90a", toolchain=toolchain).blob.decode()
    assert ".target sm_90a" in ptx
    archs = ["sm_80", "sm_90a"]
    built = compile_object(KERNEL, archs, toolchain=toolchain)
    assert [k.arch for k in built.report] == archs


def test_shared_library(toolchain: Toolchain, tmp_path: Path) -> None:
    output = tmp_path / "kernel.so"
    build_shared_library(KERNEL, ["sm_90"], output, toolchain=toolchain)
    assert ctypes.CDLL(str(output)).answer() == 42
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["kernel.so"]
    with pytest.raises(TileError) as caught:
        build_shared_library(
            KERNEL, ["sm_90"], tmp_path / "absent" / "kernel.so", toolchain=toolchain
        )
    assert caught.value.diagnostics[0].code == "E0805"


def test_same_build_twice_runs_nvcc_once(fake_nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc = fake_nvcc("toolkit", build="echo built >result")
    cache = Cache(tmp_path / "kept")
    toolchain = find_toolchain(str(nvcc), cache=cache)

    def calls() -> int:
        return len(nvcc.with_name("calls").read_text().splitlines())

    before = calls()
    first = compile_cubin("text", "sm_90", toolchain=toolchain, cache=cache)
    second = compile_cubin("text", "sm_90", toolchain=toolchain, cache=cache)
    assert calls() == before + 1
    assert (first.cached, second.cached) == (False, True)
    assert (first.blob, first.ptxas, first.log) == (second.blob, second.ptxas, second.log)
    compile_cubin("text", "sm_80", toolchain=toolchain, cache=cache)
    compile_cubin("other text", "sm_90", toolchain=toolchain, cache=cache)
    compile_cubin("text", "sm_90", toolchain=toolchain, options=["-G"], cache=cache)
    assert calls() == before + 4


def test_rejected_text_is_an_internal_fault_with_a_bundle(toolchain: Toolchain) -> None:
    text = "__global__ void k(int* a) { a[0] = absent; }\n"
    with pytest.raises(TileError) as caught:
        compile_cubin(text, "sm_90", toolchain=toolchain)
    (message,) = caught.value.diagnostics
    assert (message.code, caught.value.exit_code) == ("E7002", 70)
    assert 'kernel.cu(1): error: identifier "absent" is undefined' in message.notes[0]
    folder = Path(message.notes[0].split("`")[-2])
    assert (folder / "kernel.cu").read_text() == text
    assert "-arch=sm_90" in (folder / "command.txt").read_text()
    assert "absent" in (folder / "log.txt").read_text()
    assert (folder / "about.json").is_file()


def test_unknown_architecture(toolchain: Toolchain) -> None:
    with pytest.raises(TileError) as caught:
        compile_cubin(KERNEL, "sm_999", toolchain=toolchain)
    (message,) = caught.value.diagnostics
    assert (message.code, caught.value.exit_code) == ("E0803", 3)
    assert "`sm_999`" in message.message


@pytest.mark.parametrize(
    "build",
    [
        "echo 'kernel.cu: fatal error: cannot write: No space left on device' >&2; exit 1",
        "kill -9 $$",
        "echo 'x.h:1:10: fatal error: nv/target: No such file or directory' >&2; exit 1",
    ],
)
def test_machine_at_fault(fake_nvcc: FakeNvcc, build: str) -> None:
    toolchain = find_toolchain(str(fake_nvcc("toolkit", build=build)))
    with pytest.raises(TileError) as caught:
        compile_cubin(KERNEL, "sm_90", toolchain=toolchain)
    assert caught.value.diagnostics[0].code == "E0805"
    assert caught.value.exit_code == 3


def test_disassembly_that_fails(tmp_path: Path) -> None:
    with pytest.raises(TileError) as caught:
        disassemble(b"no cubin", Path("/bin/false"))
    assert caught.value.diagnostics[0].code == "E0805"
    assert "kernel.cubin" in disassemble(b"a cubin", Path("/bin/echo"))
