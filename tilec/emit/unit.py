"""A whole `.cu` and its header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from tilec import __version__
from tilec.emit.bodies import GuardedKernel, render_kernels
from tilec.emit.c_names import c_name
from tilec.emit.kernel_text import environment
from tilec.emit.launcher import LauncherContext
from tilec.emit.layout import indent
from tilec.emit.primitives import Block, closure, identifiers, includes, parse_blocks
from tilec.emit.wgmma import blocks_of
from tilec.ir.launch import LaunchPlan, TargetPlan
from tilec.ir.selection import GENERAL
from tilec.ir.tile_ir import Program
from tilec.lazy_dataclass import dataclass
from tilec.resources import resource_text

KERNEL_BEGIN = "// kernel begin"
KERNEL_END = "// kernel end"

RULE = 96
"""Columns of the line above a kernel's section, with its name at the end."""


@dataclass(frozen=True)
class UnitKernel:
    """One kernel of a unit: its source-level signature, program, plan, and Kernel IR. `apart`: where its variants are units of their own,
    the names of their launchers by number, the general one's too; then `kernels` is empty."""

    signature: str
    program: Program
    plan: LaunchPlan
    kernels: tuple[GuardedKernel, ...]
    apart: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_tuned(self) -> bool:
        """Whether its launcher selects among variants that tuning found."""
        return any(target.selection for target in self.plan.targets)


def split_unit(unit: UnitKernel) -> tuple[UnitKernel, dict[str, UnitKernel]]:
    """A kernel whose variants are units of their own: what selects among them, and each variant by the name of its launcher."""
    numbers = sorted({one.variant for one in unit.kernels} | {GENERAL})
    name = unit.plan.name
    apart = {n: f"{name}_tuned{n}" if n != GENERAL else f"{name}_general" for n in numbers}
    units: dict[str, UnitKernel] = {}
    for number, own in apart.items():
        targets = tuple(t for target in unit.plan.targets for t in _of_variant(target, number))
        plan = replace(unit.plan, name=own, targets=targets)
        kernels = tuple(one for one in unit.kernels if one.variant == number)
        units[own] = UnitKernel(unit.signature, unit.program, plan, kernels)
    return replace(unit, kernels=(), apart=apart), units


def _of_variant(target: TargetPlan, number: int) -> list[TargetPlan]:
    """A target's plan with the steps of one variant alone, none where it has not that one."""
    if number == GENERAL:
        return [replace(target, selection=None)]
    tuned = target.selection.alternatives if target.selection else ()
    return [TargetPlan(target.arch, a.steps) for a in tuned if a.number == number]


def render_unit(source_name: str, command: str, kernels: list[UnitKernel]) -> str:
    """The `.cu`. Byte-identical for equal input."""
    contexts: list[dict[str, object]] = []
    rendered: list[str] = []
    for kernel in kernels:
        texts = render_kernels(kernel.kernels)
        bodies = [body.rstrip("\n") for body in texts.bodies]
        wrappers = [wrapper.rstrip("\n") for wrapper in texts.wrappers]
        rendered += [*bodies, *wrappers]
        contexts.append(
            {
                "name": c_name(kernel.plan.name),
                "signature": indent(f"// {kernel.signature}").rstrip("\n"),
                "rule": f" {c_name(kernel.plan.name)}".rjust(RULE, "-"),
                "bodies": [{"text": body} for body in bodies],
                "wrappers": wrappers,
                "launcher": LauncherContext(kernel.program, kernel.plan, kernel.apart)
                .render()
                .rstrip("\n"),
            }
        )
    kernel_text = "\n".join(rendered)
    products = blocks_of(kernel_text)
    primitives = [
        *closure(" ".join([kernel_text, *(n for b in products for n in b.needs)])),
        *products,
    ]
    helpers = _host_helpers("\n".join(str(c["launcher"]) for c in contexts))
    headers = set(includes([*primitives, *helpers])) | {"<cstddef>", "<cstdint>"}
    if "INFINITY" in kernel_text or "NAN" in kernel_text:
        headers.add("<cmath>")
    if "printf(" in kernel_text:
        headers.add("<cstdio>")
    if "std::numeric_limits" in str(contexts):
        headers.add("<limits>")
    template = environment().get_template("unit/unit.cu.jinja")
    text = template.render(
        version=__version__,
        source_name=source_name.replace("\\", "/").rsplit("/", 1)[-1],
        command=command,
        includes=sorted(headers),
        primitives=[b.text for b in primitives],
        host_helpers=[b.text for b in helpers],
        kernels=contexts,
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def render_header(source_name: str, kernels: list[UnitKernel]) -> str:
    """The header, valid in C and C++."""
    base = source_name.replace("\\", "/").rsplit("/", 1)[-1]
    guard = "TILEC_" + re.sub(r"\W", "_", base).upper() + "_H"
    contexts = []
    for kernel in kernels:
        context = LauncherContext(kernel.program, kernel.plan)
        contexts.append(
            {
                "name": context.name,
                "signature": kernel.signature,
                "declaration": context.declaration(),
                "workspace_declaration": context.workspace_declaration(),
                "documentation": context.documentation(),
            }
        )
    text = (
        environment()
        .get_template("unit/header.h.jinja")
        .render(version=__version__, source_name=base, guard=guard, kernels=contexts)
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def _host_helpers(text: str) -> list[Block]:
    """Helpers that the launchers mention, with what they need."""
    blocks = {
        b.name: b
        for b in parse_blocks(
            resource_text("templates", "unit/host_helpers.cuh"), "host_helpers.cuh"
        )
    }
    wanted = [name for name in blocks if name in identifiers(text)]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += blocks[name].needs
    return [block for name, block in blocks.items() if name in found]
