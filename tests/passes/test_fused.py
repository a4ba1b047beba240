"""Formulas that multiply-adds do: which are multiplied out, however they are written, and which stay as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.compiler import compile_file

TEXT = """kernel k[BN = 256](x: f32[N]) -> y: f32[N]:
    for i in parallel(N by BN):
        a = x[i]
        y[i] = {formula}
"""


def formula(folder: Path, text: str, strict: bool = False) -> str:
    """The C++ of an element, in one line and without suffixes."""
    path = folder / "k.tile"
    program = TEXT.replace("{formula}", text)
    if strict:
        program = program.replace("\n    for", "\n    schedule math = strict\n    for")
    path.write_text(program, encoding="utf-8")
    cu = compile_file(str(path), archs=("sm_80",)).cu
    found = re.search(r"((?:const float \w+ = [^;]*;\s*)*)y_out\[i_sub\] = ([^;]*);", cu)
    assert found is not None
    lets = " ".join(re.findall(r"const float factor = [^;]*;", found[1]))
    line = re.sub(r"\s+", " ", f"{lets} {found[2]}".strip()).replace("a[i_sub]", "a")
    return re.sub(r"(\d)f\b", r"\1", line).replace("e+30", "e30")


@pytest.mark.parametrize(
    "text",
    [
        "0.5 * a * (1.0 + tanh(a))",
        "(tanh(a) + 1.0) * (0.5 * a)",
        "a * 0.5 * (tanh(a) + 1.0)",
    ],
)
def test_a_factor_of_one_plus_a_bounded_function_is_added(tmp_path: Path, text: str) -> None:
    found = formula(tmp_path, text)
    assert found.endswith("factor * tanh_fast(a) + factor")
    assert found.startswith("const float factor = ")


@pytest.mark.parametrize(
    "text",
    [
        "0.5 * (a + 0.25 * a * a * a)",
        "(a * 0.25 * a * a + a) * 0.5",
        "0.5 * (a * a * a * 0.25 + a)",
    ],
)
def test_a_polynomial_has_its_variable_in_front(tmp_path: Path, text: str) -> None:
    assert formula(tmp_path, text) == "a * (0.125 * a * a + 0.5)"


@pytest.mark.parametrize(
    "text",
    [
        "a * (1.0 + exp(a))",  # where a * exp(a) overflows, the factor alone need not
        "a * (2.0 + tanh(a))",
        "0.5 * (a + 0.25 * exp(a) * a)",
        "a * (a + 0.25 * a * a)",
        "1e30 * (a + 1e30 * a * a)",  # the product of the numbers is none
    ],
)
def test_other_formulas_stay(tmp_path: Path, text: str) -> None:
    found = formula(tmp_path, text)
    assert found == text.replace("exp(", "exp_fast(").replace("tanh(", "tanh_fast(")


def test_strict_formulas_stay(tmp_path: Path) -> None:
    found = formula(tmp_path, "0.5 * a * (1.0 + tanh(a))", strict=True)
    assert "factor" not in found and "tanh_strict(a)" in found


ATTENTION = Path(__file__).resolve().parents[2] / "bench" / "attention_forms.tile"


def scores(path: Path) -> str:
    """The C++ of the scores of the first trip, in one line."""
    cu = compile_file(str(path), kernel="alibi", archs=("sm_90a",)).cu
    found = re.search(r"const float s_\d = ([^;]*slope_value[^;]*);", cu)
    assert found is not None
    return re.sub(r"\s+", " ", found[1])


def test_a_factor_that_counts_indices_is_one_number_and_a_constant() -> None:
    found = scores(ATTENTION)
    assert found.startswith("fma(product[i_step][j_step][j_sub], scale, slope_value * (")
    assert found.endswith("+ convert<float>(i_first - i_at + j_el - j_first)))")


def test_in_the_argument_of_an_exponential_what_the_thread_has_alone_is_added_first() -> None:
    cu = compile_file(str(ATTENTION), kernel="alibi", archs=("sm_90a",)).cu
    found = re.search(r"const float p_\d = exp2_fast\((fma\(product_2[^;]*)\);", cu)
    assert found is not None
    text = re.sub(r"\s+", " ", found[1])
    begin = (
        "fma(product_2[i_step][j_step][j_sub], in_bits_2, "
        "fma(convert<float>(i_first - i_at + j_el - j_first), in_bits, fma("
    )
    assert text.startswith(begin) and text.endswith(", in_bits, carried_2[i_step])))")


def test_in_strict_mode_it_is_converted_as_written(tmp_path: Path) -> None:
    path = tmp_path / "strict.tile"
    text = ATTENTION.read_text(encoding="utf-8")
    kernels = text.split("\nkernel ")
    alibi = next(x for x in kernels if x.startswith("alibi["))
    alibi = alibi.replace("\n    for b", "\n    schedule math = strict\n    for b", 1)
    path.write_text(f"{kernels[0]}\nkernel {alibi}", encoding="utf-8")
    found = scores(path)
    assert "fma(" not in found and found.count("convert<float>") == 1
