"""A cache for all tests of the tuner, with the emulator's primitives that other tests have built; kernels have names of their own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tuning.machine import Machine
from tilec.emulator.build import host_toolchain
from tilec.jobs import tuning
from tilec.jobs.tuning_devices import Device
from tilec.tuning import lanes, search


@pytest.fixture(scope="package")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    (cache / "emulator").symlink_to(host_toolchain().folder.parent)
    return cache


@pytest.fixture
def folder(tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.setenv("TILEC_CACHE_DIR", str(shared_cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """No process is started and no nvcc."""
    found = Machine()

    class Fake:
        def __init__(self, setup: object, limit: float, number: int = 0) -> None: ...

        def __enter__(self) -> Machine:
            return found

        def __exit__(self, *error: object) -> None: ...

    tools = SimpleNamespace(nvcc=SimpleNamespace(release="13.0.88"))
    monkeypatch.setattr(lanes, "Measurer", Fake)
    monkeypatch.setattr(search, "compile_cubin", found.build)
    monkeypatch.setattr("tilec.toolchain.build.find_toolchain", lambda *a, **k: tools)
    monkeypatch.setattr(tuning, "_device", lambda request: Device("H200", "sm_90", False))
    return found


def program(name: str, values: str = "64, 128", more: str = "", body: str = "x[i] + x[i]") -> str:
    """A kernel to tune, of that name."""
    return f"""\
kernel {name}[BN = 256](x: f32[N]) -> y: f32[N]:
    tune BN in ({values}){more} key (N)
    for i in parallel(N by BN):
        y[i] = {body}
    check y == x * 2.0
    example N = 4000
    example cpu N = 700
"""
