"""The order of a grid's instances: in groups of rows where products share operands that way, complete for every size."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.emit.expressions import Renderer
from tilec.emit.grid import decode, instance_loop
from tilec.emit.primitives import load_primitives
from tilec.ir import kernel_ir as k
from tilec.ir.symbolic import Sym

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


def places(rows: int, columns: int, more: int) -> list[tuple[int, ...]]:
    """What the decoded text says, instance by instance."""
    names = ("outer", "i", "j")
    digits = tuple(
        k.GridDigit(name, Sym.of(trips), swept=8 if name == "i" else 1)
        for name, trips in zip(names, (more, rows, columns), strict=True)
    )[1 - (more > 1) :]
    total = Sym.of(more * rows * columns)
    kernel = k.Kernel(
        "n", "b", 32, 1, 1, (), (), (), digits, total, (), (), (), ()
    )  # fmt: skip
    render = Renderer({}, lambda sym: True, {})
    functions: dict[str, Any] = {}
    for name in ("swept_row", "swept_column"):
        text = load_primitives().blocks[name].text
        body = text[text.index("{") + 1 : text.rindex("}")]
        lines = [_python(line) for line in body.strip().splitlines()]
        source = f"def {name}(number, rows, columns):\n    kRows = 8\n" + "\n".join(
            f"    {line}" for line in lines
        )
        exec(source, functions)
    found = []
    for number in range(more * rows * columns):
        scope: dict[str, Any] = dict(functions)
        for line in decode(kernel, render, set(names), str(number)):
            exec(_python(line), scope)
        found.append(tuple(scope[d.name] for d in digits))
    return found


def run_decoded(trips: tuple[int, int], cta: int, ctas: int) -> list[tuple[int, ...]]:
    """The instances that one of so many CTAs walks, the last loop's trips taken in pairs, in order."""
    names = ("h", "i")
    digits = tuple(
        k.GridDigit(name, Sym.of(count), paired=name == "i")
        for name, count in zip(names, trips, strict=True)
    )
    kernel = k.Kernel(
        "n", "b", 32, 1, 1, (), (), (), digits, Sym.of(trips[0] * trips[1]), (), (), (), ()
    )  # fmt: skip
    head, *lines = instance_loop(kernel, Renderer({}, lambda sym: True, {}), set(names))
    head = head.replace("static_cast<int>(blockIdx.x)", str(cta))
    head = head.replace("static_cast<int>(gridDim.x)", str(ctas))
    parts = re.fullmatch(r"for \(int (\w+) = (.*); (.*); \w+ \+= (.*)\) \{", head)
    assert parts is not None
    number, first, condition, step = parts.groups()
    step = re.sub(r"(.*) \? (.*) : (.*)", r"(\2) if (\1) else (\3)", step)
    text = load_primitives().blocks["paired_trip"].text
    value = re.search(r"return (.*) \? (.*) : (.*);", text)
    assert value is not None
    even, one, other = (part.replace("/", "//") for part in value.groups())
    scope: dict[str, Any] = {
        "paired_trip": eval(f"lambda number, trips: ({one}) if ({even}) else ({other})")
    }
    scope[number] = eval(first, scope)
    found = []
    while eval(condition, scope):
        for line in lines:
            exec(_python(line), scope)
        found.append(tuple(scope[name] for name in names))
        scope[number] += eval(step, scope)
    return found


def _python(line: str) -> str:
    line = re.sub(r"(?:const )?int |;|<8>", "", line.strip())
    line = re.sub(r"\(?(\w+(?: - \w+)?) < kRows \? \1 : kRows\)?", r"min(\1, kRows)", line)
    return re.sub(r"(?<![/])/(?!/)", "//", line).replace("////", "//")


@pytest.mark.parametrize(
    ("rows", "columns", "more"), list(product((1, 5, 8, 9, 16, 23), (1, 3, 7), (1, 2)))
)
def test_every_place_comes_once(rows: int, columns: int, more: int) -> None:
    found = places(rows, columns, more)
    ranges = ([range(more)] if more > 1 else []) + [range(rows), range(columns)]
    assert sorted(found) == sorted(product(*ranges))
    # the first group goes through its rows in each column
    height = min(8, rows)
    assert [p[-2:] for p in found[:height]] == [(row, 0) for row in range(height)]


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
