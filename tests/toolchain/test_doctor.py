"""The environment check, against drivers and toolkits that stand in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.toolchain.conftest import FakeNvcc, write_script
from tilec.cli.doctor import doctor
from tilec.toolchain.doctor import examine, judge_fit
from tilec.toolchain.driver import Device, Driver, query_driver

DRIVER = """\
#include <string.h>
int cuDriverGetVersion(int* v) { *v = 13010; return 0; }
int cuInit(unsigned f) { return INIT; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetName(char* b, int n, int d) { strcpy(b, "A device"); return 0; }
int cuDeviceTotalMem_v2(unsigned long* b, int d) { *b = 1ul << 34; return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? 8 : a == 76 ? 6 : 40; return 0; }
int cuGetErrorName(int e, const char** s) { *s = "CUDA_ERROR_NO_DEVICE"; return 0; }
"""


def driver_library(folder: Path, init: int) -> str:
    source = folder / f"driver{init}.c"
    source.write_text(DRIVER)
    library = source.with_suffix(".so")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-DINIT={init}", str(source), "-o", str(library)], check=True
    )
    return str(library)


def test_driver_through_its_library(tmp_path: Path) -> None:
    found = query_driver(driver_library(tmp_path, 0))
    assert found == Driver((13, 1), (Device(0, "A device", (8, 6), 40, 1 << 34),), "")
    assert found.devices[0].arch == "sm_86"
    broken = query_driver(driver_library(tmp_path, 100))
    assert broken == Driver((13, 1), (), "cuInit answers CUDA_ERROR_NO_DEVICE")
    assert query_driver("libabsent.so.1").version is None


@pytest.mark.parametrize(
    ("driver", "toolkit", "fit"),
    [
        ((13, 0), (13, 0), "fits"),
        ((13, 2), (12, 9), "fits"),
        ((13, 0), (13, 2), "fits, without PTX"),
        ((12, 9), (13, 0), "driver too old"),
        (None, (13, 0), "unknown"),
        ((13, 0), None, "unknown"),
    ],
)
def test_fit(driver: tuple[int, int] | None, toolkit: tuple[int, int] | None, fit: str) -> None:
    assert judge_fit(driver, toolkit) == fit


def test_examination(fake_nvcc: FakeNvcc) -> None:
    device = Device(0, "A device", (9, 0), 132, 1 << 37)
    nvcc = fake_nvcc("toolkit", "13.2.5")
    health = examine(str(nvcc), driver=Driver((13, 0), (device,), ""))
    checks = {c.name: c for c in health.checks}
    assert health.can_build
    assert health.fit == "fits, without PTX"
    assert "named by `--nvcc`" in checks["nvcc"].found
    assert checks["GPU 0"].found == "A device, sm_90, 128 GiB, 132 SMs"
    assert not checks["cuobjdump"].ok
    data = json.loads(json.dumps(health.as_json()))
    assert (data["driver"], data["toolkit"]) == ("13.0", "13.2")
    assert data["devices"][0]["arch"] == "sm_90"
    old = examine(str(nvcc), driver=Driver((12, 4), (), "the driver sees no device"))
    assert not {c.name: c for c in old.checks}["versions"].ok


def test_command(fake_nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc = str(fake_nvcc("toolkit"))
    done = CliRunner().invoke(doctor, ["--nvcc", nvcc])
    assert done.exit_code == 0
    assert "ok  nvcc" in done.output
    done = CliRunner().invoke(doctor, ["--json", "--nvcc", nvcc])
    assert json.loads(done.output)["can_build"] is True
    broken = write_script(tmp_path / "broken", "exit 1")
    done = CliRunner().invoke(doctor, ["--nvcc", str(broken)])
    assert done.exit_code == 3
    assert "pip install 'tilec[nvcc]'" in done.output
