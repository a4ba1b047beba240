"""Operands that the kernel computes: ahead of it, once for each row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program
from tests.passes.scheduled import Source
from tilec.ir import tile_ir as t
from tilec.passes import computed, reindex, warpgroup_forms
from tilec.passes.uses import all_ops
from tilec.runtime.host import evaluate_sym
from tilec.targets import rates
from tilec.targets.table import TARGETS

ATTENTION = """
import std.softmax

kernel made[D = 64, G = 2, BM = 64, BN = 64](
    q: bf16[B, H, S, D], k: bf16[B, H // G, S, D], v: bf16[B, H // G, S, D], heat: f32[H], w: f32[D], c: bf16[C, D]) -> o: bf16[B, H, S, D]:
    require H % G == 0
    for b, h, i in parallel(B, H, S by BM):
        rows = LEFT
        state = softmax.begin(i, D)
        for j in range(0 : min(S, i.stop) by BN):
            s = rows @ (RIGHT).T
            state = softmax.step(state, where(i[:, None] >= j[None, :], s, -inf), v[b, h // G, j, :])
        o[b, h, i, :] = softmax.end(state)
"""
PLAIN = ("q[b, h, i, :]", "k[b, h // G, j, :]")
HEATED = "(q[b, h, i, :].to(f32) * heat[h] * 0.1).to(bf16)"
TURNED = "(k[b, h // G, j, :].to(f32) * w[:][None, :] + j[:, None].to(f32) * 0.001).to(bf16)"
NORM = "(k[b, h // G, j, :].to(f32) * rsqrt(1.0 + sum(k[b, h // G, j, :].to(f32) * k[b, h // G, j, :].to(f32), axis=1))[:, None]).to(bf16)"


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        (HEATED, PLAIN[1], ["q_computed"]),
        (PLAIN[0], TURNED, ["k_computed"]),
        (HEATED, NORM, ["q_computed", "k_computed"]),
        (*PLAIN, None),
        # rows of a table that may end before the sequence does
        ("(q[b, h, i, :].to(f32) * c[i, :].to(f32)).to(bf16)", PLAIN[1], None),
        # not the same for all rows of queries
        (PLAIN[0], "(k[b, h // G, j, :].to(f32) * heat[h]).to(bf16)", None),
        # a sum over rows
        ("(q[b, h, i, :].to(f32) * sum(q[b, h, i, :].to(f32), axis=0)[None, :]).to(bf16)", PLAIN[1], None),
    ],
)  # fmt: skip
def test_what_is_computed_ahead(
    left: str, right: str, found: list[str] | None, tmp_path: Path
) -> None:
    source = Source(ATTENTION.replace("LEFT", left).replace("RIGHT", right), tmp_path)
    ahead = computed.ahead(source.program, source.nest)
    assert (ahead and [copy.temp for copy in ahead.copies]) == found


HALVES = {
    "rows = LEFT": """x = q[b, h, i, :].to(f32)
        first = (x[:, 0 : 32] * heat[h] - x[:, 32 : 64] * w[0 : 32][None, :]).to(bf16)
        second = (x[:, 0 : 32] * w[0 : 32][None, :] + x[:, 32 : 64] * heat[h]).to(bf16)""",
    "s = rows @ (RIGHT).T": "s = first @ RIGHT.T + second @ k[b, h // G, j, 32 : 64].T",
}
LOW = "(k[b, h // G, j, 0 : 32].to(f32) * 0.5).to(bf16)"


def halves(right: str) -> str:
    """Attention whose scores are sums of two products."""
    text = ATTENTION
    for old, new in HALVES.items():
        text = text.replace(old, new)
    return text.replace("RIGHT", right)


def test_products_that_are_added_are_one(tmp_path: Path) -> None:
    source = Source(halves("k[b, h // G, j, 0 : 32]"), tmp_path)
    program = reindex.run(source.program)
    ahead = computed.ahead(program, program.nests[0])
    assert ahead and [copy.temp for copy in ahead.copies] == ["q_computed"]  # keys as they lie
    assert sum(isinstance(op, t.Dot) for op in all_ops(ahead.nest.body)) == 2


def test_rows_of_queries_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "LAUNCH_MICROSECONDS", 0.0)  # so that few rows pay
    path = tmp_path / "made.tile"
    path.write_text(halves(LOW), encoding="utf-8")
    program = Program(path)
    ahead = ("made_kernel_ahead", "made_kernel_ahead_2", "made_kernel_computed")
    for rows in (1, 330):
        assert program.run({"B": 2, "H": 2, "S": rows, "C": 1}).launched == ahead


def test_norms_of_rows_have_nests_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "made.tile"
    path.write_text(ATTENTION.replace("LEFT", HEATED).replace("RIGHT", NORM), encoding="utf-8")
    program = Program(path, arch="sm_80")
    ran = program.run({"B": 1, "H": 2, "S": 70, "C": 1}, orders=(("late", 0),))
    assert len(ran.launched) == 3


WEIGHTS = """
kernel narrow[BM = 64, BN = 64, BK = 64](a: bf16[M, K], w: i8[N, K], s: f32[N, K // 64]) -> c: f32[M, N]:
    require K % 64 == 0
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(START by BK):
            acc += a[i, k] @ (w[j, k].to(f32) * s[j, k.start // 64][:, None]).to(bf16).T
        c[i, j] = acc
"""


def test_tiles_are_computed_ahead_once_and_not_by_each_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "LAUNCH_MICROSECONDS", 0.0)
    path = tmp_path / "narrow.tile"
    path.write_text(WEIGHTS.replace("START", "K"), encoding="utf-8")
    program = Program(path)
    ahead = ("narrow_kernel_ahead", "narrow_kernel_computed")
    assert program.run({"M": 150, "N": 72, "K": 128}, orders=(("late", 0),)).launched == ahead


@pytest.mark.parametrize("trips", ["K // 2 : K", "min(K, i.stop)"])
def test_tiles_that_other_trips_count_are_not(trips: str, tmp_path: Path) -> None:
    source = Source(WEIGHTS.replace("START", trips), tmp_path)
    assert computed.ahead(source.program, source.nest) is None


def test_few_instances_wait_for_an_operand_as_long_as_a_round_of_them(tmp_path: Path) -> None:
    source = Source(WEIGHTS.replace("START", "K"), tmp_path)
    forms, _ = warpgroup_forms.asynchronous(
        source.program, source.nest, TARGETS["sm_90a"], source.candidate
    )
    copies = forms[0].variant.copies
    assert copies is not None

    def pays(m: int, n: int, k: int) -> bool:
        sizes = {"M": m, "N": n, "K": k}
        return evaluate_sym(copies.cost, sizes) <= evaluate_sym(copies.work, sizes)

    assert not pays(64, 64, 64)
    work = [evaluate_sym(copies.work, {"M": 64 * m, "N": 64, "K": 1024}) for m in (4, 132, 133)]
    assert work[0] == work[1] < work[2] and pays(64 * 4, 64, 4096)
