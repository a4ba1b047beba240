"""Kernel IR of tiles that are in registers some trips before a loop reads them."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class MoveUp(k.Op):
    """`target = ring[0]`; each of the others moves up by one along `axis`, and `last` takes the last place."""

    target: k.Fragment
    ring: k.Fragment
    last: k.Fragment
    axis: k.LoopAxis
