"""`samples/cpp`: generated kernels in a C++ program, built by make and by CMake, with the toolkit and with the wheels.

Nothing here launches a kernel: `tests/gpu/test_cpp.py` does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.toolchain.build import Toolchain, compile_object, find_toolchain
from tilec.toolchain.host_compiler import find_host_compiler
from tilec.toolchain.nvcc import Nvcc, find_nvcc, runtime_link_flags

ROOT = Path(__file__).resolve().parents[2]
WHEELS = os.environ.get("TILEC_TEST_WHEELS")
TOOLKITS = ["system"] + (["wheels"] if WHEELS else [])
BUILDS = [("system", False), ("wheels" if WHEELS else "system", True)]
"""Toolkit, and whether the runtime is linked statically. The test of the Makefile does all four."""

LONGEST = 8192
"""Columns of the longest row that the program has the GPU compute."""

STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]


def toolkit(kind: str) -> Nvcc:
    """The nvcc to build with: any but that of the packages, or that alone."""
    if kind == "wheels":
        return find_nvcc(
            environment={"PATH": "/usr/bin:/bin"},
            system_pattern="/nonexistent/*/nvcc",
            python_path=[str(WHEELS)],
        )
    return find_nvcc()


def run(command: Sequence[str | Path], folder: Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [str(c) for c in command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def project(folder: Path) -> Path:
    """A copy of the sample, in which one kernel imports a file and one has fewer variants, since rows are shorter, and a `tilec` for it to
    call; the sample's folder."""
    tilec = folder / "tilec"
    tilec.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tilec "$@"\n')
    tilec.chmod(0o755)
    samples = folder / "samples"
    shutil.copytree(
        ROOT / "samples", samples, ignore=shutil.ignore_patterns("build*", "__pycache__")
    )
    (samples / "common.tile").write_text("fn add(x, y):\n    return x + y\n")
    text = (samples / "vector_add.tile").read_text()
    assert "a[i] + b[i]" in text
    text = 'import "common.tile"\n\n' + text.replace("a[i] + b[i]", "add(a[i], b[i])")
    (samples / "vector_add.tile").write_text(text)
    for path in (samples / "softmax.tile", samples / "cpp" / "main.cpp"):
        text = path.read_text()
        assert "C <= 131072" in text
        path.write_text(text.replace("C <= 131072", f"C <= {LONGEST}"))
    return samples / "cpp"


def edit(path: Path) -> None:
    """Write the file anew, measurably later than all that was built."""
    time.sleep(0.05)
    path.write_text(path.read_text() + "\n")


def no_gpu_or_right(program: Path, *mode: str) -> None:
    """The program verifies what it did, or says that there is no GPU."""
    done = subprocess.run([str(program), *mode], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    if done.returncode == 3:
        assert "no GPU" in done.stdout


def refuses(program: Path) -> None:
    """Calls that violate a contract are refused; this needs no GPU, as nothing is launched."""
    shown = run([program, "--errors"], program.parent)
    assert len(re.findall(r" refused$", shown, re.MULTILINE)) == 8
    assert f"requires C <= {LONGEST} (C = 200000)" in shown


@pytest.mark.parametrize("kind", TOOLKITS)
def test_make_builds_links_and_rebuilds(kind: str, tmp_path: Path) -> None:
    folder = project(tmp_path)
    nvcc = toolkit(kind)
    make = ["make", f"TILEC={tmp_path / 'tilec'}", f"NVCC={nvcc.path}", "ARCHS=sm_90"]
    make.append(f"CXX={find_host_compiler(nvcc).path}")
    make.append(f"CXXFLAGS=-std=c++17 -O1 {' '.join(STRICT)}")
    run([*make, "-j2"], folder)
    program = folder / "build/rows"
    refuses(program)
    no_gpu_or_right(program)
    assert "libcudart" in run(["ldd", program], folder)

    run([*make, "-q"], folder)
    edit(folder.parent / "common.tile")
    planned = run([*make, "-n"], folder)
    assert "compile ../vector_add.tile" in planned
    assert "softmax" not in re.sub(r"build/softmax\.o", "", planned)
    run([*make], folder)
    edit(folder.parent / "attention.tile")
    run([*make, "-q"], folder)

    # the same objects with the runtime inside
    program.unlink()
    run([*make, "STATIC=1", "BUILD=build"], folder)
    refuses(program)
    assert "libcudart" not in run(["ldd", program], folder)
    # an imported file that is gone stops tilec with a message, and not make without a rule
    (folder.parent / "common.tile").unlink()
    failed = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "No rule to make target" not in failed.stderr
    assert re.search(r"error\[E\d+\]", failed.stderr)


@pytest.mark.parametrize(("kind", "static"), BUILDS, ids=["shared", "static"])
def test_cmake_builds_links_and_rebuilds(kind: str, static: bool, tmp_path: Path) -> None:
    cmake, ninja = shutil.which("cmake"), shutil.which("ninja")
    if cmake is None or ninja is None:
        # what there is to test without them: the file names every source of the sample
        text = (ROOT / "samples/cpp/CMakeLists.txt").read_text()
        assert "tile_kernel(softmax)" in text
        return
    folder = project(tmp_path)
    nvcc = toolkit(kind)
    options = [f"-DTILEC={tmp_path / 'tilec'}", f"-DNVCC={nvcc.path}", "-DARCHS=90"]
    options += [f"-DCMAKE_CXX_COMPILER={shutil.which(str(find_host_compiler(nvcc).path))}"]
    options += [f"-DSTATIC={'ON' if static else 'OFF'}"]
    run([cmake, "-G", "Ninja", "-B", "build", *options, "."], folder)
    build = [ninja, "-C", "build"]
    run(build, folder)
    refuses(folder / "build/rows")
    assert ("libcudart" in run(["ldd", "build/rows"], folder)) is not static
    assert "no work to do" in run([*build, "-n"], folder)
    edit(folder.parent / "common.tile")
    planned = run([*build, "-n"], folder)
    assert "tilec vector_add.tile" in planned
    assert "softmax" not in planned


def test_cmake_finds_the_nvcc_of_the_python_packages(tmp_path: Path) -> None:
    text = (ROOT / "samples/cpp/CMakeLists.txt").read_text()
    assert "${Python3_SITELIB}/nvidia/cu*/bin/nvcc" in text
    cmake = shutil.which("cmake")
    if cmake is None or not WHEELS:
        return
    script = tmp_path / "find.cmake"
    start = text.index("if(NOT NVCC)\n  find_package")
    body = text[start : text.index("# nvcc itself says")]
    body = body.replace("find_package(Python3 COMPONENTS Interpreter)", "")
    script.write_text(f"set(Python3_SITELIB {WHEELS})\n{body}message(STATUS ${{NVCC}})\n")
    assert run([cmake, "-P", script], tmp_path).strip() == f"-- {toolkit('wheels').path}"


def test_the_cmake_project_of_the_document(tmp_path: Path) -> None:
    document = (ROOT / "docs/cpp.md").read_text()
    (text,) = re.findall(r"^```\n(cmake_minimum.*?)^```", document, re.DOTALL | re.MULTILINE)
    assert "DEPFILE softmax.d" in text
    cmake = shutil.which("cmake")
    if cmake is None:
        return
    folder = project(tmp_path).parent
    (folder / "CMakeLists.txt").write_text(text)
    kernel = TWINS["one"].replace("first", "softmax")
    (folder / "softmax.tile").write_text(f'import "common.tile"\n{kernel}')
    (folder / "main.cpp").write_text(
        '#include "softmax.h"\n'
        "int main() { return softmax(nullptr, nullptr, 0, nullptr, nullptr); }\n"
    )
    nvcc = toolkit("system")
    options = [f"-DTILEC={tmp_path / 'tilec'}", f"-DCMAKE_CUDA_COMPILER={nvcc.program}"]
    options += [f"-DCMAKE_CUDA_HOST_COMPILER={find_host_compiler(nvcc).path}"]
    run([cmake, "-G", "Unix Makefiles", "-B", "build", *options, "."], folder)
    build = [cmake, "--build", "build"]
    run(build, folder)
    run([folder / "build/program"], folder)
    assert "Building CUDA" not in run(build, folder)
    edit(folder / "common.tile")
    assert "Building CUDA" in run(build, folder)


def headers(folder: Path) -> list[str]:
    """The headers of all samples that are compiled."""
    names = ["vector_add", "softmax", "norms"]
    for name in names:
        compiled = compile_file(str(ROOT / f"samples/{name}.tile"))
        (folder / f"{name}.h").write_text(compiled.header)
    return names


@pytest.mark.parametrize(
    "command",
    [("gcc", "-std=c99"), ("gcc", "-std=c17"), ("g++", "-std=c++17"), ("g++", "-std=c++20")],
    ids=lambda c: c[1],
)
def test_headers_are_valid_c_and_cpp(command: tuple[str, str], tmp_path: Path) -> None:
    names = headers(tmp_path)
    includes = "".join(f'#include "{n}.h"\n' * 2 for n in names)
    cpp = command[0] == "g++"
    source = tmp_path / ("use.cpp" if cpp else "use.c")
    null = "nullptr" if cpp else "0"
    call = f"vector_add({null}, {null}, {null}, 0, {null}, {null})"
    source.write_text(f"{includes}int use(void);\nint use(void) {{ return (int){call}; }}\n")
    include = [f"-isystem{d}" for d in toolkit("system").include_dirs]
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", *include]
    run([*command, *flags, source], tmp_path)


TWINS = {
    "one": "kernel first(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 256):\n        t = x[i] * 2.0\n        y[i] = t\n",
    "two": "kernel second(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 128):\n        t = x[i] + 2.0\n        y[i] = t\n",
}


@pytest.mark.parametrize(("kind", "static"), BUILDS, ids=["shared", "static"])
def test_two_generated_files_in_one_program(kind: str, static: bool, tmp_path: Path) -> None:
    """The same names inside, two architectures each, and the strictest warnings on the host's side."""
    nvcc = toolkit(kind)
    toolchain = Toolchain(nvcc, find_host_compiler(nvcc))
    objects = []
    for name, text in TWINS.items():
        (tmp_path / f"{name}.tile").write_text(text)
        compiled = compile_file(str(tmp_path / f"{name}.tile"), archs=("sm_80", "sm_90"))
        (tmp_path / f"{name}.h").write_text(compiled.header)
        options = ["-Werror", "all-warnings", "-Xcompiler", ",".join(STRICT)]
        built = compile_object(
            compiled.cu, ["sm_80", "sm_90"], toolchain=toolchain, options=options
        )
        (tmp_path / f"{name}.o").write_bytes(built.blob)
        objects.append(tmp_path / f"{name}.o")
    (tmp_path / "main.cpp").write_text(
        '#include "one.h"\n#include "two.h"\n#include <cstring>\n'
        "int main() {\n"
        "  if (first(nullptr, nullptr, -1, nullptr, nullptr) != cudaErrorInvalidValue) return 1;\n"
        "  if (second(nullptr, nullptr, 1, nullptr, nullptr) != cudaErrorInvalidValue) return 2;\n"
        '  if (std::strcmp(first_error(), "N is negative (N = -1)") != 0) return 3;\n'
        '  return std::strcmp(second_error(), "x is null");\n'
        "}\n"
    )
    include = [f"-isystem{d}" for d in nvcc.include_dirs]
    link = runtime_link_flags(nvcc, static=static)
    command = [toolchain.host.path, "-std=c++17", *STRICT, *include, "main.cpp", *objects, *link]
    run([*command, "-o", "program"], tmp_path)
    run([tmp_path / "program"], tmp_path)


@pytest.mark.parametrize("compute", [80, 86, 89, 90, 100, 120])
def test_each_kernel_has_one_body_for_each_architecture(compute: int, tmp_path: Path) -> None:
    """Of the kernels of several architectures, the launcher's choice has a body and the others stop the program."""
    compiled = compile_file(str(ROOT / "samples/softmax.tile"), archs=("sm_80", "sm_90"))
    pieces = re.findall(r"^extern \"C\" __global__ .*?^}$", compiled.cu, re.DOTALL | re.MULTILINE)
    names = [re.findall(r"(\w+)_(sm_\d+)\(", p)[0] for p in pieces]
    # what is a variant of one architecture alone, as clusters of CTAs are, has its one body too
    assert len(set(names)) == len(names)
    assert {arch for _, arch in names} == {"sm_80", "sm_90"}
    (tmp_path / "kernels.cpp").write_text("\n".join(pieces))
    flags = ["-E", "-P", f"-D__CUDA_ARCH__={compute}0"]
    text = run([find_host_compiler().path, *flags, "kernels.cpp"], tmp_path)
    chosen = "sm_90" if compute >= 90 else "sm_80"
    bodies = re.findall(r"(\w+_sm_\d+)\([^{]*\{\s*(\w+)", text)
    assert len(bodies) == len(pieces)
    for name, first in bodies:
        assert (first == "__trap") is not name.endswith(chosen), (name, first)


def test_an_architecture_with_an_a_comes_before_the_plain_one(tmp_path: Path) -> None:
    (tmp_path / "one.tile").write_text(TWINS["one"])
    compiled = compile_file(str(tmp_path / "one.tile"), archs=("sm_90", "sm_90a", "sm_80"))
    choices = re.findall(r"if \(compute (.*?)\) \{", compiled.cu)
    assert choices == ["== 90", ">= 90", ">= 80"]


def test_the_toolchain_of_these_tests_is_found() -> None:
    """Every test above needs nvcc and a host compiler, so their absence is told once and plainly."""
    found = find_toolchain()
    assert found.nvcc.version >= (11, 8)
    assert found.host.version >= 9
