"""Which launches take tiles of a stream that are so wide that only long sides have enough of them, or that a pair of CTAs brings; those that
take other tiles of a plain product: `even_rounds`.

for j in parallel(N by 256):      N = 28672: 112 tiles, one round of CTAs that read as much as 132 can         N = 8192: 32 CTAs

A CTA with a wide tile needs less of the short operand for each byte of the stream than one with a narrow tile, and one round has one first
load and one end. But CTAs without a tile ask for nothing, and so few as are left do not ask for as much as memory brings.
A pair is faster than CTAs that share the consumed axis where its stream has a policy of the L2, and slower where it is too large for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import AllOf, LaunchCondition, product
from tilec.ir.requirements import INSTANCE_LIMIT
from tilec.ir.symbolic import ceildiv
from tilec.passes import even_rounds, wide_steps
from tilec.passes.even_rounds import Tiling
from tilec.passes.reuse import Stream
from tilec.passes.variants import Variant
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.table import Target

FULL = (3, 4)
"""How much of the multiprocessors even rounds must have: with 112 of 132 tiles of 256 columns are 1 to 6 % faster on an H200 than two of 128
that a pair of CTAs brings, with 32 a third slower."""

NEARLY_ALL = (15, 16)
"""How many of the multiprocessors a launch takes that may begin beside the one in front, unless both have room beside each other. Of one with fewer
CTAs the first get the multiprocessors that the launch in front left idle, so that all are spread unevenly over the groups that share a way to
memory: on an H200 matrices of 50 to 470 MB read by 80 to 112 of 132 CTAs take 2 to 30 % longer so, back to back; by 128 of them, or 64, less."""


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


def overlapping(target: Target) -> tuple[int, int] | None:
    """Up to how many CTAs, and from how many on, a launch of a stream may begin beside the one in front of it; None: always."""
    device = REPRESENTATIVES.get(target.arch)
    if device is None:
        return None
    return device.multiprocessors // 2, device.multiprocessors * NEARLY_ALL[0] // NEARLY_ALL[1]


def has_policy(streams: tuple[Stream, ...], target: Target) -> tuple[LaunchCondition, ...]:
    """What holds where all streams are small enough to leave the L2 first."""
    limit = t.HostNumber(target.evict_first_below)
    return tuple(t.HostOp("<=", (stream.bytes, limit)) for stream in streams)


def chosen(tiling: Tiling, behind: Sequence[Tiling], target: Target) -> Variant | None:
    """The first variant of another tiling of a program, in front of those `behind` it, of which the first is the program's own, launched
    where it is expected to be the fastest; None where that is not known."""
    other, variant = tiling
    own, *further = behind
    form = variant.asynchronous
    streams = form.streams if form is not None else ()
    name: str
    faster: tuple[LaunchCondition, ...] | None
    if even_rounds.is_plain(own[1], other):
        name, faster = even_rounds.name(other), even_rounds.faster(tiling, own, further, target)
    elif form is not None and streams and form.sharing is not None:
        name, faster = "paired", has_policy(streams, target)
    elif streams:
        name, faster = "wide", fills(other, target)
    else:
        name, faster = "wide", wide_steps.faster(other, own[0], target)
    if faster is None:
        return None
    condition = variant.condition
    parts = condition.parts if isinstance(condition, AllOf) else (condition,)
    return replace(variant, name=name, condition=AllOf((*faster, *parts)))
