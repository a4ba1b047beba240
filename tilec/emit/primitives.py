"""The device primitives: blocks of `templates/device/*.cuh`, and which of them a kernel text needs.

A block is

    //@ primitive NAME [extends BASE with NAME …] [needs NAME …] [includes <HEADER> …]
    …C++…
    //@ end

Further `//@` lines directly below the first continue it. A block that *extends* another adds overloads or
specialisations to it; it is needed where the kernel text needs BASE and itself names everything after `with`
(`convert_bf16` only where `convert` and `bf16_t` occur). Lines of `//!` are remarks for readers of the templates and
are not copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from functools import cache

from tilec.lazy_dataclass import dataclass
from tilec.resources import resource_text

FILES = (
    "types.cuh",
    "instructions.cuh",
    "memory.cuh",
    "convert.cuh",
    "arithmetic.cuh",
    "math.cuh",
    "warp.cuh",
    "atomic.cuh",
    "tensor.cuh",
    "tile.cuh",
    "products.cuh",
    "asynchronous.cuh",
)
"""The files of `templates/device/` in the order in which their blocks are emitted: a block needs earlier blocks only."""

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_CLAUSES = ("extends", "with", "needs", "includes")


class PrimitiveFormatError(ValueError):
    """A file of device primitives is not made of well-formed blocks: a fault of tilec itself."""


@dataclass(frozen=True)
class Block:
    """One primitive: its name, what it rests on, and its text (without the `//@` lines, ends without a newline)."""

    name: str
    needs: tuple[str, ...]
    includes: tuple[str, ...]
    text: str
    extends: str | None = None
    condition: tuple[str, ...] = ()


@dataclass(frozen=True)
class Primitives:
    """All blocks by name, in the order in which they are emitted."""

    blocks: Mapping[str, Block]

    def closure(self, text: str) -> list[Block]:
        """The blocks that a kernel text needs, with their dependencies, in order. Comments and string literals do
        not count."""
        return self.needed(identifiers(text))

    def needed(self, named: Set[str]) -> list[Block]:
        """The blocks that code with these identifiers needs, with their dependencies, in order."""
        found: set[str] = set()
        pending = [name for name in self.blocks if name in named]
        while pending:
            name = pending.pop()
            if name in found:
                continue
            found.add(name)
            pending += self.blocks[name].needs
            pending += (b.name for b in self._extensions(name) if named >= set(b.condition))
        return [block for name, block in self.blocks.items() if name in found]

    def _extensions(self, name: str) -> list[Block]:
        return [block for block in self.blocks.values() if block.extends == name]


def identifiers(text: str) -> set[str]:
    """The C++ identifiers and keywords of a text, without those in comments and string literals."""
    return set(_IDENTIFIER.findall(_NO_CODE.sub(" ", text)))


def includes(blocks: Iterable[Block]) -> list[str]:
    """The headers that blocks include, each once, sorted, as they stand in the directive: `<cstdint>`."""
    return sorted({header for block in blocks for header in block.includes})


def parse_blocks(text: str, origin: str) -> list[Block]:
    """The blocks of one file; `origin` names it in messages. Raises PrimitiveFormatError."""
    blocks: list[Block] = []
    header: list[str] | None = None
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{origin}:{number}"
        words = line.split()
        if words[:1] == ["//@"]:
            if words[1:] == ["end"]:
                if header is None:
                    raise PrimitiveFormatError(f"{where}: `//@ end` without a block")
                blocks.append(_block(header, body, where))
                header, body = None, []
            elif words[1:2] == ["primitive"]:
                if header is not None:
                    raise PrimitiveFormatError(f"{where}: a block inside a block")
                header = words[2:]
            elif header is not None and not body:
                header += words[1:]
            else:
                raise PrimitiveFormatError(f"{where}: unexpected `//@`")
        elif words and words[0].startswith("//!"):
            continue
        elif header is not None:
            body.append(line)
        elif words:
            raise PrimitiveFormatError(f"{where}: text outside a block")
    if header is not None:
        raise PrimitiveFormatError(f"{origin}: the last block has no `//@ end`")
    return blocks


def _block(header: list[str], body: list[str], where: str) -> Block:
    if not header:
        raise PrimitiveFormatError(f"{where}: a block without a name")
    clauses: dict[str, list[str]] = {clause: [] for clause in _CLAUSES}
    clause: str | None = None
    for word in header[1:]:
        if word in clauses:
            clause = word
        elif clause is None:
            raise PrimitiveFormatError(f"{where}: `{word}` belongs to no clause")
        else:
            clauses[clause].append(word)
    extends = clauses["extends"]
    if len(extends) > 1 or bool(extends) != bool(clauses["with"]):
        raise PrimitiveFormatError(f"{where}: `extends` takes one name and a `with`")
    return Block(
        name=header[0],
        needs=tuple(clauses["needs"]),
        includes=tuple(clauses["includes"]),
        text="\n".join(body).strip("\n"),
        extends=extends[0] if extends else None,
        condition=tuple(clauses["with"]),
    )


@cache
def load_primitives() -> Primitives:
    """All blocks of `templates/device/`. Raises PrimitiveFormatError where a block is malformed, occurs twice, or rests
    on one that does not come before it."""
    blocks: dict[str, Block] = {}
    for file in FILES:
        for block in parse_blocks(resource_text("templates", f"device/{file}"), file):
            if block.name in blocks:
                raise PrimitiveFormatError(f"{file}: `{block.name}` occurs twice")
            rests_on = (*block.needs, *block.condition, *filter(None, [block.extends]))
            for name in rests_on:
                if name not in blocks:
                    raise PrimitiveFormatError(f"{file}: `{block.name}` before its `{name}`")
            blocks[block.name] = block
    return Primitives(blocks)


def closure(text: str) -> list[Block]:
    """The blocks that a kernel text needs: `load_primitives().closure(text)`."""
    return load_primitives().closure(text)


def needed(names: Set[str]) -> list[Block]:
    """The blocks that code with these identifiers needs: `load_primitives().needed(names)`."""
    return load_primitives().needed(names)
