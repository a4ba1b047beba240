"""The work of `tilec explain`: the manifest as text, line by line. Neither nvcc nor a GPU is needed."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tilec.jobs.messages import render
from tilec.jobs.requests import check_source, parse_archs, parse_pairs
from tilec.jobs.requiring import check_required, parse_required
from tilec.source.diagnostics import Diagnostic

if TYPE_CHECKING:
    from tilec.compiled import CompiledFile, CompiledKernel
    from tilec.plan.candidate import Choice

Access: TypeAlias = "tuple[int, str, str]"
"""A line, what is done there, and to which tensor."""

_REASONS = (
    (
        "bulk copy",
        "no registers in between, and what lies outside the tensor comes as zeros",
    ),
    ("bulk store", "what lies outside the tensor is not written"),
    (
        "cp.async",
        "16 bytes a thread without registers in between, under the arithmetic of earlier trips",
    ),
    ("elements one by one", "this variant takes every address"),
    ("single elements", "neighbours along the last dimension are not in one thread"),
    ("vectors", "the launch condition, or the place in the tile, guarantees the alignment"),
)
"""Why a transport was taken, by how its description starts."""

_LIVE = "the threads have an instance"
"""What the variable of a CTA with several instances says."""


@dataclass(frozen=True)
class ExplainRequest:
    """The command line of `tilec explain`, option by option."""

    file: str
    kernel: str | None = None
    defines: tuple[str, ...] = ()
    arch: str | None = None
    tuned: bool = True
    required: tuple[str, ...] = ()
    """texts of `--require`"""
    settings: tuple[str, ...] = ()
    """`NAME=VALUE` texts: sizes at which whole launches are bounded"""
    svg: str | None = None
    """a folder for pictures of layouts"""
    html: str | None = None
    """a path for the report of all passes, which takes the text's place"""


def explain_file(request: ExplainRequest) -> int:
    """Print the explanation, or write what the request asks for. Returns the exit status. Raises TileError with every error of the
    program, and with every required optimisation that was lost."""
    from tilec.explain.report import Observed
    from tilec.jobs.rejected import rejected_candidates
    from tilec.jobs.reporting import write_pictures, write_report
    from tilec.jobs.totals import bound_launches
    from tilec.jobs.tuned import compile_tuned, tuned_choices

    check_source(request.file)
    archs = parse_archs((request.arch,) if request.arch else ())
    defines = parse_pairs(request.defines, "-D")
    required = parse_required(request.required)
    tuned = request.tuned and len(archs) == 1
    choices: dict[str, Choice] = {}
    missing: list[Diagnostic] = []
    if tuned:
        choices = tuned_choices(request.file, request.kernel, defines, archs[0], missing=missing)
    if missing:
        sys.stderr.write(render(missing, "text") + "\n")
    observed = Observed(Path(request.file).name)
    compiled, _ = compile_tuned(
        request.file,
        choices,
        kernel=request.kernel,
        defines=defines,
        archs=archs,
        stop="cu" if request.html else "kernel-ir",
        observe=observed.see,
    )
    check_required(compiled, required)
    if request.svg:
        write_pictures(compiled, request.svg)
    rejected = {
        kernel.name: rejected_candidates(request.file, kernel, defines, archs[0])
        for kernel in compiled.kernels
    }
    text = Path(request.file).read_text(encoding="utf-8")
    calls = bound_launches(request.file, compiled, request.settings)
    explanation = explain_compiled(compiled, text, rejected, calls)
    if request.html:
        write_report(request.html, observed, compiled, text, explanation)
    else:
        sys.stdout.write(explanation)
    return 0


def explain_compiled(
    compiled: CompiledFile,
    text: str = "",
    rejected: Mapping[str, Sequence[str]] | None = None,
    calls: Mapping[str, str] | None = None,
) -> str:
    """The explanation of a compiled file; `text` is its source, to show the lines; `rejected` other candidates by kernel; `calls` what a
    whole launch takes at least, by variant."""
    source = text
    if not source and compiled.dependencies:
        source = Path(compiled.dependencies[0]).read_text(encoding="utf-8")
    lines = {Path(compiled.source_name).name: source.splitlines()}
    parts: list[str] = []
    for kernel in compiled.kernels:
        for arch, variants in kernel.manifest["targets"].items():
            others = (rejected or {}).get(kernel.name, ())
            parts += _kernel(kernel, arch, variants, lines, others, calls or {})
    return "\n".join(parts).rstrip() + "\n"


def _kernel(
    kernel: CompiledKernel,
    arch: str,
    variants: Sequence[Mapping[str, Any]],
    lines: Mapping[str, Sequence[str]],
    rejected: Sequence[str],
    calls: Mapping[str, str],
) -> Iterator[str]:
    from tilec.explain.text import kernel_lines

    manifest = kernel.manifest
    kernels = {one.name: one for one in kernel.lowered[arch]}
    yield f"kernel {manifest['kernel']} for {arch}"
    chosen = [
        f"{name} = {value} ({manifest['origin'].get(name, 'default')})"
        for name, value in manifest["candidate"].items()
    ]
    if chosen:
        yield f"  chosen: {', '.join(chosen)}"
    for text in rejected:
        yield f"  not taken: {text}"
    shown: list[Mapping[str, Any]] = []
    described: dict[str, list[str]] = {}
    for variant in variants:
        yield ""
        yield f"  {variant['kernel']}: {_launched(variant, variant is variants[0])}"
        yield f"    {_shape(variant)}"
        yield from _products(variant)
        yield from _roles(variant)
        if variant["held_tiles"]:
            yield f"    in registers: {', '.join(variant['held_tiles'])}"
        if variant["inline_tiles"]:
            yield f"    computed where used: {', '.join(variant['inline_tiles'])}"
        own = list(kernel_lines(kernels[variant["kernel"]], arch))
        if variant["kernel"] in calls:
            yield f"    {calls[variant['kernel']]}"
        like = next((name for name, lines_ in described.items() if lines_ == own), "")
        described.setdefault(variant["kernel"], own)
        yield from (
            [f"    bounds, registers, memory and layouts as {like}"]
            if like
            else (f"    {text}" for text in own)
        )
        twin = next((v for v in shown if v["lines"] == variant["lines"]), None)
        if twin is not None:
            yield f"    line by line as {twin['kernel']}"
            continue
        shown.append(variant)
        for line in variant["lines"]:
            yield from _line(line, variant, lines, _wide(variants, variant))
    yield ""


def _launched(variant: Mapping[str, Any], first: bool) -> str:
    if variant["condition"] == "always":
        return "always launched" if first else "launched otherwise"
    return f"launched if {variant['condition']}"


def _wide(variants: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> set[Access]:
    """Accesses that another variant makes in vectors, where this one moves single elements."""
    return {
        (line["at"], note["what"], note["tensor"])
        for variant in variants
        if variant is not own and own["condition"] == "always"
        for line in variant["lines"]
        for note in line["notes"]
        if str(note.get("transport", "")).startswith(("vectors", "cp.async", "bulk"))
    }


def _shape(variant: Mapping[str, Any]) -> str:
    several = variant["instances_per_cta"]
    axes = ", ".join(
        f"{name} {axis['threads']} threads x "
        + (
            "walked in vectors"
            if axis["vectors"] == "walked"
            else f"{axis['vectors']} vector{'s' if axis['vectors'] != 1 else ''}"
        )
        + f" of {axis['width']}"
        for name, axis in variant["axes"].items()
        if (axis["threads"], axis["width"]) != (1, 1)
    )
    parts = [f"{variant['threads']} threads"]
    if several > 1:
        parts.append(f"{several} instances a CTA")
    if variant["shared_bytes"]:
        parts.append(f"{variant['shared_bytes']} bytes shared")
    parts.append(f"{variant['held_registers']} registers a thread hold tiles")
    if "tiles" in variant:
        parts.append("tiles " + ", ".join(f"{n} = {v}" for n, v in variant["tiles"].items()))
    order = "".join(
        f"\n    grid: {d['loop']} {'' if d['order'] == 'last first' else 'in '}{d['order']}"
        for d in variant["grid"]
        if d["order"] != "in order"
    )
    return ", ".join(parts) + (f"\n    layouts: {axes}" if axes else "") + order


def _products(variant: Mapping[str, Any]) -> Iterator[str]:
    products = variant.get("products")
    if not products:
        return
    stages = f"{products['stages']} stages, " if "stages" in products else ""
    yield (
        f"    products: {products['warps']} warps, {products['warps_along']} along the rows and {products['warps_across']} across, "
        f"{stages}{products['accumulators_per_thread']} accumulators a thread, "
        f"{products['padding_waste']:.1%} of the work is padding"
        + (f", computed {products['computed']}" if "computed" in products else "")
        + "".join(
            f", {name} shared out over warpgroups that compute the rest of the same rows each"
            for name in products.get("shared_out", [])
        )
    )


_STEPS = {
    "filter_trips": "a loop has the trips for which the condition around its body holds, and no others",
    "rotate": "products of a trip start before the last trip's are done (the loop is rotated)",
    "fold_exponents": "exponents are kept in units of the scale, one FMA in front of each exponential",
    "keep_references": "rows keep an earlier trip's maximum as their reference until a weight exceeds 2^8 (rounding at another scale)",
    "rows_first": "what is done once a row comes in front of what is done for each element",
    "defer_sums": "sums of a loop are added up over lanes behind it",
}
"""What the steps of a schedule do."""


def _roles(variant: Mapping[str, Any]) -> Iterator[str]:
    """Roles, channels and departures of an asynchronous variant, or why it is none."""
    if "not_asynchronous" in variant:
        yield f"    no products of warpgroups: {variant['not_asynchronous']}"
    roles = variant.get("roles")
    if not roles:
        return
    producer, consumers = roles["producer"], roles["consumers"]
    turns = ", which take turns at starting products" if consumers["take_turns"] else ""
    yield (
        f"    roles: {producer['working']} of {producer['threads']} threads bring tiles ({producer['registers']} registers), "
        f"{consumers['warpgroups']} warpgroup{'s' * (consumers['warpgroups'] > 1)} multiply ({consumers['registers']} registers){turns}"
    )
    if "end_in_turn" in consumers:
        ends = consumers["end_in_turn"]
        yield (
            f"    warpgroups end in turn: each starts its last {ends['trips']} trips when the one before has started all of its own: "
            f"{ends['reason']}"
        )
    for channel in variant["channels"]:
        tiles = ", ".join(
            f"{tile['tensor']} {tile['dtype']}[{tile['rows']}, {tile['cols']}]"
            + (f" ({tile['multicast']})" if "multicast" in tile else "")
            for tile in channel["tiles"]
        )
        yield (
            f"    channel {channel['ring']}: {tiles}, {channel['slots']} slots of {channel['bytes']} bytes, "
            f"filled {', '.join(channel['filled'])}"
        )
    for departure in variant["departures"]:
        yield (
            f"    leaves: {departure['tensor']}, {departure['chunks_of_a_warp']} chunks of each warp, {departure['transport']}"
        )
    for copy in variant.get("copies", ()):
        yield f"    copied first: {copy['tensor']} where {copy['where']}, by {copy['kernel']}, to {copy['to']}"
    if "all_trips" in variant:
        yield (
            f"    trips: all are run, also those whose mask is false everywhere: {variant['all_trips']}; where that does not matter, an `if` around the loop's body leaves them out"
        )
    if "cluster" in variant:
        cluster = variant["cluster"]
        yield f"    clusters of {cluster['ctas']} CTAs, neighbours along {cluster['neighbours_along']}"
    if "split" in variant:
        split = variant["split"]
        yield (
            f"    split: {split['ctas']} CTAs of a cluster share the trips of {split['loop']} and send each other {split['exchanged_bytes']} bytes "
            f"of sums a tile: {split['bytes_for_each']:g} bytes come to a multiprocessor for each of {split['read_once']}, "
            f"{split['bytes_for_each_unsplit']:g} with tiles as much narrower"
        )
    yield f"    instances: {variant['instances']}"
    if "launch" in variant:
        yield f"    launch: {variant['launch']}"
    for step in variant["schedule"]:
        yield f"    schedule: {_STEPS.get(step, step)}"


def _line(
    line: Mapping[str, Any],
    variant: Mapping[str, Any],
    lines: Mapping[str, Sequence[str]],
    wide: Collection[Access],
) -> Iterator[str]:
    number = line["at"]
    known = lines.get(line["file"], ())
    text = known[number - 1].split("#")[0].strip() if number <= len(known) else ""
    yield f"    {line['file']}:{number}" + (f"  {text}" if text else "")
    for sentence in dict.fromkeys(
        _sentence(n, line, variant, wide) for n in _merged(line["notes"])
    ):
        yield f"      {sentence}"


def _merged(notes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Notes that hold in the interior and in the edge trips alike become one."""
    found: list[dict[str, Any]] = []
    for note in notes:
        plain = {k: v for k, v in note.items() if k != "trips"}
        for other in found:
            same = {k: v for k, v in other.items() if k != "trips"} == plain
            if same and other.get("trips") != note.get("trips"):
                other.pop("trips", None)
                break
            if same:
                break
        else:
            found.append(dict(note))
    return found


def _sentence(
    note: Mapping[str, Any],
    line: Mapping[str, Any],
    variant: Mapping[str, Any],
    wide: Collection[Access],
) -> str:
    trips = {"interior": ", in the trips without masks", "edges": ", in the edge trips"}.get(
        note.get("trips", ""), ""
    )
    match note["what"]:
        case "barrier":
            return f"barrier: {note['hazard']}"
        case "masks":
            return f"masks of the loop {note['loop']}: {note['how']}{trips}"
        case "reduction" | "sums" | "wait" | "turn" | "slice" | "ahead" | "private":
            return f"{note['what']}: {note['how']}"
        case "stage":
            return f"stage: {note['how']}{trips}"
        case "product":
            share = (
                f"warp tile {note['warp_tile']}"
                if "warp_tile" in note
                else f"warpgroup tile {note['warpgroup_tile']}"
            )
            ahead = ", the next step's operands are read ahead" if note["operands_ahead"] else ""
            return (
                f"product: {_instruction(line, variant) or note['instruction']}, {share}, "
                f"A from {note['a_from']}, B from {note['b_from']}, {note['consumed']} consumed a trip{ahead}{trips}"
            )
        case _:
            why = next((w for start, w in _REASONS if note["transport"].startswith(start)), "")
            if (line["at"], note["what"], note["tensor"]) in wide:
                why = "this variant takes every address and size"
            kept = [_LIVE if mask == "live" else mask for mask in note["masks"]]
            masks = f"masks kept: {', '.join(kept)}" if kept else "no mask"
            reason = f" – {why}" if why else ""
            return f"{note['what']} {note['tensor']}: {note['transport']}, {masks}{trips}{reason}"


def _instruction(line: Mapping[str, Any], variant: Mapping[str, Any]) -> str:
    found = [
        f"{i['instruction']} {i['operands']}"
        for i in variant.get("products", {}).get("instructions", ())
        if i["at"] == line["at"]
    ]
    return found[0] if found else ""
