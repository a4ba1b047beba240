"""Layouts as text and as pictures: which thread holds which element of a tile in which register, and where rows of a tile lie in
the banks of shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tilec.explain.banks import BANKS, WORD, address
from tilec.explain.walk import all_ops, mentioned
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.layouts import AxisLayout

SAMPLE = 6
"""Elements that the text lists of a thread."""
NAMES = 6
"""Tiles that the text names of those that are held alike."""
ROWS, COLS = 32, 32
"""Elements that a picture shows: the corner of a tile."""


@dataclass(frozen=True)
class Held:
    """Tiles that the registers of `threads` threads hold alike: `names` with their dtypes, their axes, and `registers` elements of a
    thread."""

    names: tuple[str, ...]
    axes: tuple[k.LoopAxis, ...]
    registers: int
    threads: int


def held_tiles(kernel: k.Kernel) -> list[Held]:
    """The layouts of a kernel's tiles in registers, those with most elements a thread first."""
    found: dict[tuple[k.LoopAxis, ...], dict[str, None]] = {}
    for op in all_ops(kernel.body):
        for leaf in mentioned(op):
            if isinstance(leaf, k.Fragment) and leaf.axes and not leaf.local:
                axes = tuple(x for x in leaf.axes)
                if not any(axis.layout.streams for axis in axes):
                    found.setdefault(axes, {})[f"{leaf.name} {leaf.rep}"] = None
    tiles = [
        Held(tuple(names), axes, _registers(axes), kernel.workers) for axes, names in found.items()
    ]
    return sorted(tiles, key=lambda held: -held.registers)


def _registers(axes: tuple[k.LoopAxis, ...]) -> int:
    total = 1
    for axis in axes:
        total *= axis.layout.steps * axis.layout.vector
    return total


def formula(layout: AxisLayout, threads: int, first: int = 0) -> str:
    """The coordinate along an axis as a sum over digits of the thread's number t, of `threads` in all, and of register numbers from
    r`first` on: `t/128*64 + r0*8 + t/4%8, r0 < 2`."""
    parts: list[str] = []
    ranges: list[str] = []
    for digit in layout.digits:
        if digit.radix == 1:
            continue
        match digit.source:
            case "thread":
                value = "t" if digit.divisor == 1 else f"t/{digit.divisor}"
                if digit.divisor * digit.radix < threads:
                    value += f"%{digit.radix}"
            case "register":
                value = f"r{first + len(ranges)}"
                ranges.append(f"{value} < {digit.radix}")
            case "loop":
                value = "trip"
        parts.append(value if digit.stride == 1 else f"{value}*{digit.stride}")
    return ", ".join([" + ".join(parts) or "0", *ranges])


def elements_of(held: Held, thread: int) -> list[tuple[int, ...]]:
    """The coordinates that a thread holds, in the order of its registers."""
    counts = [range(axis.layout.steps * axis.layout.vector) for axis in held.axes]
    return [
        tuple(
            axis.layout.coordinate(thread, register)
            for axis, register in zip(held.axes, registers, strict=True)
        )
        for registers in product(*counts)
    ]


def layout_text(held: Held) -> str:
    """One sentence: the tiles, the formula of each axis, the first elements of thread 0."""
    axes: list[str] = []
    for axis in held.axes:
        used = sum(text.count(" < ") for text in axes)
        axes.append(f"{axis.name} = {formula(axis.layout, held.threads, used)}")
    first = elements_of(held, 0)[:SAMPLE]
    more = ", …" if held.registers > SAMPLE else ""
    places = ", ".join(_place(place) for place in first)
    names = ", ".join(held.names[:NAMES]) + (", …" if len(held.names) > NAMES else "")
    return f"{names}: thread t holds {'; '.join(axes)}; thread 0: {places}{more}"


def _place(place: tuple[int, ...]) -> str:
    return str(place[0]) if len(place) == 1 else f"({', '.join(map(str, place))})"


# ------------------------------------------------------------------------------------------ pictures


@dataclass(frozen=True)
class Cell:
    """A rectangle of a picture: `row` and `col` count cells; `hue` 0 to 359; `top` and `bottom` are its two words."""

    row: int
    col: int
    hue: int
    light: int
    top: str
    bottom: str


@dataclass(frozen=True)
class Picture:
    """A picture by its file's name without ending; `title` stands above, `legend` below."""

    name: str
    title: str
    legend: str
    rows: int
    cols: int
    cells: tuple[Cell, ...]


def pictures(kernel: k.Kernel) -> list[Picture]:
    """One of each layout with one or two axes, and one of each tile in shared memory."""
    found = [
        _registers_picture(kernel, held)
        for held in held_tiles(kernel)
        if 1 <= len(held.axes) <= 2 and held.registers > 1
    ]
    tiles: list[k.TileBuffer | a.PanelBuffer] = [*kernel.tiles, *kernel.panels]
    return [*found, *(_banks_picture(kernel, tile) for tile in tiles)]


def _registers_picture(kernel: k.Kernel, held: Held) -> Picture:
    """The corner of a tile, each element with the thread that holds it and the number of the element there."""
    owners: dict[tuple[int, ...], tuple[int, int]] = {}
    for thread in range(kernel.workers):
        for number, place in enumerate(elements_of(held, thread)):
            owners.setdefault(place, (thread, number))
    cells: list[Cell] = []
    rows = cols = 0
    for place, (thread, number) in sorted(owners.items()):
        row, col = place if len(place) == 2 else (0, place[0])
        if row < ROWS and col < COLS:
            rows, cols = max(rows, row + 1), max(cols, col + 1)
            hue, light = thread % 32 * 360 // 32, 88 - thread // 32 % 4 * 8
            cells.append(Cell(row, col, hue, light, f"t{thread}", f"r{number}"))
    axes = " x ".join(axis.name for axis in held.axes)
    title = f"{kernel.name}: {', '.join(held.names)} [{axes}]"
    legend = f"the first {rows} x {cols} elements; t: thread, r: which of its {held.registers}"
    return Picture(
        f"{kernel.name}.{'_'.join(axis.name for axis in held.axes)}",
        title,
        legend,
        rows,
        cols,
        tuple(cells),
    )


def _banks_picture(kernel: k.Kernel, tile: k.TileBuffer | a.PanelBuffer) -> Picture:
    """Sixteen rows of a tile in chunks of 16 bytes, each with its chunk's number and the first of the four banks that it lies in."""
    chunk = 128 // tile.rep.bits
    rows, cols = min(16, tile.rows), min(16, tile.cols // chunk)
    cells: list[Cell] = []
    for row, col in product(range(rows), range(cols)):
        bank = address(tile, row, col * chunk) // WORD % BANKS
        cells.append(Cell(row, col, bank * 360 // BANKS, 80, f"{row}, {col}", f"bank {bank}"))
    title = f"{kernel.name}: {tile.name} {tile.rep}[{tile.rows}, {tile.cols}] in shared memory"
    legend = (
        f"row, chunk of 16 bytes; the first of its four banks. The first {rows} x {cols} chunks"
    )
    return Picture(f"{kernel.name}.{tile.name}", title, legend, rows, cols, tuple(cells))


def draw(picture: Picture) -> str:
    """The picture as a standalone SVG."""
    from tilec.emit.kernel_text import environment

    template = environment().get_template("report/layout.svg.jinja")
    return template.render(picture=picture, width=54, height=30).strip() + "\n"
