"""Tuned variants in a C++ program: one generated file or several, the same header, the same calls. Nothing is launched here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpp.test_drop_in import STRICT, TWINS, run
from tilec.compiler import compile_file
from tilec.ir.selection import Point
from tilec.plan.candidate import Dispatch
from tilec.toolchain.build import compile_object, find_toolchain
from tilec.toolchain.nvcc import runtime_link_flags

ARCHS = ("sm_80", "sm_90")

DISPATCH = Dispatch(
    ("N",),
    ({"BN": 64}, {"BN": 512}),
    ("BN=64", "BN=512"),
    {"sm_80": (Point((100,), 1), Point((9000,), 2)), "sm_90": (Point((100,), 1),)},
)

MAIN = """\
#include "first.h"
#include "second.h"
#include <cstring>
#include <initializer_list>

static bool refused(cudaError_t status, const char* said, const char* wanted) {
  return status == cudaErrorInvalidValue && std::strcmp(said, wanted) == 0;
}

int main() {
  static float x[1];
  for (int n : {90, 9000, 1 << 30}) {
    // whichever variant these sizes select refuses the call, and what it says is passed on
    const cudaError_t status = first(nullptr, x, n, nullptr, nullptr);
    if (status != cudaErrorInvalidValue && status != cudaErrorNoKernelImageForDevice) {
      if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) continue;
      return 1;
    }
    if (status == cudaErrorInvalidValue && std::strcmp(first_error(), "x is null") != 0) return 2;
  }
  if (!refused(second(nullptr, x, -1, nullptr, nullptr), second_error(), "N is negative (N = -1)")) {
    return 3;
  }
  return first_workspace_bytes(100) == 0 ? 0 : 4;
}
"""


@pytest.mark.parametrize("split", [False, True], ids=["one file", "a file a variant"])
def test_selected_variants_are_built_and_linked(split: bool, tmp_path: Path) -> None:
    toolchain = find_toolchain()
    text = (
        TWINS["one"].replace("kernel first(", "kernel first[BN = 256](").replace("by 256", "by BN")
    )
    (tmp_path / "first.tile").write_text(text)
    (tmp_path / "second.tile").write_text(TWINS["two"])
    plain = compile_file(str(tmp_path / "first.tile"), archs=ARCHS)
    first = compile_file(
        str(tmp_path / "first.tile"), archs=ARCHS, dispatches={"first": DISPATCH}, split=split
    )
    second = compile_file(str(tmp_path / "second.tile"), archs=ARCHS)
    assert first.header == plain.header
    assert list(first.parts) == (["first_general", "first_tuned1", "first_tuned2"] if split else [])
    for name, compiled in (("first", first), ("second", second)):
        (tmp_path / f"{name}.h").write_text(compiled.header)
    objects = []
    for name, cu in {"first": first.cu, "second": second.cu, **first.parts}.items():
        options = ["-Werror", "all-warnings", "-Xcompiler", ",".join(STRICT)]
        # the variant for 9000 is one of sm_80 alone
        archs = ["sm_80"] if name == "first_tuned2" else list(ARCHS)
        built = compile_object(cu, archs, toolchain=toolchain, options=options)
        objects.append(tmp_path / f"{name}.o")
        objects[-1].write_bytes(built.blob)
    (tmp_path / "main.cpp").write_text(MAIN)
    include = [f"-isystem{d}" for d in toolchain.nvcc.include_dirs]
    link = runtime_link_flags(toolchain.nvcc, static=False)
    command = [toolchain.host.path, "-std=c++17", *STRICT, *include, "main.cpp", *objects, *link]
    run([*command, "-o", "program"], tmp_path)
    run([tmp_path / "program"], tmp_path)
