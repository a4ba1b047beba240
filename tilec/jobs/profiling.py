"""The work of `tilec profile`: what each compiled kernel uses of an SM, and what it moves."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tilec.jobs.requests import check_source, parse_archs, parse_pairs
from tilec.source.diagnostics import TileError, fail
from tilec.targets.occupancy import Limiter, occupancy
from tilec.targets.table import TARGETS

if TYPE_CHECKING:
    from tilec.compiled import CompiledFile, CompiledKernel
    from tilec.toolchain.build import Built
    from tilec.toolchain.ncu import Ncu
    from tilec.toolchain.ptxas import KernelResources


@dataclass(frozen=True)
class Usage:
    """One compiled variant on one architecture. Sizes in bytes; spills for one thread; `occupancy` is the share of an SM's warp
    slots that its resident CTAs take, `ctas_per_sm` their number."""

    kernel: str
    arch: str
    threads: int
    registers: int
    spill_stores: int
    spill_loads: int
    stack_frame: int
    shared_bytes: int
    ctas_per_sm: int
    occupancy: float
    limiter: Limiter


@dataclass(frozen=True)
class Traffic:
    """What one launch does at some sizes. `source` is `ncu`, or `estimated`: bytes of arguments counted once, the shares from
    the data sheet of `device`. Shares are of the peak; None where nothing can be said."""

    kernel: str
    sizes: str
    dram_bytes: float | None
    tensor_share: float | None
    achieved_occupancy: float | None
    source: str
    device: str
    theoretical_occupancy: float | None = None
    """as ncu computes it; ours is in `Usage`"""


@dataclass(frozen=True)
class ProfileRequest:
    """The command line of `tilec profile`, option by option; `settings` and `defines` are `NAME=VALUE` texts."""

    file: str
    kernel: str | None = None
    settings: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    arch: str | None = None
    nvcc: str | None = None
    ncu: str = "auto"
    as_json: bool = False


def profile_file(request: ProfileRequest) -> int:
    """Compile, build, print. Needs nvcc and no GPU. Returns the exit status. Raises TileError."""
    from tilec.compiler import compile_file

    check_source(request.file)
    tool = _tool(request.ncu)
    arch = _arch(request)
    compiled = compile_file(
        request.file,
        kernel=request.kernel,
        defines=parse_pairs(request.defines, "-D"),
        archs=(arch,),
    )
    built = build_cubin(compiled, arch, request.nvcc)
    uses = [u for k in compiled.kernels for u in usage(k, arch, built.report)]
    traffic, notes = _traffic(request, compiled, arch, uses, tool)
    if request.as_json:
        data = {
            "arch": arch,
            "kernels": [asdict(u) for u in uses],
            "launches": [asdict(t) for t in traffic],
            "notes": notes,
        }
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        sys.stdout.write(profile_text(arch, uses, traffic, notes))
    return 0


def _arch(request: ProfileRequest) -> str:
    from tilec.runtime.launching import architecture_for
    from tilec.toolchain.driver import query_driver

    if request.arch:
        return parse_archs((request.arch,))[0]
    found = query_driver().devices
    return architecture_for(found[0].compute_capability) if found else parse_archs(())[0]


def build_cubin(compiled: CompiledFile, arch: str, nvcc: str | None) -> Built:
    """The machine code of a file, from the cache where it was built before. Raises TileError as building does."""
    from tilec.toolchain.build import compile_cubin, find_toolchain
    from tilec.toolchain.cache import default_cache

    cache = default_cache()
    toolchain = find_toolchain(nvcc, cache=cache)
    return compile_cubin(compiled.cu, arch, toolchain=toolchain, cache=cache)


def usage(
    kernel: CompiledKernel, arch: str, report: Sequence[KernelResources]
) -> tuple[Usage, ...]:
    """Each variant of a kernel with what ptxas said of it. Raises KeyError where the report lacks one."""
    said = {r.kernel: r for r in report}
    found = []
    for variant in kernel.lowered[arch]:
        resources = said[variant.name]
        dynamic = variant.shared_bytes if variant.dynamic else 0
        shared = resources.static_shared + dynamic
        fits = occupancy(TARGETS[arch], variant.threads, resources.registers, shared)
        found.append(
            Usage(
                variant.name,
                arch,
                variant.threads,
                resources.registers,
                resources.spill_stores,
                resources.spill_loads,
                resources.stack_frame,
                shared,
                fits.ctas,
                fits.share,
                fits.limiter,
            )
        )
    return tuple(found)


def _tool(named: str) -> Ncu | str:
    """The ncu, or why nothing is measured. Raises TileError (E0804) for one that was named and does not start: what was asked for is
    not silently estimated."""
    from tilec.toolchain.ncu import find_ncu

    if named == "off":
        return "`--ncu off`"
    found = find_ncu(named)
    if isinstance(found, str) and named != "auto":
        raise no_such_tool(named)
    return found


def _traffic(
    request: ProfileRequest,
    compiled: CompiledFile,
    arch: str,
    uses: Sequence[Usage],
    tool: Ncu | str,
) -> tuple[list[Traffic], list[str]]:
    """What launches do at the example sizes: measured where ncu works, else estimated, and notes why."""
    from tilec.jobs.example_sizes import bound_sizes
    from tilec.toolchain.driver import query_driver
    from tilec.toolchain.ncu import measure

    driver = query_driver()
    why = tool if isinstance(tool, str) else ""
    if not driver.devices:
        why = driver.problem
    traffic: list[Traffic] = []
    notes: list[str] = []
    for kernel in compiled.kernels:
        try:
            sizes = bound_sizes(request.file, kernel, parse_pairs(request.settings, "-s"))
        except TileError as error:
            notes.append(f"{kernel.name}: {error.diagnostics[0].message}")
            continue
        estimated = estimate(kernel, arch, sizes, uses)
        if why or isinstance(tool, str):
            traffic += estimated
            continue
        measured = measure(tool, request.file, kernel.name, request.settings, request.defines)
        if isinstance(measured, str):
            notes.append(f"{kernel.name}: ncu gave nothing: {measured}")
            traffic += estimated
            continue
        for number, launch in enumerate(measured):
            base = estimated[min(number, len(estimated) - 1)]
            traffic.append(
                replace(
                    base,
                    kernel=launch.kernel,
                    dram_bytes=launch.dram_bytes,
                    tensor_share=launch.tensor_share,
                    achieved_occupancy=launch.achieved_occupancy,
                    source="ncu",
                    device=driver.devices[0].name,
                    theoretical_occupancy=launch.theoretical_occupancy,
                )
            )
    if why and traffic:
        notes.append(f"estimated, not measured: {why}")
    return traffic, notes


def estimate(kernel: CompiledKernel, arch: str, sizes: Any, uses: Sequence[Usage]) -> list[Traffic]:
    """One row for each launch. The bytes are those of a whole call – each input once, each output once, temps written and read –
    and stand with its first launch; the tensor share is that of a roofline, which no kernel exceeds."""
    from tilec.runtime.gpu_run import moved_bytes
    from tilec.runtime.launching import concrete_launches, workspace_bytes
    from tilec.runtime.work import product_operations
    from tilec.targets.devices import REPRESENTATIVES

    plan = kernel.plan
    device = REPRESENTATIVES.get(arch)
    addresses = {t.name: (n + 1) << 40 for n, t in enumerate(plan.parameters)}
    (target,) = plan.targets
    multiprocessors = device.multiprocessors if device else 1
    launches = concrete_launches(
        plan, target, sizes, addresses, 1 << 50, multiprocessors=multiprocessors
    )
    moved = float(moved_bytes(plan, sizes) + 2 * workspace_bytes(plan, sizes))
    operations = product_operations(kernel.program, sizes)
    known = {u.kernel: u for u in uses}
    rows = []
    for number, launch in enumerate(launches):
        use = known[launch.kernel]
        share = achieved = None
        if device is not None:
            whole = max(1, use.ctas_per_sm) * device.multiprocessors
            waves = launch.grid / whole
            achieved = use.occupancy * waves / -(-waves // 1)
            if operations is not None and number == 0:
                busy = operations / device.tensor_teraflops / 1e12
                share = busy / max(busy, moved / device.dram_gigabytes / 1e9)
        rows.append(
            Traffic(
                launch.kernel,
                str(sizes),
                moved if number == 0 else None,
                share,
                achieved,
                "estimated",
                device.name if device else "",
            )
        )
    return rows


def profile_text(
    arch: str, uses: Sequence[Usage], traffic: Sequence[Traffic], notes: Sequence[str]
) -> str:
    """Two tables and the notes."""
    from tilec.runtime.outcome import table

    rows = [
        ("kernel", "threads", "registers", "spills", "shared", "CTAs/SM", "occupancy", "limiter")
    ]
    rows += [
        (
            u.kernel,
            str(u.threads),
            str(u.registers),
            f"{u.spill_stores + u.spill_loads} B" if u.spill_stores + u.spill_loads else "none",
            f"{u.shared_bytes} B",
            str(u.ctas_per_sm),
            f"{u.occupancy:.1%}",
            u.limiter,
        )
        for u in uses
    ]
    parts = [f"{arch}\n{table(rows)}"]
    if traffic:
        lines = [("launch", "sizes", "DRAM", "tensor share", "achieved occupancy", "from")]
        lines += [
            (
                t.kernel,
                t.sizes,
                "–" if t.dram_bytes is None else f"{t.dram_bytes / 1e6:.1f} MB",
                _share(t.tensor_share, t.source),
                _share(t.achieved_occupancy, t.source),
                t.source + (f" for {t.device}" if t.source != "ncu" and t.device else ""),
            )
            for t in traffic
        ]
        parts.append(table(lines))
    parts += [f"note: {n}" for n in notes]
    return "\n\n".join(parts) + "\n"


def _share(share: float | None, source: str) -> str:
    if share is None:
        return "–"
    return f"{share:.1%}" if source == "ncu" else f"<= {share:.1%}"


def no_such_tool(name: str) -> TileError:
    """The message for an ncu that was named and does not start."""
    return fail(
        "E0804",
        f"`{name}` is no Nsight Compute that starts",
        help="install the CUDA toolkit, or leave `--ncu` out",
    )
