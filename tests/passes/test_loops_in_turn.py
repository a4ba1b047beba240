"""Loops with products one after the other: what they share, and what they don't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_loops_in_turn import CACHED
from tilec.compiler import compile_file
from tilec.ir import kernel_ir as k

ONE = CACHED.replace(
    """        for j in range(N by BN):
            s = (q[i, :] @ old_k[j, :].T) * scale
            state = softmax.step(state, s, old_v[j, :])
""",
    "",
)
OUTLIVES = CACHED.replace(
    "        for j in range(0 :", "        held = state[2]\n        for j in range(0 :"
)
OUTLIVES = OUTLIVES.replace("softmax.end(state)", "softmax.end(state) + held.to(bf16)")
OTHERS = CACHED.replace("range(N by BN)", "range(N by 32)")


def described(path: Path, text: str) -> tuple[k.Kernel, dict[str, object]]:
    path.write_text(text, encoding="utf-8")
    (kernel,) = compile_file(str(path), archs=("sm_90a",), stop="kernel-ir").kernels
    note = kernel.manifest["targets"]["sm_90a"][0]  # type: ignore[index]
    return kernel.lowered["sm_90a"][0], note


def rings(note: dict[str, object]) -> list[tuple[str, ...]]:
    channels: list[dict[str, list[dict[str, str]]]] = note["channels"]  # type: ignore[assignment]
    return [tuple(tile["tensor"] for tile in channel["tiles"]) for channel in channels]


def accumulators(note: dict[str, object]) -> int:
    return note["products"]["accumulators_per_thread"]  # type: ignore[index, no-any-return]


def test_tiles_of_one_shape_travel_in_one_ring(tmp_path: Path) -> None:
    low, note = described(tmp_path / "p.tile", CACHED)
    # what both multiply is loaded once
    assert rings(note) == [("q",), ("old_k, k",), ("old_v, v",)]
    assert sum(panel.name.startswith("q") for panel in low.panels) == 1
    assert "keep_references" in note["schedule"]  # type: ignore[operator]
    # and the accumulators of the second loop are those of the first
    _, one = described(tmp_path / "q.tile", ONE)
    assert accumulators(note) == accumulators(one)


def test_tiles_of_other_shapes_have_rings_of_their_own(tmp_path: Path) -> None:
    _, note = described(tmp_path / "p.tile", OTHERS)
    assert rings(note) == [("q",), ("old_k",), ("old_v",), ("k",), ("v",)]


@pytest.mark.parametrize("text", [OUTLIVES])
def test_a_tile_that_outlives_the_next_loop_has_registers_beside_it(
    tmp_path: Path, text: str
) -> None:
    _, note = described(tmp_path / "p.tile", text)
    _, one = described(tmp_path / "q.tile", ONE)
    assert accumulators(note) > accumulators(one)
