"""All passes, in order, on one screen.

Tile IR   topk · reindex · eliminate_dead · hoist · reload · sink_stores · skip_dead
          for warpgroups, and for chained products of warps: schedule (filter_trips · fold_exponents · defer_sums · rotate · rows_first)
          classify axes · place tiles · plan_products · assign layouts (of tiles, products, or warpgroups with their channels) · rereads
Kernel IR lower · loads_ahead · across · between · retire · synchronize · exchange · queue · slices · tickets
Host      launch plan · decisions

A nest with products is tried in the asynchronous form of a target that has one; the variants of that form come first (the last of them
behind copies of operands), and those for every size and address behind them. What does not suit the form says why (`Unsuited`), and has the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import (
    Aligned,
    AllOf,
    AnyOf,
    Launch,
    LaunchCondition,
    LaunchPlan,
    PointerArgument,
    Spare,
    Step,
    TargetPlan,
    TensorMapArgument,
    Workspace,
    product,
)
from tilec.ir.symbolic import Sym, Var, ceildiv, sym_min
from tilec.lazy_dataclass import dataclass
from tilec.passes import (
    across,
    all_trips,
    between,
    computed,
    copies,
    exchange,
    full_rounds,
    launch_notes,
    loads_ahead,
    queue,
    reindex,
    retire,
    slices,
    synchronize,
    tickets,
    topk,
    warp_fit,
)
from tilec.passes.assign_layouts import Variant
from tilec.passes.computed import ComputedCopy
from tilec.passes.fitting import Fitting, cleaned, fitting, for_versions, in_parts, preferred
from tilec.passes.forms import Form
from tilec.passes.lower import lower_nest
from tilec.passes.lower.names import Spelling
from tilec.passes.prepared import Copies, Prepared
from tilec.passes.rereads import rereads
from tilec.passes.supported import check_supported
from tilec.passes.unswitch import Version
from tilec.passes.uses import all_ops
from tilec.passes.warpgroup_forms import Snapshot, asynchronous, no_snapshot, take_all
from tilec.plan.candidate import Candidate
from tilec.source.codes.compiling import TOO_LARGE
from tilec.source.diagnostics import Diagnostic, TileError, fail
from tilec.targets.table import Target

LEAST_STREAM_SLOTS = 5
"""Of a ring that hides memory's latency: with fewer the copies come in lumps (measured on an H200)."""


@dataclass(frozen=True)
class Lowered:
    """A program for one target: its kernels, how they are launched, and what was decided."""

    kernels: tuple[k.Kernel, ...]
    target: TargetPlan
    workspace: tuple[Workspace, ...]
    workspace_bytes: Sym
    described: tuple[Callable[[], Mapping[str, object]], ...]
    """what was decided, variant by variant: most compilations do not ask"""
    programs: tuple[t.Program, ...]
    """for each kernel the program that it is of: tile sizes differ"""
    warnings: tuple[Diagnostic, ...] = ()
    temps: tuple[t.Tensor, ...] = ()
    """tensors of the workspace beside the program's own"""
    spare: Spare | None = None
    copies: tuple[Copies, ...] = ()

    @property
    def decisions(self) -> tuple[Mapping[str, object], ...]:
        """What was decided, variant by variant, for the manifest."""
        return tuple(describe() for describe in self.described)


def run(
    program: t.Program,
    target: Target,
    candidate: Candidate,
    spell: Spelling,
    suffix: str = "",
    snapshot: Snapshot | None = None,
    general: tuple[t.Program, Candidate] | None = None,
    by_size: tuple[tuple[t.Program, Candidate], ...] = (),
    versions: tuple[Version, ...] = (),
) -> Lowered:
    """Every pass. `spell` gives the C++ name of a name; `general` is the program of the variants beside an asynchronous form, with tile
    sizes of their own, `by_size` those of forms for calls whose sizes suit their tile sizes better, `versions` those of an asynchronous form
    for each outcome of what the host asks. Raises TileError with the code of what cannot be compiled."""
    snapshot = snapshot or no_snapshot
    before, program = program, topk.run(program)
    written = [("topk", program)] if program is not before else []
    before, program = program, reindex.run(program)
    written += [("reindex", program)] if program is not before else []
    given_tensors = program.tensors
    program = computed.split(program)
    own_temps = program.tensors[len(given_tensors) :]
    written = written if not own_temps else [("computed", program)]
    general = general and (in_parts(general[0]), general[1])
    by_size = tuple((in_parts(other), own) for other, own in by_size)
    check_supported(program)
    _check_names(program, spell)
    numeric = Facts.of(program).numeric
    base_name = spell(program.name)
    kernels: list[k.Kernel] = []
    programs: list[t.Program] = []
    steps: list[Step] = []
    described: list[Callable[[], Mapping[str, object]]] = []
    warnings: list[Diagnostic] = []
    counter = queue.counter_name(program)
    queued: list[tuple[Sym, Sym]] = []
    drawn: Launch | None = None
    always_drawn = False
    copied: list[Copies] = []
    for number, nest in enumerate(program.nests):
        for pass_name, shown in written:
            snapshot(pass_name, replace(shown, nests=(shown.nests[number],)))
        nest = cleaned(program, nest, snapshot)
        base = base_name if len(program.nests) == 1 else f"{base_name}_{number + 1}"
        lower = partial(_lower, base=base, suffix=suffix, spell=spell, target=target)
        nests = len(program.nests)
        forms, reason = for_versions(versions, number, nests, target, lower, snapshot), ""
        if not forms:
            forms, reason = fitting(program, nest, target, candidate, lower, snapshot)
            sized = preferred(forms[0].form, by_size, target) if forms else []
            forms = [*map(Fitting, sized), *forms]
        warnings += _said(program, nest, target, candidate, reason)
        whole, given = program, candidate
        if general is not None and len(program.nests) == 1:
            program, candidate = general
            (nest,) = program.nests
            nest = cleaned(program, nest)
        taken_by_all = take_all([x.form for x in forms])
        try:
            others = warp_fit.variants(program, nest, target, candidate, taken_by_all)
        except TileError as error:
            raise _beside_which(error, target, reason) from error
        beside = [Form(program, p.nest, p.axes, p.placement, v, p.steps) for p, v in others]
        found = [*forms, *map(Fitting, beside)]
        first = beside[0]
        if first.schedule:
            snapshot("schedule", replace(program, nests=(first.nest,)))
        snapshot("assign_layouts", tuple(x.form.variant for x in found))
        alike = [form.variant for form in beside if form.nest is first.nest]
        warnings += rereads(first.nest, first.axes, first.placement, alike)
        launches: list[Launch] = []
        copying: dict[Prepared, Launch] = {}
        longer: list[tuple[Sym, Sym]] = []
        program, candidate = whole, given
        for one in found:
            form, done = one.form, one.lowered
            nest, placement, variant = form.nest, form.placement, form.variant
            while True:
                kernel = done or lower(form)
                done = None
                if not _shallower(kernel, variant, target, candidate):
                    break
                variant = replace(variant, stages=variant.stages - 1)
                form = replace(form, variant=variant)
            snapshot("lower", kernel)
            kernel = loads_ahead.run(kernel, target, variant.level.words)
            snapshot("loads_ahead", kernel)
            kernel = across.run(kernel)
            snapshot("across", kernel)
            kernel = between.run(kernel)
            snapshot("between", kernel)
            kernel = retire.run(kernel)
            snapshot("retire", kernel)
            kernel = synchronize.run(kernel)
            snapshot("synchronize", kernel)
            stays = variant.beyond
            shared = slices.plan(kernel, target) if stays is not None else slices.NONE
            if "row_exchange" in target.features and kernel.cluster > 1:
                kernel = exchange.run(kernel, stays is not None, shared.teams)
                snapshot("exchange", kernel)
            if stays is not None:
                kernel = queue.run(kernel, counter, "early_queue" in target.features)
                snapshot("queue", kernel)
                kernel = slices.run(kernel, shared)
                snapshot("slices", kernel)
                longer += [stays] if kernel.queue else []
            form_of = variant.asynchronous
            # addresses of rows that are stored anywhere take the registers that numbers would
            if form_of is not None and not form_of.dealt and not variant.name.endswith("any_out"):
                kernel = tickets.run(kernel, counter)
                snapshot("tickets", kernel)
            _check_shared(kernel, target)
            flag = all_trips.flag_of(form) if kernel.queue else ""
            draws = variant.asynchronous is not None and kernel.queue
            clearing_kernel = None
            if draws and drawn is None:
                flags = (flag,) if flag else ()
                clearing_kernel = queue.cleared(counter, base_name, suffix, flags)
                drawn = _drawing(clearing_kernel)
            if flag and (drawn is None or PointerArgument(flag) not in drawn.arguments):
                flag = ""
            if flag:
                kernel = all_trips.ended(kernel, flag, True, "early_queue" in target.features)
            kernels.append(kernel)
            programs.append(form.program)
            launch = _launch(kernel, variant, Facts.of(form.program).numeric, form.program, target)
            if draws and drawn is not None:
                if clearing_kernel is not None:
                    kernels.append(clearing_kernel)
                    programs.append(form.program)
                launch = replace(launch, before=(*launch.before, drawn))
                always_drawn = always_drawn or variant.copies is None
            if variant.copies is not None:
                copied.append(variant.copies)
                for copy in variant.copies.rows:
                    if copy not in copying:
                        n = len(copying) + 1
                        last = "_".join(p for p in ("" if n == 1 else str(n), suffix) if p)
                        if isinstance(copy, ComputedCopy) and copy.form is not None:
                            own_program = copy.program
                            asked = flag if all_trips.is_asked(copy) else ""
                            made = _computing(copy, base, last, spell, target, asked)
                            taken, copying[copy] = made
                        else:
                            own_program = program
                            taken, copying[copy] = copies.copying(program, copy, base, last, spell)
                        kernels.append(taken)
                        programs.append(own_program)
                    launch = replace(launch, before=(*launch.before, copying[copy]))
            if flag:
                assert form.beside is not None
                other = form.beside.named(f"{variant.name}_none")
                kernels.append(_beside(lower(other), other, flag, counter, target))
                programs.append(other.program)
                launch = _followed(launch, kernels[-1], other, target)
            launches.append(launch)
            own = None if form.program.tiles == program.tiles else form.program.tiles
            told = [(form, variant, kernel, nest, placement)]
            if flag:
                told += [(other, other.variant, kernels[-1], other.nest, other.placement)]
            for f, v, low, own_nest, p in told:
                described.append(
                    partial(
                        _described,
                        own_nest,
                        p,
                        v,
                        low,
                        launch,
                        f.schedule,
                        reason,
                        own,
                        f.all_trips,
                    )
                )
        instances = numeric(product(tuple(a.trips for a in program.nests[number].grid)))
        if longer:
            queued.append(queue.shortest(longer))
            cleared = queue.cleared(counter, base, suffix)
            kernels.append(cleared)
            programs.append(program)
            clearing = _clearing(cleared, *queued[-1], sym_min([instances, 1]), numeric)
            steps.append(Step((clearing,), instances))
        steps.append(Step(tuple(launches), instances))
    temps = queue.temps(counter, queued) if drawn is None else queue.always(counter)
    # a counter of variants behind copies alone is spare as those are
    always = () if drawn is not None and not always_drawn else temps
    held = replace(program, tensors=(*program.tensors, *always))
    workspace, total = _workspace(held, numeric)
    workspace, spare = copies.with_copies(workspace, total, copied, temps)
    places = {temp.name: temp for group in copied for temp in group.temps}
    temps = (*temps, *places.values(), *own_temps)
    return Lowered(
        tuple(kernels),
        TargetPlan(target.arch, tuple(steps)),
        workspace,
        total,
        tuple(described),
        tuple(programs),
        tuple(warnings),
        temps,
        spare,
        tuple(copied),
    )


def _lower(form: Form, base: str, suffix: str, spell: Spelling, target: Target) -> k.Kernel:
    """The kernel of a form, named after `base`."""
    name = "_".join(p for p in (base, "kernel", form.variant.name, suffix) if p)
    return lower_nest(
        form.program,
        form.nest,
        form.axes,
        form.placement,
        form.variant,
        name,
        f"{base}_body",
        spell,
        target,
    )


def _with_barriers(kernel: k.Kernel) -> k.Kernel:
    """A kernel beside a nest's own behind the passes that say where its threads wait."""
    for run_pass in (across.run, between.run, retire.run, synchronize.run):
        kernel = run_pass(kernel)
    return kernel


def _beside(kernel: k.Kernel, form: Form, flag: str, counter: str, target: Target) -> k.Kernel:
    """The kernel of such a form behind its passes, which ends at once in other calls."""
    kernel = _with_barriers(kernel)
    if form.variant.asynchronous is not None and not form.variant.asynchronous.dealt:
        kernel = tickets.run(kernel, counter)
    _check_shared(kernel, target)
    return all_trips.ended(kernel, flag, False, "early_queue" in target.features)


def _followed(launch: Launch, kernel: k.Kernel, form: Form, target: Target) -> Launch:
    """The launch with that of such a kernel behind it."""
    other = _launch(kernel, form.variant, Facts.of(form.program).numeric, form.program, target)
    parts: list[LaunchCondition] = []
    for condition in (launch.condition, other.condition):
        parts += condition.parts if isinstance(condition, AllOf) else [condition]
    condition = AllOf(tuple(dict.fromkeys(parts)))
    return replace(launch, condition=condition, after=(replace(other, condition=AllOf(())),))


def _computing(
    copy: ComputedCopy, base: str, suffix: str, spell: Spelling, target: Target, flag: str = ""
) -> tuple[k.Kernel, Launch]:
    """The kernel that computes an operand ahead, and its launch in front of the nest's own, whose condition asks what this one needs. `flag`:
    nobody needs that where it is zero."""
    form = copy.form
    assert form is not None
    name = "_".join(p for p in (base, "kernel_ahead", suffix) if p)
    kernel = lower_nest(
        form.program, form.nest, form.axes, form.placement, form.variant, name, f"{base}_ahead_body",
        spell, target,
    )  # fmt: skip
    kernel = _with_barriers(kernel)
    _check_shared(kernel, target)
    if flag:
        kernel = all_trips.ended(kernel, flag, zero=True)
    launch = _launch(kernel, form.variant, Facts.of(form.program).numeric, form.program, target)
    return kernel, replace(launch, condition=copy.condition)


def _described(*decided: Any) -> Mapping[str, object]:
    """A variant for the manifest, described when somebody asks."""
    from tilec.passes.decisions import describe

    return describe(*decided)


def _is_deep(variant: Variant) -> bool:
    """Whether there are streams, in rings of enough slots."""
    form = variant.asynchronous
    if form is None or not form.streams:
        return False
    return all(c.slots >= LEAST_STREAM_SLOTS for c in form.channels if c.in_loop)


def suits(
    program: t.Program,
    target: Target,
    candidate: Candidate,
    streams: bool = False,
    shared: bool = False,
    apart: bool = False,
) -> bool:
    """Whether every nest with products takes the target's asynchronous form, and other tile sizes promise no better one; `streams`: with rings deep enough for operands that are
    read once; `shared`: CTAs share the consumed axis, or a stream; `apart`: warpgroups columns."""
    program = in_parts(program)
    for nest in program.nests:
        if any(isinstance(op, t.Dot) for op in all_ops(nest.body)):
            nest = cleaned(program, nest)
            forms, _ = asynchronous(program, nest, target, candidate)
            if not forms or (streams and not _is_deep(forms[0].variant)):
                return False
            if streams and forms[0].variant.copies is not None:
                return False  # an operand that is read once is not worth a copy
            form = forms[0].variant.asynchronous
            if form is not None and form.is_shallow:
                return False
            if shared and (form is None or (form.split is None and form.sharing is None)):
                return False
            if apart and (form is None or not form.products.apart):
                return False
    return True


def slots(program: t.Program, target: Target, candidate: Candidate, chained: bool = False) -> int:
    """Slots of rings that every nest with products of warps has room for, as `warp_fit.slots`; `chained`: 0 where there are others than
    those of warps with two blocks of rows."""
    program = computed.split(program)
    nests = [cleaned(program, nest) for nest in program.nests]
    if chained and not all(warp_fit.is_twofold(program, n, target, candidate) for n in nests):
        return 0
    return min(warp_fit.slots(program, nest, target, candidate) for nest in nests)


def _beside_which(error: TileError, target: Target, reason: str) -> TileError:
    """What products of warps are too large for, with why warpgroups do not take them either."""
    if not reason or "wgmma" not in target.features or error.diagnostics[0].code not in TOO_LARGE:
        return error
    note = f"warpgroups of {target.arch}, which have more room, do not take them: {reason}"
    return TileError([replace(d, notes=(*d.notes, note)) for d in error.diagnostics])


def _said(
    program: t.Program, nest: t.Nest, target: Target, candidate: Candidate, reason: str
) -> list[Diagnostic]:
    """W0603 where a target's asynchronous products do not suit a nest; E0516 where they were asked for."""
    dots = [op for op in all_ops(nest.body) if isinstance(op, t.Dot)]
    if not dots:
        return []
    if candidate.mma == "wgmma" and (reason or "wgmma" not in target.features):
        raise fail(
            "E0516",
            f"`schedule mma = wgmma` cannot be followed for {target.arch}: "
            + (reason or "it has no products of warpgroups"),
            dots[0].span,
            label="this product",
            help="leave the setting out: the product then uses the best form that suits it",
        )
    if not reason:
        return []
    return [
        Diagnostic(
            "W0603",
            f"the products of `{program.name}` use `mma.sync`, not the warpgroups of {target.arch}: {reason}",
            dots[0].span,
            label="this product",
        )
    ]


def _check_names(program: t.Program, spell: Spelling) -> None:
    """Raises E0517 where two names of a kernel are one in C++."""
    words = list(program.names)
    words += [v.name for v in stride_scalars(program)]
    spelled: dict[str, str] = {spell(tile): tile for tile in program.tiles}
    for word in words:
        other = spelled.setdefault(spell(word), word)
        if other != word:
            raise fail(
                "E0517",
                f"`{other}` and `{word}` would both be `{spell(word)}` in C++",
                program.span,
                help="rename one of them",
            )


def _shallower(kernel: k.Kernel, variant: Variant, target: Target, candidate: Candidate) -> bool:
    """Whether rings of one stage less are worth a try: with what the nest needs beside its operands a block has too much."""
    too_much = kernel.shared_bytes > target.shared_per_block_optin
    automatic = variant.products is not None and candidate.stages is None
    return too_much and automatic and variant.stages > 1


def _check_shared(kernel: k.Kernel, target: Target) -> None:
    """Raises E0603 where a block would need more shared memory than the target has."""
    if kernel.shared_bytes > target.shared_per_block_optin:
        sizes = {b.name: b.bytes for b in kernel.tiles} | {b.name: b.bytes for b in kernel.shared}
        largest = max(sizes, key=sizes.__getitem__)
        raise fail(
            "E0603",
            f"`{kernel.name}` needs {kernel.shared_bytes} bytes of shared memory, {target.arch} has "
            f"{target.shared_per_block_optin} for a block",
            kernel.span,
            note=f"`{largest}` takes {sizes[largest]} of them",
            help="use smaller tiles, bound the sizes with `require`, or reduce along fewer elements at once",
        )


def _launch(
    kernel: k.Kernel,
    variant: Variant,
    numeric: Callable[[Sym], Sym],
    program: t.Program,
    target: Target,
) -> Launch:
    instances = kernel.instances
    if kernel.cluster > 1:
        instances = product(
            tuple(
                ceildiv(d.trips, kernel.cluster) if d.name == kernel.cluster_digit else d.trips
                for d in kernel.grid
            )
        )
    grid = ceildiv(numeric(instances), kernel.batch) * kernel.cluster
    form = variant.asynchronous
    streams = form.streams if form is not None else ()
    return Launch(
        kernel.name,
        _numbers(_condition(kernel, variant), numeric),
        grid,
        kernel.threads,
        kernel.arguments,
        kernel.shared_bytes if kernel.dynamic else 0,
        kernel.cluster,
        int(form.dealt or bool(kernel.queue))
        if form is not None
        else kernel.blocks_per_sm
        if kernel.queue
        else 0,
        # memory is what limits: as many CTAs as leave none alone with a last round ask for it evenly
        even=bool(streams),
        early=kernel.early,
        overlaps=full_rounds.overlapping(target) if streams else None,
        about=launch_notes.about(kernel, variant, program.tiles),
    )


def _clearing(
    kernel: k.Kernel, extent: Sym, capacity: Sym, grid: Sym, numeric: Callable[[Sym], Sym]
) -> Launch:
    """The launch that clears the counter of a queue, where rows are long enough for one and there is any."""
    condition = t.HostOp(">", (extent, capacity))
    return Launch(kernel.name, _numbers(condition, numeric), grid, kernel.threads, kernel.arguments)


def _drawing(kernel: k.Kernel) -> Launch:
    """The launch that clears the counter of instances that CTAs draw."""
    return Launch(kernel.name, AllOf(()), Sym.of(1), kernel.threads, kernel.arguments)


def _condition(kernel: k.Kernel, variant: Variant) -> LaunchCondition:
    """The variant's, and that each tensor with a map can have it."""
    maps = [a.addressable for a in kernel.arguments if isinstance(a, TensorMapArgument)]
    if not maps:
        return variant.condition
    parts: list[LaunchCondition] = []
    for condition in (variant.condition, *maps):
        parts += condition.parts if isinstance(condition, AllOf) else [condition]
    # copies lie in the workspace at multiples of 256 bytes
    copied = {temp.name for temp in variant.copies.temps} if variant.copies is not None else set()
    parts = [p for p in parts if not isinstance(p, Aligned) or p.tensor not in copied]
    return AllOf(tuple(dict.fromkeys(parts)))


def _numbers(condition: LaunchCondition, numeric: Callable[[Sym], Sym]) -> LaunchCondition:
    """A condition with the candidate's numbers for tile sizes."""
    match condition:
        case Sym():
            return numeric(condition)
        case t.HostOp():
            return t.HostOp(condition.op, tuple(_host_numbers(a, numeric) for a in condition.args))
        case AllOf() | AnyOf():
            return replace(condition, parts=tuple(_numbers(p, numeric) for p in condition.parts))
        case _:
            return condition


def _host_numbers(expr: t.HostExpr, numeric: Callable[[Sym], Sym]) -> t.HostExpr:
    match expr:
        case Sym():
            return numeric(expr)
        case t.HostOp():
            return t.HostOp(expr.op, tuple(_host_numbers(a, numeric) for a in expr.args))
        case _:
            return expr


def _workspace(
    program: t.Program, numeric: Callable[[Sym], Sym]
) -> tuple[tuple[Workspace, ...], Sym]:
    """Places of the temps, each at a multiple of 256 bytes."""
    places: list[Workspace] = []
    offset = Sym.of(0)
    for tensor in program.tensors:
        if tensor.role == "temp":
            size = ceildiv(numeric(product(tensor.dims)) * tensor.dtype.bits, 8)
            size = ceildiv(size, 256) * 256
            places.append(Workspace(tensor.name, offset, size))
            offset = offset + size
    return tuple(places), offset


def plan_of(program: t.Program, lowered: list[Lowered]) -> LaunchPlan:
    """The launch plan of a program compiled for one or several targets."""
    numeric = Facts.of(program).numeric
    largest = max(lowered, key=lambda x: len(x.workspace))
    temps = {temp.name: temp for x in lowered for temp in x.temps}
    return LaunchPlan(
        program.name,
        (*program.tensors, *temps.values()),
        program.dims,
        program.scalars,
        tuple(x.target for x in lowered),
        stride_scalars(program),
        tuple(replace(c, condition=_host_numbers(c.condition, numeric)) for c in program.contracts),
        largest.workspace,
        largest.workspace_bytes,
        largest.spare,
    )


def stride_scalars(program: t.Program) -> tuple[Var, ...]:
    """Integer parameters of the launcher that only strides name, in order."""
    declared = {s.name for s in program.scalars}
    found: dict[Var, None] = {}
    for tensor in program.tensors:
        for stride in tensor.strides or ():
            for var in sorted(stride.variables):
                if var.kind == "scalar" and var.name not in declared:
                    found[var] = None
    return tuple(found)
