"""Index tiles whose elements are known to be coordinates ask nothing of them."""

from __future__ import annotations

import pytest

from tests.analysis.programs import outcome
from tilec.ir import tile_ir as t
from tilec.ir.walking import all_ops

PROGRAM = """kernel k[B = 32](x: f32[N // 2], z: f32[N + 3], s: i32[N]) -> y: f32[N]:
    require N % 2 == 0
    for i in parallel(N by B):
        y[i] = LOAD.fill(0.0)
"""


@pytest.mark.parametrize(
    ("load", "asked"),
    [
        ("x[i // 2]", False),
        ("z[(i // 2) * 1 + 3]", True),  # products are not followed
        ("z[i.to(i64) + 3]", True),
        ("x[(i // 2) + 1]", True),
        ("x[(i // 2) - 1]", True),
        ("z[(i // 4) + 3]", False),
        ("z[i % 3]", False),
        ("x[i % 3]", True),  # N may be 0
        ("x[i // 1]", True),
        ("x[s[i]]", True),
    ],
)
def test_what_is_asked_of_an_index_tile(load: str, asked: bool) -> None:
    program, _, diagnostics = outcome(PROGRAM.replace("LOAD", load))
    assert program is not None, diagnostics
    (loaded,) = [
        op
        for op in all_ops(program.nests[0].body)
        if isinstance(op, t.Load) and op.access.tensor in ("x", "z")
    ]
    presence = loaded.out.type.axes[0].presence
    assert any(isinstance(c, t.InRange) for c in presence) == asked
