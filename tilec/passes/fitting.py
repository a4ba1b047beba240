"""Which forms of warpgroups a nest is compiled in: those that a block has room for, in front of them those for other sizes, and those for
each outcome of what the host asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import AllOf
from tilec.lazy_dataclass import dataclass
from tilec.passes import (
    computed,
    eliminate_dead,
    even_rounds,
    full_rounds,
    hoist,
    if_conversion,
    reindex,
    reload,
    sink_stores,
    skip_dead,
    topk,
)
from tilec.passes.forms import Form
from tilec.passes.unswitch import Version, holding
from tilec.passes.warpgroup_forms import Snapshot, asynchronous, no_snapshot, take_all
from tilec.plan.candidate import Candidate
from tilec.remembered import remembered
from tilec.targets.table import Target


@remembered
def in_parts(program: t.Program) -> t.Program:
    """The program in operations that all passes know."""
    return computed.split(reindex.run(topk.run(program)))


def cleaned(program: t.Program, nest: t.Nest, snapshot: Snapshot = no_snapshot) -> t.Nest:
    """The passes that no target and no form of products has a say in."""
    passed = _passed(program, nest)
    for name, nest in passed.items():
        snapshot(name, replace(program, nests=(nest,)))
    return passed["skip_dead"]


@remembered
def _passed(program: t.Program, nest: t.Nest) -> Mapping[str, t.Nest]:
    """The nest behind each of these passes, by its name."""
    found: dict[str, t.Nest] = {}
    for name, run_pass in (
        ("eliminate_dead", eliminate_dead.run),
        ("if_conversion", if_conversion.run),
        ("hoist", hoist.run),
        ("reload", reload.run),
        ("sink_stores", sink_stores.run),
    ):
        nest = found[name] = replace(nest, body=run_pass(nest.body))
    found["skip_dead"] = skip_dead.run(nest, Facts.of(program))
    return found


@dataclass(frozen=True)
class Fitting:
    """A form, and its kernel where what it has in shared memory has been counted."""

    form: Form
    lowered: k.Kernel | None = None


def fitting(
    program: t.Program,
    nest: t.Nest,
    target: Target,
    candidate: Candidate,
    lower: Callable[[Form], k.Kernel],
    snapshot: Snapshot,
) -> tuple[list[Fitting], str]:
    """The asynchronous forms of a nest that a block has room for, or why there are none."""
    room = target
    while True:
        forms, reason = asynchronous(program, nest, room, candidate, snapshot)
        if not forms:
            return [], reason
        lowered = lower(forms[0])
        excess = lowered.shared_bytes - target.shared_per_block_optin
        if excess <= 0:
            return [Fitting(forms[0], lowered), *map(Fitting, forms[1:])], ""
        # what the nest needs beside its rings is known now
        room = replace(room, shared_per_block_optin=room.shared_per_block_optin - excess)


def for_versions(
    versions: tuple[Version, ...],
    number: int,
    nests: int,
    target: Target,
    lower: Callable[[Form], k.Kernel],
    snapshot: Snapshot,
) -> list[Fitting]:
    """The asynchronous forms of a nest for each outcome of what the host asks, [] where one of them has none, or falls into other than
    `nests` nests: without its product a program computes no rows in front."""
    found: list[Fitting] = []
    for version in versions:
        program = in_parts(version.program)
        if len(program.nests) != nests:
            return []
        nest = cleaned(program, program.nests[number])
        own, _ = fitting(program, nest, target, version.candidate, lower, snapshot)
        if not take_all([x.form for x in own]):
            return []
        tilings = tuple((in_parts(other), given) for other, given in version.by_size)
        for one in (*map(Fitting, preferred(own[0].form, tilings, target)), *own):
            variant = one.form.variant
            condition = variant.condition
            parts = condition.parts if isinstance(condition, AllOf) else (condition,)
            named = "_".join(p for p in (version.name, variant.name) if p)
            held = AllOf((*holding(version.outcomes), *parts))
            variant = replace(variant, name=named, condition=held)
            # kernels are called after their variants
            found.append(Fitting(replace(one.form, variant=variant)))
    return found


def preferred(
    own: Form, tilings: tuple[tuple[t.Program, Candidate], ...], target: Target
) -> list[Form]:
    """The variants with other steps or tiles, each launched where it is expected to be the fastest one."""
    found: list[Form] = []
    for other, candidate in reversed(tilings if len(own.program.nests) == 1 else ()):
        given = even_rounds.given(own.variant, other, target)
        forms, _ = asynchronous(other, cleaned(other, other.nests[0]), given, candidate)
        for form in forms[:1]:
            if form.program.tensors != other.tensors:
                continue  # operands are copied in front of it, which rounds do not count
            behind = [(x.program, x.variant) for x in (own, *found)]
            chosen = full_rounds.chosen((other, form.variant), behind, target)
            found[:0] = [replace(form, variant=chosen)] if chosen is not None else []
    return found
