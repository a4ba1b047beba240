"""Kernel IR of rows that start anywhere: vectors of the aligned window around a row; and of copies of matrices."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import DType
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class WindowShift(k.Op):
    """`const int axis_shift`: the elements between `tensor + offset` and the aligned vector that it lies in."""

    axis: k.LoopAxis
    tensor: str
    offset: k.Expr


@dataclass(frozen=True)
class WindowRoom(k.Op):
    """`const int name`: the elements from `pointer` to the end of its tensor, which is `tensor + total`."""

    name: str
    pointer: str
    tensor: str
    total: k.Expr


@dataclass(frozen=True)
class LoadWindow(k.Op):
    """The aligned vector of a window at the current coordinate of its row at `pointer`, nothing of it from `room` on, a variable.
    What lies in front of the row or behind it is whatever is there."""

    target: k.Fragment
    pointer: str
    room: str
    guards: tuple[k.Expr, ...] = ()


@dataclass(frozen=True)
class LoadShifted(k.Op):
    """The elements at the current coordinates of a windowed axis, whose vectors lie across two aligned ones of the row at `pointer`;
    zeros in front of the row and from `count` on, None where the row does not end in them. `whole`: all of them exist, and as many behind them as one access of `access`
    bytes may reach; `near`: no more behind them than the access has that reads the last."""

    target: k.Fragment
    pointer: str
    count: k.Expr | None
    access: int
    guards: tuple[k.Expr, ...] = ()
    whole: bool = False
    near: bool = False


@dataclass(frozen=True)
class IfWhole(k.Op):
    """`then` where the current vector of a windowed axis and `reach` elements behind it are all among the first `count`, `otherwise`
    where not: at the edges of a row. None where the row is known to reach so far: in front of its begin."""

    axis: k.LoopAxis
    count: k.Expr | None
    reach: int
    then: tuple[k.Op, ...]
    otherwise: tuple[k.Op, ...]


@dataclass(frozen=True)
class StoreWindow(k.Op):
    """The part of the current vector of `source`, converted to `rep`, from coordinate 0 on and of `count` elements at most (None: to its
    end), to `pointer + offset`."""

    source: k.Fragment
    rep: DType
    pointer: str
    offset: k.Expr
    count: k.Expr | None
    guards: tuple[k.Expr, ...] = ()


@dataclass(frozen=True)
class CopyRow(k.Op):
    """Row `row` of `rows` rows of `columns` elements, which lie one behind the other in `source`, to `target`, whose rows begin at
    multiples of `width` elements (16 bytes): `vectors` vectors of each thread, from number `first` on and `step` apart, by accesses of
    `access` bytes. What lies behind a row in its last vector is not defined."""

    source: str
    target: str
    rep: DType
    row: k.Expr
    rows: k.Expr
    columns: k.Expr
    first: k.Expr
    width: int
    access: int
    vectors: int
    step: int


@dataclass(frozen=True)
class InterleaveRow(k.Op):
    """16 elements of 8 bits, from `first` on, of row `row` of `columns` elements, which lie one behind the other in `source`, to `target` in
    the order of `passes.turning`: `padded` elements a row, a multiple of 16, with zeros behind the last one."""

    source: str
    target: str
    rep: DType
    row: k.Expr
    columns: k.Expr
    padded: k.Expr
    first: k.Expr


@dataclass(frozen=True)
class PackTile(k.Op):
    """`height` rows from `row_first` and `width` columns from `column_first` on of `rows` x `columns` truth values, rows `stride` apart from
    `source + offset` on, as words to `target + to` (`passes.mask_words`), and whether one is true to `table + at`; where none is, 1 to
    `flag`. `buffer`: shared memory of a truth value for each warp."""

    source: str
    target: str
    table: str
    flag: str
    buffer: str
    rep: DType
    offset: k.Expr
    to: k.Expr
    at: k.Expr
    stride: k.Expr
    rows: k.Expr
    columns: k.Expr
    row_first: k.Expr
    column_first: k.Expr
    height: int
    width: int


@dataclass(frozen=True)
class TurnTile(k.Op):
    """128 rows from `row_first` and 128 columns from `column_first` on of `rows` x `columns` elements of 8 bits, rows `stride` apart from
    `source + offset` on, transposed to `target + to`: `padded` elements a column, a multiple of 16, with zeros behind the last row.
    `interleaved` as in `passes.turning`; `buffer`: shared memory of a tile, in vectors of four words."""

    source: str
    target: str
    buffer: str
    rep: DType
    offset: k.Expr
    to: k.Expr
    stride: k.Expr
    rows: k.Expr
    columns: k.Expr
    padded: k.Expr
    row_first: k.Expr
    column_first: k.Expr
    interleaved: bool
