"""The search for the host compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.toolchain.conftest import FakeNvcc, write_script
from tilec.source.diagnostics import TileError
from tilec.toolchain.host_compiler import find_host_compiler, newest_host_version
from tilec.toolchain.nvcc import find_nvcc


def compiler(folder: Path, name: str, release: str) -> Path:
    return write_script(folder / name, f"echo {release}")


def test_the_compiler_of_this_machine() -> None:
    found = find_host_compiler()
    assert str(found.path) == shutil.which("g++")
    assert found.release.startswith(str(found.version))


def test_too_new_a_compiler_is_passed_over(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    nvcc = find_nvcc(str(fake_nvcc("toolkit", newest_gcc=13)))
    assert newest_host_version(nvcc) == 13
    folder = tmp_path / "bin"
    compiler(folder, "g++", "15.1.0")
    environment = {"PATH": str(folder)}
    with pytest.raises(TileError) as caught:
        find_host_compiler(nvcc, environment=environment)
    (message,) = caught.value.diagnostics
    assert (message.code, caught.value.exit_code) == ("E0802", 3)
    assert message.message == "nvcc 13.0 accepts g++ up to version 13"
    older = compiler(folder, "g++-12", "12.3.0")
    assert find_host_compiler(nvcc, environment=environment).path == older
    newest = compiler(folder, "g++-13", "13.2.0")
    assert find_host_compiler(nvcc, environment=environment).path == newest


def test_named_compiler_is_taken_or_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    compiler(folder, "g++", "12.1.0")
    named = compiler(folder, "special", "99.0.0")
    environment = {"PATH": str(folder), "TILEC_CXX": "special"}
    assert find_host_compiler(environment=environment).path == named
    with pytest.raises(TileError, match="named by `TILEC_CXX`"):
        find_host_compiler(environment={"PATH": str(folder), "TILEC_CXX": "absent"})


def test_no_compiler(tmp_path: Path) -> None:
    with pytest.raises(TileError) as caught:
        find_host_compiler(environment={"PATH": str(tmp_path)})
    assert "apt-get install g++" in caught.value.diagnostics[0].helps[0]
