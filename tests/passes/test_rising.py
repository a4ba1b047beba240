"""Loops whose scores rise with the trips run backwards, where their order is nobody's; where masks hold from some index on they keep no
reference: it would move in most trips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tilec.compiler import compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k

ROOT = Path(__file__).resolve().parents[2]
FORMS = ROOT / "bench" / "attention_forms.tile"
VARIANTS = ROOT / "samples" / "attention_variants.tile"


@pytest.mark.parametrize(
    ("path", "kernel", "keeps"),
    [
        (FORMS, "full", True),
        (FORMS, "causal", True),  # masks that hold up to some index
        (FORMS, "biased", True),
        (FORMS, "masked", True),
        (VARIANTS, "packed", True),
        (FORMS, "alibi", True),
        (FORMS, "window", True),  # all rows have a score in the first trip
        (VARIANTS, "sliding_window", True),
        (VARIANTS, "soft_cap_alibi", True),
    ],
)
def test_references_are_kept_where_scores_do_not_rise(path: Path, kernel: str, keeps: bool) -> None:
    found = compile_file(str(path), kernel=kernel, archs=("sm_90a",), stop="kernel-ir").kernels[0]
    variants: Any = found.manifest["targets"]["sm_90a"]
    assert "rotate" in variants[0]["schedule"]
    assert ("keep_references" in variants[0]["schedule"]) is keeps


def changed(folder: Path, *changes: tuple[str, str]) -> list[str]:
    """The schedule of the form with distances, with parts of its text exchanged."""
    text = FORMS.read_text(encoding="utf-8")
    head, *kernels = text.split("\nkernel ")
    (kernel,) = (x for x in kernels if x.startswith("alibi["))
    kernel = kernel.split("    check:")[0]
    for old, new in changes:
        assert old in kernel
        kernel = kernel.replace(old, new)
    path = folder / "form.tile"
    path.write_text(f"{head}\nkernel {kernel}", encoding="utf-8")
    found = compile_file(str(path), kernel="alibi", archs=("sm_90a",), stop="kernel-ir").kernels[0]
    variants: Any = found.manifest["targets"]["sm_90a"]
    return list(variants[0]["schedule"])


DISTANCE = "slope[h] * (j[None, :] - i[:, None]).to(f32)"


@pytest.mark.parametrize(
    ("term", "backwards"),
    [
        (DISTANCE, True),
        ("(j[None, :] - i[:, None]).to(f32) * slope[h]", True),
        ("(-slope[h]) * (i[:, None] - j[None, :]).to(f32)", True),
        ("-(slope[h] * (i[:, None] - j[None, :]).to(f32))", True),
        ("tanh(slope[h] * j[None, :].to(f32)) + i[:, None].to(f32)", True),
        ("slope[h] * (i[:, None] - j[None, :]).to(f32)", False),  # scores fall
        ("-2.0 * (j[None, :] - i[:, None]).to(f32)", False),
        ("slope[h] * i[:, None].to(f32) + 0.0 * slope[h]", False),  # the same in all trips
    ],
)
def test_loops_run_backwards_where_scores_rise(term: str, backwards: bool, tmp_path: Path) -> None:
    steps = changed(tmp_path, (DISTANCE, term))
    assert ("backwards" in steps) is backwards
    assert "keep_references" in steps


@pytest.mark.parametrize(
    ("next_", "backwards"),
    [
        ("count + sum(s * 0.0, axis=1)", True),  # a sum beside
        ("count * 0.5 + sum(s * 0.0, axis=1)", False),  # the last trip counts most
        ("sum(s * 0.0, axis=1)", False),  # of the last trip
    ],
)
def test_loops_whose_order_shows_do_not_run_backwards(
    next_: str, backwards: bool, tmp_path: Path
) -> None:
    steps = changed(
        tmp_path,
        ("        state = softmax.begin(i, D)", "        state = softmax.begin(i, D)\n        count = zeros(f32, i)"),
        ("            state =", f"            count = {next_}\n            state ="),
        ("softmax.end(state)", "softmax.end(state) + count[:, None]"),
    )  # fmt: skip
    assert ("backwards" in steps) is backwards


@pytest.mark.parametrize(("columns", "keeps"), [(128, True), (64, False)])
def test_references_are_kept_where_all_rows_begin_at_once(columns: int, keeps: bool) -> None:
    """With tiles of more rows than columns the last rows see none of the first columns."""
    defines = {"BM": "128", "BN": str(columns), "D": "64"}
    found = compile_file(
        str(FORMS), kernel="window", defines=defines, archs=("sm_90a",), stop="kernel-ir"
    ).kernels[0]
    variants: Any = found.manifest["targets"]["sm_90a"]
    assert ("keep_references" in variants[0]["schedule"]) is keeps


@pytest.mark.parametrize(
    ("columns", "keeps"), [(128, True), (224, True), (240, False), (256, False)]
)
def test_references_are_kept_where_registers_suffice(columns: int, keeps: bool) -> None:
    """Beside wide sums what the rare branch reads would be spilled."""
    path = ROOT / "samples" / "attention.tile"
    found = compile_file(
        str(path), defines={"D": str(columns)}, archs=("sm_90a",), stop="kernel-ir"
    ).kernels[0]
    variants: Any = found.manifest["targets"]["sm_90a"]
    assert ("keep_references" in variants[0]["schedule"]) is keeps


@pytest.mark.parametrize(
    ("path", "kernel"), [(FORMS, "full"), (FORMS, "alibi"), (FORMS, "window"), (FORMS, "soft_cap")]
)
def test_sums_that_a_trip_rescales_stay_where_they_are(path: Path, kernel: str) -> None:
    """Whether references are kept or not: a product adds to registers that live as long as the loop, without a copy in each trip."""
    found = compile_file(str(path), kernel=kernel, archs=("sm_90a",), stop="kernel-ir").kernels[0]
    low = found.lowered["sm_90a"][0]
    (roles,) = (op for op in low.body if isinstance(op, a.Roles))
    added = [
        (op.target.name, declared)
        for loop in _inside(roles.consumer)
        if isinstance(loop, k.Loop)
        for declared in [{x.fragment.name for x in _inside(loop.body) if isinstance(x, k.Declare)}]
        for op in _inside(loop.body)
        if isinstance(op, a.WarpgroupProduct) and not op.fresh
    ]
    assert added and all(name not in declared for name, declared in added)


def _inside(ops: Any) -> Iterator[Any]:
    """Ops and what is in them."""
    for op in ops:
        yield op
        for part in fields(op):
            value = getattr(op, part.name)
            if isinstance(value, tuple):
                yield from _inside(x for x in value if isinstance(x, k.Op))
