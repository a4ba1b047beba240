"""The order of a grid's instances: in groups of rows where products share operands that way, complete for every size."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.test_samples import outcomes
from tests.passes.decoding import walked
from tilec.compiler import compile_file
from tilec.ir import kernel_ir as k
from tilec.ir.symbolic import Sym, Var
from tilec.passes.grid_order import section_size
from tilec.targets.table import TARGETS

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def orders(file: str, kernel: str) -> list[str]:
    found = compile_file(str(SAMPLES / file), kernel=kernel, archs=("sm_80",), stop="kernel-ir")
    variants: Any = found.kernels[0].manifest["targets"]["sm_80"]
    return [digit["order"] for digit in variants[0]["grid"]]


@pytest.mark.parametrize(
    ("file", "kernel", "expected"),
    [
        ("gemm.tile", "gemm_nn", [8, 1]),
        ("gemm_bias_gelu.tile", "gemm_bias_gelu", [8, 1]),
        ("matrix_vector_and_groups.tile", "grouped_gemm", [1, 8, 1]),
        # the last loop numbers no tiles; the right operand depends on the rows; keys are those of a head
        ("matrix_vector_and_groups.tile", "gemm_split_k", [1, 1, 1]),
        ("matrix_vector_and_groups.tile", "moe_swiglu", [1, 1]),
        ("attention.tile", "attention", [1, 1, 1]),
        ("norms.tile", "rms_norm", [1]),
    ],
)
def test_rows_are_swept_where_operands_are_shared(
    file: str, kernel: str, expected: list[int]
) -> None:
    found = orders(file, kernel)
    assert [8 if "groups of 8" in order else 1 for order in found] == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("biased", ["h", "i_tile", "b"]),  # all batches read the same biases
        (
            "masked",
            ["b", "h", "i_tile"],
        ),  # a batch's mask stays in the L2 from one head to the next
        ("full", ["b", "h", "i_tile"]),
    ],
)
def test_instances_that_read_the_same_tile_beside_products_are_neighbours(
    kernel: str, expected: list[str]
) -> None:
    path = SAMPLES.parent / "bench" / "attention_forms.tile"
    found = compile_file(str(path), kernel=kernel, archs=("sm_90a",), stop="kernel-ir").kernels[0]
    assert [digit.name for digit in found.lowered["sm_90a"][0].grid] == expected


FORMS = ("swept", "swept walked", "swept walked fresh")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("rows", "columns", "more"), list(product((1, 5, 8, 9, 16, 23), (1, 3, 7), (1, 2)))
)
def test_every_place_comes_once(rows: int, columns: int, more: int, form: str) -> None:
    found = walked(form, (more, rows, columns)[more == 1 :])
    ranges = ([range(more)] if more > 1 else []) + [range(rows), range(columns)]
    assert sorted(found) == sorted(product(*ranges))
    # the first group goes through its rows in each column
    height = min(8, rows)
    assert [p[-2:] for p in found[:height]] == [(row, 0) for row in range(height)]


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("counts", [(8, 5), (1, 4), (3, 7, 2), (4, 4, 1)])
def test_sections_have_each_place_once_and_the_longest_first(
    counts: tuple[int, ...], size: int
) -> None:
    *others, trips = counts
    found = walked(f"section {size}", counts)
    assert sorted(found) == sorted(product(*map(range, counts)))
    numbers = list(product(*map(range, others)))
    while numbers:
        some, numbers = numbers[:size], numbers[size:]
        section, found = found[: trips * len(some)], found[trips * len(some) :]
        assert section == [(*other, j) for j in reversed(range(trips)) for other in some]


@pytest.mark.parametrize(
    ("trips", "others", "resident", "size"),
    [
        (8, 256, 2, 64),
        (32, 64, 2, 16),
        (128, 16, 2, 4),
        (8, 3, 2, 3),
        (5000, 7, 1, 1),
        (1, 1, 1, 1),
    ],
)
def test_sections_are_even_and_have_about_two_rounds(
    trips: int, others: int, resident: int, size: int
) -> None:
    sizes = {name: Sym.of(Var(name, "dim")) for name in ("others", "trips")}
    grid = tuple(k.GridDigit(name, sym) for name, sym in sizes.items())
    numbers = {"others": others, "trips": trips}
    found = section_size(grid, resident, TARGETS["sm_90"])
    assert found.evaluate(lambda v: numbers[v.name]) == size


def test_a_product_of_incomplete_groups_verifies(tmp_path: Path) -> None:
    for m, n in (("M=161", "N=72"), ("M=264", "N=16"), ("M=40", "N=130")):
        found = outcomes(
            tmp_path,
            file=str(SAMPLES / "gemm.tile"),
            kernel="gemm_nn",
            settings=(m, n, "K=24"),
            defines=("BM=16", "BN=16", "BK=16"),
        )
        assert {o["status"] for o in found} == {"ok"}
