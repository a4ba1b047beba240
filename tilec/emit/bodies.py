"""Kernels of a nest as text: bodies shared by variants that differ in numbers only, and the entry points."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tilec.emit.c_names import c_name
from tilec.emit.grid import decode, first_instance, shares
from tilec.emit.kernel_text import KernelWriter, macros
from tilec.emit.layout import indent
from tilec.emit.types import DEVICE
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.facts import Facts
from tilec.ir.launch import (
    IntegerArgument,
    PointerArgument,
    ScalarArgument,
    TensorMapArgument,
)
from tilec.ir.tile_ir import Program
from tilec.lazy_dataclass import dataclass
from tilec.source.exhaustive import assert_never

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class GuardedKernel:
    """A kernel with the preprocessor condition of its architecture, or "", the program that it is of, and the number of the tuned
    variant, 0 for the general one."""

    kernel: k.Kernel
    guard: str
    program: Program
    variant: int = 0


@dataclass(frozen=True)
class KernelTexts:
    """Texts of one kernel's section, in order."""

    bodies: tuple[str, ...]
    wrappers: tuple[str, ...]


def render_kernels(kernels: Sequence[GuardedKernel]) -> KernelTexts:
    """Bodies and entry points."""
    facts: dict[int, Facts] = {}
    drafts: list[Draft] = []
    for one in kernels:
        if id(one.program) not in facts:
            facts[id(one.program)] = Facts.of(one.program)
        drafts.append(_draft(one.program, one.kernel, one.guard, facts[id(one.program)]))
    groups: dict[tuple[str, str], list[Draft]] = {}
    for draft in drafts:
        groups.setdefault((draft.kernel.body_name, draft.key), []).append(draft)
    bodies: list[str] = []
    wrappers: list[str] = []
    numbers: dict[str, int] = {}
    unit = macros("unit/kernel.jinja")
    for (base, _), group in groups.items():
        numbers[base] = numbers.get(base, 0) + 1
        name = base if numbers[base] == 1 else f"{base}_{numbers[base]}"
        first = group[0]
        varying = [
            c
            for c in first.constants
            if len(group) > 1 and len({d.constants[c] for d in group}) > 1
        ]
        fixed = [(c, n) for c, n in first.constants.items() if c not in varying]
        text = unit["body"](
            name,
            varying,
            [*first.tiles, *fixed],
            first.parameters,
            first.shared,
            _storage(first.kernel),
            first.prologue,
            first.text,
        )
        bodies.append(indent(str(text)))
        for draft in group:
            arguments = ", ".join(draft.argument_names)
            template = ""
            if varying:
                template = "<" + ", ".join(f"/*{c}=*/{draft.constants[c]}" for c in varying) + ">"
            wrappers.append(
                indent(
                    str(
                        unit["wrapper"](
                            draft.kernel.name,
                            draft.guard,
                            draft.kernel.cluster,
                            draft.kernel.threads,
                            draft.kernel.blocks_per_sm,
                            [_entry_parameter(p) for p in draft.parameters],
                            f"{name}{template}({arguments})",
                        )
                    )
                )
            )
    return KernelTexts(tuple(bodies), tuple(wrappers))


def _storage(kernel: k.Kernel) -> str:
    """The primitive that gives the shared memory."""
    if kernel.panels:
        return "dynamic_shared_aligned"
    return "dynamic_shared" if kernel.dynamic else "cta_shared"


@dataclass
class Draft:
    """One kernel before bodies are shared."""

    kernel: k.Kernel
    guard: str
    text: str
    prologue: list[str]
    parameters: list[str]
    argument_names: list[str]
    shared: list[str]
    constants: dict[str, int]
    tiles: list[tuple[str, int]]
    key: str


def _draft(program: Program, kernel: k.Kernel, guard: str, facts: Facts) -> Draft:
    writer = KernelWriter(kernel, facts)
    text = writer.body()
    parameters, names = _parameters(program, kernel)
    mentioned = frozenset(_WORD.findall(text))
    prologue = _prologue(kernel, writer, text, mentioned)
    arrays = [
        f"{f'alignas({b.alignment}) ' if b.alignment else ''}"
        f"SharedArray<{_shared_type(b)}, {b.count_text or b.count // b.vector}> {b.name};"
        for b in kernel.shared
    ]
    shared = [*arrays]
    shared += [
        f"{_tile_type(b)}<{DEVICE[b.rep]}, {b.rows}, {b.cols}> {b.name}"
        + (f"[{b.slots}];" if b.slots > 1 else ";")
        for b in kernel.tiles
    ]
    # panels begin at larger multiples than all else: in front of it they leave no room between
    shared = [f"{_panel_type(b)} {b.name}[{b.slots}];" for b in kernel.panels] + shared
    shared += [f"SharedBarrier {b.name}[{b.slots}];" for b in kernel.barriers]
    constants: dict[str, int] = {}
    for axis in kernel.axes:
        digit = axis.layout.thread_digit if axis.layout.is_blocked else None
        threads = digit.radix if digit else 1
        lanes = min(threads, max(1, 32 // digit.divisor)) if digit else 1
        for name, number in (
            ("Steps", axis.layout.steps),
            ("Threads", threads),
            ("Lanes", lanes),
            ("Width", axis.layout.vector),
        ):
            constants[f"k{name}{axis.suffix}"] = number
    constants["kGroup"] = kernel.workers // kernel.batch
    constants["kCtaThreads"] = kernel.threads
    constants["kCluster"] = kernel.cluster
    constants["kInstances"] = kernel.batch
    words = mentioned.union(*(_WORD.findall(line) for line in (*prologue, *shared)))
    constants = {c: n for c, n in constants.items() if c in words}
    tiles = [(c_name(c), n) for c, n in kernel.constants if c_name(c) in words]
    key = "\x00".join([text, *prologue, *shared, *parameters, guard, repr(tiles)])
    return Draft(kernel, guard, text, prologue, parameters, names, shared, constants, tiles, key)


def _parameters(program: Program, kernel: k.Kernel) -> tuple[list[str], list[str]]:
    parameters: list[str] = []
    names: list[str] = []
    writable = {name: (dtype, w) for name, dtype, w in kernel.tensors}
    scalars = {s.name: s.dtype for s in program.scalars}
    for argument in kernel.arguments:
        match argument:
            case PointerArgument():
                dtype, written = writable[argument.tensor]
                name = c_name(argument.tensor)
                const = "" if written else "const "
                parameters.append(f"{const}{DEVICE[dtype]}* __restrict__ {name}")
            case IntegerArgument():
                name = c_name(argument.name)
                parameters.append(f"{'int64_t' if argument.wide else 'int'} {name}")
            case ScalarArgument():
                dtype = scalars[argument.name]
                name = c_name(argument.name)
                narrow = dtype.is_float and dtype.bits < 32
                parameters.append(f"{'float' if narrow else DEVICE[dtype]} {name}")
            case TensorMapArgument():
                name = c_name(argument.name)
                parameters.append(f"{_MAP}& {name}")
            case _:
                assert_never(argument)
        names.append(name)
    return parameters, names


_MAP = "const CUtensorMap"


def _entry_parameter(parameter: str) -> str:
    """A parameter of a body as the entry point has it: a map by value, where copies find it."""
    return parameter.replace(f"{_MAP}&", "const __grid_constant__ CUtensorMap")


def _shared_type(buffer: k.SharedBuffer) -> str:
    """The type of what a buffer is an array of."""
    rep = DEVICE[buffer.rep]
    if buffer.indexed:
        return f"Indexed<{rep}>"
    return rep if buffer.vector == 1 else f"Vector<{rep}, {buffer.vector}>"


def _panel_type(tile: a.PanelBuffer) -> str:
    """The device's type of a tile that bulk copies bring or take away."""
    element = DEVICE[tile.rep]
    if tile.rows == 1:
        return f"RowTile<{element}, {tile.cols}>"
    return f"PanelTile<{element}, {tile.rows}, {tile.cols}>"


def _tile_type(tile: k.TileBuffer) -> str:
    """The device's type of an operand's tile."""
    return "PlainTile" if tile.plain else "SteppedTile" if tile.constant else "SharedTile"


def _prologue(
    kernel: k.Kernel, writer: KernelWriter, text: str, mentioned: Collection[str]
) -> list[str]:
    """Numbers of thread, instance and axes, as far as the text, whose words are `mentioned`, needs them."""
    lanes: list[str] = []
    words = set(mentioned)

    for axis in kernel.axes:
        digit = axis.layout.thread_digit
        fixed = not axis.layout.streams and not writer.loops(axis)
        if fixed and axis.coordinate in words:
            value = axis.lane if axis.layout.threads > 1 else "0"
            lanes.append(f"const int {axis.coordinate} = {value};")
            words.add(value)
    for axis in kernel.axes:
        digit = axis.layout.thread_digit
        if axis.lane not in words:
            continue
        if not axis.layout.is_blocked:
            const = "" if f"renew({axis.lane});" in text else "const "
            lanes.insert(0, f"{const}int {axis.lane} = {_first_coordinate(axis)};")
            words.add("thread")
            continue
        if digit is None or digit.radix == 1:
            lanes.insert(0, f"const int {axis.lane} = 0;")
            continue
        value = "thread"
        if digit.divisor > 1:
            value = f"thread / {digit.divisor}"
        if digit.divisor * digit.radix < kernel.workers:
            value += f" % kThreads{axis.suffix}"
        lanes.insert(0, f"const int {axis.lane} = {value};")
        words.add("thread")
    if kernel.producers:
        lanes.insert(0, "const int thread = static_cast<int>(threadIdx.x);")
        rank = ["const int rank = cluster_rank();"] if kernel.cluster > 1 else []
        first_of_all = ["launch_dependents();"] if kernel.early else []
        return [*first_of_all, *lanes, *rank, *_ahead(kernel, writer), *_barriers(kernel, writer)]
    first, number = "static_cast<int>(blockIdx.x)", "static_cast<int>(threadIdx.x)"
    if kernel.cluster > 1:
        mine, size = (number, "kCtaThreads") if kernel.batch == 1 else ("own", "kGroup")
        first, number = f"{first} / kCluster", f"cluster_rank() * {size} + {mine}"
        if "thread" in words and mine == "own":
            words.add("own")
    if kernel.batch > 1:
        first += " * kInstances + thread / kGroup"
    grid = [] if kernel.queue else decode(kernel, writer.renderer, words, first, "live" in words)
    if "thread" in words or any("thread" in g for g in grid):
        lanes.insert(0, f"const int thread = {number};")
    if "own" in words:
        within = " % kGroup" if kernel.batch > 1 else ""
        lanes.insert(0, f"const int own = static_cast<int>(threadIdx.x){within};")
    if "team" in words:
        lanes.insert(0, "const int team = static_cast<int>(threadIdx.x) / kGroup;")
    return [*lanes, *grid]


def _ahead(kernel: k.Kernel, writer: KernelWriter) -> list[str]:
    """What one thread asks the L2 for, for the CTA's first instance."""
    roles = next((op for op in kernel.body if isinstance(op, a.Roles)), None)
    if roles is None or not roles.ahead:
        return []
    text = writer.block(roles.ahead)
    numbers = first_instance(kernel, writer.renderer, set(_WORD.findall(text)))
    return [f"if (thread == {roles.consumers}) {{", *numbers, text, "}"]


def _barriers(kernel: k.Kernel, writer: KernelWriter) -> list[str]:
    """The barriers' first state, and what instances are shared out by, set by one thread."""
    lines = ["if (thread == 0) {"]
    for barrier in kernel.barriers:
        lines.append(f"for (int slot = 0; slot < {barrier.slots}; ++slot) {{")
        lines.append(f"barrier_init(shared.{barrier.name}[slot], {barrier.arrivals});")
        lines.append("}")
    ready = "__syncthreads();  // the barriers are ready"
    meet = [ready] if kernel.cluster == 1 else ["cluster_sync();"]
    if kernel.cluster > 1 and not kernel.cluster_digit:
        # only what consumers send leaves the CTA: they wait for the others themselves
        meet = [ready, "cluster_arrive();"]
    waited = ["wait_prerequisites();"] if kernel.early else []
    return [*lines, *shares(kernel, writer.renderer), "barrier_init_fence();", "}", *waited, *meet]


def _first_coordinate(axis: k.LoopAxis) -> str:
    """The thread's share of a coordinate."""
    parts = []
    for digit in axis.layout.thread_digits:
        if digit.radix == 1:
            continue
        value = "thread" if digit.divisor == 1 else f"thread / {digit.divisor}"
        value += f" % {digit.radix}"
        parts.append(value if digit.stride == 1 else f"{value} * {digit.stride}")
    return " + ".join(parts) or "0"
