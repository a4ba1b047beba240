"""Which operands the warpgroups' products take from shared memory, and how bulk copies bring them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program
from tests.emulator.test_samples import outcomes
from tests.passes.ptxas import said_of
from tilec.compiler import compile_file
from tilec.ir.asynchronous import Roles
from tilec.ir.dtypes import F32, TF32
from tilec.ir.tensor_maps import ELEMENT_TYPES
from tilec.ir.tile_ir import Dot, For

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
    # `mma.sync` of 8-bit floats is made of conversions on sm_90, for which its registers do not suffice
    assert said_of(text, "_any") == ()


@pytest.mark.parametrize("a", ["f8e4m3", "i8", "f32"])
def test_only_16_bits_are_read_across(a: str, tmp_path: Path) -> None:
    """Others pass through registers, as the left operand of the transposed product."""
    text = compile_file(str(file_of(tmp_path, a, transposed=False)), archs=("sm_90a",)).cu
    assert f"{FORMS[a][-1]}_registers(" in text and "load_turned(b_left" in text
    # rows of 8-bit operands stand for pairs of neighbours
    assert f"pack_chunk_across<{'false' if a == 'f32' else 'true'}>(shared" in text
    # one part of them is loaded while the other is multiplied
    trip = text[text.index("load_turned(b_left[") :]
    assert trip.index("wgmma_commit") < trip.index("load_turned(b_left_2[")
    assert trip.index("load_turned(b_left_2[") < trip.index("wgmma_wait<0>")
    assert f"{FORMS[a][-1]}(" not in text
    path = file_of(tmp_path, "f16", transposed=False)
    text = compile_file(str(path), archs=("sm_90a",)).cu
    assert "wgmma_m64n128k16_f16<0, 1>" in text and "load_turned" not in text


ACROSS = """kernel k[BM = 64, BN = 64, BK = {bk}](a: {a}[{left}], b: {a}[{right}]) -> c: {out}[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros({acc}, i, j)
        for k in range(K by BK):
            acc += {product}
        c[i, j] = acc
    check c == {check}
"""


def across(a: str, order: str) -> str:
    """`n`: rows by columns as the product has them, `t`: transposed; the left operand first."""
    out, acc, bk, multiplied, _ = FORMS[a]
    left, right = (
        {"n": ("M, K", "a[i, k]"), "t": ("K, M", "a[k, i].T")}[order[0]],
        {
            "n": ("K, N", "b[k, j]"),
            "t": ("N, K", "b[j, k].T"),
        }[order[1]],
    )
    product = multiplied.replace("a[i, k]", left[1]).replace("b[j, k].T", right[1])
    whole = {"a": "a.to(i32)" if acc == "i32" else "a", "b": "b.to(i32)" if acc == "i32" else "b"}
    checked = whole["a"] + ".T" * (order[0] == "t") + " @ " + whole["b"] + ".T" * (order[1] == "t")
    return ACROSS.format(
        a=a, out=out, acc=acc, bk=bk, left=left[0], right=right[0], product=product, check=checked
    )


@pytest.mark.parametrize("order", ["nn", "tt"])
@pytest.mark.parametrize("a", ["f8e4m3", "f8e5m2", "i8", "u8", "f32"])
def test_operands_across_verify(a: str, order: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(across(a, order), encoding="utf-8")
    tiles: tuple[dict[str, int], ...] = ({}, {"BM": 128, "BN": 64}, {"BM": 128, "BN": 256})
    if order == "nn":
        tiles += ({"BM": 16},)
    for defines in tiles:
        depth = 16 if a == "f32" and defines.get("BN") == 256 else FORMS[a][2]
        program = Program(path, None, {**defines, "BK": depth})
        for m, n, k in ((64, 144, 144), (80, 80, 80), (16, 272, 16)):
            ran = program.run({"M": m, "N": n, "K": k})
            assert set(ran.launched) <= program.asynchronous


BYTES = """kernel k[BM = 128, BN = 128](a: f8e4m3[M, K], b: f8e4m3[K, N], bias: f32[N], r: bf16[M, N], alpha: f32) -> (c: bf16[M, N], d: f32[M, N], e: f8e4m3[M, N], f: bf16[N, M]):
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by 64):
            acc += a[i, k] @ b[k, j]
        x = max(acc * alpha + bias[j][None, :] + r[i, j].to(f32), 0.0)
        c[i, j] = x
        d[i, j] = acc
        e[i, j] = x
        f[j, i] = (x.to(bf16) * 2.0).T
"""


@pytest.mark.parametrize("order", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("kind", ["f8e4m3", "i8"])
def test_tiles_of_the_compiler_s_choice_suit_every_order(
    kind: str, order: str, tmp_path: Path
) -> None:
    text = re.sub(r"(B[MNK]) = \d+", r"\1 = auto", across(kind, order))
    (tmp_path / "k.tile").write_text(text, encoding="utf-8")
    found = compile_file(str(tmp_path / "k.tile"), archs=("sm_90a",), stop="kernel-ir").kernels[0]
    assert any(isinstance(op, Roles) for low in found.lowered["sm_90a"] for op in low.body)


def test_epilogues_of_operands_across(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(BYTES, encoding="utf-8")
    program = Program(path)
    for m, n, k in ((144, 272, 80), (130, 136, 160), (17, 144, 16)):
        numbers = {"M": m, "N": n // 16 * 16, "K": k, "alpha": 0.25}
        ran = program.run(numbers)
        assert set(ran.launched) <= program.asynchronous


BOUNDED = """kernel k(n: i32, a: f32[M, K], b: f32[K, N]) -> c: f32[M, N]:
    for i, j in parallel(M by 64, N by 64):
        acc = zeros(f32, i, j)
        for k in range(0 : min(K, n) by 32):
            acc += dot(a[i, k], b[k, j], as = tf32)
        c[i, j] = acc
"""


def test_edges_of_operands_across(tmp_path: Path) -> None:
    """What lies beyond a bound inside the tensor is NaN, and set to zero before it comes to registers."""

    def change(arrays: Arrays) -> None:
        arrays["a"][:, 40:] = np.nan
        arrays["b"][40:] = np.nan

    path = tmp_path / "k.tile"
    path.write_text(BOUNDED, encoding="utf-8")
    program = Program(path)
    for n in (40, 17, 0):
        ran = program.run({"M": 72, "K": 64, "N": 136, "n": n}, change)
        assert set(ran.launched) <= program.asynchronous
        assert np.isfinite(ran.outputs["c"]).all()


@pytest.mark.parametrize("a", ["f8e4m3", "i8", "f32"])
def test_ptxas_says_nothing_of_operands_across(a: str, tmp_path: Path) -> None:
    """Of the widest tiles, which take the most registers."""
    path = tmp_path / "k.tile"
    path.write_text(across(a, "nn"), encoding="utf-8")
    words = {"BM": "128", "BN": "256"}
    text = compile_file(str(path), archs=("sm_90a",), defines=words).cu
    assert "load_turned(" in text
    assert said_of(text, "_any") == ()


def test_bulk_copies_round_to_tf32(tmp_path: Path) -> None:
    assert ELEMENT_TYPES[TF32].name == "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32"
    assert ELEMENT_TYPES[TF32] != ELEMENT_TYPES[F32]
    text = compile_file(str(file_of(tmp_path, "f32")), archs=("sm_90a",)).cu
    assert text.count("CU_TENSOR_MAP_DATA_TYPE_TFLOAT32") == 6
    # a result keeps its bits
    assert re.findall(r'"(\w)", \{\w, CU_TENSOR_MAP_DATA_TYPE_FLOAT32', text) == ["c"]


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
