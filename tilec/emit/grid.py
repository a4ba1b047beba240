"""The numbers of the grid loops, as text: from the number of an instance to the trip of each loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilec.emit.expressions import PRODUCT, SUM, UNARY, Renderer
from tilec.ir import kernel_ir as k
from tilec.ir.launch import product
from tilec.ir.symbolic import ceildiv


def decode(
    kernel: k.Kernel, render: Renderer, words: Collection[str], number: str, live: bool = False
) -> list[str]:
    """Lines that declare the trip numbers among `words` of instance `number`, an expression of C++ that binds no less tightly
    than a sum; with `live` also whether there is such an instance. `instance` may be declared on the way."""
    grid = kernel.grid
    used = [d for d in grid if d.name in words]
    if not used and not live:
        return []
    total = render.sym(kernel.instances).at(4)
    if len(grid) == 1:
        (digit,) = grid
        lines = [f"const int {digit.name} = {_directed(digit, render, number)};"]
        # later trips take longer only where a CTA has one instance, which there always is
        return [*lines, f"const bool live = {digit.name} < {total};"] if live else lines
    lines = [f"int instance = {number};"]
    if live:
        lines.append(f"const bool live = instance < {total};")
    outer = list(grid)
    if grid[-2].swept > 1:
        del outer[-2:]
        lines += _swept(grid[-2], grid[-1], render, words, bool(outer))
    while len(outer) > 1:
        digit = outer.pop()
        trips = render.sym(digit.trips)
        if digit.name in words:
            value = _directed(digit, render, f"instance % {trips.at(UNARY)}")
            lines.append(f"const int {digit.name} = {value};")
        lines.append(f"instance /= {trips.text};")
    if outer and outer[0].name in words:
        lines.append(f"const int {outer[0].name} = {_directed(outer[0], render, 'instance')};")
    while lines[-1].startswith("instance /="):
        lines.pop()
    return lines


def instance_loop(kernel: k.Kernel, render: Renderer, words: Collection[str]) -> list[str]:
    """The head of the loop over the instances of a CTA, or of its cluster, and what it declares."""
    number, first, step = "item", "static_cast<int>(blockIdx.x)", "static_cast<int>(gridDim.x)"
    grid = kernel.grid
    tail: list[str] = []
    words = set(words)
    if kernel.cluster > 1:
        number, first, step = "item", f"{first} / {kernel.cluster}", f"{step} / {kernel.cluster}"
        name = kernel.cluster_digit
        if name in words:
            tail = [f"const int {name} = {name}_pair * {kernel.cluster} + rank;"]
            words.add(f"{name}_pair")
        grid = tuple(
            replace(d, name=f"{name}_pair", trips=ceildiv(d.trips, kernel.cluster))
            if d.name == name
            else d
            for d in grid
        )
    instances = product(tuple(d.trips for d in grid))
    walked = replace(kernel, grid=grid, instances=instances)
    if any(d.paired for d in grid):
        first, step = f"{first} * 2", f"{number} % 2 == 0 ? 1 : {step} * 2 - 1"
    head = f"for (int {number} = {first}; {number} < {render.sym(instances).at(4)}; {number} += {step}) {{"
    return [head, *decode(walked, render, words, number), *tail]


def queue_loop(kernel: k.Kernel, render: Renderer, words: Collection[str]) -> list[str]:
    """The head of the loop over the instances that a cluster is given, and what it declares."""
    total = render.sym(kernel.instances).at(4)
    return [
        f"while (item < {total}) {{",
        *decode(kernel, render, words, "item"),
    ]


def _directed(digit: k.GridDigit, render: Renderer, number: str) -> str:
    """The trip number, from the last one down where later trips take longer."""
    if digit.paired:
        return f"paired_trip({number}, {render.sym(digit.trips).text})"
    if not digit.backwards:
        return number
    simple = not set(number) & set("+-")
    number = number if simple else f"({number})"
    return f"{render.sym(digit.trips).at(SUM)} - 1 - {number}"


def _swept(
    rows: k.GridDigit, columns: k.GridDigit, render: Renderer, words: Collection[str], more: bool
) -> list[str]:
    """Two digits whose trips are taken in groups of rows, along the columns. `more`: other digits vary more slowly."""
    trips = [render.sym(d.trips) for d in (rows, columns)]
    area = f"{trips[0].at(PRODUCT)} * {trips[1].at(UNARY)}"
    number = f"instance % ({area})" if more else "instance"
    lines = [
        f"const int {digit.name} = swept_{what}<{rows.swept}>({number}, {trips[0].text}, {trips[1].text});"
        for digit, what in ((rows, "row"), (columns, "column"))
        if digit.name in words
    ]
    return [*lines, f"instance /= {area};"] if more else lines
