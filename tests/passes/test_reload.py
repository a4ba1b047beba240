"""Operands are brought once, and read along whichever of their axes products consume."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.scheduled import Source
from tilec.compiler import compile_file
from tilec.ir import tile_ir as t
from tilec.passes import reload
from tilec.passes.uses import all_ops

LATENT = """import std.softmax

kernel k[D = 512, R = 64](q: bf16[H, D], p: bf16[H, R], kv: bf16[T, D], r: bf16[T, R], scale: f32) -> o: bf16[H, D]:
    require scale > 0.0
    for h in parallel(H by 64):
        state = softmax.begin(h, D)
        for j in range(T by 64):
            s = (q[h, :] @ kv[j, :].T + p[h, :] @ r[j, :].T) * scale
            state = softmax.step(state, s, kv[j, :])
        o[h, :] = softmax.end(state)
"""


def loads(block: t.Block, tensor: str) -> list[t.Load]:
    found = [op for op in all_ops(block) if isinstance(op, t.Load)]
    return [op for op in found if op.access.tensor == tensor]


def test_a_tile_that_is_named_twice_is_loaded_once_and_for_each_axis(tmp_path: Path) -> None:
    body = Source(LATENT, tmp_path).nest.body
    once = reload.run(body)
    assert len(loads(body, "kv")) == 2 and len(loads(once, "kv")) == 1
    (load,) = loads(once, "kv")
    apart = reload.apart(once)
    first, second = loads(apart, "kv")
    assert first == load and second.access == load.access and second.out.id != load.out.id
    dots = [op for op in all_ops(apart) if isinstance(op, t.Dot)]
    assert dots[-1].b.id == second.out.id and len(loads(apart, "r")) == 1
    assert reload.apart(apart) is apart


@pytest.mark.parametrize("named", [False, True])
def test_rows_that_no_warp_has_room_for(named: bool, tmp_path: Path) -> None:
    text = LATENT
    if named:
        text = text.replace("            s =", "            c = kv[j, :]\n            s =")
        text = text.replace("kv[j, :].T", "c.T").replace("s, kv[j, :]", "s, c")
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    cu = compile_file(str(path), archs=("sm_90a",)).cu
    # one ring of two slots for keys and values, and warps that share out columns where there are no bulk copies
    assert "kv_tiles" in cu and "kv_tiles_2" not in cu and "k_kernel_any" in cu
