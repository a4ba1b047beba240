"""Chained products of warps in a scheduled loop: ragged sizes, none, more rows than keys; rings of any depth; rows that begin anywhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program

ROOT = Path(__file__).resolve().parents[2]
ATTENTION = ROOT / "samples" / "attention.tile"
SIZES = [(1, 1), (72, 200), (130, 64), (130, 65), (65, 0), (257, 330), (300, 64), (128, 512)]


@cache
def compiled(arch: str, causal: bool, *defines: tuple[str, int]) -> Program:
    words = {"D": 64, "CAUSAL": str(causal).lower(), **dict(defines)}
    program = Program(ATTENTION, "attention", words, arch)
    assert "any_late" in program.file.cu and not program.asynchronous
    return program


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("arch", ["sm_80"])
def test_warps_with_two_blocks_of_rows(arch: str, sizes: tuple[int, int], causal: bool) -> None:
    program = compiled(arch, causal)
    (kernel, _) = program.kernel.lowered[arch]
    assert kernel.threads == 128
    rows, keys = sizes
    ran = program.run({"B": 1, "H": 2, "S": rows, "T": keys, "scale": 0.125})
    assert ran.launched == ("attention_kernel",)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(72, 200), (65, 0), (130, 65)], ids=str)
def test_warps_with_one_block_of_rows(sizes: tuple[int, int], causal: bool) -> None:
    program = compiled("sm_80", causal, ("BM", 64), ("BN", 64))
    rows, keys = sizes
    program.run({"B": 1, "H": 1, "S": rows, "T": keys, "scale": 0.125})


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("sizes", [(72, 200), (70, 65)], ids=str)
def test_rings_of_any_depth(sizes: tuple[int, int], stages: int, tmp_path: Path) -> None:
    text = ATTENTION.read_text(encoding="utf-8")
    path = tmp_path / "a.tile"
    path.write_text(text.replace("    check:", f"    schedule stages = {stages}\n\n    check:"))
    program = Program(path, "attention", {"D": 64, "CAUSAL": "true"}, "sm_80")
    assert "any_late" in program.file.cu
    rows, keys = sizes
    program.run({"B": 1, "H": 1, "S": rows, "T": keys, "scale": 0.125})
