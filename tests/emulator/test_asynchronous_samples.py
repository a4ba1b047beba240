"""The samples with products in the asynchronous form: verified at ragged sizes in every order, what no element may come from poisoned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator.asynchronous import ORDERS, Arrays, Program
from tests.emulator.test_samples import SAMPLES


def row(*names: str) -> Callable[[Arrays], None]:
    """The second row of each is NaN: what a tile of the first one reaches beyond its end lies there."""

    def change(arrays: Arrays) -> None:
        for name in names:
            if arrays[name].shape[0] > 1:
                arrays[name][1] = np.nan

    return change


def head(*names: str) -> Callable[[Arrays], None]:
    """The second head of each is NaN."""

    def change(arrays: Arrays) -> None:
        for name in names:
            if arrays[name].shape[1] > 1:
                arrays[name][:, 1] = np.nan

    return change


def starts(*bounds: int, poisoned: int) -> Callable[[Arrays], None]:
    """Sequences of rows that begin there; all rows of one, and those of none, are NaN."""

    def change(arrays: Arrays) -> None:
        arrays["starts"][:] = bounds
        for name, array in arrays.items():
            if name in ("q", "k", "v", "x"):
                array[: bounds[0]] = np.nan
                array[bounds[-1] :] = np.nan
                array[bounds[poisoned] : bounds[poisoned + 1]] = np.nan

    return change


def keys(*counts: int) -> Callable[[Arrays], None]:
    """Each sequence has so many keys; those behind are NaN."""

    def change(arrays: Arrays) -> None:
        arrays["length"][:] = counts
        for n, count in enumerate(counts):
            arrays["k"][n, :, count:] = np.nan
            arrays["v"][n, :, count:] = np.nan

    return change


@dataclass(frozen=True)
class Call:
    """Sizes at which a kernel runs; `checked`: its check clause says what comes out, too."""

    numbers: Mapping[str, float]
    change: Callable[[Arrays], None] | None = None
    checked: bool = True


@dataclass(frozen=True)
class Subject:
    """A kernel with tiles that the emulator runs quickly. `words` are exchanged in its text."""

    file: str
    kernel: str
    defines: Mapping[str, Any]
    calls: tuple[Call, ...]
    words: Mapping[str, str] = field(default_factory=dict)


def gemms(*tensors: str) -> tuple[Call, ...]:
    """Ragged in each dimension, one trip of a part, one whole trip, many instances for each CTA."""
    sizes = ((200, 136, 72), (64, 64, 8), (72, 8, 64), (328, 264, 136), (1, 200, 200), (7, 72, 0))
    return tuple(Call({"M": m, "N": n, "K": k}, row(*tensors)) for m, n, k in sizes)


def lengths(*sizes: tuple[int, int, int], poisoned: bool = True) -> tuple[Call, ...]:
    """Attention over H heads, S queries and T keys."""
    change = head("k", "v") if poisoned else None
    return tuple(
        Call({"B": 1, "H": h, "S": s, "T": t, "scale": 0.125}, change) for h, s, t in sizes
    )


GEMM = {"BM": 64, "BN": 64, "BK": 64}
WIDE = {"BM": 128, "BN": 128, "BK": 32}
ATTENTION = {"D": 64, "BM": 64, "BN": 64}
LENGTHS = lengths((2, 136, 200), (3, 64, 8), (2, 200, 64), (5, 72, 136))
CAUSAL = (
    *lengths((2, 136, 200), (5, 72, 72)),
    # rows that see no key: blocks of no trips
    *lengths((2, 200, 72), (1, 136, 8), poisoned=False),
)
PACKED = (
    {"TOTAL": 150, "H": 2, "NSEQ1": 5, "longest": 150, "scale": 0.125},
    starts(3, 60, 60, 61, 140, poisoned=3),
)
FEW = tuple(
    Call({"M": m, "N": n, "K": k}, row("a"))
    for m, n, k in ((16, 136, 136), (5, 72, 264), (1, 264, 72), (8, 8, 8), (3, 64, 0))
)
SUBJECTS = {
    "gemm_nn": Subject("gemm", "gemm_nn", GEMM, gemms("a")),
    "gemm_nt": Subject(
        "gemm", "gemm_nt", GEMM, (*gemms("a", "b"), Call({"M": 72, "N": 61, "K": 72}))
    ),
    "gemm_nn, f16, wide": Subject("gemm", "gemm_nn", {**WIDE, "T": "f16"}, gemms("a")[:4]),
    "gemm_nn, three warpgroups": Subject(
        "gemm", "gemm_nn", {"BM": 192, "BN": 64, "BK": 64}, gemms("a")[:4]
    ),
    # five chunks of 32 columns in four slots: the first of a tile has the slot of the last one; rows of the result begin anywhere
    "gemm_nn, narrow chunks": Subject(
        "gemm",
        "gemm_nn",
        {"BM": 192, "BN": 160, "BK": 32},
        (
            *gemms("a")[:4],
            Call({"M": 400, "N": 328, "K": 360}),
            Call({"M": 200, "N": 200, "K": 64}),
        ),
    ),
    "gemm_nt, narrow chunks": Subject(
        "gemm",
        "gemm_nt",
        {"BM": 64, "BN": 96, "BK": 64},
        (*gemms("a")[:4], *(Call({"M": 200, "N": n, "K": 72}) for n in (61, 186))),
    ),
    "gemm_bias_relu": Subject("gemm_bias_relu", "gemm_bias_relu", GEMM, gemms("a")[:4]),
    "gemm_bias_gelu": Subject("gemm_bias_gelu", "gemm_bias_gelu", WIDE, gemms("a")[:4]),
    "gemm_fp8_blocks": Subject(
        "quantised",
        "gemm_fp8_blocks",
        {"BM": 64, "BN": 64},
        tuple(
            Call({"M": m, "N": n, "K": k}, row("a", "b"))
            for m, n, k in ((72, 136, 304), (64, 64, 128), (200, 200, 16))
        ),
    ),
    "gemm_skinny_nn": Subject("gemm_skinny", "gemm_skinny_nn", {}, FEW),
    "gemm_skinny_nn, f16, 8 rows": Subject(
        "gemm_skinny", "gemm_skinny_nn", {"ROWS": 8, "T": "f16"}, FEW[1:]
    ),
    "gemm_skinny_nn, 128 rows": Subject("gemm_skinny", "gemm_skinny_nn", {"ROWS": 128}, FEW),
    "gemm_skinny_nt": Subject(
        "gemm_skinny", "gemm_skinny_nt", {}, (*FEW, Call({"M": 13, "N": 61, "K": 72}))
    ),
    "gemm_skinny_nt, 32 rows": Subject("gemm_skinny", "gemm_skinny_nt", {"ROWS": 32}, FEW[:2]),
    "gemm_skinny_nt, 64 rows": Subject("gemm_skinny", "gemm_skinny_nt", {"ROWS": 64}, FEW[:2]),
    "gemm_nn, more rows than a tile": Subject(
        "gemm", "gemm_nn", {"BM": 24, "BN": 128, "BK": 32}, gemms("a")[:4]
    ),
    "gemm_bias_gelu, 16 rows": Subject(
        "gemm_bias_gelu", "gemm_bias_gelu", {"BM": 16, "BN": 64, "BK": 64}, gemms("a")[:4]
    ),
    "gemm_split_k, 16 rows": Subject(
        "matrix_vector_and_groups",
        "gemm_split_k",
        {"BM": 16, "BN": 64, "BK": 32, "SPLITS": 3},
        (Call({"M": 13, "N": 136, "K": 136}, row("a")), Call({"M": 16, "N": 64, "K": 32})),
    ),
    "gemm_split_k": Subject(
        "matrix_vector_and_groups",
        "gemm_split_k",
        {"BM": 64, "BN": 64, "BK": 32, "SPLITS": 3},
        (Call({"M": 72, "N": 136, "K": 136}, row("a")), Call({"M": 64, "N": 64, "K": 32})),
    ),
    "grouped_gemm": Subject(
        "matrix_vector_and_groups",
        "grouped_gemm",
        {"BM": 64, "BN": 64, "BK": 32},
        (
            Call({"ROWS": 200, "K": 72, "N": 136, "E": 3, "E1": 4, "longest": 200}),
            Call(
                {"ROWS": 200, "K": 40, "N": 72, "E": 4, "E1": 5, "longest": 200},
                starts(2, 2, 70, 71, 190, poisoned=1),
                checked=False,
            ),
        ),
    ),
    "attention": Subject("attention", "attention", ATTENTION, LENGTHS),
    "attention, f16": Subject("attention", "attention", ATTENTION, LENGTHS[:2], {"bf16": "f16"}),
    "attention, D = 128": Subject(
        "attention", "attention", {"D": 128, "BM": 128, "BN": 32}, lengths((2, 136, 72), (3, 8, 40))
    ),
    "attention, groups": Subject(
        "attention",
        "attention",
        {"D": 64, "BM": 64, "BN": 32, "G": 2},
        (Call({"B": 2, "H": 4, "S": 72, "T": 40, "scale": 0.125}, head("k", "v")),),
    ),
    "causal attention": Subject("attention", "attention", {**ATTENTION, "CAUSAL": "true"}, CAUSAL),
    "causal attention, two warpgroups": Subject(
        "attention", "attention", {"D": 64, "BM": 128, "BN": 32, "CAUSAL": "true"}, CAUSAL[:2]
    ),
    "packed": Subject(
        "attention_variants",
        "packed",
        ATTENTION,
        (Call(PACKED[0]), Call(*PACKED, checked=False)),
    ),
    "sliding_window": Subject(
        "attention_variants",
        "sliding_window",
        {**ATTENTION, "WINDOW": 50},
        (
            Call({"B": 1, "H": 2, "S": 200, "scale": 0.125}, head("k", "v")),
            Call({"B": 1, "H": 5, "S": 40, "scale": 0.125}),
        ),
    ),
    "soft_cap_alibi": Subject(
        "attention_variants",
        "soft_cap_alibi",
        ATTENTION,
        (
            Call({"B": 1, "H": 2, "S": 136, "scale": 0.125, "cap": 5.0}, head("k", "v")),
            Call({"B": 1, "H": 5, "S": 40, "scale": 0.125, "cap": 5.0}),
        ),
    ),
    "flash_decode": Subject(
        "decode",
        "flash_decode",
        {"D": 64, "G": 64, "BN": 32, "SPLITS": 3},
        (
            Call({"B": 2, "H": 64, "T": 136, "scale": 0.125}),
            Call({"B": 3, "H": 64, "T": 200, "scale": 0.125}, keys(75, 0, 197), checked=False),
        ),
    ),
}


@pytest.mark.parametrize("name", list(SUBJECTS))
def test_asynchronous_samples_verify(name: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]
    path = SAMPLES / f"{subject.file}.tile"
    if subject.words:
        text = path.read_text(encoding="utf-8")
        for old, new in subject.words.items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / path.name
        path.write_text(text, encoding="utf-8")
    program = Program(path, subject.kernel, subject.defines)
    found = set()
    for call in subject.calls:
        ran = program.run(call.numbers, call.change, ORDERS, checked=call.checked)
        found |= set(ran.launched)
    assert found & program.asynchronous


BOUNDED = {
    # a tile of two products is cleared in front of the first
    "one tile of two products": """kernel k(n: i32, a: bf16[M, K], b: bf16[K, N], d: bf16[K, N]) -> (y: f32[M, N], z: f32[M, N]):
    for i, j in parallel(M by 64, N by 64):
        y0 = zeros(f32, i, j)
        z0 = zeros(f32, i, j)
        for k in range(0 : min(K, n) by 32):
            left = a[i, k]
            y0 += left @ b[k, j]
            z0 += left @ d[k, j]
        y[i, j] = y0
        z[i, j] = z0
""",
    # a tile that all trips of a loop read is cleared where it comes
    "a tile of all trips": """kernel k(n: i32, a: bf16[M, K], b: bf16[N, K]) -> y: f32[M, N]:
    require K <= 64
    for i in parallel(M by 64):
        left = a[i, span(0, 64, until=n)]
        for j in range(N by 32):
            y[i, j] = left @ b[j, span(0, 64, until=n)].T
""",
}


@pytest.mark.parametrize("name", list(BOUNDED))
def test_edges_of_tiles_that_are_read_twice(name: str, tmp_path: Path) -> None:
    def change(arrays: Arrays) -> None:
        arrays["a"][:, 40:] = np.nan

    path = tmp_path / "k.tile"
    path.write_text(BOUNDED[name], encoding="utf-8")
    program = Program(path)
    for n in (40, 17, 0):
        ran = program.run({"M": 72, "K": 64, "N": 136, "n": n}, change)
        assert set(ran.launched) <= program.asynchronous
        assert np.isfinite(ran.outputs["y"]).all()
