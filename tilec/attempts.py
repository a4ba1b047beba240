"""`auto` tile sizes of kernels with products: what is tried, in order, and what of it suits a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from tilec.lazy_dataclass import dataclass
from tilec.targets.table import CHAINED_WARP_TILES, PRODUCT_TILES, TARGETS, WARP_TILES

if TYPE_CHECKING:
    from tilec.ir.tile_ir import Program
    from tilec.plan.candidate import Candidate


def tiles_are_open(candidate: Candidate) -> bool:
    """Whether some tile size is `auto`."""
    return any(candidate.origin.get(name) == "auto" for name in candidate.tiles)


def has_products(program: Program) -> bool:
    """Whether something is multiplied on tensor cores."""
    from tilec.ir.tile_ir import Dot
    from tilec.passes.uses import all_ops

    return any(isinstance(op, Dot) for nest in program.nests for op in all_ops(nest.body))


@dataclass(frozen=True)
class Attempt:
    """`auto` tile sizes to try: those of a table, and some by name that go before them; `streams`: for a side that is short."""

    tiles: Sequence[int]
    chosen: Mapping[str, int] = field(default_factory=dict)
    streams: bool = False
    shared: bool = False
    """for a form in which CTAs share the consumed axis, or a stream"""
    uneven: bool = False
    """for chained products that take longer for some instances than for others"""
    apart: bool = False
    """for forms in which warpgroups share out columns"""
    warps: bool = False
    """for products of warps"""
    chained: bool = False
    """for those that are chained in registers, each warp with two blocks of rows"""


def warp_attempts(smaller: int) -> list[Attempt]:
    """The tile sizes of products of warps, less the largest `smaller`."""
    chained = () if smaller else CHAINED_WARP_TILES
    first = [Attempt(tiles, warps=True, chained=True) for tiles in chained]
    return first + [Attempt(tiles, warps=True) for tiles in WARP_TILES[smaller:]]


def table_attempts(arch: str, smaller: int = 0) -> list[Attempt]:
    """What the target's tables say; `smaller` as in `warp_attempts`."""
    target = TARGETS[arch]
    uneven = [Attempt(tiles, uneven=True) for tiles in target.uneven_product_tiles]
    tables = [Attempt(tiles) for tiles in target.product_tiles]
    apart = [Attempt(tiles, apart=True) for tiles in target.apart_product_tiles]
    return [*uneven, *tables, *apart, *warp_attempts(smaller)]


def is_uneven(program: Program) -> bool:
    """Whether two products in a loop have more trips in some instances than in others."""
    from tilec.passes.grid_order import uneven_chain

    return uneven_chain(program)


def chosen_attempts(
    program: Program, arch: str, candidate: Candidate, smaller: int
) -> list[Attempt]:
    """All attempts, for what a program says of its products; [] where that changes nothing."""
    from tilec.passes.tile_choices import (
        TABLE_BITS,
        consumed_axis,
        few_rows,
        is_busy_chain,
        is_narrow_chain,
        warp_tiles,
    )

    target = TARGETS[arch]
    few = [
        Attempt(target.product_tiles[0], x.tiles, True, x.shared) for x in few_rows(program, target)
    ]
    ranked = [
        Attempt(PRODUCT_TILES, x, warps=True)
        for x in warp_tiles(program, target, candidate)
        if not smaller
    ]
    consumed = consumed_axis(program)
    scaled = {}
    if consumed is not None and consumed[1] != TABLE_BITS:
        scaled = {consumed[0]: TABLE_BITS / consumed[1]}
    narrow = [Attempt(x) for x in target.narrow_chain_tiles if is_narrow_chain(program)]
    # an instance with few trips has more rows than they pay for
    busy = is_busy_chain(program) and not is_uneven(program)
    narrow += [Attempt(x) for x in target.busy_chain_tiles if busy]
    if not few and not ranked and not scaled and not narrow:
        return []
    rest = [a for a in table_attempts(arch) if not a.warps]
    uneven = [a for a in rest if a.uneven]
    rest = [*uneven, *narrow, *rest[len(uneven) :]]
    rest = [replace(a, chosen={n: int(a.tiles[-1] * x) for n, x in scaled.items()}) for a in rest]
    return [*few, *rest, *ranked, *warp_attempts(smaller)]


def by_size_attempts(program: Program, arch: str) -> list[Attempt]:
    """Those of a program with a short side for launches whose other sizes suit them."""
    from tilec.passes.tile_choices import few_rows

    target = TARGETS[arch]
    found = few_rows(program, target, by_size=True)
    return [Attempt(target.product_tiles[0], x.tiles, True) for x in found]


def even_attempts(program: Program, arch: str, candidate: Candidate) -> list[Attempt]:
    """Those of a plain product for launches whose rounds of CTAs they fill better."""
    from tilec.passes.tile_choices import even_tiles

    target = TARGETS[arch]
    found = even_tiles(program, target, candidate)
    return [Attempt(target.product_tiles[0], x) for x in found]


def beside_warpgroups(
    again: Callable[[Sequence[int]], tuple[Program, Candidate] | None],
    opened: Callable[[Sequence[int]], tuple[Program, Candidate] | None],
    arch: str,
    smaller: int,
) -> tuple[Program, Candidate] | None:
    """The program of the variants beside products of warpgroups: with the first tile sizes of warps that have room, else the first. `again`
    gives the program with other `auto` tile sizes, `opened` with other tile sizes whether they are given or not: where those that are
    given suit warpgroups alone, the variants beside them have others."""
    first: tuple[Program, Candidate] | None = None
    fitting: tuple[Program, Candidate] | None = None
    for other in (again, opened):
        for attempt in warp_attempts(smaller):
            if attempt.chained:
                continue  # what is beside warpgroups is for addresses that no copy of 16 bytes takes
            found = other(attempt.tiles)
            if found is None:
                continue
            room = slots_of_warps(found[0], arch, found[1])
            if room > 1:
                return found
            first = first or found
            if room:
                fitting = fitting or found
        if fitting is not None:
            break
    return fitting or first


def suits_warpgroups(
    program: Program,
    arch: str,
    candidate: Candidate,
    streams: bool = False,
    shared: bool = False,
    apart: bool = False,
) -> bool:
    """Whether the target's products of warpgroups take a program with its tile sizes, `streams` with rings for operands that are read
    once, `shared` with a consumed axis, or a stream, that CTAs share, `apart` with columns that warpgroups do."""
    from tilec.passes.pipeline import suits

    return suits(program, TARGETS[arch], candidate, streams, shared, apart)


def slots_of_warps(program: Program, arch: str, candidate: Candidate, chained: bool = False) -> int:
    """Slots of rings that its products of warps have room for, at most two; `chained`: none where a warp has one block of rows."""
    from tilec.passes.pipeline import slots

    return slots(program, TARGETS[arch], candidate, chained)
