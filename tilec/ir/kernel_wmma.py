"""Kernel IR ops of products by `nvcuda::wmma`. Which lane holds which sum is not specified: sums live apart from fragments and
reach them by way of shared memory.

    declare_sums acc_sums 4 x 4            zeros
    loop k:  wmma_product acc_sums a b
    add_sums acc acc_sums                  through rows of a tile that each warp has to itself
"""

from __future__ import annotations

from tilec.ir.dtypes import DType
from tilec.ir.kernel_ir import Fragment, Op, TileAddress
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Sums:
    """A warp's opaque sums of dtype `rep`: `rows` x `cols` blocks of 16 x 16, of products `depth` elements deep."""

    name: str
    rep: DType
    rows: int
    cols: int
    depth: int


@dataclass(frozen=True)
class DeclareSums(Op):
    """Sums that are 0."""

    sums: Sums


@dataclass(frozen=True)
class WmmaProduct(Op):
    """`sums += a @ b`, as `Product`, from plain tiles. `tf32`: the operands' f32 elements are rounded. `offset`: the warp's column
    blocks in front of those that the sums are of."""

    sums: Sums
    operand: DType
    tf32: bool
    k_extent: int
    a: TileAddress
    b: TileAddress
    a_transposed: bool
    b_transposed: bool
    row_first: str
    col_first: str
    rolled: bool = False
    offset: int = 0


@dataclass(frozen=True)
class AddSums(Op):
    """`target += sums`, by way of 16 rows for each warp of the tile `scratch`; the lanes of a warp meet around it. `offset` as in
    `WmmaProduct`."""

    target: Fragment
    sums: Sums
    scratch: TileAddress
    offset: int = 0
