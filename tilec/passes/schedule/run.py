"""The transformations in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.rescaled import rescaled_operands, rescalings
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.schedule.backwards import run_backwards
from tilec.passes.schedule.clone import Numbers
from tilec.passes.schedule.exponent import fold_exponents
from tilec.passes.schedule.keep import keep_references
from tilec.passes.schedule.order import rows_first
from tilec.passes.schedule.partial import defer_sums
from tilec.passes.schedule.rotate import rotate
from tilec.passes.schedule.survivors import filter_trips
from tilec.passes.uses import all_ops


@dataclass(frozen=True)
class Scheduled:
    """A nest for engines that work beside each other. `origin`: of a copied value the one that it is a copy of. `steps` names what was
    done."""

    nest: t.Nest
    program: t.Program
    """the program that facts about the nest are facts of"""
    origin: dict[int, int] = field(default_factory=dict)
    steps: tuple[str, ...] = ()


def schedule(
    program: t.Program,
    nest: t.Nest,
    warps: bool = False,
    positive: Iterable[Sym] = (),
    parts: int = 1,
) -> Scheduled:
    """Filter trips, fold exponentials, defer sums, run loops backwards, rotate them, keep references, put rows first. `warps`: for products
    of warps, which are done where they stand and have no copy engine: a branch is one there. `positive`: sizes that are so wherever the
    result is launched; `parts`: warpgroups that share out the columns of sums."""
    numbers = Numbers((*program.nests, nest))
    origin: dict[int, int] = {}
    steps: list[str] = []
    folded = False
    # of the nest and of the program as it was analysed: the interpreter's bounds follow the latter
    allowed = rescaled_operands(program)
    filtered = False
    if not warps:
        nest, filtered = filter_trips(nest, numbers)
    if filtered:
        program = _with(program, nest)
        steps.append("filter_trips")
    facts = Facts.of(program)
    for size in positive:
        facts.learn(size)
    rescaling = tuple(r for r in rescalings(nest) if r.operands <= allowed)
    if any(isinstance(op, t.Dot) for op in all_ops(nest.body)):
        nest, folded = fold_exponents(program, nest, numbers)
        nest, deferred = defer_sums(nest, numbers)
        steps += ["fold_exponents"] * folded + ["defer_sums"] * deferred
    body, turned = nest.body, frozenset[Var]()
    if folded:
        body, turned = run_backwards(body, rescaling, numbers, facts, origin)
        steps += ["backwards"] * bool(turned)
    body, rotated = rotate(body, numbers, facts, origin, warps)
    if rotated:
        steps.append("rotate")
        if folded:
            body, kept = keep_references(body, rescaling, numbers, facts, origin, turned, parts)
            steps += ["keep_references"] * kept
        steps.append("rows_first")
        body = rows_first(body)
    nest = replace(nest, body=body)
    return Scheduled(nest, _with(program, nest) if filtered else program, origin, tuple(steps))


def _with(program: t.Program, nest: t.Nest) -> t.Program:
    """The program with a nest as it is now, which its grid names."""
    nests = tuple(nest if known.grid == nest.grid else known for known in program.nests)
    return replace(program, nests=nests)
