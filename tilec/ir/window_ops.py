"""Kernel IR of rows that start anywhere: vectors of the aligned window around a row."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import DType


@dataclass(frozen=True)
class WindowShift(k.Op):
    """`const int axis_shift`: the elements between `tensor + offset` and the aligned vector that it lies in."""

    axis: k.LoopAxis
    tensor: str
    offset: k.Expr


@dataclass(frozen=True)
class LoadWindow(k.Op):
    """The aligned vector of a window at `pointer + offset`, nothing of it behind `end`, a pointer. What lies in front of the row or
    behind it is whatever is there."""

    target: k.Fragment
    pointer: str
    offset: k.Expr
    end: str
    guards: tuple[k.Expr, ...] = ()


@dataclass(frozen=True)
class LoadShifted(k.Op):
    """The elements at the current coordinates of a windowed axis, whose vectors lie across two aligned ones of the row at `pointer`;
    zeros in front of the row and from `count` on."""

    target: k.Fragment
    pointer: str
    count: k.Expr
    guards: tuple[k.Expr, ...] = ()


@dataclass(frozen=True)
class StoreWindow(k.Op):
    """The part of the current vector of `source`, converted to `rep`, from coordinate 0 on and of `count` elements at most, to
    `pointer + offset`."""

    source: k.Fragment
    rep: DType
    pointer: str
    offset: k.Expr
    count: k.Expr
    guards: tuple[k.Expr, ...] = ()
