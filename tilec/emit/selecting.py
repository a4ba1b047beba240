"""What a launcher that selects among tuned variants prints besides: the table of sizes, and variants that are units of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilec.emit.c_names import c_name
from tilec.ir.launch import Selection
from tilec.ir.selection import GENERAL, reach


def selection_context(selection: Selection, chosen: str, table: str) -> dict[str, Any]:
    """The table of sizes that were tuned for, as the local `table`, and the call's own, from which the local `chosen` follows."""
    there = {a.number for a in selection.alternatives}
    points = []
    for point in selection.points:
        sizes = ", ".join(map(_number, point.sizes))
        points.append(f"{{{{{sizes}}}, {point.variant if point.variant in there else GENERAL}}}")
    return {
        "key": selection.key,
        "table": table,
        "chosen": chosen,
        "points": points,
        "values": [f"static_cast<double>({c_name(n)})" for n in selection.key],
        "reach": repr(reach(len(selection.key))),
    }


def external_declarations(
    apart: Mapping[int, str], signature: Sequence[tuple[str, str]]
) -> list[str]:
    """Declarations of the variants that are units of their own, by number; the launchers' `signature` is (type, name) in order."""
    parameters = ", ".join(f"{t} {n}" for t, n in signature)
    lines = []
    for number, name in apart.items():
        what = "the general variant" if number == GENERAL else f"variant {number}"
        lines += [
            f"/// In a file of its own: {what}.",
            f'extern "C" cudaError_t {c_name(name)}({parameters});',
            f'extern "C" const char* {c_name(name)}_error();',
            "",
        ]
    return lines


def _number(number: int | float | bool) -> str:
    """A size as a constant."""
    return repr(number) if isinstance(number, float) else str(int(number))
