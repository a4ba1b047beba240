"""Kernel IR's expressions: what one thread computes, on scalars of one dtype each. Names are final C names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from tilec.ir.dtypes import DType
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from tilec.ir.kernel_storage import Fragment, LoopAxis


@dataclass(frozen=True)
class Local:
    """A C variable of dtype `rep`."""

    name: str
    rep: DType


@dataclass(frozen=True)
class Literal_:
    """A constant."""

    value: bool | int | float
    rep: DType


@dataclass(frozen=True)
class Index:
    """Integer arithmetic of sizes, starts and coordinates; the kernel's `names` give the C names of variables, a coordinate's is its
    variable's own. 64-bit where `wide`."""

    sym: Sym
    rep: DType
    wide: bool = False


@dataclass(frozen=True)
class Element:
    """The current element of a fragment or of a loaded vector."""

    fragment: Fragment
    rep: DType


@dataclass(frozen=True)
class Memory:
    """`pointer[offset]` where every guard holds, else 0."""

    pointer: str
    offset: Expr
    rep: DType
    guards: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class SharedElement:
    """`shared.buffer[offset]`."""

    buffer: str
    offset: Expr
    rep: DType


@dataclass(frozen=True)
class Identity:
    """The neutral element of a reduction."""

    op: str
    rep: DType


@dataclass(frozen=True)
class Apply:
    """An operation of Tile IR on scalars of one dtype; `math` picks the accuracy of functions, "half" the forms whose error a
    16-bit result hides. `op` is a Tile IR element-wise name, or "convert", "bitcast", "indexed" (a value and its coordinate),
    "index_of", "offset" (index · stride in 64 bits), "offset_add", "offset_sub" (plain int arithmetic that cannot overflow), "any_lane" (whether a bool holds in a thread of the warp),
    "lane_xor" (a value of the lane whose number differs by the second argument),
    "divisor_scale" and "divisor_reciprocal" (what a quotient by the argument is multiplied by), "columns_upto", "columns_from" and
    "has_column" (a bit for each of a thread's columns of accumulators, and one of them)."""

    op: str
    args: tuple[Expr, ...]
    rep: DType
    math: Literal["fast", "strict", "half"] = "fast"


@dataclass(frozen=True)
class LaneReduce:
    """Reduction over `lanes` lanes whose numbers differ by multiples of `stride`; all get the result, or each that of the lanes `before`
    it. `axis` names the axis whose constant says how many, "" where `lanes` is fixed."""

    op: str
    arg: Expr
    rep: DType
    axis: str
    lanes: int
    stride: int
    before: bool = False


@dataclass(frozen=True)
class Relative:
    """What partials were taken relative to: each warp's own value, which it left in `buffer`, where all together have `reference`.
    "exp": partials are sums of exp(x - value); "spread": sums of squares of distances from value / n, of which `reference` is that
    of all, where the `extent` elements of a row lie along `axis` from its `shift` on."""

    kind: Literal["exp", "spread"]
    buffer: str
    offset: Expr
    reference: Expr
    axis: LoopAxis
    extent: Expr


@dataclass(frozen=True)
class WarpCombine:
    """Reduction of the partials that the warps of the axis left in `buffer`, in fixed order; `by_lanes`: of many, by the lanes of
    each warp; `before`: of the first so many alone."""

    op: str
    buffer: str
    offset: Expr
    stride: Expr
    count: Expr
    rep: DType
    by_lanes: bool = False
    relative: Relative | None = None
    before: Expr | None = None


Expr: TypeAlias = (
    Local
    | Literal_
    | Index
    | Element
    | Memory
    | SharedElement
    | Identity
    | Apply
    | LaneReduce
    | WarpCombine
)


def shared_reads(expr: Expr) -> tuple[str, ...]:
    """Shared buffers that evaluating `expr` reads."""
    match expr:
        case SharedElement():
            return (expr.buffer,)
        case WarpCombine():
            return (expr.buffer, *((expr.relative.buffer,) if expr.relative else ()))
        case Apply():
            return tuple(b for a in expr.args for b in shared_reads(a))
        case LaneReduce():
            return shared_reads(expr.arg)
        case Memory():
            return shared_reads(expr.offset)
        case _:
            return ()
