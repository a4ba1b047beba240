"""The variants of a nest in the form of warpgroups: as it is, or with operands that lie across copied, or computed ones
computed, first; in front of it, where masks empty blocks, one that skips those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym
from tilec.passes import (
    all_trips,
    block_tables,
    computed,
    mask_words,
    reload,
    skip_dead,
    turning,
    warp_fit,
)
from tilec.passes.assign_asynchronous import AsynchronousAssignment
from tilec.passes.axes import classify
from tilec.passes.boxes import Unsuited
from tilec.passes.forms import Form
from tilec.passes.placement import place
from tilec.passes.products import plan_products
from tilec.passes.schedule import schedule
from tilec.passes.uses import Definitions, all_ops
from tilec.plan.candidate import Candidate
from tilec.remembered import remembered
from tilec.source.diagnostics import TileError
from tilec.targets.table import Target

ANY_NUMBER = 1 << 20
"""Of accumulators: how warpgroups share them out is not known where products are planned."""

Snapshot = Callable[[str, object], None]
"""Called with a pass' name and its result."""


def no_snapshot(name: str, result: object) -> None:
    """Nobody looks."""


def take_all(forms: list[Form]) -> bool:
    """Whether forms of warpgroups take all calls of aligned operands; those with copies do not."""
    return any(form.variant.copies is None for form in forms)


def asynchronous(
    program: t.Program,
    nest: t.Nest,
    target: Target,
    candidate: Candidate,
    snapshot: Snapshot = no_snapshot,
) -> tuple[list[Form], str]:
    """The variants in the asynchronous form, of the nest scheduled for it; or why there are none, "" where nothing asks for it."""
    forms, reason, shown = _asked(program, nest, target, candidate)
    for name, result in shown:
        snapshot(name, result)
    return list(forms), reason


Shown = list[tuple[str, object]]
"""Passes and their results."""


@remembered
def _asked(
    program: t.Program, nest: t.Nest, target: Target, candidate: Candidate
) -> tuple[list[Form], str, Shown]:
    """The same, and what a snapshot shows."""
    if "wgmma" not in target.features or candidate.mma not in ("auto", "wgmma"):
        return [], "", []
    if not any(isinstance(op, t.Dot) for op in all_ops(nest.body)):
        return [], "", []
    # roles go on where an instance stores nothing
    nest = skip_dead.where_alive(nest, Facts.of(program))
    nest = replace(nest, body=reload.apart(nest.body))
    shown: Shown = []
    forms, reason = as_it_stands(program, nest, target, candidate, None, shown)
    turned = None if forms else turning.turn(program, nest)
    if turned is not None:
        shown.append(("turning", replace(turned.program, nests=(turned.nest,))))
        forms, reason = as_it_stands(turned.program, turned.nest, target, candidate, turned, shown)
    made = None if forms else _ahead(program, nest, target, candidate)
    if made is not None:
        shown.append(("computed", replace(made.program, nests=(made.nest,))))
        forms, other = as_it_stands(made.program, made.nest, target, candidate, made, shown)
        reason = other if not forms else ""
    if forms and turned is None:
        given = (program, nest) if made is None else (made.program, made.nest)
        forms = [*_skipping(*given, target, candidate, made, forms, shown), *forms]
    return forms, reason, shown


def _skipping(
    program: t.Program,
    nest: t.Nest,
    target: Target,
    candidate: Candidate,
    made: computed.Computed | None,
    forms: list[Form],
    shown: Shown,
) -> list[Form]:
    """The forms that skip the trips which masks empty, behind what is `made` ahead; where there are none the others learn why."""
    found: list[Form] = []
    reason = ""
    for in_words in (True, False):
        tables, reason = _tables(program, nest, target, candidate, made, in_words)
        if tables is None:
            break
        here: Shown = [("block_tables", replace(tables.program, nests=(tables.nest,)))]
        found, reason = as_it_stands(tables.program, tables.nest, target, candidate, tables, here)
        packed = any(isinstance(copy, mask_words.PackedTable) for copy in tables.copies)
        if found or not packed:
            shown += here
            whole = all_trips.all_trips(tables) if found else None
            if whole is not None:
                others, _ = as_it_stands(whole.program, whole.nest, target, candidate, whole)
                found = [replace(form, beside=others[0] if others else None) for form in found]
            break
    if not found and reason:
        forms[:] = [replace(form, all_trips=reason) for form in forms]
    return found


def _tables(
    program: t.Program,
    nest: t.Nest,
    target: Target,
    candidate: Candidate,
    made: computed.Computed | None,
    in_words: bool,
) -> tuple[block_tables.Skipping | None, str]:
    """The nest whose loops skip trips by tables of blocks, made by nests that take tensors at any address where a block reads rows alone; or why
    they do not. `in_words`: with masks as words of bits where they can be."""
    found, reason = block_tables.skipping(program, nest)
    if found is None:
        return None, reason
    if in_words:
        found = mask_words.in_words(found)
    copies = [
        copy
        if isinstance(copy, mask_words.PackedTable)
        else _own_form(copy, target, candidate, not copy.reads_tiles)
        for copy in found.copies
    ]
    known = [copy for copy in copies if copy is not None]
    if len(known) < len(copies):
        return None, "a block of the mask or the values does not fit into registers"
    if made is None:
        return replace(found, copies=tuple(known)), ""
    return replace(found, copies=(*made.copies, *known), word=f"{made.word}_{found.word}"), ""


def _ahead(
    program: t.Program, nest: t.Nest, target: Target, candidate: Candidate
) -> computed.Computed | None:
    """The nest with operands that are computed ahead, by nests in their fastest variant."""
    found = computed.ahead(program, nest)
    if found is None:
        return None
    copies = [_own_form(copy, target, candidate) for copy in found.copies]
    known = [copy for copy in copies if copy is not None]
    return replace(found, copies=tuple(known)) if len(known) == len(copies) else None


Ahead = TypeVar("Ahead", bound=computed.ComputedCopy)


def _own_form(
    copy: Ahead, target: Target, candidate: Candidate, anywhere: bool = False
) -> Ahead | None:
    """What is computed ahead with its nest's fastest variant, or `anywhere` with the one for all addresses; None where it has none."""
    own = replace(candidate, warps=None, stages=None)
    (rows,) = copy.program.nests
    try:
        found = warp_fit.variants(copy.program, rows, target, own, False)
    except TileError:
        return None
    planned, variant = found[-1 if anywhere else 0]
    form = Form(copy.program, planned.nest, planned.axes, planned.placement, variant)
    return replace(copy, form=form)


def as_it_stands(
    program: t.Program,
    nest: t.Nest,
    target: Target,
    candidate: Candidate,
    turned: turning.Turned | computed.Computed | None = None,
    shown: Shown | None = None,
    parts: int = 1,
) -> tuple[list[Form], str]:
    """The same of a nest as it stands; `turned`: where operands of it have been, or are computed ahead. `shown` gets what a snapshot shows.
    `parts`: warpgroups that share out the columns of sums, as was found before."""
    written, bare = program, nest
    scheduled = schedule(program, nest, positive=_brought_sizes(program, nest), parts=parts)
    program = scheduled.program
    if shown is not None:
        shown.append(("schedule", replace(program, nests=(scheduled.nest,))))
    try:
        nest, axes = classify(program, scheduled.nest)
        placement = place(nest)
        chained = (8, 16) if turned is not None and turned.word != "skipping" else (16,)
        products = plan_products(
            nest, axes, target, candidate.warps, "auto", scheduled.origin, chained, ANY_NUMBER
        )
        assert products is not None
        assignment = AsynchronousAssignment(
            program, nest, axes, placement, target, candidate, products
        )
        assignment.turned = turned
        variants = assignment.asynchronous_variants(scheduled.origin)
    except Unsuited as reason:
        return [], str(reason)
    except TileError as error:
        return [], error.diagnostics[0].message
    form = variants[0].asynchronous
    if parts == 1 and form is not None and form.products.apart:
        # with a part of the sums each there may be registers for more
        again = as_it_stands(written, bare, target, candidate, turned, shown, form.warpgroups)
        if again[0]:
            return again
    return [Form(program, nest, axes, placement, v, scheduled.steps) for v in variants], ""


def _brought_sizes(program: t.Program, nest: t.Nest) -> list[Sym]:
    """The sizes of the tensors that operands are loaded from: a map is of elements that are there, so that none is 0 at a launch."""
    definitions = Definitions.of(nest.body)
    found: dict[Sym, None] = {}
    for op in all_ops(nest.body):
        for operand in (op.a, op.b) if isinstance(op, t.Dot) else ():
            inner = definitions.defining.get(operand.id)
            while isinstance(inner, t.Rearrange):
                inner = definitions.defining.get(inner.arg.id)
            if isinstance(inner, t.Load):
                found |= dict.fromkeys(program.tensor(inner.access.tensor).dims)
    return list(found)
