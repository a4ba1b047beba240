"""The C++ program of `samples/cpp` on a GPU: on a stream, in a graph, and with calls that are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cpp.test_drop_in import project, run, toolkit
from tilec.toolchain.driver import query_driver
from tilec.toolchain.host_compiler import find_host_compiler

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["shared", "static"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    devices = query_driver().devices
    if not devices:
        pytest.skip("no GPU: would have run samples/cpp on a stream, in a graph and with errors")
    folder = tmp_path_factory.mktemp("cpp")
    sample = project(folder)
    nvcc = toolkit("system")
    make = ["make", f"TILEC={folder / 'tilec'}", f"NVCC={nvcc.path}", f"ARCHS={devices[0].arch}"]
    make += [f"CXX={find_host_compiler(nvcc).path}", "BUILD=build"]
    run([*make, *(["STATIC=1"] if request.param == "static" else [])], sample)
    return sample / "build/rows"


def test_kernels_on_a_stream_verify(program: Path) -> None:
    shown = run([program], program.parent)
    assert len(re.findall(r"^stream: .*: ok$", shown, re.MULTILINE)) == 3


def test_a_captured_graph_replays(program: Path) -> None:
    shown = run([program, "--graph"], program.parent)
    assert re.findall(r"^(\w+ replay): .*: ok$", shown, re.MULTILINE) == [
        "first replay",
        "second replay",
    ]


def test_refused_calls_launch_nothing(program: Path) -> None:
    shown = run([program, "--errors"], program.parent)
    assert len(re.findall(r" refused$", shown, re.MULTILINE)) == 8
    assert "an error of another call: left to its owner" in shown
    assert re.search(r"^after it: .*: ok$", shown, re.MULTILINE)
