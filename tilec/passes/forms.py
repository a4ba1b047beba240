"""A form that a nest can take: the variant of its layouts, with the program and the nest that it is of."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import Axes
from tilec.passes.placement import Placement
from tilec.passes.variants import Variant


@dataclass(frozen=True)
class Form:
    """A variant with the nest and the program that it is of."""

    program: t.Program
    nest: t.Nest
    axes: Axes
    placement: Placement
    variant: Variant
    schedule: tuple[str, ...] = ()
    """what was done to the nest for it"""
    beside: Form | None = None
    """of one that skips trips: the form for calls in which there are none to skip, which a launch in front finds out"""
    all_trips: str = ""
    """why trips are run that a mask from memory empties, where there is one"""

    def named(self, name: str) -> Form:
        """The form with another name."""
        return replace(self, variant=replace(self.variant, name=name))
