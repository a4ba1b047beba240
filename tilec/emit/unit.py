"""A whole `.cu` and its header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from tilec import __version__
from tilec.emit.bodies import GuardedKernel, render_kernels
from tilec.emit.kernel_text import environment
from tilec.emit.launcher import LauncherContext
from tilec.emit.layout import indent
from tilec.emit.primitives import Block, identifiers, includes, needed, parse_blocks
from tilec.emit.wgmma import block_of, forms_among
from tilec.ir.launch import LaunchPlan, TargetPlan
from tilec.ir.selection import GENERAL
from tilec.ir.tile_ir import Program
from tilec.lazy_dataclass import dataclass
from tilec.resources import resource_text

KERNEL_BEGIN = "// kernel begin"
KERNEL_END = "// kernel end"
HOST_HELPERS = f"// {' host helpers':->96}"
"""The line above what launchers need, behind the device's primitives."""

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


@dataclass(frozen=True)
class UnitSection:
    """The texts of one kernel in a unit and in its header. `names`: the identifiers of its code, comments left out."""

    name: str
    signature: str
    bodies: tuple[str, ...]
    wrappers: tuple[str, ...]
    launcher: str
    names: frozenset[str]
    declaration: str
    workspace_declaration: str
    documentation: tuple[str, ...]
    spares: bool
    """there are calls that can use a workspace and do without"""
    needs: bool
    """there are calls that need one"""

    @property
    def code(self) -> str:
        """What runs on the device."""
        return "\n".join((*self.bodies, *self.wrappers))


def render_section(kernel: UnitKernel) -> UnitSection:
    """The texts of one kernel; no other kernel of the unit has a say in them."""
    texts = render_kernels(kernel.kernels)
    bodies = tuple(body.rstrip("\n") for body in texts.bodies)
    wrappers = tuple(wrapper.rstrip("\n") for wrapper in texts.wrappers)
    launcher = LauncherContext(kernel.program, kernel.plan, kernel.apart)
    declared = LauncherContext(kernel.program, kernel.plan)
    return UnitSection(
        declared.name,
        kernel.signature,
        bodies,
        wrappers,
        launcher.render().rstrip("\n"),
        frozenset(identifiers("\n".join((*bodies, *wrappers)))),
        declared.declaration(),
        declared.workspace_declaration(),
        tuple(declared.documentation()),
        kernel.plan.spare is not None,
        bool(kernel.plan.workspace_bytes.terms),
    )


def render_unit(source_name: str, command: str, kernels: Sequence[UnitKernel]) -> str:
    """The `.cu`. Byte-identical for equal input."""
    return unit_text(source_name, command, [render_section(kernel) for kernel in kernels])


def unit_text(source_name: str, command: str, sections: Sequence[UnitSection]) -> str:
    """The `.cu` that sections make, with the primitives and helpers that they need."""
    names = frozenset[str]().union(*(s.names for s in sections))
    products = [block_of(form) for form in forms_among(names)]
    primitives = [*needed(names | {n for b in products for n in b.needs}), *products]
    helpers = _host_helpers("\n".join(s.launcher for s in sections))
    headers = set(includes([*primitives, *helpers])) | {"<cstddef>", "<cstdint>"}
    codes = [s.code for s in sections]
    if any("INFINITY" in code or "NAN" in code for code in codes):
        headers.add("<cmath>")
    if any("printf(" in code for code in codes):
        headers.add("<cstdio>")
    texts = (t for s in sections for t in (s.signature, s.launcher, s.code))
    if any("std::numeric_limits" in text for text in texts):
        headers.add("<limits>")
    template = environment().get_template("unit/unit.cu.jinja")
    text = template.render(
        version=__version__,
        source_name=source_name.replace("\\", "/").rsplit("/", 1)[-1],
        command=command,
        includes=sorted(headers),
        primitives=[b.text for b in primitives],
        host_helpers=[b.text for b in helpers],
        kernels=[
            {
                "signature": indent(f"// {s.signature}").rstrip("\n"),
                "rule": f" {s.name}".rjust(RULE, "-"),
                "bodies": s.bodies,
                "wrappers": s.wrappers,
                "launcher": s.launcher,
            }
            for s in sections
        ],
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def render_header(source_name: str, sections: Sequence[UnitSection]) -> str:
    """The header, valid in C and C++."""
    base = source_name.replace("\\", "/").rsplit("/", 1)[-1]
    guard = "TILEC_" + re.sub(r"\W", "_", base).upper() + "_H"
    text = (
        environment()
        .get_template("unit/header.h.jinja")
        .render(version=__version__, source_name=base, guard=guard, kernels=sections)
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
    mentioned = identifiers(text)
    wanted = [name for name in blocks if name in mentioned]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += blocks[name].needs
    return [block for name, block in blocks.items() if name in found]
