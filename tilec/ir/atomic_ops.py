"""Kernel IR of atomics on tensors: of one element, and of the elements of a vector, each by itself."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import DType
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class AtomicElement(k.Op):
    """`if (guards) atomic_op(&pointer[offset], value);`"""

    op: str
    pointer: str
    offset: k.Expr
    value: k.Expr
    guards: tuple[k.Expr, ...] = ()


@dataclass(frozen=True)
class AtomicShared(k.Op):
    """`if (guards) atomic_op(&shared.buffer[offset], value);`: those of several threads need no order."""

    op: str
    buffer: str
    offset: k.Expr
    value: k.Expr
    guards: tuple[k.Expr, ...] = ()


@dataclass(frozen=True)
class AtomicVector(k.Op):
    """`atomic_op(&pointer[offset + n], …)` for each element n of the current vector of `source`, converted to `rep`, `bytes` of them in
    one instruction. The address is a multiple of the vector's size (16 bytes at most); `guards` and `count` as in StoreVector."""

    op: str
    source: k.Fragment
    rep: DType
    pointer: str
    offset: k.Expr
    bytes: int
    guards: tuple[k.Expr, ...] = ()
    count: k.Expr | None = None
