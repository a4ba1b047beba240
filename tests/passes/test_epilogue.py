"""What follows an asynchronous product: what is fetched early, what leaves late, which registers are filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tests.passes.ptxas import said_of
from tilec.compiler import compile_file

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
HEAD = """kernel k[T = bf16, BM = 128, BN = {columns}, BK = auto](a: T[M, K], b: T[K, N]{more}) -> c: {out}[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range({range}):
            acc += {product}
        c[i, j] = {value}
"""
VALUES = {
    "plain": ("", "bf16", "acc"),
    "relu": ("", "bf16", "maximum(acc, 0.0)"),
    "bias": (", bias: bf16[N]", "bf16", "acc + bias[j]"),
    "wide_bias": (", bias: f32[N]", "bf16", "acc + bias[j]"),
    "residual": (", r: bf16[M, N]", "bf16", "acc + r[i, j]"),
    "scales": (
        ", s: f32[M], t: bf16[N], bias: bf16[N]",
        "bf16",
        "acc * s[i][:, None] * t[j] + bias[j]",
    ),
    "gated": (
        ", u: bf16[M, N], bias: f32[N]",
        "f16",
        "(acc + bias[j]) * sigmoid(acc + bias[j]) * u[i, j]",
    ),
    "f32": (", bias: bf16[N]", "f32", "acc + bias[j]"),
}
ROWS = {
    "plane": (", bias: bf16[4, N]", "bf16", "acc + bias[2, j]"),
    "two": (", s: bf16[N], bias: bf16[N]", "bf16", "acc * s[j] + bias[j]"),
}
FILL = "acc[i_step][j_step][j_sub] = 0.0f;"
LAST_WAIT = "wgmma_wait<0>();"


def file_of(
    folder: Path, name: str, trips: str = "K by BK", product: str = "a[i, k] @ b[k, j]"
) -> Path:
    more, out, value = {**VALUES, **ROWS}[name]
    path = folder / "k.tile"
    columns = 256 if "2.0" not in product else 128
    text = HEAD.format(
        more=more, out=out, value=value, range=trips, product=product, columns=columns
    )
    path.write_text(text, encoding="utf-8")
    return path


def compiled(path: Path) -> str:
    return compile_file(str(path), archs=("sm_90a",)).cu


def first_body(text: str) -> str:
    """The form in which everything is aligned."""
    start = text.index("k_body(")
    return text[start : text.index("\n}\n", start)]


@pytest.mark.parametrize("name", ["bias", "plane"])
def test_the_producer_brings_a_row_behind_the_operands(name: str, tmp_path: Path) -> None:
    body = first_body(compiled(file_of(tmp_path, name)))
    assert "RowTile<bf16_t, 256> bias_tiles[1];" in body
    copy = body.index("shared.bias_tiles[bias_ring.slot].at(0)")
    trips = body.index("for (int k_tile = 0;")
    assert trips < copy < body.index("registers_take")
    # at the indentation of the loop over trips, not in it
    assert "\n        barrier_wait(shared.bias_free" in body[trips:copy]
    assert copy < body.index("load_row(bias_tile") < body.index(LAST_WAIT)
    assert "load_aligned" not in body
    # a copy of the next row may be under way as soon as the last warp has let go of this one: what it reads must have been read
    read, free = body.index("load_row(bias_tile"), body.index("barrier_arrive(shared.bias_free")
    assert read < body.index("fence_async();", read) < free


def test_a_row_is_read_behind_the_last_product_where_much_is_computed() -> None:
    text = compiled(SAMPLES / "gemm_bias_gelu.tile")
    body = text[text.index("RowTile<bf16_t, 256> bias_tiles[1];") :]
    assert body.index(LAST_WAIT) < body.index("load_row(bias_tile") < body.index("c_row = BM")


@pytest.mark.parametrize("name", ["wide_bias", "two"])
def test_vectors_are_fetched_before_the_last_product_is_done(name: str, tmp_path: Path) -> None:
    body = first_body(compiled(file_of(tmp_path, name)))
    assert "load_row" not in body
    assert body.index("bias_tile[j_step] = load_aligned") < body.index(LAST_WAIT)
    assert "if (k_tile == 2) {" in body
    assert body.index("renew(j_first);") < body.index("bias_tile[j_step] = load_aligned")


@pytest.mark.parametrize("name", ["residual", "scales", "gated"])
def test_what_does_not_fit_leaves_chunk_by_chunk(name: str, tmp_path: Path) -> None:
    body = first_body(compiled(file_of(tmp_path, name)))
    assert "if (k_tile == 2) {" not in body
    assert body.count("send_chunk<1>") == 4
    assert "for (int j_step = 8; j_step < 16; ++j_step) {" in body
    parts = [body.index(f"c_out[0] + {n}") for n in (8, 16, 24)]
    assert body.index("for (int j_step = 16; j_step < 24; ++j_step) {") > parts[0]


def test_zeros_are_not_filled_in_where_the_first_product_writes(tmp_path: Path) -> None:
    for name in ("plain", "relu", "f32", "bias", "wide_bias"):
        body = first_body(compiled(file_of(tmp_path, name)))
        assert FILL not in body
        assert "k_tile > 0 || k_at > 0)" in body.replace("\n                  ", " ")
    # three vectors leave no registers
    assert FILL in first_body(compiled(file_of(tmp_path, "scales")))


def test_zeros_are_filled_in_where_there_may_be_no_trip(tmp_path: Path) -> None:
    body = first_body(compiled(file_of(tmp_path, "plain", "64 : K by BK")))
    assert FILL in body
    assert "if (ceil_div(K - 64, BK) > 0) {" in body


def test_a_tile_waits_only_for_a_loop_that_lets_it_leave(tmp_path: Path) -> None:
    path = file_of(tmp_path, "plain", product="(a[i, k] @ b[k, j]) * 2.0")
    body = first_body(compiled(path))
    assert "k_tile ==" not in body and body.count("pack_chunk(") == 2
    # both inside of the loop over instances, which ends behind them
    assert "\n    }\n" in body[body.rindex("bulk_commit();") : body.rindex("bulk_wait_read<0>")]


def test_tiles_whose_rows_may_end_inside_leave_by_chunks_where_they_are_whole() -> None:
    text = compile_file(
        str(SAMPLES / "attention_variants.tile"), kernel="packed", archs=("sm_90a",)
    ).cu
    body = text[text.index("packed_body(") : text.index("packed_body_2(")]
    whole, rest = body[body.index("pack_chunk(shared") :].split("} else {")
    assert whole.count("tensor_store(o_map") == 2 and "store_whole" not in whole
    # by the lane that waits for them too
    assert body.count("if (is_elected()) bulk_wait_read<0>();") == 2
    # the elements of others, from the same registers
    assert "store_whole(o_at" in rest and "gather_quad(o_out[" in rest
    assert body.count("convert_vector<bf16_t>(o_out_wide)") == 2
    # and no ring gives a slot for them
    text = compile_file(
        str(SAMPLES / "matrix_vector_and_groups.tile"), kernel="grouped_gemm", archs=("sm_90a",)
    ).cu
    assert "wgmma" in text and "pack_chunk(shared" not in text


@pytest.mark.parametrize("name", sorted(VALUES))
def test_nothing_spills(name: str, tmp_path: Path) -> None:
    """Of `gated`, which takes the most registers, in no form; of the others in those for aligned operands."""
    others = () if name == "gated" else ("_any", "_copied", "_copy", "_copy_2")
    assert said_of(compiled(file_of(tmp_path, name)), *others) == ()


@pytest.mark.parametrize(
    ("name", "trips", "product"),
    [
        ("plane", "K by BK", "a[i, k] @ b[k, j]"),
        ("gated", "K by BK", "a[i, k] @ b[k, j]"),
        ("scales", "K by BK", "(a[i, k] @ b[k, j]) * 2.0"),
        ("relu", "64 : K by BK", "a[i, k] @ b[k, j]"),
    ],
)
def test_ragged_sizes_verify(name: str, trips: str, product: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, name, trips, product)
    for k in (40, 200):
        settings = ("M=136", "N=264", f"K={k}")
        found = outcomes(tmp_path, file=str(path), arch="sm_90a", settings=settings)
        assert [o["status"] for o in found] == ["ok"]
