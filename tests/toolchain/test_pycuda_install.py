"""What is said where pycuda cannot be built, and the variables of the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toolchain.conftest import FakeNvcc
from tilec.toolchain import pycuda_install
from tilec.toolchain.driver import Device, Driver
from tilec.toolchain.host_compiler import find_host_compiler
from tilec.toolchain.nvcc import find_nvcc


def test_what_is_missing(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    nvcc = find_nvcc(str(fake_nvcc("toolkit")))
    host = find_host_compiler()
    missing = pycuda_install.missing_for_pycuda
    assert "apt-get install g++" in missing(nvcc, None, tmp_path)
    assert "`Python.h`" in missing(nvcc, host, tmp_path)
    (tmp_path / "Python.h").touch()
    assert "`cuda.h`" in missing(nvcc, host, tmp_path)
    (tmp_path / "toolkit/include/cuda.h").touch()
    assert "`cudaProfiler.h`" in missing(nvcc, host, tmp_path)
    (tmp_path / "toolkit/include/cudaProfiler.h").touch()
    assert missing(nvcc, host, tmp_path) == ""


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("x.cpp:1:10: fatal error: cuda.h: No such file or directory", "the header `cuda.h`"),
        ("/usr/bin/ld: cannot find -lcuda: No such file", "the library `libcuda.so`"),
        ("error: command 'g++' failed: No such file or directory", "the program `g++`"),
        ("something\nelse", "pip said: something\n  else"),
    ],
)
def test_reading_a_failed_build(log: str, reason: str) -> None:
    assert pycuda_install.explain_log(log).startswith(reason)


def test_variables_of_the_build(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    nvcc = find_nvcc(str(fake_nvcc("toolkit")))
    driver = tmp_path / "libcuda.so.1"
    driver.touch()
    home = tmp_path / "home"
    home.mkdir()
    variables = pycuda_install.build_environment(nvcc, find_host_compiler(), home, driver)
    assert variables["PATH"].startswith(str((tmp_path / "toolkit/bin").resolve()))
    assert variables["LIBRARY_PATH"].split(":")[0] == str(home)
    assert (home / "libcuda.so").resolve() == driver
    assert "CUDA_ENABLE_CURAND = False" in (home / ".aksetup-defaults.py").read_text()


def test_goes_on_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def driver(devices: tuple[Device, ...]) -> None:
        found = Driver((13, 0), devices, "" if devices else "the driver sees no device")
        monkeypatch.setattr(pycuda_install, "query_driver", lambda: found)

    driver(())
    assert "no GPU here (the driver sees no device)" in pycuda_install.install()
    driver((Device(0, "A device", (9, 0), 132, 1 << 37),))
    monkeypatch.setattr(pycuda_install.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("TILEC_NVCC", str(tmp_path / "absent"))
    said = pycuda_install.install()
    assert said.startswith("pycuda cannot be built")
    assert said.endswith("going on without a GPU")
