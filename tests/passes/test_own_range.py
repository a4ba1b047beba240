"""Warpgroups that leave a loop when their own rows need no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.compiler import compile_file

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "attention.tile"


def text(**defines: str) -> str:
    """The body of the sample's kernel for Hopper, with the tile sizes that were chosen."""
    cu = compile_file(str(SAMPLE), archs=("sm_90a",), defines=defines).cu
    found = re.search(r"\nattention_kernel\(.*?(attention_body\w*)\(", cu, re.S)
    assert found is not None
    return cu.split(f"void {found[1]}(")[1].split("__device__ __forceinline__ void")[0]


def own(body: str) -> str:
    """What a warpgroup's trips are, "" where they are the instance's."""
    found = re.search(r"const int j_tile_own = (.*?);", body, re.S)
    return " ".join(found.group(1).split()) if found else ""


def test_a_bound_that_moves_with_the_rows_is_each_warpgroups_own() -> None:
    body = text(D="64", CAUSAL="true")
    assert "warpgroup * 64 + i_tile * 256 + 64" in own(body)
    # masks begin behind the part's first row, not the tile's
    assert re.search(r"j_tile_whole_end = [^;]*warpgroup \+ i_tile \* 4", body)


def test_the_others_slots_are_given_back_in_turn() -> None:
    body = text(D="64", CAUSAL="true")
    rest = body[body.index("for (int j_tile = j_tile_own;") :]
    rest = rest[: rest.index("\n      }\n")]
    waits = re.findall(r"barrier_wait\(shared\.(\w)_full", rest)
    frees = re.findall(r"barrier_arrive\(shared\.(\w)_free", rest)
    assert waits == frees == ["k", "v"]
    assert rest.count("named_barrier_sync") == rest.count("named_barrier_arrive") == 1


def test_rows_that_are_absent_need_no_trips() -> None:
    body = text(D="64")
    assert own(body) == "S - BM * i_tile <= warpgroup * 64 ? 0 : ceil_div(T, BN) - 1"
    assert "place = place + 1 < static_cast<int>(gridDim.x) ? place + 1 : 0;" in body


def test_a_size_that_was_asked_for_stays_what_it_is() -> None:
    found = own(text(D="64", CAUSAL="true", BM="256", BN="64"))
    assert "S - BM * i_tile <= warpgroup * 64" in found
    assert "warpgroup * 64 + i_tile" not in found


def test_an_edge_inside_the_last_step_keeps_all_trips() -> None:
    found = own(text(D="64", CAUSAL="true"))
    ragged, rest = found.split(" ? ", 1)
    assert "BN * ceil_div" in ragged
    assert rest.startswith("ceil_div(min_of(BM * i_tile - S + T + BM, T), BN) - 1 : ")


WINDOW = """
kernel window[BM = auto, BN = auto](
    q: bf16[S, 64], k: bf16[S, 64], v: bf16[S, 64]
) -> (o: bf16[S, 64]):
    for i in parallel(S by BM):
        qi  = q[i, :]
        m   = full(f32, -inf, i)
        l   = zeros(f32, i)
        acc = zeros(f32, i, 64)
        for j in range(LO : min(S, i.stop) by BN):
            s = qi @ k[j, :].T
            s = where(i[:, None] >= j[None, :], s, -inf)
            m_new = maximum(m, max(s, axis=1))
            ref = where(m_new == -inf, 0.0, m_new)
            p = exp(s - ref[:, None])
            alpha = exp(m - ref)
            l = l * alpha + sum(p, axis=1)
            acc = acc * alpha[:, None] + p.to(bf16) @ v[j, :]
            m = m_new
        o[i, :] = acc / where(l == 0.0, 1.0, l)[:, None]
"""


@pytest.mark.parametrize(("low", "moves"), [("0", True), ("maximum(0, i.start - 128)", False)])
def test_steps_that_begin_with_the_rows_are_the_instances(
    low: str, moves: bool, tmp_path: Path
) -> None:
    file = tmp_path / "window.tile"
    file.write_text(WINDOW.replace("LO", low))
    cu = compile_file(str(file), archs=("sm_90a",)).cu
    body = cu[cu.index("window_body(") :]
    assert ("warpgroup * 64 + i_tile" in own(body)) is moves
