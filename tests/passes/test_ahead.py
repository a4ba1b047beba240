"""What a CTA asks the L2 for before its copies can start, and the numbers of its first instance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.test_asynchronous import PRODUCT, flat, lowered, product
from tests.passes.test_schedule import ATTENTION
from tilec.compiler import compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.symbolic import Sym

PAIRS = {"BM": 128, "BN": 256, "BK": 64}
TURNED = product(("b: bf16[K, N]", "b: bf16[N, K]"), ("b[k, j]", "b[j, k].T"))
DEEPER = """kernel k(a: bf16[G, M, K], b: bf16[G, K, N]) -> c: bf16[M, N]:
    for i, j in parallel(M by 128, N by 128):
        acc = zeros(f32, i, j)
        for g in range(G):
            for k in range(K by 64):
                acc += a[g, i, k] @ b[g, k, j]
        c[i, j] = acc
"""


def roles_of(kernel: k.Kernel) -> a.Roles:
    roles = kernel.body[0]
    assert isinstance(roles, a.Roles)
    return roles


def written(expr: k.Expr) -> str:
    """A coordinate as it is."""
    assert isinstance(expr, k.Index | k.Literal_)
    return str(expr.sym if isinstance(expr, k.Index) else expr.value)


def first_trip(expr: k.Expr) -> str:
    """A coordinate in the first trip of every loop inside an instance."""
    if isinstance(expr, k.Literal_):
        return str(expr.value)
    assert isinstance(expr, k.Index)
    inner = ("k", "g")
    return str(expr.sym.substitute(lambda v: Sym.of(0) if v.name in inner else None))


@pytest.mark.parametrize("text", [PRODUCT, TURNED, DEEPER], ids=["rows", "turned", "two loops"])
def test_the_first_copies_of_a_pair_are_asked_for_ahead(text: str, tmp_path: Path) -> None:
    roles = roles_of(lowered(text, tmp_path, **(PAIRS if text is not DEEPER else {})))
    (walk,) = (op for op in roles.producer if isinstance(op, a.Instances))
    copies = [op for op in flat((walk,)) if isinstance(op, a.TensorCopy)]
    assert len(copies) == len(roles.ahead) == 2
    wanted = {
        (c.map, c.buffer, tuple(map(first_trip, c.coordinates)), c.row_axis, c.share, c.peers)
        for c in copies
    }
    found = set()
    for op in roles.ahead:
        assert isinstance(op, a.TensorAhead)
        found.add(
            (
                op.map,
                op.buffer,
                tuple(map(written, op.coordinates)),
                op.row_axis,
                op.share,
                op.peers,
            )
        )
    assert found == wanted


def test_kernels_that_begin_early_ask_before_they_wait(tmp_path: Path) -> None:
    assert len(roles_of(lowered(PRODUCT, tmp_path, BM=16)).ahead) == 2
    path = tmp_path / "k.tile"
    path.write_text(PRODUCT, encoding="utf-8")
    text = compile_file(str(path), archs=("sm_90a",), defines={"BM": "16"}).cu
    body = text[text.index("// kernel begin") :]
    assert body.index("launch_dependents();") < body.index("tensor_ahead(")
    assert body.index("tensor_ahead(") < body.index("wait_prerequisites();")


def test_ctas_that_share_the_consumed_axis_ask_for_their_own_trips(tmp_path: Path) -> None:
    short = PRODUCT.replace("    for i, j", "    require M <= 64\n    for i, j")
    found = roles_of(lowered(short, tmp_path, BM=64, BN=128, BK=64)).ahead
    assert len(found) == 2
    for op in found:
        assert isinstance(op, a.TensorAhead) and any("rank" in written(c) for c in op.coordinates)


def test_nothing_is_asked_for_where_copies_start_as_soon(tmp_path: Path) -> None:
    assert roles_of(lowered(ATTENTION, tmp_path)).ahead == ()


def test_one_thread_asks_while_another_sets_the_barriers(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(PRODUCT, encoding="utf-8")
    text = compile_file(
        str(path), archs=("sm_90a",), defines={n: str(v) for n, v in PAIRS.items()}
    ).cu
    body = text[text.index("// kernel begin") :]
    asked, ready = body.index("tensor_ahead("), body.index("barrier_init(")
    assert body.rindex("if (thread == 256) {", 0, asked) < asked < ready
    assert asked < body.index("cluster_sync();")


def test_a_loop_of_one_trip_is_not_divided_out(tmp_path: Path) -> None:
    text = PRODUCT.replace("    for i, j", "    require M <= 16\n    for i, j")
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    short = compile_file(str(path), archs=("sm_90a",), defines={"BM": "16"}).cu
    walk = short[short.index("// kernel begin") : short.index("_body_2")]
    assert "const int i_tile = 0;" in walk and "const int j_tile = item;" in walk
    assert "swept_" not in walk
    path.write_text(PRODUCT, encoding="utf-8")
    assert "swept_row" in compile_file(str(path), archs=("sm_90a",), defines={"BM": "16"}).cu
