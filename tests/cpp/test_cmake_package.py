"""`find_package(Tilec)`: `.tile` files as sources of a target, with Makefiles and with Ninja."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tilec
from tilec.source.diagnostics import TileError
from tilec.toolchain.host_compiler import find_host_compiler
from tilec.toolchain.nvcc import find_nvcc

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "templates" / "cmake"
CMAKE = shutil.which("cmake")
GENERATORS = ["Unix Makefiles", "Ninja"]

pytestmark = pytest.mark.skipif(
    CMAKE is None or shutil.which("ninja") is None,
    reason="cmake or ninja is missing: would configure and build projects with find_package(Tilec)",
)

COMMON = "fn twice(v):\n    return v + v\n"
KERNEL = """\
import "common.tile"
kernel NAME[BN = 64](x: f32[N]) -> y: f32[N]:
    for i in parallel(N by BN):
        y[i] = twice(x[i])
"""
HEAD = "cmake_minimum_required(VERSION 3.21)\nproject(p LANGUAGES NONE)\n"
FIND = "find_package(Tilec 0.1 REQUIRED)\n"
CUSTOM = f"""{HEAD}{FIND}
add_custom_target(kernels ALL)
tilec_add_kernels(kernels FILES first.tile second.tile ARCH sm_80 sm_90 DEFINES BN=32 HEADER_VAR headers)
message(STATUS "<${{headers}}>")
"""
LIBRARY = """cmake_minimum_required(VERSION 3.21)
project(p LANGUAGES CXX CUDA)
find_package(Tilec REQUIRED)
add_library(rows STATIC use.cpp)
tilec_add_kernels(rows FILES first.tile)
find_package(CUDAToolkit REQUIRED)
target_link_libraries(rows PRIVATE CUDA::cudart)
"""


def program(folder: Path) -> Path:
    """A `tilec` for CMake to call."""
    path = folder / "bin" / "tilec"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tilec "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two kernels that import one file, and a file of the project that builds them."""
    folder = tmp_path / "a project"
    folder.mkdir()
    (folder / "common.tile").write_text(COMMON)
    for name in ("first", "second"):
        (folder / f"{name}.tile").write_text(KERNEL.replace("NAME", name))
    (folder / "CMakeLists.txt").write_text(CUSTOM)
    program(tmp_path)
    return folder


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """cmake in `folder`."""
    return subprocess.run(
        [str(CMAKE), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def configure(
    folder: Path, *options: str, generator: str = "Ninja"
) -> subprocess.CompletedProcess[str]:
    """cmake's first half, told where the package and the program are."""
    given = [f"-DTilec_DIR={PACKAGE}", f"-DTilec_EXECUTABLE={folder.parent / 'bin' / 'tilec'}"]
    return call(folder, "-G", generator, "-B", "build", *given, *options, ".")


def build(folder: Path) -> str:
    """What a build prints; it must succeed."""
    done = call(folder, "--build", "build")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def compiled(output: str) -> list[str]:
    """The files that a build compiled."""
    return sorted(set(re.findall(r"tilec (\w+\.tile)", output)))


def edit(path: Path, text: str) -> None:
    """Write `path`, later than everything there is."""
    path.write_text(text)
    later = time.time() + 2
    os.utime(path, (later, later))
    time.sleep(max(0.0, later - time.time()))


@pytest.mark.parametrize("generator", GENERATORS)
def test_kernels_are_compiled_when_they_or_their_imports_change(
    project: Path, generator: str
) -> None:
    done = configure(project, generator=generator)
    assert done.returncode == 0, done.stderr
    made = project / "build" / "tilec" / "kernels"
    assert f"<{made / 'first.h'};{made / 'second.h'}>" in done.stdout
    assert compiled(build(project)) == ["first.tile", "second.tile"]
    assert (made / "second.h").is_file()
    text = (made / "first.cu").read_text()
    assert "first.tile -D BN=32 --arch sm_80 --arch sm_90" in text.replace(" \\\n//  ", "")
    assert compiled(build(project)) == []
    edit(project / "second.tile", KERNEL.replace("NAME", "second") + "\n")
    assert compiled(build(project)) == ["second.tile"]
    assert compiled(build(project)) == []
    edit(project / "common.tile", COMMON.replace("v + v", "v * 2.0"))
    assert compiled(build(project)) == ["first.tile", "second.tile"]
    assert compiled(build(project)) == []
    assert (made / "first.cu").read_text() != text


def test_tuned_variants_are_asked_for(project: Path) -> None:
    text = CUSTOM.replace("second.tile ARCH", "second.tile TUNED ARCH")
    (project / "CMakeLists.txt").write_text(text)
    assert configure(project).returncode == 0
    build(project)
    first = (project / "build" / "tilec" / "kernels" / "first.cu").read_text()
    assert "--arch sm_90 --tuned" in first.replace(" \\\n//  ", "")


@pytest.mark.parametrize("generator", GENERATORS)
def test_an_error_of_the_program_stops_the_build(project: Path, generator: str) -> None:
    (project / "second.tile").write_text(KERNEL.replace("NAME", "second").replace("x[i]", "z[i]"))
    assert configure(project, generator=generator).returncode == 0
    failed = call(project, "--build", "build")
    said = failed.stdout + failed.stderr
    assert failed.returncode != 0
    assert re.search(r"error\[E02\d\d\]", said) and "second.tile:4:" in said
    assert not (project / "build/tilec/kernels/second.cu").exists()
    edit(project / "second.tile", KERNEL.replace("NAME", "second"))
    assert "second.tile" in compiled(build(project))


def test_the_prefix_path_finds_it_and_the_program_comes_from_path(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "CMakeLists.txt").write_text(
        f'{HEAD}{FIND}message(STATUS "<${{Tilec_EXECUTABLE}}>")\n'
    )
    copy = project.parent / "copy" / "templates" / "cmake"
    shutil.copytree(PACKAGE, copy)
    shutil.copytree(
        ROOT / "tilec", copy.parents[1] / "tilec", ignore=shutil.ignore_patterns("[!_]*")
    )
    monkeypatch.setenv("PATH", f"{project.parent / 'bin'}:{os.environ['PATH']}")
    done = call(project, "-B", "build", f"-DCMAKE_PREFIX_PATH={copy}", ".")
    assert done.returncode == 0, done.stderr
    assert f"<{project.parent / 'bin' / 'tilec'}>" in done.stdout


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (CUSTOM, ["-DTilec_EXECUTABLE=/bin/false"], "which does not run as tilec"),
        (CUSTOM.replace("Tilec 0.1", "Tilec 9"), [], f"version: {tilec.__version__}"),
        (CUSTOM.replace("Tilec 0.1", "Tilec 0.0.1"), [], f"version: {tilec.__version__}"),
        (f"{HEAD}{FIND}tilec_add_kernels(none FILES a.tile)\n", [], "no target `none`"),
        (f"{HEAD}{FIND}add_custom_target(k)\ntilec_add_kernels(k)\n", [], "no FILES for `k`"),
        (CUSTOM.replace("FILES", "first.tile FILES"), [], "`first.tile` follows no keyword"),
        (CUSTOM.replace("second.tile", "./first.tile"), [], "two files of the name `first`"),
        (
            f"{HEAD}{FIND}add_library(k OBJECT)\ntilec_add_kernels(k FILES first.tile)\n",
            [],
            "needs CUDA as a language",
        ),
    ],
)
def test_what_is_wrong_is_said_at_once(
    project: Path, text: str, options: list[str], words: str
) -> None:
    (project / "CMakeLists.txt").write_text(text)
    done = configure(project, *options)
    assert done.returncode == 1
    assert words in re.sub(r"\s+", " ", done.stderr)


def test_a_missing_program_is_named_and_an_optional_package_is_not_found(project: Path) -> None:
    copy = project.parent / "deep" / "templates" / "cmake"
    shutil.copytree(PACKAGE, copy)
    (copy.parents[1] / "__init__.py").write_text('__version__ = "0.1.0"\n')
    options = [f"-DTilec_DIR={copy}", "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF"]
    options += ["-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"]
    options += [f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}"]
    done = call(project, "-G", "Ninja", "-B", "build", *options, ".")
    assert done.returncode == 1
    said = re.sub(r"\s+", " ", done.stderr)
    assert "there is no program `tilec`" in said and "-DTilec_EXECUTABLE=PATH" in said
    text = f'{HEAD}find_package(Tilec QUIET)\nmessage(STATUS "<${{Tilec_FOUND}}>")\n'
    (project / "CMakeLists.txt").write_text(text)
    done = call(project, "-G", "Ninja", "-B", "again", *options, ".")
    assert done.returncode == 0, done.stderr
    assert re.search(r"<(0|FALSE)>", done.stdout)


def test_a_library_of_kernels_and_cpp(project: Path) -> None:
    try:
        nvcc = find_nvcc()
        compiler = shutil.which(str(find_host_compiler(nvcc).path))
    except TileError:
        pytest.skip("there is no nvcc: would build a library of a kernel and a C++ file")
    (project / "CMakeLists.txt").write_text(LIBRARY)
    (project / "use.cpp").write_text(
        '#include "first.h"\nint use() { return first(nullptr, nullptr, 0, nullptr, nullptr); }\n'
    )
    options = [f"-DCMAKE_CUDA_COMPILER={nvcc.program}", f"-DCMAKE_CUDA_HOST_COMPILER={compiler}"]
    done = configure(project, *options, "-DCMAKE_CUDA_ARCHITECTURES=80-real;90a")
    assert done.returncode == 0, done.stdout + done.stderr
    assert compiled(build(project)) == ["first.tile"]
    banner = (project / "build/tilec/rows/first.cu").read_text()[:400]
    assert "--arch sm_80 --arch sm_90a" in banner
    assert (project / "build/librows.a").is_file()
    assert "no work to do" in build(project)
    # another comment after the last line: the kernel is compiled, and nothing after it
    edit(project / "first.tile", (project / "first.tile").read_text() + "# the end\n")
    again = build(project)
    assert compiled(again) == ["first.tile"]
    assert "Building CUDA" not in again and "Linking" not in again
    assert "no work to do" in build(project)
