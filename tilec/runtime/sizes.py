"""Size sets that exercise the edges of a kernel: tile + 1, tile − 1, 1, 0, primes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilec.ir import tile_ir as ir
from tilec.ir.symbolic import Sym, Var
from tilec.runtime.host import evaluate, evaluate_sym

ELEMENT_LIMIT = 1 << 20
"""Elements of the largest tensor of a size set: the interpreter verifies every one."""

_WHOLE_AXIS = (1, 129, 0, 7, 33, 257, 127, 2, 31, 509, 1025, 64, 3)
"""Extents for a dimension that is used whole (`:`): around vectors, warps and CTAs."""

_SCALAR_AXIS = (1, 2, 3, 0, 5, 7)
"""Extents for a dimension that only scalars index."""

_PRIMES = (
    2,
    3,
    5,
    7,
    11,
    13,
    17,
    29,
    37,
    61,
    67,
    97,
    131,
    193,
    257,
    389,
    521,
    769,
    1031,
    1543,
    2053,
    3079,
    4099,
)

_STEPS = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128)
"""How far a dimension may move to satisfy a contract."""


def ragged_sizes(program: ir.Program, count: int = 20) -> list[dict[str, int]]:
    """At least `count` different size sets (fewer only where the contracts leave fewer), always the same for a program.

    They begin with every dimension at tile + 1, tile − 1, 1 and each one alone at 0; then each at the values of its
    pool in turn, at different paces. Dimensions that a contract constrains are moved until it holds.
    """
    if not program.dims:
        return [{}]
    pools = {v.name: _pool(program, v) for v in program.dims}
    found: list[dict[str, int]] = []
    steps = {v.name: program.divisors.get(v, 1) for v in program.dims}
    for wanted in _wishes(pools, steps, count):
        sizes = repaired(program, _shrunk(program, pools, wanted))
        if sizes is not None and sizes not in found:
            found.append(sizes)
        if len(found) >= count:
            break
    return found


def _wishes(
    pools: Mapping[str, tuple[int, ...]], steps: Mapping[str, int], count: int
) -> Iterator[dict[str, int]]:
    """Size sets to try, the most telling first; `steps` are what divides a dimension."""
    names = list(pools)
    for rank in range(3):
        yield {n: pools[n][min(rank, len(pools[n]) - 1)] for n in names}
    for zero in names:
        yield {n: 0 if n == zero else pools[n][0] for n in names}
    for turn in range(40 * count):
        yield {
            n: pools[n][(turn * (2 * place + 1) + turn // len(pools[n]) * place) % len(pools[n])]
            for place, n in enumerate(names)
        }
    for turn in range(20 * count):
        yield {n: turn * max(1, steps[n]) for n in names}


def _pool(program: ir.Program, dim: Var) -> tuple[int, ...]:
    """Extents to try, the most telling first."""
    tiles = sorted(tile_extents(program, dim), reverse=True)
    values: list[int] = []
    around = [_around(t) for t in tiles]
    values += [v for ranked in zip(*around, strict=True) for v in ranked]
    if not tiles:
        values += _WHOLE_AXIS if _used_whole(program, dim) else _SCALAR_AXIS
    low, high = program.lower.get(dim, 0), program.upper.get(dim)
    fitted = [max(low, v if high is None else min(v, high)) for v in values]
    return tuple(dict.fromkeys(fitted))


def _around(tile: int) -> tuple[int, ...]:
    larger = next((p for p in _PRIMES if p > tile), 2 * tile + 3)
    smaller = max((p for p in _PRIMES if p < tile), default=1)
    edges = (tile + 1, tile - 1, 1, larger, smaller, tile, 2 * tile + 1, 0, tile // 2 + 3)
    return (*edges, 3 * tile - 1, 7, 31, 33, 2, 129, 61, 3 * tile + 5, 17, 257, 5)


def tile_extents(program: ir.Program, dim: Var) -> set[int]:
    """Numbers of the spans that walk `dim`: those in accesses to it, and steps of grid axes over it."""
    found: set[int] = set()
    for tensor, access in _accesses(program):
        dims = _dims_of(program, access, tensor)
        for term, extent in zip(access.terms, dims, strict=False):
            if isinstance(term, ir.AtSpan) and dim in extent.variables and _static(term.extent):
                found.add(program.tile_number(term.extent))
    for nest in program.nests:
        for axis in nest.grid:
            if axis.step is not None and dim in axis.trips.variables and _static(axis.step):
                found.add(program.tile_number(axis.step))
    return {t for t in found if t > 1}


def _static(extent: Sym) -> bool:
    return all(v.kind == "tile" for v in extent.variables)


def _used_whole(program: ir.Program, dim: Var) -> bool:
    return any(
        isinstance(term, ir.AtAll | ir.AtTile) and dim in extent.variables
        for tensor, access in _accesses(program)
        for term, extent in zip(access.terms, _dims_of(program, access, tensor), strict=False)
    )


def _dims_of(program: ir.Program, access: ir.Access, tensor: ir.Tensor) -> tuple[Sym, ...]:
    return next((v.dims for v in program.views if v.name == access.view), tensor.dims)


def _accesses(program: ir.Program) -> Iterator[tuple[ir.Tensor, ir.Access]]:
    for nest in program.nests:
        for op in _ops(nest.body):
            if isinstance(op, ir.Load | ir.Store | ir.Atomic):
                yield program.tensor(op.access.tensor), op.access


def _ops(block: ir.Block) -> Iterator[ir.Op]:
    for op in block.ops:
        yield op
        if isinstance(op, ir.For):
            yield from _ops(op.body)
        elif isinstance(op, ir.If):
            yield from _ops(op.then)
            yield from _ops(op.otherwise)


def _elements(program: ir.Program, sizes: Mapping[str, int]) -> int:
    env = {**program.tiles, **sizes}
    return max(
        (math.prod(max(0, evaluate_sym(d, env)) for d in t.dims) for t in program.tensors),
        default=0,
    )


def _shrunk(
    program: ir.Program, pools: Mapping[str, tuple[int, ...]], wanted: Mapping[str, int]
) -> dict[str, int]:
    """`wanted` with dimensions lowered, the first ones first, until no tensor is too large."""
    sizes = dict(wanted)
    order = sorted(sizes, key=lambda n: (max(pools[n]) > max(_SCALAR_AXIS), list(sizes).index(n)))
    for name in order:
        for smaller in sorted({p for p in pools[name] if 0 < p < sizes[name]}, reverse=True):
            if _elements(program, sizes) <= ELEMENT_LIMIT:
                return sizes
            sizes[name] = smaller
    return sizes


def repaired(
    program: ir.Program, wanted: Mapping[str, int], most: int = 4 * ELEMENT_LIMIT
) -> dict[str, int] | None:
    """`wanted` (an extent for every dimension) moved into its bounds and until every contract holds; None where nothing near does, or a tensor
    has more than `most` elements."""
    sizes = dict(wanted)
    for dim in program.dims:
        low, high = program.lower.get(dim, 0), program.upper.get(dim)
        step = max(1, program.divisors.get(dim, 1))
        value = -(-max(sizes[dim.name], low) // step) * step
        if high is not None and value > high:
            value = high // step * step
        if value < low:
            return None
        sizes[dim.name] = value
    for contract in program.contracts:
        if _holds(program, contract, sizes):
            continue
        moved = _moved(program, contract, sizes)
        if moved is None:
            return None
        sizes = moved
    held = all(_holds(program, c, sizes) for c in program.contracts)
    return sizes if held and _elements(program, sizes) <= most else None


def _moved(
    program: ir.Program, contract: ir.Contract, sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """Sizes of which one is changed so that the contract, and those before it, hold."""
    before = program.contracts[: program.contracts.index(contract) + 1]
    for dim in program.dims:
        value = sizes[dim.name]
        near = [value + s for s in _STEPS] + [value - s for s in _STEPS if s <= value]
        for candidate in [*near, *sizes.values(), 1, 0]:
            changed = {**sizes, dim.name: candidate}
            if all(_holds(program, c, changed) for c in before):
                return changed
    return None


def _holds(program: ir.Program, contract: ir.Contract, sizes: Mapping[str, int]) -> bool:
    """Whether a contract holds; one that speaks of a scalar without a default counts as held."""
    defaults = {s.name: s.default for s in program.scalars if s.default is not None}
    env = {**program.tiles, **sizes, **defaults}
    try:
        return bool(evaluate(contract.condition, env))
    except KeyError:
        return True
