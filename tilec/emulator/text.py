"""What the host compiler is given: the second implementation of the primitives, and a kernel's text as it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tilec.emit.primitives import Block, PrimitiveFormatError, load_primitives, parse_blocks
from tilec.emit.unit import KERNEL_BEGIN, KERNEL_END
from tilec.emit.wgmma import INTEGERS, Form, forms_of
from tilec.resources import resource_text

HOST_FILES = ("instructions.h", "memory.h", "warp.h", "atomic.h", "tensor.h", "asynchronous.h")
"""The files of `templates/host/` with blocks. A block takes the place of the device's block of the same name."""

RUNTIME_FILES = (
    "runtime.h",
    "engines.h",
    "context.h",
    "flight.h",
    "machine.h",
    "runtime.cc",
    "memory.cc",
    "asynchronous.cc",
    "wgmma.cc",
)
"""The files of `templates/host/` that are taken as they are; those of `.cc` are compiled once."""

PRELUDE = "tilec_host.h"
"""What a kernel's translation unit includes, precompiled."""

NOTED = (
    *("load_a", "load_a_transposed", "load_b", "load_b_transposed", "accumulate_product"),
    *("wmma_load_block", "wmma_add", "send_chunk", "write_chunk", "copy_row"),
    *("pack_chunk", "pack_chunk_across", "send_chunk_across"),
    *("clear_outside", "load_turned", "load_rows", "load_row_bits", "load_row", "turn_tile"),
    *("interleave_row", "load_row_words", "pack_tile"),
)
"""Functions of the device's text, called as statements, above primitives: a call notes its line first."""

_FOREIGN = 1000000
"""Lines of the prelude start here (`kForeign` of runtime.h), so that they are not taken for the kernel's."""

_CLUSTER = re.compile(r"\b__cluster_dims__\((\d+)")

_SOURCE_LINE = re.compile(r"\s*// ([^\s:]+\.tile):(\d+)  ")


@dataclass(frozen=True)
class KernelText:
    """The text between two markers of a `.cu`; `line` is the number of its first line there."""

    text: str
    line: int


@dataclass(frozen=True)
class Place:
    """A line of a `.tile` file."""

    file: str
    line: int


@cache
def host_blocks() -> tuple[Block, ...]:
    """All primitives in their host form, each behind what it needs.

    Where `templates/host/` has no block of a name, the device's text serves both: it is plain C++. Raises
    PrimitiveFormatError where the host's blocks need each other in a circle or something that is not there.
    """
    host: dict[str, Block] = {}
    for file in HOST_FILES:
        for block in parse_blocks(resource_text("templates", f"host/{file}"), file):
            if block.name in host:
                raise PrimitiveFormatError(f"{file}: `{block.name}` occurs twice")
            host[block.name] = block
    blocks = {**host, **{n: b for n, b in load_primitives().blocks.items() if n not in host}}
    ordered: dict[str, Block] = {}

    def place(name: str, above: tuple[str, ...]) -> None:
        if name in ordered:
            return
        if name in above or name not in blocks:
            raise PrimitiveFormatError(f"host: `{name}` is needed by `{' '.join(above)}`")
        block = blocks[name]
        for needed in (*block.needs, *block.condition, *filter(None, [block.extends])):
            place(needed, (*above, name))
        ordered[name] = block

    # CUDA's own functions, then the device's order, in which overloads and specialisations come before what
    # instantiates them.
    for name in ("warp_builtins", *load_primitives().blocks, *host):
        place(name, ())
    return tuple(ordered.values())


def prelude() -> str:
    """The header with everything that kernel text may use."""
    blocks = host_blocks()
    named = {h for b in blocks for h in b.includes if not h.startswith("<cuda")}
    headers = "".join(f"#include {h}\n" for h in sorted(named))
    body = "\n\n".join(block.text for block in blocks if block.text)
    noted = "".join(f"#define {n} tilec_host::note(__LINE__), {n}\n" for n in NOTED)
    return f'#include "runtime.h"\n{headers}\n#line {_FOREIGN} "{PRELUDE}"\n{body}\n{noted}'


def kernel_texts(cu: str) -> list[KernelText]:
    """The kernels of a `.cu`, byte for byte what stands between the markers."""
    found: list[KernelText] = []
    lines = cu.splitlines(keepends=True)
    start: int | None = None
    for number, line in enumerate(lines):
        if line.strip() == KERNEL_BEGIN:
            start = number + 1
        elif line.strip() == KERNEL_END and start is not None:
            found.append(KernelText("".join(lines[start:number]), start + 1))
            start = None
    return found


def text_of(cu: str, kernel: str) -> KernelText:
    """The text that defines `kernel`, the name of a `__global__` function. Raises KeyError where none does."""
    defined = re.compile(rf"\b{re.escape(kernel)}\(")
    for text in kernel_texts(cu):
        if defined.search(text.text):
            return text
    raise KeyError(kernel)


def unit(text: KernelText, kernel: str, name: str) -> str:
    """A translation unit with the kernel's text, unchanged, and an entry that launches `kernel`."""
    products = "".join(product_text(form) for form in forms_of(text.text))
    return (
        f'#include "{PRELUDE}"\n#line {_FOREIGN} "products"\n{products}'
        f'#line {text.line} "{name}"\n{text.text}\n#line {_FOREIGN} "entry"\n'
        'extern "C" __attribute__((visibility("default"))) int tilec_launch('
        "tilec_host::Launch* launch) {\n"
        f"  return tilec_host::enter(launch, &{kernel}, {cluster_of(text.text, kernel)});\n}}\n"
    )


def cluster_of(text: str, kernel: str) -> int:
    """CTAs in a cluster of `kernel`, by its attribute; 1 without one."""
    head = re.search(rf"\b__global__\b([^;{{}}]*?)\b{re.escape(kernel)}\(", text)
    found = _CLUSTER.search(head[1]) if head else None
    return int(found[1]) if found else 1


def product_text(form: Form) -> str:
    """The host's form of a product of a warpgroup; what `tilec.emit.wgmma` makes for the device."""
    first, _, second = form.types.partition("_")
    sums = "int32_t" if form.types in INTEGERS else "float"
    sides = ("B",) if form.registers else ("A", "B")
    transposed = {s: f"kTransposed{s} != 0" for s in sides} if form.transposable else {}
    parameters = ", ".join(f"int kTransposed{side}" for side in transposed)
    fields = [
        str(form.columns),
        *(f"tilec_host::k{t.capitalize()}" for t in (first, second or first)),
        "true" if form.registers else "false",
        *(transposed.get(side, "false") for side in "AB"),
    ]
    left = "const OperandA& a" if form.registers else "uint64_t a"
    brought = "0, a.x" if form.registers else "a, nullptr"
    return (
        (f"template <{parameters}>\n" if parameters else "")
        + f"inline void {form.name}(Vector<{sums}, 2>* top, Vector<{sums}, 2>* bottom, {left},\n"
        + "    uint64_t b, bool accumulate, int line = __builtin_LINE()) {\n"
        + "  tilec_host::note(line);\n"
        + f"  tilec_host::product_start({{{', '.join(fields)}}}, top, bottom, {brought}, b, accumulate);\n}}\n"
    )


def place_of(cu: str, line: int) -> Place | None:
    """The line of the `.tile` file that line `line` of the `.cu` comes from: the comment nearest above it says so."""
    lines = cu.splitlines()
    for text in reversed(lines[: max(0, line)]):
        if text.strip() == KERNEL_BEGIN:
            return None
        if found := _SOURCE_LINE.match(text):
            return Place(found[1], int(found[2]))
    return None
