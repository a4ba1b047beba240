"""Threads and vectors per thread for rows whose length is known at launch, CTAs and registers for them.

Measured on an H200 for rows of 256 B to 1 MB (docs/performance.md). Short rows: many small CTAs. A cap on registers that lets
1024 to 2048 threads of an SM be resident is worth more than anything that a thread could keep in the registers above it; a
spill costs more than the cap gains.
"""

from __future__ import annotations

from typing import Literal

from tilec.targets.occupancy import WARP, warps_by_registers
from tilec.targets.table import Target

Transport = Literal["aligned", "window", "single"]
"""How accesses along the fast axis move: vectors at multiples of their size, vectors of an aligned window around the row, or
one element at a time."""

ONE_STREAM = ((16, 2), (32, 2), (32, 4), (64, 4), (128, 4), (128, 8), (256, 8), (512, 8), (1024, 8))
"""(threads, vectors per thread) for 16-byte vectors, by size."""

TWO_STREAMS = (
    (16, 2), (32, 2), (64, 2), (64, 4), (128, 4), (128, 8), (256, 8), (512, 8), (1024, 8),
)  # fmt: skip
"""The same where a step reads two vectors, both of which are in flight at once."""

MORE_STREAMS = (
    (16, 2), (32, 2), (32, 4), (128, 2), (128, 4), (256, 4), (512, 4), (512, 8), (1024, 8),
)  # fmt: skip
"""The same for three or more. Rows of 2 KB and 8 KB as four vectors a thread: fewer instructions for reductions, and more bytes in
flight, than two vectors of twice the threads."""

WINDOWS = ((16, 3), (32, 3), (32, 5), (64, 5), (128, 5), (256, 5), (512, 5), (1024, 5))
"""For windows, which reach one vector further than the row."""

CLUSTERS = ((512, 8, 4), (512, 8, 8), (512, 8, 16))
"""(threads, vectors per thread, CTAs) for rows that a cluster holds, by size, two CTAs on an SM. More than eight CTAs must be allowed by the launch."""

CLUSTERS_OF_MORE_STREAMS = ((512, 8, 2), (512, 8, 4), (512, 8, 8), (512, 8, 16))
"""The same in the place of LARGEST, where three or more are read, or one that is the same for all rows: one CTA of 1024 threads has
nothing else to do on its SM while it waits for what the row is combined with, which the L1 cache does not hold; half of that is read, or
kept (`slices`), by each CTA of a cluster."""

LONG_WALK = 64
"""Operations an element from which on their own results take registers too."""

REGISTERS_OF_LONG_WALKS = 8
"""As many of them."""

PORTABLE = 8
"""CTAs of a cluster that every launch may have."""

LARGEST = (1024, 8)
"""The level that those clusters take the place of."""

CLUSTERS_OF_WINDOWS = ((512, 5, 4), (512, 5, 8), (512, 5, 16))
"""The same for windows."""

SINGLES = ((32, 8), (128, 8), (256, 16), (512, 16), (1024, 16), (1024, 32))
"""For single elements, whose addresses and predicates take registers too."""

FEW_SINGLES = ((32, 8), (128, 8), (256, 16), (1024, 16))
"""The same where only tensors at odd addresses are left to them."""

REGISTERS_OF_ROWS = 16
"""Registers of a thread that holds a part of a row, beside one and a half times what it holds."""

REGISTERS_OF_STREAMS = 8
"""More of them for short parts with three streams or more."""

REGISTERS_BESIDES = 30
"""Registers a thread needs beside tiles of several axes: addresses, a vector in flight, reduction temporaries."""

REGISTERS_OF_SINGLES = 16
"""More of them where elements move one at a time, each with an address and a predicate."""

REGISTERS_OF_SHIFTS = 16
"""More of them where several vectors are shifted in each of many steps."""


MANY_WORDS = 32
"""Registers of a row's part with which the shifts of fewer steps need them too."""

FILLED_STREAMS = range(3, 5)
"""Rows read and written with which a CTA gains by a walk without masks: it loads nothing ahead where only the row itself is read, and
has no registers for what more than four have under way, of wide elements more than three."""

MANY_THREADS = 256
REGISTERS_OF_WARPS = 1
"""More of them for windows with walks of their own and two streams or more, where so many threads combine what eight warps or more have
found; measured with ptxas."""

INNER_STEPS = 5
"""Vectors that a thread holds of a window, from which on those between the first and the last have walks of their own."""

FEW_STEPS = range(4, 8)
"""Vectors of a part with which addresses of several stores are too much for what its own registers leave."""

INNER_WIDTH = 8
"""Elements of their vectors from which on: rows of wider elements are bound by memory before they are by the issue of instructions."""


def levels(
    target: Target,
    transport: Transport,
    streams: int,
    windows: bool,
    clusters: bool = False,
    kept: bool = False,
) -> tuple[tuple[int, int], ...]:
    """(threads, vectors or elements per thread) by size. `windows`: rows that start anywhere have levels of their own;
    `clusters`: longer rows are held by clusters; `kept`: one of the streams is the same for all rows."""
    match transport:
        case "aligned":
            found = (ONE_STREAM, TWO_STREAMS, MORE_STREAMS)[min(max(streams, 1), 3) - 1]
            pairs = clusters and takes_pairs(target, streams, kept)
            return tuple(x for x in found if x != LARGEST) if pairs else found
        case "window":
            return WINDOWS
        case "single":
            return FEW_SINGLES if windows else SINGLES


def cluster_levels(
    target: Target, transport: Transport, streams: int, kept: bool = False
) -> tuple[tuple[int, int, int], ...]:
    """(threads, vectors per thread, CTAs) for longer rows, by size; none where the target
    has no clusters, or too few registers for them."""
    if "row_clusters" not in target.features or transport == "single":
        return ()
    found = CLUSTERS_OF_MORE_STREAMS if takes_pairs(target, streams, kept) else CLUSTERS
    if transport == "window":
        found = CLUSTERS_OF_WINDOWS
    if takes_queue(target):
        return found
    # a cluster for each row: twice the threads in half as many CTAs where those would be too many
    return tuple(
        (t * n // PORTABLE, s, PORTABLE) if n > PORTABLE else (t, s, n) for t, s, n in found
    )


def takes_pairs(target: Target, streams: int, kept: bool = False) -> bool:
    """Whether two CTAs of a cluster hold what one of the largest level could."""
    held = kept and "row_slices" in target.features
    return streams >= 3 or held or "row_pairs" in target.features


def takes_queue(target: Target) -> bool:
    """Whether clusters stay and take one row after the other. With a barrier of the cluster for each exchange that cost aligned rows of
    two streams 2 to 7 % on an H200; kernels written by hand whose barriers count what is sent gain 5 to 13 %."""
    return "row_queue" in target.features


def fills(
    target: Target, transport: Transport, steps: int, ctas: int, streams: int, width: int
) -> bool:
    """Whether rows that fill a level of `steps` vectors a thread have walks of their own, without masks. `streams`: rows that are read
    and written in a step; `width`: elements of a vector."""
    if "filled_rows" not in target.features:
        return False
    if transport == "window":
        many = steps >= INNER_STEPS and width >= INNER_WIDTH
        return many and "filled_windows" in target.features
    if ctas > 1:
        return True
    filled = FILLED_STREAMS if width >= INNER_WIDTH else FILLED_STREAMS[:1]
    return "filled_ctas" in target.features and steps >= 8 and streams in filled


SCANNED_WORDS = 2
"""What a vector adds to a running sum, and what comes before it."""


def least_cta(steps: int) -> int:
    """Threads that a CTA should have at least: half as many where each of them has four vectors in flight."""
    return 64 if steps >= 4 else 128


def registers_of_rows(
    words: int, steps: int, streams: int, window: int, filled: bool = False, stores: int = 0
) -> int:
    """Registers to leave a thread that holds `words` of a row in `steps` vectors; at least `window` where those are of
    a window (0: they are not). `filled`: walks without masks have vectors under way in the place of bounds; `stores`: more
    for several tensors that are written from parts of a few vectors."""
    registers = REGISTERS_OF_ROWS + words * 3 // 2
    if window:
        many = steps >= 4 or words >= MANY_WORDS
        shifts = REGISTERS_OF_SHIFTS if streams >= 3 and many else 0
        shifts //= 2 if filled else 1
        return max(window, registers) + shifts
    if streams >= 3 and steps < 8:
        registers += REGISTERS_OF_STREAMS
    elif steps in FEW_STEPS:
        registers += stores
    return registers


def registers_of_tiles(words: int, passing: int, single: bool) -> int:
    """The same for tiles of several axes and for single elements; `passing` words are in flight."""
    return words + passing + REGISTERS_BESIDES + (REGISTERS_OF_SINGLES if single else 0)


def registers_of_parts(words: int, steps: int) -> int:
    """More of them where so many `words` are kept of each of a thread's `steps` vectors, as scans and folds do."""
    return words * steps + 8


def resident_ctas(target: Target, threads: int, registers: int, most: int | None = None) -> int:
    """CTAs to ask an SM for, so that a thread has `registers`; `most` threads in all."""
    held = warps_by_registers(target, registers) * WARP
    resident = min(target.threads_per_sm, held if most is None else min(held, most))
    return max(1, min(target.blocks_per_sm, resident // (-(-threads // WARP) * WARP)))


def power_of_two_in(number: int) -> int:
    """The greatest power of two that divides a number."""
    return number & -number


def power_of_two(number: int) -> int:
    """The least that is at least `number`."""
    return 1 << max(0, number - 1).bit_length()
