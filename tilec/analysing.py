"""A `.tile` file as far as Tile IR: its kernels, with the tile sizes that they are compiled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilec.lazy_dataclass import dataclass
from tilec.source.diagnostics import Sink, TileError, fail
from tilec.targets.table import DEFAULT_ARCH

if TYPE_CHECKING:
    from tilec.ir.tile_ir import Program
    from tilec.passes.unswitch import Version
    from tilec.plan.candidate import Candidate, Choice
    from tilec.syntax import ast
    from tilec.syntax.loading import Program as Files


@dataclass(frozen=True)
class AnalysedKernel:
    """A kernel's syntax, its candidate and its Tile IR. `general`: candidate and Tile IR with the tile sizes of variants beside the
    target's best form of products, where they are not those of that form; `by_size`: with those that launches take
    first where their sizes suit these better: of wider steps, where a loop has more trips in some instances than in others and narrow ones are
    taken for that, and of other tiles beside a short side."""

    syntax: ast.Kernel
    candidate: Candidate
    program: Program
    general: tuple[Program, Candidate] | None = None
    by_size: tuple[tuple[Program, Candidate], ...] = ()
    versions: tuple[Version, ...] = ()
    """for each outcome of what the host can ask, in place of the program in the target's best form of products"""


def no_kernel(path: str, kernel: str | None, known: Sequence[str]) -> TileError:
    """The error where a file has not the kernel that was asked for, or none at all."""
    import difflib

    near = difflib.get_close_matches(kernel or "", known, n=1)
    helped = f"did you mean `{near[0]}`?" if near else ""
    if kernel is not None and kernel.endswith(".tile"):
        helped = "name one file, and behind it one of its kernels"
    names = ", ".join(f"`{name}`" for name in known) or "none"
    wanted = f"no kernel `{kernel}`" if kernel else "no kernel"
    return fail("E0706", f"`{path}` has {wanted}", note=f"its kernels: {names}", help=helped)


def analyse_file(
    path: str,
    *,
    kernel: str | None = None,
    defines: Mapping[str, str] | None = None,
    choices: Mapping[str, Choice] | None = None,
    arch: str = DEFAULT_ARCH,
    smaller: int = 0,
) -> tuple[Files, list[AnalysedKernel], Sink]:
    """Parse, resolve and analyse the kernels of a file (all of them, or one), with the `auto` tile sizes of `arch`. `choices` are
    values that tuning found, by kernel; products of warps have none of the first `smaller` of WARP_TILES. Raises TileError with every
    error of the file."""
    from tilec.analysis.checks import analyse_checks
    from tilec.planning import Trials, plan_kernel, versions
    from tilec.syntax import ast
    from tilec.syntax.loading import load

    files = load(path)
    sink = Sink()
    found: list[AnalysedKernel] = []
    kernels = [item for item in files.main.items if isinstance(item, ast.Kernel)]
    if kernel is not None and kernel not in [item.name for item in kernels]:
        raise no_kernel(path, kernel, [item.name for item in kernels])
    for item in kernels:
        if kernel is not None and item.name != kernel:
            continue
        elsewhere = tuple(b.name for other in kernels if other is not item for b in other.brackets)
        trials = Trials(files, item, defines or {}, (choices or {}).get(item.name, {}), elsewhere)
        planned = plan_kernel(trials, arch, smaller)
        for diagnostic in planned.sink.diagnostics:
            sink.add(diagnostic)
        if planned.candidate is not None and planned.program is not None:
            analyse_checks(files, item, files.main, planned.candidate, sink)
            found.append(
                AnalysedKernel(
                    item,
                    planned.candidate,
                    planned.program,
                    planned.general,
                    planned.by_size,
                    versions(trials, planned, arch, smaller),
                )
            )
    sink.raise_if_errors()
    return files, found, sink
