"""Ranges of sizes on the command line."""

from __future__ import annotations

import pytest

from tilec.jobs.size_ranges import expand_settings
from tilec.source.diagnostics import TileError


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), [()]),
        (("N=4",), [("N=4",)]),
        (("N=2**10",), [("N=1024",)]),
        (("scale=0.5", "N=1..8"), [("scale=0.5", f"N={n}") for n in (1, 2, 4, 8)]),
        (("N=3..20",), [("N=3",), ("N=6",), ("N=12",)]),
        (("N=2**3..2**5",), [("N=8",), ("N=16",), ("N=32",)]),
        (("N=10..30:10", "M=1,2,3"), [("N=10", "M=1"), ("N=20", "M=2"), ("N=30", "M=3")]),
        (("N=0x10..0x20",), [("N=16",), ("N=32",)]),
        (("N",), [("N",)]),
        (("scale=-1e-3",), [("scale=-1e-3",)]),
    ],
)
def test_settings_of_each_call(settings: tuple[str, ...], expected: list[tuple[str, ...]]) -> None:
    assert expand_settings(settings) == expected


@pytest.mark.parametrize(
    "setting", ["N=8..4", "N=0..4", "N=1..x", "N=1,x", "N=1..9:0", "N=2**99..3", "N=1..1000:1"]
)
def test_what_names_no_sizes_is_a_message(setting: str) -> None:
    with pytest.raises(TileError) as caught:
        expand_settings((setting,))
    (message,) = caught.value.diagnostics
    assert message.code == "E0716"
    assert setting in message.message


def test_ranges_of_different_lengths_are_a_message() -> None:
    with pytest.raises(TileError) as caught:
        expand_settings(("N=1..8", "M=1,2"))
    assert caught.value.diagnostics[0].code == "E0716"
