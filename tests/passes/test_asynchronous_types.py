"""Which operands the warpgroups' products take from shared memory, and how bulk copies bring them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.ir.dtypes import F32, TF32
from tilec.ir.tensor_maps import ELEMENT_TYPES
from tilec.ir.tile_ir import Dot, For
from tilec.toolchain.build import compile_cubin, find_toolchain
from tilec.toolchain.losses import losses

PRODUCT = """kernel k[BM = 128, BN = 128, BK = {bk}](a: {a}[M, K], b: {a}[{b}]) -> c: {out}[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros({acc}, i, j)
        for k in range(K by BK):
            acc += {product}
        c[i, j] = acc
    check c == {check}
"""
TRANSPOSED = "a[i, k] @ b[j, k].T"
TF32_PRODUCT = "dot(a[i, k], b[j, k].T, as = tf32)"
FORMS = {
    "f16": ("f16", "f32", 64, TRANSPOSED, "wgmma_m64n128k16_f16"),
    "f8e4m3": ("bf16", "f32", 128, TRANSPOSED, "wgmma_m64n128k32_e4m3"),
    "f8e5m2": ("f16", "f32", 128, TRANSPOSED, "wgmma_m64n128k32_e5m2"),
    "i8": ("i32", "i32", 128, TRANSPOSED, "wgmma_m64n128k32_s8"),
    "u8": ("i32", "i32", 128, TRANSPOSED, "wgmma_m64n128k32_u8"),
    "f32": ("f32", "f32", 32, TF32_PRODUCT, "wgmma_m64n128k8_tf32"),
}


def file_of(folder: Path, a: str, transposed: bool = True) -> Path:
    out, acc, bk, product, _ = FORMS[a]
    check = "a.to(i32) @ b.to(i32)" if acc == "i32" else "a @ b"
    text = PRODUCT.format(
        a=a,
        out=out,
        acc=acc,
        bk=bk,
        b="N, K" if transposed else "K, N",
        product=product if transposed else product.replace("b[j, k].T", "b[k, j]"),
        check=check + (".T" if transposed else ""),
    )
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("a", sorted(FORMS))
def test_rows_along_the_consumed_axis(a: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, a)
    text = compile_file(str(path), archs=("sm_90a",)).cu
    assert FORMS[a][-1] in text
    settings = ("M=72", "N=136", "K=144")
    found = outcomes(tmp_path, file=str(path), arch="sm_90a", settings=settings)
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("a", ["f8e4m3", "i8", "f32"])
def test_ptxas_says_nothing(a: str, tmp_path: Path) -> None:
    text = compile_file(str(file_of(tmp_path, a)), archs=("sm_90a",)).cu
    said = losses(compile_cubin(text, "sm_90a", toolchain=find_toolchain()).ptxas)
    # `mma.sync` of 8-bit floats is made of conversions on sm_90, for which its registers do not suffice
    assert [line for line in said if "`k_kernel_any`" not in line] == []


@pytest.mark.parametrize("a", ["f8e4m3", "i8", "f32"])
def test_only_16_bits_are_read_across(a: str, tmp_path: Path) -> None:
    compiled = compile_file(str(file_of(tmp_path, a, transposed=False)), archs=("sm_90a",))
    assert "wgmma" not in compiled.cu
    path = file_of(tmp_path, "f16", transposed=False)
    assert "wgmma_m64n128k16_f16<0, 1>" in compile_file(str(path), archs=("sm_90a",)).cu


def test_bulk_copies_round_to_tf32(tmp_path: Path) -> None:
    assert ELEMENT_TYPES[TF32].name == "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32"
    assert ELEMENT_TYPES[TF32] != ELEMENT_TYPES[F32]
    text = compile_file(str(file_of(tmp_path, "f32")), archs=("sm_90a",)).cu
    assert text.count("CU_TENSOR_MAP_DATA_TYPE_TFLOAT32") == 4
    assert "CU_TENSOR_MAP_DATA_TYPE_FLOAT32" not in text


def test_a_sum_with_a_dot_is_one_product(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    for line in ("acc += dot(a[i, k], b[k, j])", "acc = dot(a[i, k], b[k, j]) + acc"):
        path.write_text(
            "kernel k(a: f16[M, K], b: f16[K, N]) -> c: f32[M, N]:\n"
            "    for i, j in parallel(M by 64, N by 64):\n"
            "        acc = zeros(f32, i, j)\n"
            "        for k in range(K by 64):\n"
            f"            {line}\n"
            "        c[i, j] = acc\n",
            encoding="utf-8",
        )
        (kernel,) = compile_file(str(path), stop="tile-ir").kernels
        loops = [op for op in kernel.program.nests[0].body.ops if isinstance(op, For)]
        dots = [op for op in loops[0].body.ops if isinstance(op, Dot)]
        assert [dot.accumulate for dot in dots] == [loops[0].carried[0].entry]
        assert loops[0].carried[0].next is dots[0].out
