"""Slices and reshapes moved to where elements come from: the interpreter gives the same, and presence is what was said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analysis.programs import ops, program
from tests.analysis.test_samples import run_and_compare
from tests.passes.test_refusals import codes
from tilec.ir import tile_ir as t
from tilec.ir.verifier import verify
from tilec.passes import eliminate_dead, reindex, topk
from tilec.reference.interpreter import Interpreter
from tilec.source.diagnostics import TileError

HEAD = (
    "kernel k[B = 4](x: f32[R, 48], w: f32[48], rows: i32[R], s: i32, z: f32[8, R, 2]) -> ({}):\n"
)
ROW = "y: f32[R, 16], v: f32[R, 4, 4]"
CASES = {
    # ---- slices
    "elementwise": ("y: f32[R, 16]", "a = exp(x[r, :]) * w[:] + 1.0\ny[r, :] = a[3:19]"),
    "both halves of a row": (
        "y: f32[R, 24], v: f32[R, 24]",
        "a = x[r, :] * w[:] / (sum(x[r, :]) + 3.0)\ny[r, :] = a[0:24] - a[24:48]\nv[r, :] = a[24:48]",
    ),
    "a slice of a slice": (
        "y: f32[R, 8]",
        "a = x[r, :] + 1.0\nb = a[8:40] * 2.0\ny[r, :] = b[5:13]",
    ),
    "spans as values": (
        "y: f32[R, 8]",
        "i = span(2, 40, until = 20)\ny[r, :] = (i.to(f32) * 2.0)[4:12].fill(0.0)",
    ),
    "a cut span": (
        "y: f32[R, 16], v: f32[R, 16]",
        "a = x[r, span(20, 40)] * 2.0\ny[r, :] = a[16:32].fill(7.0)\nv[r, :] = a[0:16]",
    ),
    "filled, cast, bitcast": (
        "y: i32[R, 8]",
        "a = x[r, span(20, 40)].fill(1.5).to(f16).bitcast(i16).to(i32)\ny[r, :] = a[24:32]",
    ),
    "a gather": (
        "y: f32[R, 8]",
        "i = span(0, 32) * 5 - 4 * r\na = x[r, i]\ny[r, :] = a[0:8].fill(9.0)",
    ),
    "the end of a gather": (
        "y: f32[R, 8]",
        "i = span(0, 32) * 5 - 4 * r\na = x[r, i] * 2.0\ny[r, :] = a[6:14].fill(9.0)",
    ),
    "a gather by what a loop carries": (
        "y: f32[R, 8]",
        "i = span(0, 32) * 1\nb = zeros(f32, 8)\nfor q in range(s):\n    i = i * 2\n"
        "    b = b + x[r, i][20:28].fill(9.0)\ny[r, :] = b",
    ),
    "points": (
        "y: f32[R, 8]",
        "i = span(0, 32) * 5 % 48\na = x.at[r, i]\ny[r, :] = a[11:19].fill(9.0)",
    ),
    "points of two axes": (
        "y: f32[2, 8]",
        "i = span(0, 4)\nj = span(0, 32)\na = x.at[i[:, None] % R, (i[:, None] + j[None, :]) % 48]\n"
        "if r == 0:\n    y[:, :] = a[1:3, 7:15]",
    ),
    "a transpose": (
        "y: f32[R, 6]",
        "a = x[span(0, 2), 0:16].fill(0.0)\nb = (a.T * 2.0)[4:10, 1:2]\ny[r, :] = sum(b, axis=1)",
    ),
    "what a reduction keeps": (
        "y: f32[R, 8], v: i32[R, 8]",
        "a = x[span(0, 3), :].fill(0.5) * w[:]\ny[r, :] = sum(a, axis=0)[8:16]\n"
        "v[r, :] = argmax(a, axis=0)[40:48]",
    ),
    "a number everywhere": (
        "y: f32[R, 8]",
        "a = full(f32, 3.0, 16) + x[r, 0:16]\ny[r, :] = a[2:10]",
    ),
    "what a loop carries": (
        "y: f32[R, 16]",
        "a = zeros(f32, 48)\nfor q in range(s):\n    a = a * 2.0 + x[r, :] * q.to(f32)\ny[r, :] = a[16:32]",
    ),
    "a slice in a loop": (
        "y: f32[R, 16]",
        "a = zeros(f32, 48)\nb = zeros(f32, 16)\nfor q in range(s):\n    b = b + a[32:48]\n"
        "    a = a + x[r, :]\ny[r, :] = b",
    ),
    "what a branch yields": (
        "y: f32[R, 16]",
        "a = x[r, :]\nif r > 2:\n    a = a * 2.0\nelse:\n    a = w[:] + a\ny[r, :] = a[16:32]",
    ),
    "the others of a scan": (
        "y: f32[R, 16]",
        "a = cumsum(x[span(0, 3), :].fill(0.0), axis=0)\ny[r, :] = sum(a[:, 32:48], axis=0)",
    ),
    "the first of a scan": ("y: f32[R, 16]", "a = cumsum(x[r, :], axis=0)\ny[r, :] = a[0:16]"),
    "the results of topk": (
        "y: f32[R, 2], v: i32[R, 2]",
        "a, b = topk(x[r, :], 6, axis=0)\ny[r, :] = a[1:3]\nv[r, :] = b[4:6]",
    ),
    "one coordinate": ("y: f32[R, 48]", "a = x[r, :] * 2.0\ny[r, :] = a[5:6] + w[:]"),
    "what is overwritten later": (
        "y: f32[R, 8], inout u: f32[R, 48]",
        "a = u[r, :] + 1.0\nu[r, :] = a * 2.0\ny[r, :] = a[8:16]",
    ),
    # ---- reshapes
    "a row in parts": ("y: f32[R, 4, 12]", "a = x[r, :] * w[:]\ny[r, :, :] = a.reshape(4, 12)"),
    "three parts": (
        "y: f32[R, 2, 6, 4]",
        "a = x[r, :] * 2.0 + w[:]\ny[r, :, :, :] = a.reshape(2, 6, 4)",
    ),
    "parts in one row": (
        "y: f32[R, 48]",
        "a = x[r, :].reshape(4, 12)\nb = a * max(a, axis=1)[:, None]\nb = x[r, :].reshape(4, 12) * 2.0\n"
        "y[r, :] = b.reshape(48)",
    ),
    "other parts": (
        "y: f32[R, 6, 8]",
        "a = x[r, :].reshape(4, 12) + 1.0\ny[r, :, :] = a.reshape(6, 8)",
    ),
    "part of a row": ("y: f32[R, 2, 12]", "a = x[r, 12:36] * 2.0\ny[r, :, :] = a.reshape(2, 12)"),
    "a slice in parts": (
        "y: f32[R, 4, 6]",
        "a = exp(x[r, :])\ny[r, :, :] = a[24:48].reshape(4, 6)",
    ),
    "a slice of parts": (
        "y: f32[R, 4, 6], v: f32[R, 4, 6]",
        "a = (x[r, :] * w[:]).reshape(4, 12)\ny[r, :, :] = a[:, 0:6]\nv[r, :, :] = a[:, 6:12]",
    ),
    "axes of one": (
        "y: f32[R, 48]",
        "a = exp(x[r, :]).reshape(1, 48, 1)\ny[r, :] = (a * 2.0).reshape(48)",
    ),
    "numbers in parts": ("y: i32[R, 4, 12]", "y[r, :, :] = (span(5, 48) * 2).reshape(4, 12) + r"),
    "numbers everywhere": (
        "y: f32[R, 4, 12]",
        "y[r, :, :] = (full(f32, 2.0, 48) * x[r, :]).reshape(4, 12)",
    ),
    "what a loop carries, in parts": (
        "y: f32[R, 4, 12]",
        "a = zeros(f32, 48)\nfor q in range(s):\n    a = a * 2.0 + x[r, :]\ny[r, :, :] = a.reshape(4, 12)",
    ),
    "what a branch yields, in parts": (
        "y: f32[R, 4, 12]",
        "a = x[r, :]\nif r > 2:\n    a = a * 2.0\ny[r, :, :] = a.reshape(4, 12)",
    ),
    "what a reduction keeps, in parts": (
        "y: f32[R, 4, 12]",
        "a = x[span(0, 3), :].fill(0.0) * w[:]\ny[r, :, :] = sum(a, axis=0).reshape(4, 12)",
    ),
    "a transpose in parts": (
        "y: f32[R, 4, 12]",
        "a = x[span(0, 3), :].fill(0.0).T * w[:][:, None]\ny[r, :, :] = sum(a.reshape(4, 12, 3), axis=2)",
    ),
    "a view of a view": (
        "y: f32[R, 8, 3]",
        "a = x.view(R, 2, 24)[r, 1, :] * 2.0\ny[r, :, :] = a.reshape(8, 3)",
    ),
    "parts that begin anywhere": (
        "y: f32[R, 2, 8], v: f32[R, 3, 8]",
        "a = x[r, 2:18] * w[30:46]\ny[r, :, :] = a.reshape(2, 8)\nv[r, :, :] = x[r, 5:29].reshape(3, 8)",
    ),
    "part of dimensions": (
        "y: f32[R, 16]",
        "a = x.view(R, 12, 4)[r, 1:9, 2:4] * 2.0\ny[r, :] = a.reshape(16)",
    ),
    "dimensions apart": (
        "y: f32[R, 16], v: f32[R, 2, 8]",
        "a = z[:, r, :] * 2.0\ny[r, :] = a.reshape(16)\nv[r, :, :] = a.reshape(2, 8)",
    ),
    "points in parts": (
        "y: f32[R, 3, 4]",
        "i = span(0, 2)\nj = span(0, 12)\na = x.at[(i[:, None] + r) % R, j[None, :] * 5 - 7]\n"
        "y[r, :, :] = sum(a.reshape(2, 3, 4), axis=0)",
    ),
    "a point in a row": (
        "y: f32[R, 4]",
        "i = span(0, 4)\na = x.at[(i[:, None] + r) % R, (i[:, None] * 20)]\ny[r, :] = a.reshape(4)",
    ),
    "dimensions merged": (
        "y: f32[R, 48]",
        "a = x.view(R, 4, 12)[r, :, :] + 1.0\ny[r, :] = a.reshape(48)",
    ),
}
SPANS = {
    "slices of blocks": (
        "y: f32[R, 16], v: f32[R, 32]",
        "a = x[r, :] * w[:]\nm = sum(a, axis=1)\ny[r, :] = a[:, 32:48] * m[:, None]\nv[r, :] = a[:, 0:32]",
    ),
    "parts of blocks": (
        "y: f32[R, 4, 12]",
        "a = x[r, :] / (1.0 + x[r, :] * x[r, :])\ny[r, :, :] = a.reshape(B, 4, 12)",
    ),
    "parts of blocks that begin anywhere": (
        "y: f32[R, 2, 8]",
        "a = x[r - 1, 3:19] * w[3:19]\ny[r, :, :] = a.reshape(r, 2, 8).fill(0.0)",
    ),
    "gathered rows": (
        "y: f32[R, 16]",
        "a = x[rows[r], :] * 2.0\ny[r, :] = a[:, 8:24].fill(0.0)",
    ),
}
HALVES = """kernel k[B = 4, BK = 8](x: f32[R, K], w: f32[K, 12]) -> y: f32[R, 6]:
    for r in parallel(R by B):
        h = zeros(f32, r, 12)
        for k in range(K by BK):
            h += x[r, k] @ w[k, :]
        y[r, :] = h[:, 0:6] * h[:, 6:12]
"""


def text_of(name: str) -> str:
    spans = name in SPANS
    outputs, body = (SPANS if spans else CASES)[name]
    head = HEAD
    if "inout " in outputs:
        outputs, inout = outputs.split(", inout ")
        head = head.replace("x: f32", f"inout {inout}, x: f32", 1)
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{head.format(outputs)}    for r in parallel(R{' by B' if spans else ''}):\n{lines}"


def check(text: str, sizes: dict[str, int], given: dict[str, Any]) -> t.Program:
    """The rewritten program, whose outputs are those of the original."""
    original = program(text)
    assert any(isinstance(op, t.Slice | t.Reshape) for n in original.nests for op in ops(n.body))
    rewritten = reindex.run(topk.run(original))
    verify(rewritten)
    found = [op for nest in rewritten.nests for op in ops(nest.body)]
    assert not any(isinstance(op, t.Slice | t.Reshape) for op in found)
    _, wanted = run_and_compare(original, sizes, dict(given))
    _, arrays = run_and_compare(rewritten, sizes, dict(given))
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, wanted[name], name)
    return rewritten


STRIDES = """kernel k(x: f32[R, 48] strides (ld, 1)) -> y: f32[R, 4, 12]:
    for r in parallel(R):
        a = x[r, :] * 2.0
        y[r, :, :] = a.reshape(4, 12)
"""


def test_rows_at_strides() -> None:
    rewritten = reindex.run(program(STRIDES))
    verify(rewritten)
    x = np.arange(3 * 50, dtype=np.float32)
    y = np.zeros((3, 4, 12), np.float32)
    Interpreter(rewritten, {"R": 3, "ld": 50}, {"x": x, "y": y}).run()
    np.testing.assert_array_equal(y, 2 * x.reshape(3, 50)[:, :48].reshape(3, 4, 12))


@pytest.mark.parametrize("name", [*CASES, *SPANS])
def test_the_elements_are_the_same(name: str) -> None:
    given = {"s": 3, "rows": np.array([3, -1, 0, 7, 2, 5], np.int32)}
    check(text_of(name), {"R": 6}, given)


def test_halves_of_a_product_are_two_products() -> None:
    random = np.random.default_rng(3)
    given = {
        n: random.integers(-4, 5, s).astype(np.float32)
        for n, s in (("x", (6, 21)), ("w", (21, 12)))
    }
    rewritten = check(HALVES, {"R": 6, "K": 21}, given)
    kept = eliminate_dead.run(rewritten.nests[0].body)
    dots = [op for op in ops(kept) if isinstance(op, t.Dot)]
    assert [str(a.extent) for d in dots for a in d.out.type.axes] == ["B", "6", "B", "6"]


def test_only_what_is_needed_is_loaded() -> None:
    rewritten = reindex.run(program(text_of("elementwise")))
    kept = eliminate_dead.run(rewritten.nests[0].body)
    tiles = [op for op in ops(kept) if isinstance(op, t.Load)]
    assert [str(op.out.type.axes[0].extent) for op in tiles] == ["16", "16"]


def test_programs_without_are_left_alone() -> None:
    original = program(
        "kernel k(x: f32[R, 48]) -> y: f32[R, 48]:\n    for r in parallel(R):\n        y[r, :] = x[r, :]\n"
    )
    assert reindex.run(topk.run(original)) is original


REFUSED = {
    "is a scan along the axis that is sliced": "a = cumsum(x[r, :], axis=0)\ny[r, :] = a[4:20]",
    "is a scan along an axis that is merged or split": (
        "a = cumsum(x[r, :], axis=0)\ny[r, :] = sum(a.reshape(3, 16), axis=0)"
    ),
    "is broadcast along some of the axes that are merged": (
        "a = x[r, 0:4].fill(0.0)[:, None] * w[0:4][None, :]\ny[r, :] = a.reshape(16)"
    ),
    "can be absent along an axis that is merged or split": (
        "a = x[r, span(40, 16)].fill(0.0).reshape(4, 4)\ny[r, :] = (sum(a, axis=0)[:, None] + zeros(f32, 4, 4)).reshape(16)"
    ),
    "is transposed, and what is merged lies apart in front of that": (
        "a = x[r, 0:16].reshape(4, 4).T\ny[r, :] = a.reshape(16)"
    ),
    "is gathered": (
        "a = x[span(0, 4) * 1, 2:18].reshape(4, 2, 8)\ny[r, :] = sum(a.fill(0.0), axis=(0, 1))[0:1] + zeros(f32, 16)"
    ),
    "is a reduction of an axis between those that are merged": (
        "a = z[:, span(0, 4), :].fill(0.0)\ny[r, :] = sum(a, axis=1).reshape(16)"
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_computed_as_a_whole(why: str, tmp_path: Path) -> None:
    lines = "".join(f"        {line}\n" for line in REFUSED[why].splitlines())
    text = f"{HEAD.format('y: f32[R, 16]')}    for r in parallel(R):\n{lines}"
    with pytest.raises(TileError) as refused:
        reindex.run(topk.run(program(text)))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E0518" and diagnostic.message.endswith(why)
    assert codes(tmp_path, text) == ["E0518"]
