"""Faults that other tile compilers had, each as a program of ours that is exact, or the reason why it cannot be one."""

from __future__ import annotations

from pathlib import Path

from tests.known_faults.generated import GENERATED

PROGRAMS = Path(__file__).resolve().parent / "programs"
WRITTEN = ("control", "edges", "names", "structure")
"""Files of `programs/`."""

ROWS: dict[str, str] = {
    "C1": "modular_broadcast",
    "C2": "short_writer_long_reader",
    "C3": "nested_serial_store",
    "C4": "consecutive_ifs",
    "C5": "equal_guards",
    "C7": "part_of_a_vector",
    "C8": "guarded_cast_store",
    "C9": "scalar_of_a_wide_tile",
    "C10": "rotated_sum",
    "C11": "small_tile_in_a_long_loop",
    "C12": "temporary_before_update",
    "C13": "histogram",
    "C14": "vector_select",
    "C15": "unrolled_filter",
    "C16": "strided_trips",
    "C17": "shifted_back",
    "F2": "ragged_store",
    "F3": "shifted_columns",
    "F4": "first_columns",
    "F5": "each_tile_once",
    "F6": "width_229",
    "F7": "broadcast_40",
    "F9": "windows",
    "F10": "one_element",
    "F12": "empty_sum",
    "F13": "narrow_tile",
    "F15": "strided_rows_padded",
    "F16": "small_before_wide",
}
"""The kernel that exercises a fault."""

REASONS: dict[str, str] = {
    "C6": "a loop with an else clause: the language has none",
    "F1": "a product over an odd number of columns: needs `@`",
    "F8": "attention backward: needs `@`",
    "F11": "a product over no columns: needs `@`",
    "F14": "attention over ragged sequences: needs `@`",
    "F17": "sparse attention: needs `@`",
    "F18": "products of odd shapes: needs `@`",
    "I3": "a barrier that the target lacks: programs name no barriers",
    "I8": "warp specialisation of tiny products: needs `@`",
    "K1": "tests/emit/test_kernel_text.py: the text uses toolkit headers only and no type of a recent one",
    "K5": "tests/emit/test_kernel_text.py: the header is C and C++, the launcher needs no Python",
}
"""Why a fault is no program of this table."""


def texts() -> dict[str, str]:
    """All program texts by name."""
    found = {name: (PROGRAMS / f"{name}.tile").read_text(encoding="utf-8") for name in WRITTEN}
    return found | {name: make() for name, make in GENERATED.items()}
