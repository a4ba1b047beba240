"""The matrix of toolkits and architectures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.toolchain.conftest import FakeNvcc
from tests.toolchain.test_build import KERNEL, SPILLING
from tilec.toolchain.matrix import arch_of, main

WARNING = "__global__ void k(int* a) { int unused; a[0] = 1; }\n"


def test_clean_files(tmp_path: Path) -> None:
    file = tmp_path / "reverse.cu"
    file.write_text(KERNEL)
    results = tmp_path / "matrix.json"
    done = CliRunner().invoke(
        main, [str(file), "--arch", "sm_75", "--arch", "sm_120", "--json", str(results)]
    )
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "2 compiled, 0 with faults"
    data = json.loads(results.read_text())
    assert (data["compiled"], data["faults"]) == (2, 0)
    assert [c["kernels"][0]["arch"] for c in data["cells"]] == ["sm_75", "sm_120"]


@pytest.mark.parametrize(
    ("text", "fault"), [(SPILLING, "`heavy` spills"), (WARNING, "never referenced")]
)
def test_faults(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "bad.cu"
    file.write_text(text)
    done = CliRunner().invoke(main, [str(file), "--arch", "sm_90"])
    assert done.exit_code == 1
    assert fault in done.output
    assert done.output.splitlines()[-1] == "1 compiled, 1 with faults"


def test_several_toolkits(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    file = tmp_path / "any.cu"
    file.write_text("")
    old = fake_nvcc("old", "12.0.1", build="echo \"Unsupported gpu architecture 'sm_120'\"; exit 1")
    new = fake_nvcc("new", "13.0.1", build="echo >result")
    arguments = [str(file), "--nvcc", str(old), "--nvcc", str(new), "--arch", "sm_120"]
    done = CliRunner().invoke(main, arguments)
    assert "nvcc 12.0 does not know `sm_120`" in done.output
    assert done.output.splitlines()[-1] == "2 compiled, 1 with faults"


def test_files_for_one_architecture() -> None:
    assert arch_of(Path("gemm.cu"), "sm_80") == "sm_80"
    assert arch_of(Path("gemm.sm_90a.cu"), "sm_90a") == "sm_90a"
    assert arch_of(Path("gemm.sm_90a.cu"), "sm_90") is None
