"""Loops whose scores rise with the trips keep no reference: it would move in most of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilec.compiler import compile_file

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
        (FORMS, "alibi", False),
        (FORMS, "window", False),
        (VARIANTS, "sliding_window", False),
        (VARIANTS, "soft_cap_alibi", False),
    ],
)
def test_references_are_kept_where_scores_do_not_rise(path: Path, kernel: str, keeps: bool) -> None:
    found = compile_file(str(path), kernel=kernel, archs=("sm_90a",), stop="kernel-ir").kernels[0]
    variants: Any = found.manifest["targets"]["sm_90a"]
    assert "rotate" in variants[0]["schedule"]
    assert ("keep_references" in variants[0]["schedule"]) is keeps
