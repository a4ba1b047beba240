"""Rows that keep an earlier trip's maximum as their reference: maxima that rise, fall, come late or never, and what is no number."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import ARCH, Arrays, Program
from tests.emulator.test_folded_exponents import attention, close

S, T, TILE = 72, 328, 64
"""Two blocks of rows, six of keys, the last of each a part."""
CAUSAL = "\n            s = where(i[:, None] + 200 >= j[None, :], s, -inf)"
LATE = "\n            s = where(j[None, :] >= i[:, None] * 4, s, -inf)"
MASKS = {"none": "", "at the end": CAUSAL, "at the start": LATE}


@cache
def compiled(text: str, folder: Path) -> Program:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    program = Program(path, arch=folder.name)
    assert bool(program.asynchronous) == (folder.name == ARCH)
    return program


@pytest.fixture(scope="module", params=[ARCH, "sm_80"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for files, named after the architecture: one with products of warpgroups, one with products of warps."""
    place = tmp_path_factory.mktemp("references") / str(request.param)
    place.mkdir()
    return place


def levels(arrays: Arrays, steps: list[float]) -> None:
    """Scores are small numbers, and a step for each block of keys: exact in f32."""
    random = np.random.default_rng(5)
    q, k = arrays["q"], arrays["k"]
    q[:], k[:] = 0, 0
    q[:, 0] = 1
    q[np.arange(S), 1 + np.arange(S) % 32] = 1
    q[::5, 0] = 0.25
    k[:, 1:33] = random.integers(-8, 9, (T, 32)) / 4
    k[:, 0] = np.repeat(np.array(steps), TILE)[:T].astype(k.dtype)


STEPS: dict[str, list[float]] = {
    "flat": [0] * 6,
    "rises within the factor": [0, 2, 4, 6, 8, 10],
    "rises slowly": [0, 4, 8, 12, 16, 20],
    "rises to the limit": [0, 5.5, 0, 5.5, 11, 11],
    "rises by 1000": [0, 1000, 2000, 3000, 4000, 5000],
    "falls": [100, 80, 60, 40, 20, 0],
    "falls by 1000": [5000, 4000, 3000, 2000, 1000, 0],
    "rises and falls": [0, 50, 3, 60, 2, 61],
    "far below 0": [-3000, -2996, -2990, -3000, -2980, -2000],
}


@pytest.mark.parametrize("masks", list(MASKS))
@pytest.mark.parametrize("steps", list(STEPS))
def test_maxima_that_move(steps: str, masks: str, folder: Path) -> None:
    kept: Arrays = {}

    def change(arrays: Arrays) -> None:
        levels(arrays, STEPS[steps])
        kept.update(arrays)

    program = compiled(attention(mask=MASKS[masks]), folder)
    assert "any_late" in program.file.cu
    ran = program.run({"S": S, "T": T, "scale": 1.0}, change)
    rows, columns = np.arange(S)[:, None], np.arange(T)[None, :]
    seen = {
        "none": rows >= 0, "at the end": rows + 200 >= columns, "at the start": columns >= rows * 4,
    }[masks]  # fmt: skip
    close(ran, kept, 1.0, lambda s: np.where(seen, s, -np.inf))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_scores_of_any_size(scale: float, folder: Path) -> None:
    kept: Arrays = {}

    def change(arrays: Arrays) -> None:
        levels(arrays, [0, 2, 4, 3, 2, 5])
        kept.update(arrays)

    ran = compiled(attention(), folder).run({"S": S, "T": T, "scale": scale}, change)
    close(ran, kept, scale)


@pytest.mark.parametrize("block", [0, 3, 5])
@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_spoils_its_rows(what: float, block: int, folder: Path) -> None:
    def change(arrays: Arrays) -> None:
        levels(arrays, [0, 1, 2, 3, 4, 5])
        arrays["q"][:, 40] = 0
        arrays["q"][3::7, 40] = 1
        arrays["k"][:, 40] = 0
        arrays["k"][64 * block + 5, 40] = what
        arrays["q"][:3] = 0

    # 0 times what is no number is none either: rows of others must not read that column
    text = attention(
        mask="\n            s = where((i[:, None] % 7 == 3) | (j[None, :] != BAD), s, 0.0)"
    ).replace("BAD", str(64 * block + 5))
    ran = compiled(text, folder).run({"S": S, "T": T, "scale": 1.0}, change)
    spoilt = np.arange(S) % 7 == 3
    o, lse = ran.outputs["o"], ran.outputs["lse"]
    assert np.isfinite(o[~spoilt]).all() and np.isfinite(lse[~spoilt]).all()
    if what != -np.inf:
        assert np.isnan(o[spoilt]).all() and np.isnan(lse[spoilt]).all()
    else:
        assert np.isfinite(o[spoilt]).all()


@pytest.mark.parametrize("first", [1, 5])
def test_rows_that_see_their_first_key_late(first: int, folder: Path) -> None:
    kept: Arrays = {}

    def change(arrays: Arrays) -> None:
        levels(arrays, [7, 5, 3, 9, 11, 2])
        kept.update(arrays)

    begin = 64 * first + 3
    mask = f"\n            s = where((i[:, None] % 2 == 0) | (j[None, :] >= {begin}), s, -inf)"
    ran = compiled(attention(mask=mask), folder).run({"S": S, "T": T, "scale": 1.0}, change)
    seen = (np.arange(S)[:, None] % 2 == 0) | (np.arange(T)[None, :] >= begin)
    close(ran, kept, 1.0, lambda s: np.where(seen, s, -np.inf))


@pytest.mark.parametrize(
    "steps", ["rises within the factor", "rises slowly", "rises by 1000", "falls"]
)
def test_weights_in_f16(steps: str, folder: Path) -> None:
    text = attention().replace("bf16", "f16")
    kept: Arrays = {}

    def change(arrays: Arrays) -> None:
        levels(arrays, STEPS[steps])
        kept.update(arrays)

    program = compiled(text, folder)
    assert "any_late" in program.file.cu
    close(program.run({"S": S, "T": T, "scale": 1.0}, change), kept, 1.0)


def test_trips_have_no_maximum(folder: Path) -> None:
    """Neither a maximum nor a factor stands in front of the branch, and what a warp goes on with is rounded in the walk that adds it up."""
    text = compiled(attention(), folder).file.cu
    begins = {
        ARCH: "for (int j_tile = 0; j_tile < j_tile_whole",
        "sm_80": "if (j_tile < j_tile_whole",
    }
    loop = text[text.index(begins[folder.name]) :]
    usual, rare = loop[: loop.index("seldom();")], loop[loop.index("seldom();") :]
    assert "OpMax" not in usual and "lane_reduce" not in usual and usual.count("exp2_fast(") == 1
    assert "OpMax" in rare and "lane_reduce<OpMax" in rare
    walk = usual[usual.index("exp2_fast(") :]
    assert walk.index("] += p") < walk.index("convert_vector<bf16_t>(") < walk.index("any_late")
