"""Branches that choose between scalars become selections; others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.scheduled import Source
from tilec.ir import tile_ir as t
from tilec.passes import if_conversion
from tilec.passes.uses import all_ops

CHOSEN = """
kernel chosen[BM = 64, BN = 64](q: bf16[S, 64], k: bf16[S, 64], length: i32[1], causal: i32) -> o: f32[S]:
    for i in parallel(S by BM):
        end = S
        BRANCH
        total = zeros(f32, i)
        for j in range(0 : end by BN):
            total += sum(q[i, :] @ k[j, :].T, axis=1)
        o[i] = total
"""


@pytest.mark.parametrize(
    ("branch", "stays"),
    [
        ("if causal != 0:\n            end = min(S, i.stop)", False),
        (
            "if causal == 1:\n            end = min(S, i.stop)\n"
            "        elif causal == 2:\n            end = S // 2",
            False,
        ),
        # what is loaded may be out of range where the branch is not taken
        ("if causal != 0:\n            end = length[causal - 1]", True),
    ],
)
def test_a_bound_that_a_branch_chooses(branch: str, stays: bool, tmp_path: Path) -> None:
    source = Source(CHOSEN.replace("BRANCH", branch), tmp_path)
    body = if_conversion.run(source.nest.body)
    source.with_nest(t.Nest(source.nest.grid, body))
    assert any(isinstance(op, t.If) for op in all_ops(body)) is stays
