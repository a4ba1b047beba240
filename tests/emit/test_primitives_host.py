"""The device primitives that are plain C++, run on the CPU: conversions without their instructions, memory access,
arithmetic, and the mathematics above single instructions (which g++'s functions stand in for)."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.emit import device_checks as checks
from tests.emit.device_program import UNARY, VALUES, Library, compile_library, host_source

FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder: Path = tmp_path_factory.mktemp("primitives")
    (folder / "host.cc").write_text(host_source(), encoding="utf-8")
    machine = ("-mfma",) if platform.machine() == "x86_64" else ()
    compile_library(["g++", *FLAGS, *machine], folder / "host.cc", folder / "host.so")
    return Library(folder / "host.so", gpu=False)


@pytest.mark.parametrize("source", VALUES)
def test_conversions(library: Library, source: str) -> None:
    checks.check_conversions(library, source)


def test_vector_conversions(library: Library) -> None:
    checks.check_vector_conversions(library)


def test_partial_access(library: Library) -> None:
    checks.check_partial_access(library)


def test_walks(library: Library) -> None:
    checks.check_walks(library)


def test_integers(library: Library) -> None:
    checks.check_integers(library)


def test_float_arithmetic(library: Library) -> None:
    checks.check_float_arithmetic(library)


@pytest.mark.parametrize("mode", ["fast", "strict"])
@pytest.mark.parametrize("function", UNARY)
def test_float_math(library: Library, function: str, mode: str) -> None:
    checks.check_math(library, function, mode, "float")


@pytest.mark.parametrize("function", ["sin", "cos", "sigmoid"])
def test_own_double_math(library: Library, function: str) -> None:
    checks.check_math(library, function, "strict", "double")


def test_two_argument_math(library: Library) -> None:
    checks.check_two_argument_math(library)


def test_half_precision(library: Library) -> None:
    checks.check_half_precision(library)
