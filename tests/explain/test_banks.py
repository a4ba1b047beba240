"""Bank conflicts: computed from layouts, and counted by the emulator, which decodes addresses by itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.running import run
from tests.explain.compiled import SAMPLES, best
from tilec.explain.banks import Conflicts, address, conflicts, parts_of, passes
from tilec.ir import kernel_ir as k
from tilec.ir.asynchronous import PanelBuffer
from tilec.ir.dtypes import BF16, F32, I8, DType
from tilec.jobs.running import RunRequest, run_files

C_TYPES = {F32: "float", BF16: "bf16_t", I8: "int8_t"}
TILES = [
    ("SharedTile", F32, 32, 32),
    ("SharedTile", F32, 32, 16),
    ("SharedTile", F32, 32, 24),
    ("SharedTile", BF16, 32, 64),
    ("SharedTile", BF16, 32, 40),
    ("PlainTile", F32, 32, 32),
    ("PlainTile", BF16, 32, 24),
    ("PlainTile", I8, 32, 64),
    ("PanelTile", F32, 32, 64),
    ("PanelTile", BF16, 32, 32),
]
PATTERNS = [
    ("thread", "0"),
    ("thread / 4", "thread % 4 * 2"),
    ("thread % 8", "thread / 8 * 4"),
    ("thread", "4"),
]


def buffer(form: str, rep: DType, rows: int, cols: int) -> k.TileBuffer | PanelBuffer:
    if form == "PanelTile":
        return PanelBuffer("tile", rep, rows, cols, 1)
    return k.TileBuffer("tile", rep, rows, cols, 1, form == "PlainTile")


@pytest.mark.parametrize(("row", "col"), PATTERNS)
@pytest.mark.parametrize(("form", "rep", "rows", "cols"), TILES)
def test_passes_are_those_that_the_emulator_counts(
    form: str, rep: DType, rows: int, cols: int, row: str, col: str
) -> None:
    kind = C_TYPES[rep]
    text = (
        "int* out\n"
        f"struct Shared {{ {form}<{kind}, {rows}, {cols}> tile; }};\n"
        "Shared& shared = cta_shared<Shared>();\n"
        "const int thread = static_cast<int>(threadIdx.x);\n"
        f"*shared.tile.at({row}, {col}) = {kind}{{}};\n"
        "out[thread] = thread;"
    )
    (found,) = [
        c for c in run(text, np.zeros(32, np.int32), counting=True) if c.kind == "shared store"
    ]
    place = buffer(form, rep, rows, cols)
    at = [part.replace("/", "//") for part in (row, col)]
    lanes = [address(place, *(eval(part, {"thread": t}) for part in at)) for t in range(32)]
    assert found.requests == 1
    assert passes(parts_of(lanes, rep.bits // 8)) == found.units


def test_conflicts_are_counted() -> None:
    # 32 words of one bank; each of 32 banks; one word for all
    assert passes([[(128 * n, 4) for n in range(32)]]) == 32
    assert passes([[(4 * n, 4) for n in range(32)]]) == 1
    assert passes([[(64, 4)] * 32]) == 1
    # 16 bytes a thread go in four parts
    assert passes(parts_of([16 * n for n in range(32)], 16)) == 4
    assert passes(parts_of([128 * n for n in range(32)], 16)) == 32


def counted(path: Path, file: str, kernel: str, arch: str, *settings: str) -> dict[str, float]:
    """Passes a request by kind, of all lines."""
    written = path / "outcomes.json"
    run_files(
        RunRequest(
            device="cpu",
            json_path=str(written),
            file=file,
            kernel=kernel,
            arch=arch,
            settings=settings,
            counters=True,
        )
    )
    (outcome,) = json.loads(written.read_text())["outcomes"]
    assert outcome["status"] == "ok"
    found: dict[str, list[int]] = {}
    for one in outcome["counters"]:
        total = found.setdefault(one["kind"], [0, 0])
        total[0] += one["units"]
        total[1] += one["requests"]
    return {kind: units / requests for kind, (units, requests) in found.items()}


def test_a_product_has_the_conflicts_that_the_emulator_counts(tmp_path: Path) -> None:
    found = conflicts(best("gemm", "gemm_nn", "sm_80"))
    by_how = {one.how: one for one in found}
    assert {one.buffer for one in found} == {"a_tiles", "b_tiles"}
    assert all(one.passes == one.least for one in found)
    units = counted(
        tmp_path, str(SAMPLES / "gemm.tile"), "gemm_nn", "sm_80", "M=128", "N=128", "K=128"
    )
    assert units["shared store"] == by_how["cp.async"].passes
    # ldmatrix.x4 has four times eight rows
    assert units["shared load"] == 4 * by_how["ldmatrix"].passes


def test_warpgroups_and_what_leaves() -> None:
    found = {(c.buffer, c.how): c for c in conflicts(best("gemm", "gemm_nn", "sm_90a"))}
    assert set(found) == {("a_tiles", "wgmma"), ("b_tiles", "wgmma"), ("c_chunks", "stmatrix")}
    assert all(one.passes == 1 for one in found.values())


def test_a_conflict_is_found_in_a_kernel() -> None:
    """The sample's kernel with rows of its first operand that are a multiple of all banks apart, and no swizzle."""
    from dataclasses import replace

    kernel = best("gemm", "gemm_nn", "sm_80")
    a_tiles = next(tile for tile in kernel.tiles if tile.name == "a_tiles")

    class Unswizzled(k.TileBuffer):
        @property
        def pitch(self) -> int:
            return self.cols

    plain = Unswizzled(a_tiles.name, a_tiles.rep, a_tiles.rows, a_tiles.cols, a_tiles.slots, True)
    broken = replace(kernel, tiles=tuple(plain if t is a_tiles else t for t in kernel.tiles))
    found: list[Conflicts] = conflicts(broken)
    assert [(c.how, c.passes, c.least) for c in found if c.buffer == "a_tiles"] == [
        ("cp.async", 4, 4),
        ("ldmatrix", 8, 1),
    ]
