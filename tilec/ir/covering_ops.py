"""Kernel IR of vectors that cover what several accesses ask for: loaded once, elements picked from registers; stores of all fields woven."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import DType
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LoadCovering(k.Op):
    """`const Covering<rep, width, count> name`: `count` aligned vectors of `width` elements that lie one behind the other from
    `pointer + offset` on; zeros where a guard fails, in front of element `begin`, a multiple of the width, and from element `end` on
    (None: no such end). `stride`: elements that each coordinate has of them."""

    name: str
    rep: DType
    width: int
    count: int
    pointer: str
    offset: k.Expr
    stride: int
    guards: tuple[k.Expr, ...] = ()
    begin: k.Expr | None = None
    end: k.Expr | None = None


@dataclass(frozen=True)
class PickVector(k.Op):
    """The current vector of `target`: element e is number `first` + `stride` * e of the covering vectors `source`."""

    target: k.Fragment
    source: str
    first: int
    stride: int


@dataclass(frozen=True)
class StoreWoven(k.Op):
    """The current vectors of all `sources`, converted to `rep`, as the fields of coordinates that lie one behind the other from
    `pointer + offset` on, in aligned vectors of `width` elements. `count`: coordinates that exist from here on (a tail), None where all
    do."""

    sources: tuple[k.Fragment, ...]
    rep: DType
    width: int
    pointer: str
    offset: k.Expr
    guards: tuple[k.Expr, ...] = ()
    count: k.Expr | None = None
