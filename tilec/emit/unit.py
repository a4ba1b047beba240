"""A whole `.cu` and its header."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilec import __version__
from tilec.emit.bodies import render_kernels
from tilec.emit.c_names import c_name
from tilec.emit.kernel_text import environment
from tilec.emit.launcher import LauncherContext
from tilec.emit.layout import indent
from tilec.emit.primitives import Block, closure, identifiers, includes, parse_blocks
from tilec.emit.wgmma import blocks_of
from tilec.ir import kernel_ir as k
from tilec.ir.launch import LaunchPlan
from tilec.ir.tile_ir import Program
from tilec.resources import resource_text

KERNEL_BEGIN = "// kernel begin"
KERNEL_END = "// kernel end"

RULE = 96
"""Columns of the line above a kernel's section, with its name at the end."""


@dataclass(frozen=True)
class UnitKernel:
    """One kernel of a unit: its source-level signature, program, plan, and Kernel IR with the guard of its architecture."""

    signature: str
    program: Program
    plan: LaunchPlan
    kernels: tuple[tuple[k.Kernel, str], ...]


def render_unit(source_name: str, command: str, kernels: list[UnitKernel]) -> str:
    """The `.cu`. Byte-identical for equal input."""
    contexts: list[dict[str, object]] = []
    rendered: list[str] = []
    for kernel in kernels:
        texts = render_kernels(kernel.program, list(kernel.kernels))
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
                "launcher": LauncherContext(kernel.program, kernel.plan).render().rstrip("\n"),
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
