"""`auto` tiles of which a block holds too many registers or bytes give way to smaller ones; tiles that are given do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.source.codes.compiling import TOO_LARGE
from tilec.source.diagnostics import TileError
from tilec.targets.table import TARGETS

WIDE = """import std.softmax
kernel k[DK = 576, DV = 512, BM = auto, BN = auto](q: bf16[S, DK], kv: bf16[N, DK], scale: f32) -> o: bf16[S, DV]:
    require scale > 0.0
    for i in parallel(S by BM):
        state = softmax.begin(i, DV)
        for j in range(N by BN):
            state = softmax.step(state, (q[i, :] @ kv[j, :].T) * scale, kv[j, span(0, DV)])
        o[i, :] = softmax.end(state)
"""
"""Keys of 576 columns whose first 512 are the values: 16 rows of accumulators are more than a warp's registers."""

TWICE = """import std.softmax
kernel k[D = 256, BM = auto, BN = auto](q: bf16[S, D], k: bf16[N, D], v: bf16[N, D], scale: f32) -> o: bf16[S, D]:
    require scale > 0.0
    for i in parallel(S by BM):
        first = softmax.begin(i, D)
        second = softmax.begin(i, D)
        for j in range(N by BN):
            s = (q[i, :] @ k[j, :].T) * scale
            first = softmax.step(first, s, v[j, :])
            second = softmax.step(second, -s, v[j, :])
        o[i, :] = softmax.end(first) - softmax.end(second)
"""
"""Two softmaxes of the same scores, each with its own values."""


def compiled(folder: Path, text: str, arch: str, **defines: str) -> CompiledFile:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return compile_file(str(path), archs=(arch,), defines=defines, stop="kernel-ir")


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a"])
@pytest.mark.parametrize("text", [WIDE, TWICE], ids=["wide", "twice"])
def test_smaller_tiles_are_taken(tmp_path: Path, text: str, arch: str) -> None:
    (kernel,) = compiled(tmp_path, text, arch).kernels
    for one in kernel.lowered[arch]:
        assert dict(one.constants)["BM"] < 128


def test_given_tiles_are_not_changed(tmp_path: Path) -> None:
    with pytest.raises(TileError) as caught:
        compiled(tmp_path, WIDE, "sm_80", BM="128", BN="128")
    assert {d.code for d in caught.value.diagnostics} <= {"E0601", "E0603"}


@pytest.mark.parametrize("given", [{"BM": "64"}, {"BM": "64", "BN": "32"}], ids=["one", "both"])
def test_tiles_for_warpgroups_have_smaller_ones_beside_them(
    tmp_path: Path, given: dict[str, str]
) -> None:
    """What is given suits warpgroups, and what is for any address has no room for it."""
    first, *others = compiled(tmp_path, WIDE, "sm_90a", **given).kernels[0].lowered["sm_90a"]
    assert dict(first.constants).items() >= {name: int(n) for name, n in given.items()}.items()
    assert first.threads > 128 and others
    assert all(dict(one.constants)["BM"] < 64 for one in others)


def test_what_fits_nowhere_says_why_for_both_forms(tmp_path: Path) -> None:
    with pytest.raises(TileError) as caught:
        compiled(tmp_path, WIDE, "sm_90a", BM="128", BN="32")
    (refused,) = caught.value.diagnostics
    assert refused.code in TOO_LARGE
    assert "warpgroups of sm_90a, which have more room, do not take them" in refused.notes[-1]


COLUMNS = """kernel k[D = 128, BM = auto, BN = auto](q: bf16[S, D], k: bf16[N, D], v: bf16[N, D]) -> (o: bf16[S, D], seen: f32[N]):
    for i in parallel(S by BM):
        top = full(f32, -inf, i)
        for j in range(N by BN):
            top = maximum(top, max(q[i, :] @ k[j, :].T, axis=1))
        acc = zeros(f32, i, D)
        for j in range(N by BN):
            p = exp(q[i, :] @ k[j, :].T - top[:, None])
            acc += p.to(bf16) @ v[j, :]
            atomic_add(seen[j], sum(p, axis=0))
        o[i, :] = acc
"""
"""Sums over rows pass through shared memory, beside the rings."""


def test_rings_leave_room_for_what_reductions_need(tmp_path: Path) -> None:
    (kernel,) = compiled(tmp_path, COLUMNS, "sm_90a").kernels
    assert all(one.shared_bytes <= 232448 for one in kernel.lowered["sm_90a"])


@pytest.mark.parametrize(
    ("file", "name", "busy"),
    [
        ("forms", "soft_cap", True),
        ("forms", "biased", False),
        ("forms", "masked", False),
        ("unseen", "packed_soft_cap", False),  # some instances have few trips
    ],
)
def test_more_warpgroups_where_scores_take_long(file: str, name: str, busy: bool) -> None:
    forms = Path(__file__).parents[2] / "bench" / f"attention_{file}.tile"
    found = compile_file(str(forms), kernel=name, archs=("sm_90a",), stop="kernel-ir")
    tiles = dict(found.kernel(name).lowered["sm_90a"][0].constants)
    target = TARGETS["sm_90a"]
    tables = target.busy_chain_tiles if busy else target.product_tiles
    assert (tiles["BM"], tiles["BN"]) in {sizes[:2] for sizes in tables}
    assert ((tiles["BM"], tiles["BN"]) in {x[:2] for x in target.product_tiles}) is not busy
