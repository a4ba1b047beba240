"""`schedule mma = wmma`: sums stay opaque across a loop, and reach registers by way of shared memory where anything reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import compile_cubin, find_toolchain
from tilec.toolchain.cache import default_cache

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

PRODUCT = """kernel k[BM = 32, BN = 32, BK = 32](a: {t}[M, K], b: {t}[{b}]) -> c: {acc}[M, N]:
    schedule mma = {form}
    for i, j in parallel(M by BM, N by BN):
        acc = zeros({acc}, i, j)
        for k in range(K by BK):
            acc += {product}
        c[i, j] = acc
    check c == {check}
"""

EPILOGUE = """kernel k[BM = 64, BN = 64, BK = 32](
    a: f16[M, K], b: f16[K, N], row: f32[M], col: f32[N], old: f16[M, N]) -> (c: f16[M, N], top: f32[M, ceildiv(N, BN)]):
    schedule mma = wmma
    for i, j in parallel(M by BM, N by BN):
        acc = old[i, j].to(f32)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        y = maximum(acc * row[i][:, None] + col[j][None, :], 0.0)
        c[i, j] = y
        top[i, j.start // BN] = max(y, axis=1)
"""

RESCALED = """kernel k[BM = 48, BN = 40, BK = 32](a: bf16[M, K], b: bf16[K, N], s: f32[M]) -> c: f32[M, N]:
    schedule mma = wmma
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc = acc * 0.5 + (a[i, k] @ b[k, j]) * s[i][:, None]
        c[i, j] = acc
"""

TWO = """kernel k[BM = 32, BN = 32, BK = 16](a: bf16[M, K], b: bf16[K, N], d: bf16[K, N]) -> c: f32[M, N]:
    schedule mma = wmma
    for i, j in parallel(M by BM, N by BN):
        first = zeros(f32, i, j)
        second = zeros(f32, i, j)
        for k in range(K by BK):
            first += a[i, k] @ b[k, j]
            second += a[i, k] @ d[k, j]
        c[i, j] = first * second
"""

RAGGED = (
    ("M=72", "N=40", "K=72"),
    ("M=33", "N=61", "K=17"),
    ("M=1", "N=8", "K=8"),
    ("M=7", "N=3", "K=0"),
)


def written(folder: Path, text: str) -> Path:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return path


def product(folder: Path, dtype: str, turned: bool = False, form: str = "wmma") -> Path:
    right = "b[j, k].T" if turned else "b[k, j]"
    names = ("a", "b.T" if turned else "b")
    wide = "" if dtype == "f32" else ".to(i32)" if dtype in ("i8", "u8") else ""
    text = f"dot(a[i, k], {right}, as = tf32)" if dtype == "f32" else f"a[i, k] @ {right}"
    acc = "i32" if dtype in ("i8", "u8") else "f32"
    check = f"{names[0]}{wide} @ {names[1]}{wide}"
    shape = "N, K" if turned else "K, N"
    return written(
        folder, PRODUCT.format(t=dtype, b=shape, acc=acc, product=text, check=check, form=form)
    )


def sample(folder: Path, file: str, kernel: str, old: str = "", new: str = "") -> Path:
    """A sample whose kernel asks for `wmma`."""
    text = (SAMPLES / file).read_text(encoding="utf-8")
    start = text.index(f"kernel {kernel}")
    head = text.index(":\n", start) + 2
    changed = text[:head] + "    schedule mma = wmma\n" + text[head:]
    path = folder / file
    path.write_text(changed.replace(old, new) if old else changed, encoding="utf-8")
    return path


def verify(path: Path, folder: Path, *, arch: str | None = None, **options: object) -> None:
    for order in ({}, {"early": True}):
        found = outcomes(folder, file=str(path), arch=arch, **order, **options)
        assert found and {o["status"] for o in found} == {"ok"}, order


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i8", "u8"])
def test_every_element_type_verifies_at_ragged_sizes(
    dtype: str, turned: bool, tmp_path: Path
) -> None:
    path = product(tmp_path, dtype, turned)
    for sizes in RAGGED:
        verify(path, tmp_path, settings=sizes)


@pytest.mark.parametrize("kernel", ["gemm_nn", "gemm_nt"])
def test_gemm_verifies_at_ragged_sizes(kernel: str, tmp_path: Path) -> None:
    path = sample(tmp_path, "gemm.tile", kernel)
    for sizes in (("M=200", "N=136", "K=72"), ("M=129", "N=61", "K=33"), ("M=1", "N=8", "K=8")):
        verify(path, tmp_path, kernel=kernel, settings=sizes)


@pytest.mark.parametrize("text", [EPILOGUE, RESCALED, TWO], ids=["epilogue", "rescaled", "two"])
def test_what_reads_sums_verifies(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    for sizes in RAGGED[:3]:
        verify(path, tmp_path, settings=sizes)


@pytest.mark.parametrize(
    ("file", "kernel"),
    [
        ("gemm_bias_gelu.tile", "gemm_bias_gelu"),
        ("attention.tile", "attention"),
        ("attention_variants.tile", "packed"),
        ("decode.tile", "flash_decode"),
        ("matrix_vector_and_groups.tile", "moe_swiglu"),
        ("matrix_vector_and_groups.tile", "gemm_split_k"),
        ("quantised.tile", "gemm_w4a16"),
    ],
)
def test_samples_verify(file: str, kernel: str, tmp_path: Path) -> None:
    verify(sample(tmp_path, file, kernel), tmp_path, kernel=kernel)


def test_attention_in_f16_for_the_oldest_target_verifies(tmp_path: Path) -> None:
    path = sample(tmp_path, "attention.tile", "attention", "bf16", "f16")
    tiles = ("BM=64", "BN=64", "D=64")
    for sizes in (("S=100", "T=130"), ("S=64", "T=64"), ("S=1", "T=7")):
        settings = ("B=1", "H=2", "scale=0.1", *sizes)
        verify(path, tmp_path, arch="sm_75", defines=tiles, settings=settings)


def test_a_product_for_the_oldest_target_verifies(tmp_path: Path) -> None:
    for dtype in ("f16", "i8"):
        path = product(tmp_path, dtype)
        verify(path, tmp_path, arch="sm_75", settings=("M=40", "N=56", "K=40"))


# ---- the text


def body(path: Path, arch: str = "sm_80") -> str:
    cu = compile_file(str(path), archs=(arch,)).cu
    found = re.search(r"__forceinline__ void k_body\(.*?^}", cu, re.S | re.M)
    assert found is not None
    return found[0]


def test_sums_that_nothing_else_reads_last_for_the_loop(tmp_path: Path) -> None:
    text = body(product(tmp_path, "bf16"))
    loop = text.index("for (int k_tile = 0")
    assert text.index("wmma_fill(") < loop < text.index("wmma_multiply(") < text.index("wmma_add(")
    assert text.count("wmma_add(") == 1
    ending = text[text.index("wmma_multiply(") : text.index("wmma_add(")]
    assert "\n  }\n" in ending  # the loop ends between them


def test_sums_that_are_rescaled_pass_through_registers_in_each_trip(tmp_path: Path) -> None:
    text = body(written(tmp_path, RESCALED))
    loop = text.index("for (int k_tile = 0")
    assert loop < text.index("wmma_fill(") < text.index("wmma_multiply(") < text.index("wmma_add(")


def test_a_form_that_is_not_asked_for_is_not_taken(tmp_path: Path) -> None:
    for form in ("auto", "mma"):
        text = body(product(tmp_path, "bf16", form=form))
        assert "wmma" not in text and "accumulate_product<MmaBf16>" in text
    # no `mma.sync` of 8-bit integers is used for the oldest target
    text = body(product(tmp_path, "i8", form="auto"), "sm_75")
    assert "wmma_multiply(" in text


@pytest.mark.parametrize(
    ("dtype", "arch", "form", "said"),
    [
        ("bf16", "sm_75", "wmma", "sm_75 has no tensor-core `wmma` product of bf16 and bf16"),
        ("f8e4m3", "sm_90", "wmma", "sm_90 has no tensor-core `wmma` product of f8e4m3 and f8e4m3"),
        ("i8", "sm_75", "mma", "sm_75 has no tensor-core `mma` product of i8 and i8"),
    ],
)
def test_what_a_form_does_not_offer(
    dtype: str, arch: str, form: str, said: str, tmp_path: Path
) -> None:
    path = product(tmp_path, dtype, form=form)
    path.write_text(path.read_text().split("    check")[0], encoding="utf-8")
    with pytest.raises(TileError) as caught:
        compile_file(str(path), archs=(arch,))
    (message,) = caught.value.diagnostics
    assert message.code == "E0514" and message.message == said
    assert message.notes[0].startswith("products of this form there take: ")


def test_the_manifest_names_the_form(tmp_path: Path) -> None:
    found = compile_file(str(product(tmp_path, "bf16")), archs=("sm_80",), stop="kernel-ir")
    variant = found.kernels[0].manifest["targets"]["sm_80"][0]
    assert variant["products"]["instructions"][0]["instruction"] == "wmma.m16n16k16"
    assert {b["placement"] for b in variant["shared"] if "rows" in b} == {"rows at an odd pitch"}
    notes = [note for line in variant["lines"] for note in line["notes"]]
    assert any(n["what"] == "sums" and "shared memory" in n["how"] for n in notes)


@pytest.mark.parametrize(
    ("file", "kernel", "arch", "dtype", "tiles"),
    [
        ("gemm.tile", "gemm_nn", "sm_75", "f16", {}),
        ("attention.tile", "attention", "sm_75", "f16", {"BM": "64", "BN": "64", "D": "64"}),
        ("gemm.tile", "gemm_nt", "sm_90", "bf16", {}),
        ("attention.tile", "attention", "sm_90", "bf16", {}),
    ],
)
def test_nothing_spills(
    file: str, kernel: str, arch: str, dtype: str, tiles: dict[str, str], tmp_path: Path
) -> None:
    try:
        toolchain = find_toolchain(None, cache=default_cache())
    except TileError:
        pytest.skip("no nvcc: would have compiled products by wmma")
    path = sample(tmp_path, file, kernel, "bf16", dtype)
    cu = compile_file(str(path), kernel=kernel, archs=(arch,), defines=tiles).cu
    options = ("-Werror", "all-warnings")
    built = compile_cubin(cu, arch, toolchain=toolchain, options=options, cache=default_cache())
    assert built.report
    assert all(r.spill_stores == r.stack_frame == 0 for r in built.report)
