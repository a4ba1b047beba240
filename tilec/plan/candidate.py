"""A candidate: one choice of everything that the program leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal, TypeAlias, cast

from tilec.ir.dtypes import DType
from tilec.ir.selection import GENERAL, Point
from tilec.lazy_dataclass import dataclass

Static = int | float | bool | DType
"""Value of a bracket parameter."""

Choice: TypeAlias = Mapping[str, Static]
"""Values of bracket parameters, and of `warps` and `stages`, by name."""


@dataclass(frozen=True)
class Dispatch:
    """Which choice of a kernel is launched for which sizes: `choices` count from 1 in the `points` of each architecture, whose sizes are
    in the order of `key`. What a choice is called is its label."""

    key: tuple[str, ...]
    choices: tuple[Choice, ...]
    labels: tuple[str, ...]
    points: Mapping[str, tuple[Point, ...]]

    def numbers(self, arch: str) -> tuple[int, ...]:
        """The choices that some sizes of an architecture take."""
        return tuple(sorted({p.variant for p in self.points.get(arch, ())} - {GENERAL}))


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

    @property
    def smaller_tiles(self) -> str:
        """What to do where a block has no room for the tiles."""
        tiles = [n for n in self.values if n in self.tiles]
        sizes = ", ".join(f"`{n} = {self.values[n]}`" for n in tiles)
        given = " ".join(f"-D {n}" for n in tiles if self.origin.get(n) == "option")
        return (
            "use smaller tiles"
            + (f" than {sizes}" if sizes else "")
            + (f", or leave `{given}` out" if given else "")
        )

    def with_choice(self, choice: Choice) -> Candidate:
        """The same with the values of `choice`, whose origin is "tuned"; names that a candidate has not are passed over."""
        values = {n: choice.get(n, v) for n, v in self.values.items()}
        changed = [n for n in (*self.values, "warps", "stages") if n in choice]
        return replace(
            self,
            values=values,
            origin={**self.origin, **dict.fromkeys(changed, "tuned")},
            warps=cast("int | None", choice.get("warps", self.warps)),
            stages=cast("int | None", choice.get("stages", self.stages)),
        )
