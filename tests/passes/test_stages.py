"""How many trips ahead operands are copied: what is asked for, else as many as the target's shared memory holds, down to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.explain.registers import registers
from tilec.plan.candidate import Candidate
from tilec.source.diagnostics import TileError
from tilec.targets.table import TARGETS

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

PRODUCT = """kernel k[BM = {m}, BN = {m}, BK = {k}](a: bf16[M, K], b: bf16[K, N]) -> c: f32[M, N]:
    schedule stages = {stages}
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
    check c == a @ b
"""

ONE_STAGE = [
    ("attention_variants.tile", "packed"),
    ("attention_variants.tile", "sliding_window"),
    ("attention_variants.tile", "soft_cap_alibi"),
    ("decode.tile", "flash_decode"),
]


def stages(file: Path, arch: str, kernel: str | None = None) -> list[int]:
    found = compile_file(str(file), kernel=kernel, archs=(arch,), stop="kernel-ir").kernels[0]
    return [v["products"]["stages"] for v in found.manifest["targets"][arch] if "products" in v]


def product(folder: Path, m: int, k: int, asked: str) -> Path:
    path = folder / "k.tile"
    path.write_text(PRODUCT.format(m=m, k=k, stages=asked), encoding="utf-8")
    return path


@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_120"])
@pytest.mark.parametrize(("file", "kernel"), ONE_STAGE)
def test_tiles_of_which_one_stage_fits(file: str, kernel: str, arch: str) -> None:
    assert set(stages(SAMPLES / file, arch, kernel)) == {1}
    assert min(stages(SAMPLES / file, "sm_90", kernel)) == 3


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
@pytest.mark.parametrize("depth", [64, 128, 256])
def test_open_tiles_have_rings_of_two_stages(depth: int, arch: str) -> None:
    """Tiles of attention are smaller where accumulators or rings would not fit."""
    file = str(SAMPLES / "attention.tile")
    defines = {"D": str(depth)}
    found = compile_file(file, archs=(arch,), defines=defines, stop="kernel-ir").kernels[0]
    assert all(v["products"]["stages"] >= 2 for v in found.manifest["targets"][arch])
    for kernel in found.lowered[arch]:
        assert registers(kernel, TARGETS[arch]).fits


def test_the_deepest_ring_that_fits_is_taken(tmp_path: Path) -> None:
    # with 96 columns the pitch is 104: two stages are 1024 bytes too many
    for k, expected in ((64, 3), (80, 2), (96, 1), (128, 1)):
        assert set(stages(product(tmp_path, 128, k, "auto"), "sm_86")) == {expected}


def test_what_the_schedule_says_is_not_changed(tmp_path: Path) -> None:
    for asked in (1, 2, 5):
        assert set(stages(product(tmp_path, 64, 32, str(asked)), "sm_86")) == {asked}
    with pytest.raises(TileError) as refused:
        stages(product(tmp_path, 128, 128, "2"), "sm_86")
    (message,) = refused.value.diagnostics
    assert message.code == "E0603" and "fewer `stages`" in message.helps[0]


def test_where_not_one_stage_fits(tmp_path: Path) -> None:
    with pytest.raises(TileError) as refused:
        stages(product(tmp_path, 128, 256, "auto"), "sm_86")
    (message,) = refused.value.diagnostics
    assert (
        message.code == "E0603"
        and "131072 bytes of shared memory with one stage" in message.message
    )
    assert message.helps == ("use smaller tiles than `BM = 128`, `BN = 128`, `BK = 256`",)
    given = Candidate({"BM": 128, "D": 64}, frozenset({"BM"}), origin={"BM": "option"})
    assert given.smaller_tiles == "use smaller tiles than `BM = 128`, or leave `-D BM` out"


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_every_depth_verifies(asked: int, tmp_path: Path) -> None:
    path = product(tmp_path, 32, 16, str(asked))
    for order in ({}, {"early": True}):
        for sizes in (("M=40", "N=56", "K=72"), ("M=33", "N=7", "K=17"), ("M=8", "N=8", "K=8")):
            found = outcomes(tmp_path, file=str(path), settings=sizes, **order)
            assert {o["status"] for o in found} == {"ok"}, (sizes, order)


def test_attention_of_one_stage_verifies(tmp_path: Path) -> None:
    text = (SAMPLES / "attention.tile").read_text(encoding="utf-8")
    path = tmp_path / "attention.tile"
    path.write_text(text.replace("    require scale", "    schedule stages = 1\n    require scale"))
    for order in ({}, {"early": True}):
        found = outcomes(tmp_path, file=str(path), **order)
        assert {o["status"] for o in found} == {"ok"}, order
