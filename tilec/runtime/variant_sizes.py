"""Size sets at which every compiled variant of a kernel runs: around the thresholds that the launch plan compares with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod

from tilec.ir.launch import (
    WORKSPACE,
    Aligned,
    AllOf,
    Always,
    AnyOf,
    Given,
    LaunchCondition,
    Step,
    TargetPlan,
)
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import HostNumber, HostOp, HostScalar, Program
from tilec.reference.numbers import storage_dtype
from tilec.runtime.host import evaluate_sym, holds
from tilec.runtime.launching import chosen_steps
from tilec.runtime.sizes import repaired

_FEW = 3
"""Extent of the dimensions that no variant asks about."""

_FAR = 1 << 31
"""Where the search for a threshold ends: no dimension is larger."""

_MOST = 1 << 27
"""Elements of the largest tensor of a set: limits of addresses and of tensor maps are no sizes to run at."""

_BASE = 1 << 20
"""An address that every alignment divides."""


@dataclass(frozen=True)
class VariantSizes:
    """Dims by name; `offsets` shifts the addresses of tensors by so many elements; `scalars`: those that variants ask about."""

    dims: Mapping[str, int]
    offsets: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, int] = field(default_factory=dict)


def variant_sizes(program: Program, target: TargetPlan) -> list[VariantSizes]:
    """Sets just below, at and above each threshold, at multiples of what vectors need, and with shifted addresses, at thresholds too
    where another variant runs there.

    The other dimensions are small. Always the same for a program; every set satisfies the contracts.
    """
    conditions = [part for step in target.every_step for part in _conditions(step)]
    values = _interesting(program, conditions)
    found: list[VariantSizes] = []
    for scalars in _outcomes(conditions):
        found += _with_scalars(program, target, conditions, values, scalars)
    found += _tuned(program, target)
    return [one for n, one in enumerate(found) if one not in found[:n]]


def _with_scalars(
    program: Program,
    target: TargetPlan,
    conditions: list[LaunchCondition],
    values: Mapping[str, tuple[int, ...]],
    scalars: Mapping[str, int],
) -> list[VariantSizes]:
    """The sets for some scalars."""
    sizes = partial(_set, program, scalars=scalars)
    found: list[VariantSizes] = []
    for name, numbers in values.items():
        for number in numbers:
            found += sizes({name: number}, {})
    vectors = {d: n for dim, step in _divisors(conditions).items() for d, n in [(dim, 2 * step)]}
    asked = sorted({part.tensor for part in conditions if isinstance(part, Aligned)})
    shifts = [{tensor: 1} for tensor in asked]
    if len(asked) > 1:
        shifts.append(dict.fromkeys(asked, 1))
    for offsets in ({}, *shifts):
        found += sizes(vectors, offsets)
    # variants for addresses that are nowhere aligned have thresholds of their own
    chosen = {k for one in found for k in chosen_variants(program, target, one)}
    for name, numbers in values.items():
        for number, offsets in product(numbers, shifts):
            for one in sizes({name: number}, offsets):
                more = set(chosen_variants(program, target, one)) - chosen
                found += [one] if more else []
                chosen |= more
    # and some want large sizes that nothing divides, all but one or two
    dims = [v.name for v in program.dims]
    rest = (None, *dims)
    for number, even, few in product((1 << n for n in range(4, 14)), rest, rest):
        if chosen >= set(compiled_variants(target)):
            break
        wanted = {d: number if d == even else number + 1 for d in dims if d != few}
        for one in sizes(wanted, {}):
            more = set(chosen_variants(program, target, one)) - chosen
            found += [one] if more else []
            chosen |= more
    return found


def _tuned(program: Program, target: TargetPlan) -> list[VariantSizes]:
    """The sizes that the target was tuned for."""
    if target.selection is None:
        return []
    found = []
    for point in target.selection.points:
        named = dict(zip(target.selection.key, point.sizes, strict=True))
        found += _set(program, {n: v for n, v in named.items() if isinstance(v, int)}, {}, {})
    return found


def covering(
    program: Program, target: TargetPlan, sets: Sequence[VariantSizes]
) -> list[VariantSizes]:
    """The smallest sets that launch every variant which `sets` do: for a machine on which a run takes long."""

    def elements(one: VariantSizes) -> int:
        env = {**program.tiles, **one.dims}
        return sum(prod(evaluate_sym(d, env) for d in t.dims) for t in program.tensors)

    kept: list[VariantSizes] = []
    seen: set[str] = set()
    for one in sorted(sets, key=elements):
        chosen = set(chosen_variants(program, target, one))
        if not chosen <= seen:
            kept.append(one)
            seen |= chosen
    return kept


def compiled_variants(target: TargetPlan) -> tuple[str, ...]:
    """The kernels of a plan in order, each once."""
    return tuple(dict.fromkeys(a.kernel for a in target.every_launch))


def chosen_variants(program: Program, target: TargetPlan, sizes: VariantSizes) -> list[str]:
    """The kernel that each step launches at these sizes; other scalars have their defaults."""
    defaults = {s.name: s.default for s in program.scalars if s.default is not None}
    env = {**program.tiles, **defaults, **sizes.scalars, **sizes.dims}
    addresses = {
        t.name: _BASE + sizes.offsets.get(t.name, 0) * storage_dtype(t.dtype).itemsize
        for t in program.tensors
    }
    addresses[WORKSPACE] = _BASE
    chosen = []
    for step in chosen_steps(target, env, addresses):
        found = (a for a in step.launches if holds(a.condition, env, addresses))
        if (launch := next(found, None)) is not None:
            beside = (a for a in launch.every if a is launch or holds(a.condition, env, addresses))
            chosen += [a.kernel for a in beside]
    return chosen


def _set(
    program: Program,
    wanted: Mapping[str, int],
    offsets: Mapping[str, int],
    scalars: Mapping[str, int],
) -> list[VariantSizes]:
    """One set with every dimension given, or none where the contracts forbid it."""
    dims = repaired(program, {v.name: wanted.get(v.name, _FEW) for v in program.dims})
    if dims is None:
        return []
    env = {**program.tiles, **dims}
    largest = max(prod(evaluate_sym(d, env) for d in t.dims) for t in program.tensors)
    return [VariantSizes(dims, dict(offsets), dict(scalars))] if largest <= _MOST else []


def _conditions(step: Step) -> Iterator[LaunchCondition]:
    for launch in step.launches:
        yield from _parts(launch.condition)


def _parts(condition: LaunchCondition) -> Iterator[LaunchCondition]:
    match condition:
        case AllOf() | AnyOf():
            for part in condition.parts:
                yield from _parts(part)
        case HostOp(op="and" | "or" | "not"):
            for argument in condition.args:
                yield from _parts(argument)
        case Always() | Given():
            return
        case _:
            yield condition


def _outcomes(conditions: list[LaunchCondition]) -> list[dict[str, int]]:
    """Scalars for each side of the numbers that variants compare them with."""
    sides: dict[str, dict[int, None]] = {}
    for part in conditions:
        match part:
            case HostScalar(name):
                sides.setdefault(name, {}).update({0: None, 1: None})
            case HostOp("==" | "<=", (HostScalar(name), HostNumber(int() as number))):
                sides.setdefault(name, {}).update({number: None, number + 1: None})
            case HostOp("<", (HostScalar(name), HostNumber(int() as number))):
                sides.setdefault(name, {}).update({number - 1: None, number: None})
            case HostOp(args=(HostScalar(name), _) | (_, HostScalar(name))):
                sides.setdefault(name, {1: None})
            case _:
                pass
    return [dict(zip(sides, chosen, strict=True)) for chosen in product(*sides.values())]


def _interesting(program: Program, conditions: list[LaunchCondition]) -> dict[str, tuple[int, ...]]:
    """Extents to try of each dimension that a condition bounds from above."""
    divisors = _divisors(conditions)
    found: dict[str, list[int]] = {}
    for part in conditions:
        if not isinstance(part, HostOp) or part.op not in ("<=", "<"):
            continue
        names = {
            v.name for a in part.args if isinstance(a, Sym) for v in a.variables if v.kind == "dim"
        }
        if len(names) != 1:
            continue
        (name,) = names
        last = _last(program, part, name)
        if last is None:
            continue
        step = divisors.get(name, 1)
        below = last // step * step
        found.setdefault(name, []).extend((last - 1, last, last + 1, below, below + step))
    return {n: tuple(sorted({v for v in values if v > 0})) for n, values in found.items()}


def _last(program: Program, part: HostOp, name: str) -> int | None:
    """The greatest extent at which an upper bound holds; None where it holds always or never."""

    def within(number: int) -> bool:
        return holds(part, {**program.tiles, name: number}, {})

    if not within(0) or within(_FAR):
        return None
    low, high = 0, _FAR
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def _divisors(conditions: list[LaunchCondition]) -> dict[str, int]:
    """What a variant asks to divide a dimension: `C % 8 == 0`."""
    found: dict[str, int] = {}
    for part in conditions:
        match part:
            case HostOp("==", (HostOp("%", (Sym() as size, Sym() as step)), _)):
                number = evaluate_sym(step, {}) if not step.variables else 1
                for var in size.variables:
                    if var.kind == "dim":
                        found[var.name] = max(found.get(var.name, 1), number)
            case _:
                continue
    return found
