"""Kernel IR ops of a product whose operands are read a step of the consumed axis ahead, across the trips of a loop.

declare_operands             two sets of registers
read_operands set 0          the first trip's first step
loop k:
    read_operands set 1      the next step's ...
    product_step set 0       ... while this one multiplies
    wait_group ; cta_sync
    read_operands set 0      the next trip's first step
    product_step set 1
"""

from __future__ import annotations

from tilec.ir.kernel_ir import Fragment, Op, Product, TileAddress
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class DeclareOperands(Op):
    """Two sets of a product's operands, and where the warp's share of its rows and columns begins. The tiles' slots say nothing."""

    product: Product


@dataclass(frozen=True)
class ReadOperands(Op):
    """One step's operands, from element `k_at` of the consumed axis on, into one of the two sets. `column`: of the right one the blocks from
    there on that the product has in registers at a time, of the left one those that none had before."""

    product: Product
    set: int
    k_at: int
    column: int | None = None

    @property
    def left_set(self) -> int:
        """The set of the left operand's registers."""
        return self.set if self.column is None else self.k_at // self.product.k_step % 2


@dataclass(frozen=True)
class ProductStep(Op):
    """`target += a @ b` of one step by the operands of a set. The tiles' slots say nothing. `k_at`, `column`: as they were read."""

    product: Product
    set: int
    k_at: int = 0
    column: int | None = None

    @property
    def left_set(self) -> int:
        """The set of the left operand's registers."""
        return self.set if self.column is None else self.k_at // self.product.k_step % 2

    @property
    def share(self) -> float:
        """How much of the step's columns it multiplies."""
        return 1.0 if self.column is None else self.product.columns_at_once / self.product.col_tiles

    @property
    def a(self) -> TileAddress | Fragment:
        """The left operand."""
        return self.product.a

    @property
    def b(self) -> TileAddress:
        """The right operand."""
        return self.product.b
