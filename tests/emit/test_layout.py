"""Where lines that are too long are broken."""

from __future__ import annotations

import pytest

from tilec.emit.layout import COLUMNS, indent

LONG = "a" * 45

CASES = [
    # what holds together the least is parted first, where the fewest brackets are open
    (
        f"call({LONG}, f({LONG}, 2), c + 3);",
        [f"call({LONG},", f"    f({LONG}, 2), c + 3);"],
    ),
    (
        f"for (int n = {LONG}; n < ceil_div(M, 4) * ceil_div(N, 8); n += {LONG}) {{}}",
        [f"for (int n = {LONG}; n < ceil_div(M, 4) * ceil_div(N, 8);", f"    n += {LONG}) {{}}"],
    ),
    (
        f"x = {LONG} + b * c + f(d, {LONG});",
        [f"x = {LONG} + b * c", f"    + f(d, {LONG});"],
    ),
    # brackets of templates are brackets, comparisons and arrows are none
    (
        f"x = f<g<T>, 4>(p->next + {LONG}, q < 3 ? {LONG} : 1);",
        [f"x = f<g<T>, 4>(p->next + {LONG},", f"    q < 3 ? {LONG} : 1);"],
    ),
    (f'fail("{LONG}, {LONG}", {LONG});', [f'fail("{LONG}, {LONG}",', f"    {LONG});"]),
    (f"f({LONG}, {LONG});  // because of it", ["// because of it", f"f({LONG}, {LONG});"]),
]


@pytest.mark.parametrize(("line", "lines"), CASES, ids=[c[0][:12] for c in CASES])
def test_where_a_line_is_broken(line: str, lines: list[str]) -> None:
    assert len(line) > COLUMNS
    assert indent(line).splitlines() == lines
