"""Which launches take tiles of a stream that are so wide that only long sides have enough of them, or that a pair of CTAs brings; and which
take other tiles of a plain product.

for j in parallel(N by 256):      N = 28672: 112 tiles, one round of CTAs that read as much as 132 can         N = 8192: 32 CTAs

A CTA with a wide tile needs less of the short operand for each byte of the stream than one with a narrow tile, and one round has one first
load and one end. But CTAs without a tile ask for nothing, and so few as are left do not ask for as much as memory brings.
A pair is faster than CTAs that share the consumed axis where its stream has a policy of the L2, and slower where it is too large for one.

for i, j in parallel(M by BM, N by BN):    4096 x 4096: 512 tiles of 128 x 256, 4 rounds of 132       572 of 192 x 160, 5 rounds of fewer clocks
    for k …: acc += a[i, k] @ b[k, j]      4000 x 4000: as many                                       525: 4 rounds

All tiles of a product that is the work of its nest take as long as they have elements, and the last round as long as the others.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import AllOf, LaunchCondition, product
from tilec.ir.requirements import INSTANCE_LIMIT
from tilec.ir.symbolic import Sym, ceildiv
from tilec.passes import wide_steps
from tilec.passes.asynchronous import Asynchronous
from tilec.passes.boxes import load_box
from tilec.passes.reuse import Stream
from tilec.passes.uses import all_ops
from tilec.passes.variants import Variant
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.table import Target

FULL = (3, 4)
"""How much of the multiprocessors even rounds must have: with 112 of 132 tiles of 256 columns are 1 to 6 % faster on an H200 than two of 128
that a pair of CTAs brings, with 32 a third slower."""
WORTH = (33, 32)
"""Other tiles of a plain product must be faster by as much: the model is no better than that."""
ROW_BYTES = 64
"""Rows of operands must be multiples of it: CTAs that share nothing bring more through the L2, and more sectors of it where a row begins
inside one. At 3000 x 3000 x 3000, rows of 6000 bytes, tiles that fill their rounds better take 1.4 times as long on an H200."""


def fills(program: t.Program, target: Target) -> tuple[LaunchCondition, ...] | None:
    """What holds where the tiles of a program of one nest, walked in as few rounds as the device has CTAs for, give enough of them one in
    each; None where the device is not known."""
    device = REPRESENTATIVES.get(target.arch)
    if device is None:
        return None
    numeric = Facts.of(program).numeric
    tiles = numeric(product(tuple(axis.trips for axis in program.nests[0].grid)))
    places = ceildiv(tiles, device.multiprocessors) * device.multiprocessors
    enough = t.HostOp(">=", (tiles * FULL[1], places * FULL[0]))
    return enough, t.HostOp("<=", (tiles, t.HostNumber(INSTANCE_LIMIT)))


def has_policy(streams: tuple[Stream, ...], target: Target) -> tuple[LaunchCondition, ...]:
    """What holds where all streams are small enough to leave the L2 first."""
    limit = t.HostNumber(target.evict_first_below)
    return tuple(t.HostOp("<=", (stream.bytes, limit)) for stream in streams)


def given(own: Variant, other: t.Program, target: Target) -> Target:
    """The target for another tiling: without clusters where that is of a plain product, of which pairs would leave one idle beside an odd
    number of tiles."""
    return replace(target, cluster_size=1) if _is_plain(own, other) else target


def _is_plain(own: Variant, program: t.Program) -> bool:
    """Whether a nest's only product reads nothing that the grid reads once."""
    form = own.asynchronous
    dots = sum(isinstance(op, t.Dot) for op in all_ops(program.nests[0].body))
    return form is not None and not form.streams and dots == 1


def fewer_clocks(
    other: t.Program,
    form: Asynchronous,
    program: t.Program,
    own_form: Asynchronous,
    target: Target,
) -> tuple[LaunchCondition, ...] | None:
    """What holds where the rounds of another tiling of a plain product, each tile of one CTA, take less time than those of a program's own,
    whose form may have CTAs in clusters; None where that is not known."""
    enough = fills(other, target)
    shape, own_shape = (_shape(x) for x in (other, program))
    if enough is None or shape[2] != own_shape[2]:
        return None
    rounds, own_rounds = _rounds(other, form, target), _rounds(program, own_form, target)
    least = t.HostOp("*", (rounds * (shape[0] * shape[1]), t.HostNumber(WORTH[0])))
    own = t.HostOp("*", (own_rounds * (own_shape[0] * own_shape[1]), t.HostNumber(WORTH[1])))
    return *_aligned_rows(other, form), *enough, t.HostOp("<", (least, own))


def _aligned_rows(program: t.Program, form: Asynchronous) -> tuple[LaunchCondition, ...]:
    """What holds where the rows of all operands begin at multiples of ROW_BYTES beside each other."""
    facts = Facts.of(program)
    strides: dict[Sym, None] = {}
    for load in (x for c in form.channels for site in c.sites for x in site.loads):
        size = program.tensor(load.access.tensor).dtype.bits // 8
        for stride in load_box(program, load, facts).strides[:-1]:
            strides[facts.numeric(stride) * size] = None
    zero = t.HostNumber(0)
    return tuple(
        t.HostOp("==", (t.HostOp("%", (stride, t.HostNumber(ROW_BYTES))), zero))
        for stride in strides
    )


def _shape(program: t.Program) -> tuple[int, int, int]:
    """Rows, columns and consumed elements of a program's only product."""
    dot = next(op for op in all_ops(program.nests[0].body) if isinstance(op, t.Dot))
    number = program.tile_number
    rows, columns = (number(axis.extent) for axis in dot.out.type.axes)
    return rows, columns, number(dot.a.type.axes[-1].extent)


def _rounds(program: t.Program, form: Asynchronous, target: Target) -> Sym:
    """Rounds of CTAs, or of the clusters of a form, that walk a program's grid."""
    sharing = form.sharing
    size = sharing.size if sharing is not None else 1
    axes = program.nests[0].grid
    trips = (
        ceildiv(a.trips, size) if sharing is not None and a.index == sharing.digit else a.trips
        for a in axes
    )
    numeric = Facts.of(program).numeric
    places = REPRESENTATIVES[target.arch].multiprocessors // size
    return ceildiv(numeric(product(tuple(trips))), places)


def chosen(
    variant: Variant, other: t.Program, own: Variant, program: t.Program, target: Target
) -> Variant | None:
    """The first variant of another tiling of a program, whose `own` stands behind it, launched where it is expected to be the fastest; None
    where that is not known."""
    form = variant.asynchronous
    streams = form.streams if form is not None else ()
    name: str
    faster: tuple[LaunchCondition, ...] | None
    if form is not None and own.asynchronous is not None and _is_plain(own, other):
        # a tile that leaves at once is no faster for that
        if form.departure is None or not form.departure.deferred:
            return None
        name, faster = "even", fewer_clocks(other, form, program, own.asynchronous, target)
    elif form is not None and streams and form.sharing is not None:
        name, faster = "paired", has_policy(streams, target)
    elif streams:
        name, faster = "wide", fills(other, target)
    else:
        name, faster = "wide", wide_steps.faster(other, program, target)
    if faster is None:
        return None
    condition = variant.condition
    parts = condition.parts if isinstance(condition, AllOf) else (condition,)
    return replace(variant, name=name, condition=AllOf((*faster, *parts)))
