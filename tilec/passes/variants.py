"""What the choice of layouts gives: a level of threads and registers, and a variant that the launch chooses by its condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from tilec.ir.kernel_ir import LoopAxis
from tilec.ir.launch import LaunchCondition
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass
from tilec.passes.covering import Cover
from tilec.passes.prepared import Copies
from tilec.passes.products import Products
from tilec.passes.windows import Window

if TYPE_CHECKING:
    from tilec.passes.asynchronous import Asynchronous


@dataclass(frozen=True)
class Level:
    """One way to lay a nest out. `axes` by class number; `words`: registers a thread holds in tiles."""

    axes: Mapping[int, LoopAxis]
    threads: int
    words: int
    streams: frozenset[int] = frozenset()
    ctas: int = 1
    """CTAs of a cluster that hold one instance together, `threads` each"""


@dataclass(frozen=True)
class Variant:
    """A level with what the launch must guarantee. `divisors` are sizes known to be multiples under `condition`; `aligned` names
    the accesses (by id of the op) whose vectors are naturally aligned, `window` how rows move that start anywhere."""

    name: str
    level: Level
    condition: LaunchCondition
    divisors: tuple[tuple[Sym, int], ...] = ()
    aligned: frozenset[int] = frozenset()
    batch: int = 1
    blocks_per_sm: int = 1
    products: Products | None = None
    stages: int = 2
    asynchronous: Asynchronous | None = None
    positive: tuple[Sym, ...] = ()
    """sizes known to be positive under `condition`"""
    copies: Copies | None = None
    """operands that are copied first"""
    window: Window | None = None
    beyond: tuple[Sym, Sym] | None = None
    """an extent, and how much of it the variants in front take"""
    filled: bool = False
    """rows that fill the level have walks of their own, without masks"""
    lines: frozenset[int] = frozenset()
    """loads (by id of the op) of 16 bytes a lane that lanes share out"""
    crossing: frozenset[int] = frozenset()
    """loads (by id of the op) that pass through shared memory"""
    covers: Mapping[int, Cover] = field(default_factory=dict)
    """accesses (by id of the op) whose elements are picked out of vectors that cover them"""
    private: frozenset[str] = frozenset()
    """tensors that are combined into in shared memory first"""
    merged: bool = False
    """where a row's reductions follow from each other two of them share an exchange"""
    reasons: tuple[str, ...] = field(default=(), compare=False)
