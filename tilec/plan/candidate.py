"""A candidate: one choice of everything that the program leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilec.ir.dtypes import DType

Static = int | float | bool | DType
"""Value of a bracket parameter."""


@dataclass(frozen=True)
class Candidate:
    """`values` holds every bracket parameter of the kernel, `tiles` the names of those that are tile sizes.
    `warps` and `stages` are None where the passes choose; `origin` says where each value came from
    ("default", "option", "auto", "tuned") for the manifest; `mma` and `math` as in `schedule`."""

    values: Mapping[str, Static]
    tiles: frozenset[str] = frozenset()
    warps: int | None = None
    stages: int | None = None
    mma: Literal["auto", "wmma", "mma", "wgmma"] = "auto"
    math: Literal["fast", "strict"] = "fast"
    origin: Mapping[str, str] = field(default_factory=dict)
