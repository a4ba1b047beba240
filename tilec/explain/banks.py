"""Bank conflicts of each access to shared memory, computed from layouts and swizzles.

Shared memory has 32 banks of 4 bytes; one pass serves each bank once. A warp's request of 16 bytes a thread goes in four parts of 8
threads, one of 8 bytes in two, a smaller one at once; `ldmatrix` and `stmatrix` take 8 rows of 16 bytes at a time, and so do
products of warpgroups. Threads that ask for the same word of a bank get it in the same pass. (CUDA C++ Programming Guide, "Shared
Memory"; PTX ISA, ldmatrix.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tilec.explain.walk import BLOCKS
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_operands import DeclareOperands
from tilec.ir.kernel_wmma import AddSums, WmmaProduct
from tilec.source.text import Span

WARP = 32
BANKS = 32
WORD = 4

Tile = k.TileBuffer | a.PanelBuffer


@dataclass(frozen=True)
class Conflicts:
    """One kind of access to a buffer. `how`: the instruction; `passes` over the banks of the worst request, of which `least` are
    needed anyhow. `note` says what is not known."""

    span: Span
    buffer: str
    how: str
    passes: int
    least: int
    note: str = ""


def conflicts(kernel: k.Kernel) -> list[Conflicts]:
    """Of every access of a kernel's threads and product engines to shared memory, each once, in the order of the kernel. Bulk copies
    write whole rows of a swizzle and are not listed."""
    found: dict[Conflicts, None] = {}
    tiles: dict[str, Tile] = {t.name: t for t in kernel.tiles}
    tiles |= {p.name: p for p in kernel.panels}
    for op, span, axes in _ops(kernel.body):
        for one in _of(kernel, tiles, op, span, axes):
            found[one] = None
    return list(found)


def passes(parts: Iterable[Sequence[tuple[int, int]]]) -> int:
    """Passes over the banks for parts of a request, each some (address, bytes)."""
    total = 0
    for part in parts:
        words: dict[int, set[int]] = {}
        for address, size in part:
            for word in range(address // WORD, (address + size - 1) // WORD + 1):
                words.setdefault(word % BANKS, set()).add(word)
        total += max((len(w) for w in words.values()), default=0)
    return total


def parts_of(addresses: Sequence[int], size: int) -> list[list[tuple[int, int]]]:
    """The parts in which a warp's request of `size` bytes a thread is served."""
    threads = WARP * WORD // max(size, WORD)
    served = [(address, size) for address in addresses]
    return [served[n : n + threads] for n in range(0, len(served), threads)]


def address(tile: Tile, row: int, col: int) -> int:
    """Bytes from the beginning of a tile to an element, as `at` of the device's SharedTile, PlainTile and PanelTile."""
    bits = tile.rep.bits
    chunk, size = 128 // bits, bits // 8
    if isinstance(tile, a.PanelBuffer):
        inside = col % tile.panel // chunk ^ row // (128 // tile.span) % (tile.span // 16)
        place = (col // tile.panel * tile.rows + row) * tile.panel + inside * chunk + col % chunk
        return place * size
    if tile.plain:
        if bits == 8:
            return (col // chunk * tile.rows + row) * chunk + col % chunk
        return (row * tile.pitch + col) * size
    chunks, at = tile.cols // chunk, col // chunk
    if chunks % 8 == 0:
        at ^= row % 8
    elif chunks > 1 and chunks & (chunks - 1) == 0:
        at ^= row // (8 // chunks) % chunks
    return (row * tile.pitch + at * chunk + col % chunk) * size


# ----------------------------------------------------------------------------------------- operations


def _ops(
    body: tuple[k.Op, ...], around: Span | None = None, axes: tuple[k.LoopAxis, ...] = ()
) -> Iterator[tuple[k.Op, Span, tuple[k.LoopAxis, ...]]]:
    """Every operation with its place in the source and the axes that are walked around it."""
    before = around
    for op in body:
        span = op.span if op.span.source.text or before is None else before
        before = span
        yield op, span, axes
        inner = (*axes, *op.axes) if isinstance(op, k.TileLoop) else axes
        for name in BLOCKS:
            yield from _ops(getattr(op, name, ()), span, inner)


def _of(
    kernel: k.Kernel, tiles: dict[str, Tile], op: k.Op, span: Span, axes: tuple[k.LoopAxis, ...]
) -> Iterator[Conflicts]:
    match op:
        case k.CopyAsync():
            yield _by_threads(kernel, tiles[op.tile.buffer], op.row, op.col, 16, "cp.async", span)
        case k.StoreTile():
            tile = tiles[op.tile.buffer]
            size = 16 if op.source is not None else tile.rep.bits // 8
            yield _by_threads(kernel, tile, op.row, op.col, size, f"store of {size} B", span)
        case DeclareOperands():
            yield from _of(kernel, tiles, op.product, span, axes)
        case k.Product():
            if isinstance(op.a, k.TileAddress):
                tile = tiles[op.a.buffer]
                trans = op.a_transposed
                yield _matrices(tile, trans, op.k_extent, 16 * op.row_tiles, "ldmatrix", span)
            tile = tiles[op.b.buffer]
            trans = op.b_transposed
            yield _matrices(tile, trans, op.k_extent, 8 * op.col_tiles, "ldmatrix", span)
        case WmmaProduct():
            for one, trans in ((op.a, op.a_transposed), (op.b, op.b_transposed)):
                tile = tiles[one.buffer]
                note = "nvcuda::wmma does not say which lane reads what: eight rows at a time"
                yield _matrices(tile, trans, op.k_extent, 16, "load_matrix_sync", span, note)
        case a.WarpgroupProduct():
            if isinstance(op.a, k.TileAddress):
                tile = tiles[op.a.buffer]
                yield _matrices(tile, op.a_transposed, op.k_extent, 64, "wgmma", span)
            tile = tiles[op.b.buffer]
            yield _matrices(tile, op.b_transposed, op.k_extent, op.columns, "wgmma", span)
        case a.SendChunks():
            yield _matrices(op.buffer, False, op.buffer.cols, 16, "stmatrix", span)
        case AddSums():
            tile = tiles[op.scratch.buffer]
            size = 2 * tile.rep.bits // 8
            lanes = [address(tile, t // 4, t % 4 * 2) for t in range(WARP)]
            parts = parts_of(lanes, size)
            yield Conflicts(span, tile.name, f"load of {size} B", passes(parts), len(parts))
        case a.ClearEdges():
            chunk = 128 // op.buffer.rep.bits
            row = op.buffer.cols // chunk
            lanes = [address(op.buffer, t // row, t % row * chunk) for t in range(WARP)]
            parts = parts_of(lanes, 16)
            yield Conflicts(span, op.buffer.name, "store of 16 B", passes(parts), len(parts))
        case _:
            return


def _by_threads(
    kernel: k.Kernel,
    tile: Tile,
    row: k.LoopAxis,
    col: k.LoopAxis,
    size: int,
    how: str,
    span: Span,
) -> Conflicts:
    """Each thread its own coordinates, in every step of every warp."""
    worst, least = 0, 1
    elements = max(1, size * 8 // tile.rep.bits)
    registers = product(_registers(row, 1), _registers(col, elements))
    for row_register, col_register in registers:
        for first in range(0, kernel.workers, WARP):
            lanes = [
                (row.layout.coordinate(t, row_register), col.layout.coordinate(t, col_register))
                for t in range(first, min(first + WARP, kernel.workers))
            ]
            inside = [
                address(tile, r, c)
                for r, c in dict.fromkeys(lanes)
                if r < tile.rows and c < tile.cols
            ]
            parts = parts_of(inside, size)
            needed = passes(parts)
            if needed - len(parts) > worst - least or not worst:
                worst, least = needed, len(parts)
    return Conflicts(span, tile.name, how, worst, least)


def _registers(axis: k.LoopAxis, elements: int) -> range:
    """Numbers of the registers with which vectors of `elements` begin; of an axis that is walked those of one step."""
    layout = axis.layout
    held = layout.vector * (1 if layout.streams else layout.steps)
    return range(0, held, elements)


def _matrices(
    tile: Tile,
    transposed: bool,
    consumed: int,
    across: int,
    how: str,
    span: Span,
    note: str = "",
) -> Conflicts:
    """Eight rows of 16 bytes at a time. The tile's rows are the operand's, or those of the consumed axis where it is transposed."""
    chunk = 128 // tile.rep.bits
    rows, cols = (consumed, across) if transposed else (across, consumed)
    worst = 1
    for row in range(0, min(rows, tile.rows) - 7, 8):
        for col in range(0, min(cols, tile.cols), chunk):
            part = [(address(tile, row + n, col), 16) for n in range(8)]
            worst = max(worst, passes([part]))
    return Conflicts(span, tile.name, how, worst, 1, note)
