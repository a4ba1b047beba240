"""Reading ptxas: the lines of several toolkits, kernel by kernel."""

from __future__ import annotations

import json

import pytest

from tilec.toolchain.ptxas import KernelResources, parse_ptxas, report_from_json

LOG = """\
kernel.cu(3): warning #177-D: variable "x" was declared but never referenced
ptxas info    : 0 bytes gmem, 40 bytes cmem[3]
ptxas info    : Compiling entry function 'softmax_rows' for 'sm_90a'
ptxas info    : Function properties for softmax_rows
    656 bytes stack frame, 564 bytes spill stores, 756 bytes spill loads
ptxas info    : Used 32 registers, used 2 barriers, 656 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compile time = 31.401 ms
ptxas info    : Function properties for slow_path
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'plain' for 'sm_75'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, 128+16 bytes smem, 380 bytes cmem[0], 8 bytes cmem[2]
"""


def test_resources() -> None:
    report = parse_ptxas(LOG)
    assert report.kernels == (
        KernelResources("softmax_rows", "sm_90a", 32, 656, 564, 756, 512, 2, 0),
        KernelResources("plain", "sm_75", 12, 0, 0, 0, 144, 0, 388),
    )
    assert [k.clean for k in report.kernels] == [False, True]
    assert report.remarks == ()


@pytest.mark.parametrize(
    ("line", "kind", "code", "kernel"),
    [
        (
            "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
            "non wgmma instructions defining accumulator registers in the function 'gemm'",
            "wgmma serialised",
            "C7510",
            "gemm",
        ),
        (
            "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register "
            "requirements.",
            "setmaxnreg ignored",
            "C7508",
            "plain",
        ),
        (
            "ptxas warning : Registers are spilled to local memory in function 'gemm', 8 bytes spill stores, 8 bytes "
            "spill loads",
            "spill",
            "",
            "gemm",
        ),
        ("ptxas info    : Potential Performance Loss: something new", "performance", "", "plain"),
        ("ptxas warning : Value of threads per SM is out of range", "warning", "", "plain"),
    ],
)
def test_remarks(line: str, kind: str, code: str, kernel: str) -> None:
    (remark,) = parse_ptxas(LOG + line).remarks
    assert (remark.kind, remark.code, remark.kernel) == (kind, code, kernel)
    assert remark.text == line.partition(": ")[2]


@pytest.mark.parametrize("code", ["C7510", "C7511", "C7512", "C7514", "C7515", "C7518", "C7520"])
def test_every_way_to_serialise(code: str) -> None:
    line = f"ptxas info    : ({code}) Potential Performance Loss: instructions are serialized"
    assert parse_ptxas(line).remarks[0].kind == "wgmma serialised"


def test_json_and_back() -> None:
    report = parse_ptxas(LOG + "ptxas warning : odd\n")
    assert report_from_json(json.loads(json.dumps(report.as_json()))) == report
