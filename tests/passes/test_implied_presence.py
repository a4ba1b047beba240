"""Masks that hold in no absent column: nothing else fills those."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.scheduled import Source
from tilec.ir import tile_ir as t
from tilec.passes.schedule.run import schedule
from tilec.passes.uses import all_ops

MASKED = """
kernel masked[BM = 64, BN = 64](
    q: bf16[S, 64], k: bf16[T, 64], v: bf16[T, 64], shift: i32
) -> (o: bf16[S, 64]):
    for i in parallel(S by BM):
        qi  = q[i, :]
        m   = full(f32, -inf, i)
        l   = zeros(f32, i)
        acc = zeros(f32, i, 64)
        pos = i + AHEAD
        for j in range(0 : T by BN):
            s = qi @ k[j, :].T
            s = where(MASK, s, -inf)
            m_new = maximum(m, max(s, axis=1))
            ref = where(m_new == -inf, 0.0, m_new)
            p = exp(s - ref[:, None])
            alpha = exp(m - ref)
            l = l * alpha + sum(p, axis=1)
            acc = acc * alpha[:, None] + p.to(bf16) @ v[j, :]
            m = m_new
        o[i, :] = acc / where(l == 0.0, 1.0, l)[:, None]
"""


@pytest.mark.parametrize(
    ("ahead", "mask", "fills"),
    [
        ("(T - S)", "pos[:, None] >= j[None, :]", False),  # the last row stands at the last key
        ("(T - S)", "j[None, :] <= pos[:, None]", False),
        ("(T - S)", "pos[:, None] > j[None, :]", False),
        ("(T - S + 1)", "pos[:, None] > j[None, :]", False),
        ("(T - S + 1)", "pos[:, None] >= j[None, :]", True),  # one key further
        ("shift", "pos[:, None] >= j[None, :]", True),  # nobody knows
        ("(T - S)", "pos[:, None] <= j[None, :]", True),  # the other way
        ("(T - S)", "(pos[:, None] >= j[None, :]) & (pos[:, None] - j[None, :] < 9)", False),
        ("(T - S)", "(pos[:, None] - j[None, :] < 9) & (pos[:, None] >= j[None, :])", False),
        ("(T - S)", "(pos[:, None] >= j[None, :]) | (pos[:, None] - j[None, :] < 9)", True),
        ("shift", "(pos[:, None] >= j[None, :]) & (pos[:, None] - j[None, :] < 9)", True),
    ],
)
def test_a_mask_fills_what_it_hides(ahead: str, mask: str, fills: bool, tmp_path: Path) -> None:
    text = MASKED.replace("AHEAD", ahead).replace("MASK", mask)
    source = Source(text, tmp_path)
    body = schedule(source.program, source.nest).nest.body
    assert any(isinstance(op, t.Fill) for op in all_ops(body)) is fills
