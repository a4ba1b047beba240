"""Device primitives of warpgroup products: one function for each form that a kernel uses, made from a template.

    wgmma_m64n256k16_bf16<kTransposedA, kTransposedB>(top, bottom, a, b, accumulate)
    wgmma_m64n128k16_f16_registers<kTransposedB>(top, bottom, a, b, accumulate)

Shapes and types: PTX ISA, "Asynchronous warpgroup-level matrix instructions".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tilec.emit.primitives import Block, identifiers
from tilec.lazy_dataclass import dataclass
from tilec.passes.asynchronous import TRANSPOSABLE

DEPTHS: dict[str, int] = {
    "bf16": 16, "f16": 16, "tf32": 8, "s8": 32, "u8": 32,
    "e4m3": 32, "e5m2": 32, "e4m3_e5m2": 32, "e5m2_e4m3": 32,
}  # fmt: skip
"""Elements of the consumed axis that one instruction takes, by the operands' types: 32 bytes."""

INTEGERS = frozenset({"s8", "u8"})
_NAME = re.compile(r"wgmma_m64n(\d+)k(\d+)_(\w+?)(_registers)?")


@dataclass(frozen=True)
class Form:
    """One form of the instruction. `registers`: the left operand is in registers."""

    columns: int
    types: str
    registers: bool

    @property
    def name(self) -> str:
        """The function's name."""
        tail = "_registers" if self.registers else ""
        return f"wgmma_m64n{self.columns}k{DEPTHS[self.types]}_{self.types}{tail}"

    @property
    def transposable(self) -> bool:
        """Whether operands in shared memory may lie with their consumed axis along rows."""
        return self.types in TRANSPOSABLE


def columns_allowed(types: str) -> tuple[int, ...]:
    """Widths of the accumulators that the instruction has."""
    if types in INTEGERS:
        return (8, 16, 24, *range(32, 257, 16))
    return tuple(range(8, 257, 8))


def form_of(name: str) -> Form | None:
    """The form that a function's name stands for, None for any other name."""
    found = _NAME.fullmatch(name)
    if not found or found[3] not in DEPTHS or int(found[2]) != DEPTHS[found[3]]:
        return None
    if int(found[1]) not in columns_allowed(found[3]):
        return None
    return Form(int(found[1]), found[3], bool(found[4]))


def all_forms() -> Iterator[Form]:
    """Every form."""
    for types in DEPTHS:
        for columns in columns_allowed(types):
            for registers in (False, True):
                yield Form(columns, types, registers)


def block_of(form: Form) -> Block:
    """The primitive of a form."""
    from tilec.emit.kernel_text import macros

    first, _, second = form.types.partition("_")
    integer = form.types in INTEGERS
    rep = "s32" if integer else "f32"
    text = macros("device/wgmma.jinja")["wgmma"](
        form.name,
        f"m64n{form.columns}k{DEPTHS[form.types]}",
        f"{rep}.{first}.{second or first}",
        form.columns,
        "int32_t" if integer else "float",
        "r" if integer else "f",
        form.registers,
        form.types in TRANSPOSABLE,
    )
    needs = ("Vector", "OperandA") if form.registers else ("Vector",)
    lines = [line.rstrip() for line in str(text).splitlines()]
    return Block(form.name, needs, ("<cstdint>",), "\n".join(line for line in lines if line))


def forms_among(names: Iterable[str]) -> list[Form]:
    """The forms whose functions are among some names, in order."""
    forms = {f for name in names if (f := form_of(name)) is not None}
    return sorted(forms, key=lambda f: (f.types, f.columns, f.registers))


def forms_of(text: str) -> list[Form]:
    """The forms that a kernel text names, in order."""
    return forms_among(identifiers(text))
