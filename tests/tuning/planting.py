"""Faults planted in generated text, at the start of a kernel's body."""

from __future__ import annotations

import re

HANG = "volatile int spinning = 1; while (spinning) {}"
CRASH = "*reinterpret_cast<volatile int*>(8) = 1;"
WRONG = "if (N >= 0) return;"
"""Outputs stay as they were before the launch; every kernel here has a dimension N."""


def plant(cu: str, statement: str) -> str:
    """`statement` first in each kernel body."""
    planted, count = re.subn(r"(_body\([^{]*\) \{\n)", rf"\1  {statement}\n", cu)
    assert count
    return planted
