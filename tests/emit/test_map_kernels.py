"""Kernels with tensor maps and clusters as text: entry points, guards, and what nvcc and a linker make of them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mapped import DOUBLED, X_MAP, M, N, doubled, many
from tilec.calling.launchers import CLauncher, build_c_launcher
from tilec.compiler import compile_file
from tilec.emit.bodies import GuardedKernel
from tilec.emit.unit import UnitKernel, render_unit
from tilec.ir.dtypes import BF16, F32, U4
from tilec.ir.launch import AllOf, LaunchPlan, TensorMapArgument
from tilec.ir.symbolic import Sym
from tilec.runtime.arguments import CallSizes
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import compile_cubin, compile_object, find_toolchain
from tilec.toolchain.losses import losses
from tilec.toolchain.matrix import STRICT

HOST_WARNINGS = ("-Xcompiler", "-Wall,-Wextra,-Wconversion,-Wshadow,-Werror")


@pytest.fixture
def unit(tmp_path: Path):
    """`doubled` for some architectures; the kernels for the last one have a map and clusters of two."""
    path = tmp_path / "doubled.tile"
    path.write_text(DOUBLED)

    def made(*archs: str) -> str:
        (kernel,) = compile_file(str(path), archs=archs).kernels
        plan: LaunchPlan = kernel.plan
        last = plan.targets[-1]
        (step,) = last.steps
        launches = tuple(
            replace(
                x,
                arguments=(X_MAP, *x.arguments),
                cluster=2,
                condition=AllOf((x.condition, X_MAP.addressable)),
            )
            for x in step.launches
        )
        targets = (*plan.targets[:-1], replace(last, steps=(replace(step, launches=launches),)))
        guards = dict.fromkeys(archs, "")
        if len(archs) > 1:
            guards = {
                "sm_80": "__CUDA_ARCH__ < 900",
                "sm_90a": "defined(__CUDA_ARCH_FEAT_SM90_ALL)",
            }
        kernels = []
        for arch in archs:
            for k in kernel.lowered[arch]:
                if arch == archs[-1]:
                    k = replace(k, arguments=(X_MAP, *k.arguments), cluster=2)
                kernels.append(GuardedKernel(k, guards[arch], kernel.program))
        return render_unit(
            "doubled.tile",
            "",
            [UnitKernel("doubled", kernel.program, replace(plan, targets=targets), tuple(kernels))],
        )

    return made


def test_a_map_is_a_parameter_by_value_and_its_body_sees_it(unit) -> None:
    text = unit("sm_90a")
    head = text[text.index('extern "C" __global__ void') :].splitlines()
    assert head[:2] == ['extern "C" __global__ void', "__cluster_dims__(2, 1, 1)"]
    assert head[2].startswith("__launch_bounds__(128, resident_ctas(128, ")
    assert head[3].startswith(
        "doubled_kernel(const __grid_constant__ CUtensorMap x_map, const f16_t*"
    )
    assert "doubled_body(const CUtensorMap& x_map, const f16_t* __restrict__ x," in text
    assert "#include <cuda.h>" in text.splitlines()


def test_nothing_of_it_stands_where_it_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "doubled.tile"
    path.write_text(DOUBLED)
    text = compile_file(str(path), archs=("sm_90a",)).cu
    for word in ("<cuda.h>", "CUtensorMap", "host_tensor_map", "host_limit_to_resident", "cluster"):
        assert word not in text


@pytest.mark.parametrize("archs", [("sm_90a",), ("sm_80", "sm_90a")])
def test_nvcc_takes_it_without_a_warning(unit, archs) -> None:
    options = (*STRICT, *HOST_WARNINGS)
    built = compile_object(unit(*archs), archs, toolchain=find_toolchain(), options=options)
    assert losses(built.ptxas) == ()


@pytest.mark.parametrize("make", [doubled, many])
def test_nvcc_takes_kernels_written_by_hand(make) -> None:
    built = compile_cubin(make().cu, "sm_90a", toolchain=find_toolchain(), options=STRICT)
    assert losses(built.ptxas) == ()


def test_the_launcher_needs_no_driver_library_to_be_linked(tmp_path: Path) -> None:
    """Without a GPU the map is what cannot be made; with one the addresses below are nobody's, and nothing is called."""
    compiled = many()
    launcher = build_c_launcher(compiled, ("sm_90a",), find_toolchain())
    assert isinstance(launcher, CLauncher)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a driver")
    (kernel,) = compiled.kernels
    places = {t.name: n + 1 << 40 for n, t in enumerate(kernel.plan.parameters)}
    sizes = CallSizes({"A": 2, "B": 4, "C": 8, "D": 16})
    with pytest.raises(TileError) as error:
        launcher.launch(kernel, sizes, places, 0)
    assert error.value.diagnostics[0].notes == ("c needs a driver of CUDA 12 or later",)


def test_which_maps_there_are() -> None:
    assert X_MAP.fault == ""
    assert replace(X_MAP, box=(128, 8)).fault == "rows of 256 bytes with a swizzle of 128"
    assert replace(X_MAP, box=(128, 8), swizzle=0).fault == ""
    assert replace(X_MAP, box=(4, 8)).fault == "rows of 8 bytes with a swizzle of 128"
    assert replace(X_MAP, box=(64, 257)).fault == "a box of 64 x 257 elements"
    assert replace(X_MAP, box=(64,)).fault == "2 dims and a box of 1"
    assert replace(X_MAP, strides=()).fault == "2 dims and 0 strides"
    assert replace(X_MAP, swizzle=16).fault == "a swizzle of 16 bytes"
    assert replace(X_MAP, dtype=U4).fault == "elements of 4 bits"


def conditions(wanted: TensorMapArgument) -> list[str]:
    """The condition in C."""
    from tilec.emit.host import HostRenderer

    return HostRenderer({}, {}, {}).condition(wanted.addressable).split(" && ")


def test_when_a_tensor_can_have_a_map() -> None:
    dense = TensorMapArgument("t", "t", BF16, (N, M), (N * 2,), (64, 8), 128)
    assert conditions(dense) == ["host_is_aligned(t, 16)", "N >= 1", "M >= 1", "N % 8 == 0"]
    padded = replace(dense, dtype=F32, strides=(N * 32,))
    assert conditions(padded) == ["host_is_aligned(t, 16)", "N >= 1", "M >= 1"]
    fixed = replace(dense, dims=(Sym.of(64), Sym.of(8)), strides=(Sym.of(128),))
    assert conditions(fixed) == ["host_is_aligned(t, 16)"]
    odd = replace(fixed, strides=(Sym.of(120),))
    assert conditions(odd)[1:] == ["1 == 0"]
    wide = replace(dense, dims=(N, M * N, M), strides=(N * 2, N * M * 2), box=(64, 8, 1))
    assert conditions(wide)[1:] == [
        "N >= 1", "int64_t{M} * N >= 1", "int64_t{M} * N <= 4294967296", "M >= 1", "N % 8 == 0",
        "int64_t{M} * N % 8 == 0", "int64_t{M} * N * 2 <= 1099511627775",
    ]  # fmt: skip
