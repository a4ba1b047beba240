"""The toolkit that the Python packages of `tilec[nvcc]` carry.

TILEC_TEST_WHEELS names a folder into which pip installed them (about 300 MB); `make test` does that, once.
"""

from __future__ import annotations

import configparser
import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from tests.toolchain.test_build import KERNEL
from tilec.toolchain.build import Toolchain, compile_cubin, compile_object
from tilec.toolchain.host_compiler import find_host_compiler
from tilec.toolchain.nvcc import find_nvcc, runtime_link_flags
from tilec.toolchain.shared_library import build_shared_library

ROOT = Path(__file__).resolve().parents[2]


def requirements() -> list[str]:
    """What `setup.cfg` lists for the extra `nvcc`."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options.extras_require"]["nvcc"].splitlines()
    return [line.replace(" ", "") for line in lines if line]


def test_the_extra_lists_the_whole_compiler() -> None:
    names = {line.partition(">")[0] for line in requirements()}
    assert names == {
        "nvidia-cuda-nvcc",
        "nvidia-nvvm",
        "nvidia-cuda-crt",
        "nvidia-cuda-runtime",
        "nvidia-cuda-cccl",
        "nvidia-cuda-profiler-api",
    }


WHEELS = os.environ.get("TILEC_TEST_WHEELS")

if WHEELS:

    @pytest.mark.wheels
    def test_build_and_link_with_the_wheels(tmp_path: Path) -> None:
        nvcc = find_nvcc(
            environment={"PATH": "/usr/bin:/bin"},
            system_pattern="/nonexistent/*/nvcc",
            python_path=[str(WHEELS)],
        )
        assert nvcc.kind == "wheel"
        assert nvcc.version[0] == 13
        toolchain = Toolchain(nvcc, find_host_compiler(nvcc))
        (kernel,) = compile_cubin(KERNEL, "sm_90", toolchain=toolchain).report
        assert kernel.clean
        library = tmp_path / "kernel.so"
        build_shared_library(KERNEL, ["sm_90"], library, toolchain=toolchain)
        assert ctypes.CDLL(str(library)).answer() == 42
        built = compile_object(KERNEL, ["sm_90"], toolchain=toolchain)
        (tmp_path / "kernel.o").write_bytes(built.blob)
        (tmp_path / "main.cpp").write_text(
            'extern "C" int answer();\nint main() { return answer() - 42; }\n'
        )
        for static in (False, True):
            program = tmp_path / f"program{static}"
            sources = [str(tmp_path / "main.cpp"), str(tmp_path / "kernel.o")]
            flags = runtime_link_flags(nvcc, static=static)
            subprocess.run(
                [str(toolchain.host.path), *sources, *flags, "-o", str(program)], check=True
            )
            subprocess.run([str(program)], check=True)
