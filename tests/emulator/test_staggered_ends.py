"""Warpgroups that end a loop of products one after the other: which do, that all instances verify, and what holds the order up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program
from tests.emulator.test_samples import SAMPLES
from tests.passes.test_asynchronous import form_of, lowered, product
from tests.passes.test_schedule import ATTENTION
from tilec.compiler import compile_file
from tilec.emulator.machine import EmulatedModule
from tilec.ir import asynchronous as a
from tilec.ir.kernel_walking import inside
from tilec.source.diagnostics import TileError
from tilec.toolchain.cache import default_cache

STAGES = ("    for i, j", "    schedule stages = 4\n    for i, j")
RING = product(STAGES)
SHALLOW = product((STAGES[0], STAGES[1].replace("4", "3")))
EDGES = product(
    ("K, N]) ->", "K, N], last: i32) ->"), ("range(K by BK)", "range(min(K, last) by BK)")
)


def staggers(text: str, folder: Path, **defines: int) -> list[a.Stagger]:
    return [op for op in inside(lowered(text, folder, **defines)) if isinstance(op, a.Stagger)]


def program(folder: Path, rows: int) -> Program:
    path = folder / "k.tile"
    path.write_text(RING, encoding="utf-8")
    return Program(path, defines={"BM": rows, "BN": 16})


@pytest.mark.parametrize("rows", [128, 192])
def test_each_ends_behind_the_one_before(rows: int, tmp_path: Path) -> None:
    found = staggers(RING, tmp_path, BM=rows)
    assert [op.what for op in found] == ["begin", "wait", "pass"]
    assert {(op.warpgroups, op.lag) for op in found} == {(rows // 64, 3)}


def test_who_ends_together(tmp_path: Path) -> None:
    assert staggers(RING, tmp_path) == []  # one warpgroup
    assert staggers(SHALLOW, tmp_path, BM=128) == []
    assert staggers(RING, tmp_path, BM=16) == []  # a stream: memory is the limit
    assert staggers(ATTENTION, tmp_path) == []  # these take turns in each trip
    # all of them clear what lies behind the end together
    assert form_of(EDGES, tmp_path, BM=128).lag > 0
    assert staggers(EDGES, tmp_path, BM=128) == []


def test_of_the_tilings_of_a_product_those_whose_ctas_share_operands() -> None:
    path = str(SAMPLES / "gemm.tile")
    (kernel,) = compile_file(path, kernel="gemm_nn", archs=("sm_90a",), stop="kernel-ir").kernels
    rings = [low for low in kernel.lowered["sm_90a"] if isinstance(low.body[0], a.Roles)]
    found = {low.name for low in rings if any(isinstance(x, a.Stagger) for x in inside(low))}
    assert found == {low.name for low in rings if low.cluster > 1} < {low.name for low in rings}


def test_instances_verify_and_an_order_that_cannot_be_kept_is_seen(tmp_path: Path) -> None:
    """Several instances of each CTA, of one, three and five trips; then a warpgroup that holds the slot which the one before needs,
    and one that never passes."""
    found = program(tmp_path, 128)
    for last in (32, 96, 160):
        found.run({"M": 500, "N": 64, "K": last}, orders=(("chaos", 1),))
    text = found.file.cu
    for old, new in (
        ("warpgroup > 0 ? ceil_div(K, BK) - 3", "warpgroup > 0 ? ceil_div(K, BK) - 4"),
        ("if (warpgroup == 0 && ", "if (warpgroup == 2 && "),
    ):
        assert old in text
        changed = EmulatedModule("k.tile", text.replace(old, new), default_cache())
        with pytest.raises(TileError) as error:
            found.run({"M": 500, "N": 64, "K": 160}, module=changed)
        assert error.value.diagnostics[0].code == "E0935"
