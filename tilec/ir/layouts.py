"""Layouts: which thread holds which coordinates of a tile, in which registers.

One algebra for all of them. The coordinate along one axis is a sum of digits, each the value of a register
index, of the thread's number, or of a run-time loop, times a stride:

    coordinate = sum(digit * stride)

A row of 16-byte vectors over 128 threads is register·1024 + thread·8 + register·1; the rows of a tensor-core
accumulator are register·8 + (thread / 4 % 8)·1 + (warp)·16. A tile's layout is one AxisLayout for each axis; the
slice of a layout (a row or a column vector of it) is a subset of them, replicated over the other threads.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Digit:
    """`radix` values with step `stride` along the axis. A thread digit is (thread / divisor) % radix; a loop digit runs until
    the extent is covered (radix 0)."""

    source: Literal["register", "thread", "loop"]
    radix: int
    stride: int
    divisor: int = 1


@dataclass(frozen=True)
class AxisLayout:
    """Digits of one axis, largest stride first. Together they cover [0, capacity) once (a loop digit: any extent)."""

    digits: tuple[Digit, ...]

    def _of(self, source: str) -> tuple[Digit, ...]:
        return tuple(d for d in self.digits if d.source == source)

    @property
    def vector(self) -> int:
        """Neighbouring coordinates in neighbouring registers: the radix of the register digit of stride 1."""
        last = self.digits[-1] if self.digits else None
        return last.radix if last and last.source == "register" and last.stride == 1 else 1

    @property
    def steps(self) -> int:
        """Register digits other than the vector: how many vectors a thread holds along the axis."""
        return prod(d.radix for d in self._of("register")) // self.vector

    @property
    def threads(self) -> int:
        """Threads that hold different coordinates."""
        return prod(d.radix for d in self._of("thread"))

    @property
    def thread_digit(self) -> Digit | None:
        """The thread digit of a blocked layout, or None where every thread holds all coordinates."""
        found = self._of("thread")
        return found[0] if found else None

    @property
    def thread_digits(self) -> tuple[Digit, ...]:
        """All thread digits, largest stride first."""
        return self._of("thread")

    @property
    def step_digits(self) -> tuple[Digit, ...]:
        """Register digits other than the vector, largest stride first."""
        found = self._of("register")
        return (
            found[:-1]
            if self.vector > 1 or (found and found[-1].stride == 1 and found[-1].radix == 1)
            else found
        )

    @property
    def is_blocked(self) -> bool:
        """Made by `blocked` or `streamed`: the thread's digit times the vector, then steps of the whole."""
        return [d.source for d in self.digits[1:]] == ["thread", "register"] and self.digits[
            -1
        ].stride == 1

    @property
    def streams(self) -> bool:
        """A loop digit: the axis is walked, not held."""
        return bool(self._of("loop"))

    @property
    def capacity(self) -> int:
        """Coordinates covered, or 0 where a loop digit covers any number."""
        return 0 if self.streams else prod(d.radix for d in self.digits)

    def coordinate(self, thread: int, registers: int, trip: int = 0) -> int:
        """The coordinate that `thread` holds in its register number `registers` (mixed radix, first digit most significant)."""
        total = 0
        for digit in reversed(self.digits):
            match digit.source:
                case "register":
                    registers, value = divmod(registers, digit.radix)
                case "thread":
                    value = thread // digit.divisor % digit.radix
                case "loop":
                    value = trip
            total += value * digit.stride
        return total


def blocked(steps: int, threads: int, divisor: int, vector: int) -> AxisLayout:
    """`steps` vectors of `vector` coordinates a thread, neighbouring vectors in neighbouring threads."""
    return AxisLayout(
        (
            Digit("register", steps, threads * vector),
            Digit("thread", threads, vector, divisor),
            Digit("register", vector, 1),
        )
    )


def fragment_rows(tiles: int, warps: int, warp_divisor: int) -> AxisLayout:
    """Rows of the accumulators of a warp-level product: `tiles` blocks of 16 a warp, each thread two rows of a block eight apart
    (PTX ISA, matrix fragments for mma.m16n8k16: row = lane / 4 and + 8)."""
    return AxisLayout(
        (
            Digit("thread", warps, 16 * tiles, warp_divisor),
            Digit("register", tiles, 16),
            Digit("register", 2, 8),
            Digit("thread", 8, 1, 4),
        )
    )


def warpgroup_rows(blocks: int, warpgroups: int, paired: bool = False) -> AxisLayout:
    """Rows of the accumulators of warpgroup products: `blocks` of 64 a warpgroup, 16 of each a warp (PTX ISA, register fragments
    of wgmma: row = warp % 4 * 16 + lane / 4 and + 8). `paired`: the instruction's rows stand for others, so that a thread's two are
    neighbours."""
    own = (Digit("register", 2, 1), Digit("thread", 8, 2, 4))
    apart = (Digit("register", 2, 8), Digit("thread", 8, 1, 4))
    return AxisLayout(
        (
            Digit("thread", warpgroups, 64 * blocks, 128),
            Digit("register", blocks, 64),
            Digit("thread", 4, 16, 32),
            *(own if paired else apart),
        )
    )


def fragment_columns(tiles: int, warps: int, warp_divisor: int) -> AxisLayout:
    """Columns of the same: `tiles` blocks of 8 a warp, each thread two neighbouring columns (column = lane % 4 * 2 and + 1)."""
    return AxisLayout(
        (
            Digit("thread", warps, 8 * tiles, warp_divisor),
            Digit("register", tiles, 8),
            Digit("thread", 4, 2, 1),
            Digit("register", 2, 1),
        )
    )


def lane_blocks(bits: int) -> int:
    """Blocks of eight columns in 16 bytes of elements with so many bits, where lanes can share them out in pairs; else 0."""
    return {8: 2, 16: 1}.get(bits, 0)


def fragment_lines(columns: AxisLayout, wide: int = 8) -> AxisLayout:
    """The same columns after four lanes have exchanged pairs: each lane `wide` neighbouring ones, 16 bytes of 16-bit elements, or of
    8-bit ones with 16."""
    warps = next(d for d in columns.thread_digits if d.stride != 2)
    tiles = columns.steps
    return AxisLayout(
        (
            warps,
            Digit("register", tiles * 8 // (4 * wide), 4 * wide),
            Digit("thread", 4, wide, 1),
            Digit("register", wide, 1),
        )
    )


def transposed_columns(columns: AxisLayout) -> AxisLayout:
    """The columns of accumulators after each block of 8 x 8 was transposed among the lanes of its warp: a lane has one column of a
    block (PTX ISA, movmatrix)."""
    return AxisLayout((Digit("register", columns.steps, 8), Digit("thread", 8, 1, 4)))


def is_transposable(rows: AxisLayout) -> bool:
    """Whether the lanes of a warp hold the rows of such blocks one after the other."""
    return bool(rows.digits) and rows.digits[-1] == Digit("thread", 8, 1, 4)


def transposed_rows(rows: AxisLayout) -> AxisLayout:
    """The rows after the same: two neighbours."""
    assert is_transposable(rows)
    return AxisLayout((*rows.digits[:-1], Digit("thread", 4, 2, 1), Digit("register", 2, 1)))


def is_paired(rows: AxisLayout) -> bool:
    """Whether rows are as `warpgroup_rows` makes them where they are paired."""
    return rows.digits[-2:] == (Digit("register", 2, 1), Digit("thread", 8, 2, 4))


def paired_rows(rows: AxisLayout) -> AxisLayout:
    """The same rows in vectors of two."""
    assert is_paired(rows)
    return AxisLayout((*rows.digits[:-2], rows.digits[-1], rows.digits[-2]))


def single_columns(columns: AxisLayout) -> AxisLayout:
    """Columns of accumulators one at a time: the pairs of `fragment_columns` are steps."""
    assert columns.vector == 2
    return AxisLayout((*columns.digits[:-2], columns.digits[-1], columns.digits[-2]))


def streamed(threads: int, divisor: int, vector: int) -> AxisLayout:
    """As `blocked`, but walked in as many steps as the extent asks for."""
    return AxisLayout(
        (
            Digit("loop", 0, threads * vector),
            Digit("thread", threads, vector, divisor),
            Digit("register", vector, 1),
        )
    )
