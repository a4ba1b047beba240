"""Variants that tuning found, compiled beside the general one: a target's plan that selects among them by the sizes of a call.

before   the general kernel, lowered;  Dispatch: choice 1 for (4096, 4096), choice 2 for (512, 8192)
after    the same with the kernels of both choices, and a Selection in its target's plan
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilec.analysing import AnalysedKernel
from tilec.emit.c_names import c_name
from tilec.ir.launch import AllOf, Alternative, LaunchCondition, LaunchPlan, Selection, Workspace
from tilec.ir.requirements import INSTANCE_LIMIT, size_range
from tilec.ir.symbolic import Apply, Sym
from tilec.ir.tile_ir import HostNumber, HostOp, Program
from tilec.passes import pipeline
from tilec.passes.copies import with_copies
from tilec.passes.pipeline import Lowered
from tilec.passes.warpgroup_forms import Snapshot
from tilec.plan.candidate import Choice, Dispatch
from tilec.source.diagnostics import Diagnostic, Sink, TileError
from tilec.targets.table import TARGETS

Analyse = Callable[[Choice], AnalysedKernel]
"""The kernel under a choice, for the architecture in question. Raises TileError."""


@dataclass(frozen=True)
class Tuned:
    """One lowered variant; `number` as in the Dispatch."""

    number: int
    program: Program
    lowered: Lowered


def lower_choices(
    general: Program,
    lowered: Lowered,
    dispatch: Dispatch,
    analyse: Analyse,
    suffix: str,
    snapshot: Snapshot,
    sink: Sink,
) -> tuple[Lowered, tuple[Tuned, ...]]:
    """The general variant with a selection among those of `dispatch` for its architecture, and these. What does not fit any more, or
    would be called in another way, is left out with W0605: its sizes take the general one."""
    target = lowered.target
    found: list[Tuned] = []
    alternatives: list[Alternative] = []
    for number in dispatch.numbers(target.arch):
        name = "_".join(p for p in (f"tuned{number}", suffix) if p)
        label = dispatch.labels[number - 1]
        try:
            item = analyse(dispatch.choices[number - 1])
            low = pipeline.run(
                item.program,
                TARGETS[target.arch],
                item.candidate,
                c_name,
                name,
                snapshot,
                item.general,
                versions=item.versions,
            )
        except TileError as error:
            sink.add(_left_out(general, label, target.arch, error.diagnostics[0].message))
            continue
        plans = (
            pipeline.plan_of(general, [lowered]),
            pipeline.plan_of(item.program, [low]),
        )
        if _interface(plans[0], lowered) != _interface(plans[1], low):
            sink.add(_left_out(general, label, target.arch, "it has other arguments"))
            continue
        found.append(Tuned(number, item.program, low))
        condition = _condition(*plans)
        alternatives.append(Alternative(number, label, condition, low.target.steps))
    selection = Selection(dispatch.key, dispatch.points[target.arch], tuple(alternatives))
    everything = [lowered, *(t.lowered for t in found)]
    groups = tuple(dict.fromkeys(group for x in everything for group in x.copies))
    spare_temps = {temp.name for group in groups for temp in group.temps}
    places, total = _largest(
        [tuple(w for w in x.workspace if w.tensor not in spare_temps) for x in everything]
    )
    places, spare = with_copies(places, total, groups)
    whole = replace(
        lowered,
        kernels=tuple(kernel for x in everything for kernel in x.kernels),
        programs=tuple(program for x in everything for program in x.programs),
        target=replace(target, selection=selection) if found else target,
        workspace=places,
        workspace_bytes=total,
        spare=spare,
        copies=groups,
        temps=tuple({temp.name: temp for x in everything for temp in x.temps}.values()),
    )
    return whole, tuple(found)


def _left_out(program: Program, label: str, arch: str, why: str) -> Diagnostic:
    return Diagnostic(
        "W0605",
        f"`{program.name}` has no variant `{label}` for {arch}: {why}",
        program.span,
        helps=("run `tilec tune` again",),
    )


def _interface(plan: LaunchPlan, lowered: Lowered) -> object:
    """What a caller sees, and the names of the program's own temps."""
    beside = {temp.name for temp in lowered.temps}
    return (
        plan.parameters,
        plan.dims,
        plan.strides,
        plan.scalars,
        tuple(w.tensor for w in plan.workspace if w.tensor not in beside),
    )


def _condition(general: LaunchPlan, own: LaunchPlan) -> LaunchCondition:
    """What a variant needs beyond the checks of the general one: its own contracts, and a grid for its own number of instances."""
    checked = {c.condition for c in general.contracts}
    parts: list[LaunchCondition] = [
        c.condition for c in own.contracts if c.condition not in checked
    ]
    known = {step.instances for target in general.targets for step in target.steps}
    for target in own.targets:
        for step in target.steps:
            most = step.instances.bounds(size_range)[1]
            if step.instances not in known and (most is None or most > INSTANCE_LIMIT):
                parts.append(HostOp("<=", (step.instances, HostNumber(INSTANCE_LIMIT))))
    return AllOf(tuple(dict.fromkeys(parts)))


def _largest(places: Sequence[tuple[Workspace, ...]]) -> tuple[tuple[Workspace, ...], Sym]:
    """A workspace that suits all variants: each temp has the most bytes that one of them needs."""
    found: list[Workspace] = []
    offset = Sym.of(0)
    needed: dict[str, dict[Sym, None]] = {}
    for place in (place for variant in places for place in variant):
        needed.setdefault(place.tensor, {})[place.bytes] = None
    for tensor, several in needed.items():
        sizes = tuple(several)
        size = sizes[0] if len(sizes) == 1 else Sym.of(Apply("max", sizes))
        found.append(Workspace(tensor, offset, size))
        offset = offset + size
    return tuple(found), offset


def selection_manifest(
    dispatch: Dispatch, tuned: Mapping[str, tuple[Tuned, ...]]
) -> dict[str, object]:
    """What the manifest says of the variants: for each architecture the sizes with the variant that they take, and the decisions of
    each variant."""
    return {
        "key": list(dispatch.key),
        "targets": {
            arch: {
                "points": [
                    {"sizes": list(p.sizes), "variant": p.variant} for p in dispatch.points[arch]
                ],
                "variants": [
                    {
                        "variant": t.number,
                        "choice": dispatch.labels[t.number - 1],
                        "decisions": list(t.lowered.decisions),
                    }
                    for t in found
                ],
            }
            for arch, found in tuned.items()
        },
    }
