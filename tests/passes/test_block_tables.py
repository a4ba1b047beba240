"""Which blocks of a mask have an element: what a table says beside the mask itself."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.passes.scheduled import Source
from tilec.compiler import compile_file
from tilec.ir import tile_ir as t
from tilec.ir.verifier import verify
from tilec.passes import all_trips, block_tables, mask_words
from tilec.passes.uses import all_ops
from tilec.reference.inputs import make_inputs
from tilec.reference.interpreter import Interpreter

TEXT = """kernel k[D = 16, G = 2, BM = 32, BN = 16](
    q: bf16[H, S, D], k: bf16[H // G, N, D], v: bf16[H // G, N, D], a: i32[S], b: i32[N], x: f32[S], y: f32[N], m: bool[S, N], last: i32[1]) -> o: f32[H, S, D]:
    require H % G == 0
    for h, i in parallel(H, S by BM):
        acc = zeros(f32, i, D)
        for j in range(RANGE by BN):
            p = where(MASK, q[h, i, :] @ k[h // G, j, :].T, 0.0)
            acc += p.to(bf16) @ v[h // G, j, :]
        o[h, i, :] = acc
"""
SIZES = {"H": 4, "S": 100, "N": 70}
A, B = "a[i][:, None]", "b[j][None, :]"
MASKS = {
    "equal": (f"{A} == {B}", lambda a, b, **_: a == b),
    "less": (f"{A} < {B}", lambda a, b, **_: a < b),
    "no more": (f"{B} <= {A}", lambda a, b, **_: b <= a),
    "greater": (f"{A} > {B}", lambda a, b, **_: a > b),
    "no less": (f"{A} >= {B}", lambda a, b, **_: a >= b),
    "unequal": (f"{A} != {B}", lambda a, b, **_: a != b),
    "floats": ("x[i][:, None] < y[j][None, :]", lambda x, y, **_: x < y),
    "both": (f"({A} == {B}) & (i[:, None] >= j[None, :])", lambda a, b, r, c, **_: (a == b) & (r >= c)),
    "either": (f"({A} < {B}) | m[i, j]", lambda a, b, m, **_: (a < b) | m),
    "near": (f"(i[:, None] - j[None, :] < 8) & ({A} == {B})", lambda a, b, r, c, **_: (r - c < 8) & (a == b)),
    "memory": ("m[i, j]", lambda m, **_: m),
    "of a sum": (f"{A} + i[:, None] < {B} - j[None, :]", lambda a, b, r, c, **_: a + r < b - c),
}  # fmt: skip
WHERE_RANGES_MEET = {"equal", "both", "near"}
"""These may have blocks without an element."""


@pytest.mark.parametrize("name", list(MASKS))
def test_a_table_has_every_block_with_an_element(name: str, tmp_path: Path) -> None:
    mask, exact = MASKS[name]
    source = Source(TEXT.replace("RANGE", "N").replace("MASK", mask), tmp_path)
    made, reason = block_tables.skipping(source.program, source.nest)
    assert made is not None, reason
    tables = [nest for table in made.copies for nest in table.program.nests]
    program = replace(made.program, nests=(*tables, made.nest))
    verify(program)
    found = {}
    for run in (source.program, program):
        arrays = make_inputs(source.program, SIZES, {}, 5)
        arrays["o"] = np.zeros((4, 100, 16), np.float32)
        arrays["a"][...] = np.arange(100) // 25
        arrays["b"][...] = np.arange(70) // 25
        arrays["x"][40] = np.nan
        arrays["m"][...] = False
        arrays["m"][50, 20] = arrays["m"][3, 69] = True
        if name == "of a sum":
            arrays["b"] += 100
        machine = Interpreter(run, SIZES, arrays, {})
        machine.run()
        found[run is program] = arrays["o"]
    assert np.array_equal(found[True], found[False])
    r, c = np.arange(100)[:, None], np.arange(70)[None, :]
    elements = exact(
        a=arrays["a"][:, None], b=arrays["b"], x=arrays["x"][:, None], y=arrays["y"], m=arrays["m"], r=r, c=c
    )  # fmt: skip
    padded = np.zeros((128, 80), np.bool_)
    padded[:100, :70] = elements
    blocks = padded.reshape(4, 32, 5, 16).any(axis=(1, 3))
    table = machine.memories[made.copies[0].temp].data.astype(np.bool_)
    assert (table >= blocks).all() and (name in WHERE_RANGES_MEET or (table == blocks).all())
    assert not table.all() or name in ("unequal", "floats")


@pytest.mark.parametrize(
    ("trips", "mask", "dims"),
    [
        ("N", f"{A} == {B}", ["4 5", "2 5"]),
        ("0 : min(N, i.stop)", f"{A} == {B}", ["4 5", "2 5"]),
        ("0 : min(N, i.stop)", "(b[j] > 0)[None, :]", ["5", "2 5"]),
        ("max(0, i.start - 20) : min(N, i.stop)", f"{A} == {B}", ["4 4", "2 4 4"]),
        ("0 : min(N, last[0])", "(a[i] > 0)[:, None]", ["4", "2 5"]),
    ],
)
def test_a_table_has_no_more_axes_than_its_tile_hangs_on(
    trips: str, mask: str, dims: list[str], tmp_path: Path
) -> None:
    source = Source(TEXT.replace("RANGE", trips).replace("MASK", mask), tmp_path)
    made, reason = block_tables.skipping(source.program, source.nest)
    assert made is not None, reason
    sizes = {**SIZES, "BM": 32, "BN": 16}
    shapes = [[x.evaluate(lambda v: sizes[v.name]) for x in table.dims] for table in made.copies]
    assert [" ".join(map(str, shape)) for shape in shapes] == dims


@pytest.mark.parametrize(
    ("trips", "mask"),
    [
        ("N", "i[:, None] >= j[None, :]"),  # what indices say is in bounds
        ("0 : min(N, last[0])", "(j < last[0])[None, :]"),  # a bound that the program has
    ],
)
def test_masks_without_a_table(trips: str, mask: str, tmp_path: Path) -> None:
    source = Source(TEXT.replace("RANGE", trips).replace("MASK", mask), tmp_path)
    made, reason = block_tables.skipping(source.program, source.nest)
    assert made is None and reason == ""


def test_one_of_two_loops_with_products_stays(tmp_path: Path) -> None:
    text = TEXT.replace("RANGE", "N").replace("MASK", f"{A} == {B}")
    loop = text[text.index("        for j") : text.index("        o[h")]
    source = Source(text.replace(loop, loop + loop.replace("j", "u")), tmp_path)
    assert block_tables.skipping(source.program, source.nest) == (None, "")


def test_a_loop_with_a_branch_of_its_own_stays(tmp_path: Path) -> None:
    text = TEXT.replace("RANGE", "N").replace("MASK", f"{A} == {B}")
    text = text.replace(
        "            p = where", "            if b[j.start] > 0:\n                p = where"
    )
    text = text.replace("            acc +=", "                acc +=")
    source = Source(text, tmp_path)
    assert block_tables.skipping(source.program, source.nest) == (None, "")
    assert any(isinstance(op, t.For) for op in source.nest.body.ops)


@pytest.mark.parametrize(
    ("mask", "columns", "packed"),
    [("m[i, j]", 64, True), ("m[i, j]", 16, False), (f"m[i, j] & ({A} == {B})", 64, False)],
)
def test_a_mask_that_is_a_tile_in_memory_is_packed(
    mask: str, columns: int, packed: bool, tmp_path: Path
) -> None:
    text = TEXT.replace("BM = 32, BN = 16", f"BM = 64, BN = {columns}")
    source = Source(text.replace("RANGE", "N").replace("MASK", mask), tmp_path)
    made, reason = block_tables.skipping(source.program, source.nest)
    assert made is not None, reason
    found = mask_words.in_words(made)
    whole = all_trips.all_trips(found)
    assert (found is not made) == packed
    assert (whole is not None) == ("==" not in mask)
    if whole is None:
        return
    for form in (found, whole) if packed else ():
        loads = [
            op for op in all_ops(form.nest.body) if isinstance(op, t.Load) and op.out.type.rank
        ]
        assert [op.access.tensor for op in loads] == ["q", "m_words_64", "k", "v"]
        assert form.program.tensor("m_words_64").words == 64
    assert not any(isinstance(op, t.If) for op in all_ops(whole.nest.body))


@pytest.mark.parametrize(("rows", "least"), [("S", 4096), ("G", None)])
def test_tables_pay_where_many_instances_ask_them(
    rows: str, least: int | None, tmp_path: Path
) -> None:
    """A loop whose trips memory counts: of few rows a head the values would be read twice."""
    text = f"""import std.softmax
kernel k[D = 128, G = 8, BM = auto, BN = auto](q: bf16[B, H, {rows}, D], k: bf16[B, H, N, D], v: bf16[B, H, N, D], length: i32[B], valid: bool[B, N], scale: f32) -> o: bf16[B, H, {rows}, D]:
    for b, h, i in parallel(B, H, {rows} by BM):
        state = softmax.begin(i, D)
        for j in range(0 : min(N, length[b]) by BN):
            s = (q[b, h, i, :] @ k[b, h, j, :].T) * scale
            state = softmax.step(state, where(valid[b, j][None, :], s, -inf), v[b, h, j, :])
        o[b, h, i, :] = softmax.end(state)
"""
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    (kernel,) = compile_file(str(path), archs=("sm_90a",), stop="kernel-ir").kernels
    first, *_ = kernel.plan.targets[0].steps[0].launches
    assert ("skipping" in first.kernel) is (least is not None)
    variants = kernel.manifest["targets"]["sm_90a"]
    assert ["all_trips" in one for one in variants[:2]] == [least is None] * 2  # type: ignore[index]
    if least is not None:
        condition = variants[0]["condition"]  # type: ignore[index]
        (needed,) = re.findall(r"(\d+) <= min\(", condition)
        assert least / 2 < int(needed) * 128 <= least
