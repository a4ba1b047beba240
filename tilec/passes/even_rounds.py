"""Which launches of a plain product take other tiles than the table's: those whose rounds of CTAs they leave less unused.

for i, j in parallel(M by BM, N by BN):    4096 x 4096: 512 tiles of 128 x 256, 4 rounds of 132     572 of 192 x 160: 5 rounds, of fewer clocks
    for k …: acc += a[i, k] @ b[k, j]      4000 x 4000: as many                                     525: 4 rounds

All tiles of a product that is the work of its nest take as long as they have elements, and bring operands; the last round takes as long as
the others. CTAs of such tiles share nothing: an odd number of tiles leaves one of a pair idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import LaunchCondition, product
from tilec.ir.requirements import INSTANCE_LIMIT
from tilec.ir.symbolic import Sym, ceildiv
from tilec.passes.boxes import load_box
from tilec.passes.uses import all_ops
from tilec.passes.variants import Variant
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.table import Target

Tiling = tuple[t.Program, Variant]
"""A program with its tile sizes, and its first variant."""

BROUGHT = 3
"""Elements of a tile that take as long as what a row or a column of it brings: in as many clocks of the tensor cores 192 x 160 lose 1 to 4 % to
pairs of 128 x 256 on an H200, 128 x 128 0 to 4 %."""
WORTH = (51, 50)
"""Other tiles must be faster by as much: the model is no better than that."""
ROW_BYTES = 64
"""Rows of operands must be multiples of it: CTAs that share nothing bring more through the L2, and more sectors of it where a row begins
inside one. At 3000 x 3000 x 3000, rows of 6000 bytes, 192 x 160 take 1.4 times as long as 128 x 256 on an H200, at 2976 and 3008 0.95."""


def is_plain(own: Variant, program: t.Program) -> bool:
    """Whether a nest's only product reads nothing that the grid reads once."""
    form = own.asynchronous
    dots = sum(isinstance(op, t.Dot) for op in all_ops(program.nests[0].body))
    return form is not None and not form.streams and dots == 1


def given(own: Variant, other: t.Program, target: Target) -> Target:
    """The target for another tiling: without clusters where that is of a plain product."""
    return replace(target, cluster_size=1) if is_plain(own, other) else target


def name(program: t.Program) -> str:
    """What a variant with a program's tiles is called."""
    return "even_{}x{}".format(*_shape(program)[:2])


def faster(
    other: Tiling, own: Tiling, behind: Sequence[Tiling], target: Target
) -> tuple[LaunchCondition, ...] | None:
    """What holds where the tiles of `other` take less time than those of a program's own, and no more than those of the tilings `behind`; None
    where that is not known, or the tile does not leave under the next instance's loop, without which it is no faster."""
    form = other[1].asynchronous
    assert form is not None
    if target.arch not in REPRESENTATIVES or _shape(other[0])[2] != _shape(own[0])[2]:
        return None
    if form.departure is None or not form.departure.deferred:
        return None
    least = _time(other, target)
    tiles = Facts.of(other[0]).numeric(product(tuple(a.trips for a in other[0].nests[0].grid)))
    much, little = (t.HostNumber(x) for x in WORTH)
    return (
        *_aligned_rows(other),
        t.HostOp("<=", (tiles, t.HostNumber(INSTANCE_LIMIT))),
        t.HostOp("<", (t.HostOp("*", (least, much)), t.HostOp("*", (_time(own, target), little)))),
        *(t.HostOp("<=", (least, _time(tiling, target))) for tiling in behind),
    )


def _shape(program: t.Program) -> tuple[int, int, int]:
    """Rows, columns and consumed elements of a program's only product."""
    dot = next(op for op in all_ops(program.nests[0].body) if isinstance(op, t.Dot))
    number = program.tile_number
    rows, columns = (number(axis.extent) for axis in dot.out.type.axes)
    return rows, columns, number(dot.a.type.axes[-1].extent)


def _time(tiling: Tiling, target: Target) -> Sym:
    """What the rounds of CTAs, or of clusters that share the larger operand, take that walk a program's grid: in elements of tiles."""
    program, variant = tiling
    sharing = variant.asynchronous.sharing if variant.asynchronous is not None else None
    size = sharing.size if sharing is not None else 1
    rows, columns, _ = _shape(program)
    brought = min(rows, columns) + max(rows, columns) // size
    trips = (
        ceildiv(a.trips, size) if sharing is not None and a.index == sharing.digit else a.trips
        for a in program.nests[0].grid
    )
    numeric = Facts.of(program).numeric
    places = REPRESENTATIVES[target.arch].multiprocessors // size
    return ceildiv(numeric(product(tuple(trips))), places) * (rows * columns + BROUGHT * brought)


def _aligned_rows(tiling: Tiling) -> tuple[LaunchCondition, ...]:
    """What holds where the rows of all operands begin at multiples of ROW_BYTES beside each other."""
    program, variant = tiling
    facts = Facts.of(program)
    channels = variant.asynchronous.channels if variant.asynchronous is not None else ()
    strides: dict[Sym, None] = {}
    for load in (x for c in channels for site in c.sites for x in site.loads):
        size = program.tensor(load.access.tensor).dtype.bits // 8
        for stride in load_box(program, load, facts).strides[:-1]:
            strides[facts.numeric(stride) * size] = None
    zero, row = t.HostNumber(0), t.HostNumber(ROW_BYTES)
    return tuple(t.HostOp("==", (t.HostOp("%", (stride, row)), zero)) for stride in strides)
