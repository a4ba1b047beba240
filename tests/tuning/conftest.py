"""A cache for all tests of the tuner, so that the emulator's primitives are built once; kernels have names of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.setenv("TILEC_CACHE_DIR", str(shared_cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
