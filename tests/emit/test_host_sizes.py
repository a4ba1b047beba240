"""Sizes of the launcher in C++."""

from __future__ import annotations

import pytest

from tilec.emit.host import HostRenderer
from tilec.ir.symbolic import Sym, Var, ceildiv

M, N = (Sym.of(Var(name, "dim")) for name in "MN")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (ceildiv(N, 128), "host_ceil_div(N, 128)"),
        (ceildiv(N, 128) * ceildiv(M, 64), "host_ceil_div(M, 64) * host_ceil_div(N, 128)"),
        (ceildiv(N * 3, 2), "host_ceil_div(int64_t{N} * 3, 2)"),
        ((N + 126) // 128, "(int64_t{N} + 126) / 128"),
        ((N + 128) // 128, "static_cast<int64_t>(N / 128) + 1"),  # one more, not rounded up
        ((N - M + 3) // 4, "host_floor_div(int64_t{N} + 3 - M, 4)"),  # may be negative
        (N // 128, "N / 128"),
    ],
    ids=str,
)
def test_what_is_rounded_up_says_so(size: Sym, text: str) -> None:
    assert HostRenderer({}, {}).size(size) == text
