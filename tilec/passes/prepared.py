"""What kernels in front of a launch prepare for it in the workspace: what all kinds have in common, and rows that begin at
multiples of 16 bytes."""

from __future__ import annotations

from typing import Protocol

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import DType
from tilec.ir.launch import Instead, LaunchCondition, product
from tilec.ir.requirements import INSTANCE_LIMIT
from tilec.ir.symbolic import Sym, ceildiv, sym_min
from tilec.ir.tensor_maps import ALIGNMENT
from tilec.lazy_dataclass import dataclass

THREADS = 128
VECTORS = 4
"""Of a thread: as many have loads under way at once."""


class Prepared(Protocol):
    """A temp that a kernel fills from `tensor`, among others."""

    @property
    def tensor(self) -> str:
        """What it is made of, or one of those."""

    @property
    def temp(self) -> str:
        """Its name."""

    @property
    def dtype(self) -> DType:
        """Of its elements."""

    @property
    def condition(self) -> LaunchCondition:
        """In which of the calls that this is for it is filled."""

    @property
    def asked(self) -> tuple[t.HostExpr, ...]:
        """What must hold of the sizes for it to be filled."""

    @property
    def place(self) -> t.Tensor:
        """The temp as a piece of the workspace."""

    @property
    def further(self) -> tuple[t.Tensor, ...]:
        """Other pieces that the same kernel fills."""

    @property
    def elements(self) -> Sym:
        """How many are filled, where any are."""

    @property
    def needed(self) -> Sym:
        """1 where it is filled, else 0."""

    @property
    def grid(self) -> Sym:
        """CTAs."""

    @property
    def where(self) -> str:
        """In which calls, for the manifest."""

    @property
    def to(self) -> str:
        """To where, for the manifest."""


@dataclass(frozen=True)
class RowCopy:
    """A dense tensor of `rows` rows of `columns` elements, and the temp to which it is copied where `condition` holds."""

    tensor: str
    temp: str
    dtype: DType
    dims: tuple[Sym, ...]

    @property
    def width(self) -> int:
        """Elements of a vector of 16 bytes."""
        return ALIGNMENT * 8 // self.dtype.bits

    @property
    def columns(self) -> Sym:
        """Elements of a row."""
        return self.dims[-1]

    @property
    def rows(self) -> Sym:
        """Rows of all other dimensions."""
        return product(self.dims[:-1])

    @property
    def condition(self) -> t.HostExpr:
        """Whether rows begin elsewhere than at multiples of 16 bytes."""
        return t.HostOp("!=", (self.columns % self.width, t.HostNumber(0)))

    @property
    def instead(self) -> Instead:
        """The copy's place in a tensor map."""
        return Instead(self.temp, self.condition)

    @property
    def strides(self) -> tuple[Sym, ...]:
        """Elements from one index to the next along every dimension but the last, in the copy; where there is none, in the tensor."""
        found = [ceildiv(self.columns, self.width) * self.width]
        for dim in reversed(self.dims[1:-1]):
            found.insert(0, found[0] * dim)
        return tuple(found)

    @property
    def needed(self) -> Sym:
        """1 where it is copied, else 0."""
        return sym_min([self.columns % self.width, 1])

    @property
    def place(self) -> t.Tensor:
        """The temp, with no element where nothing is copied."""
        return t.Tensor(
            self.temp, self.dtype, (self.rows * self.strides[-1] * self.needed,), "temp"
        )

    @property
    def further(self) -> tuple[t.Tensor, ...]:
        """None."""
        return ()

    @property
    def asked(self) -> tuple[t.HostExpr, ...]:
        """Nothing."""
        return ()

    @property
    def parts(self) -> Sym:
        """CTAs that share a row."""
        return ceildiv(self.columns, THREADS * VECTORS * self.width)

    @property
    def elements(self) -> Sym:
        """How many are copied, where any are."""
        return self.rows * self.columns

    @property
    def grid(self) -> Sym:
        """CTAs."""
        return self.rows * self.parts

    @property
    def to(self) -> str:
        """To where, for the manifest."""
        return f"the workspace, rows at multiples of {ALIGNMENT} bytes"

    @property
    def where(self) -> str:
        """In which calls, for the manifest."""
        return f"{self.columns} % {self.width} != 0"


@dataclass(frozen=True)
class Copies:
    """What a variant copies first. `cost` and `work` are in trips of a tile: it pays where the work is no less."""

    rows: tuple[Prepared, ...]
    cost: Sym
    work: Sym

    @property
    def conditions(self) -> tuple[t.HostExpr, ...]:
        """Whether the copies take no longer than what they save, and have grids."""
        limit = t.HostNumber(INSTANCE_LIMIT)
        fits = (t.HostOp("<=", (copy.grid, limit)) for copy in self.rows)
        asked = (condition for copy in self.rows for condition in copy.asked)
        return (t.HostOp("<=", (self.cost, self.work)), *fits, *asked)

    @property
    def temps(self) -> tuple[t.Tensor, ...]:
        """The pieces of the workspace that they take."""
        return tuple(temp for copy in self.rows for temp in (copy.place, *copy.further))

    @property
    def tensors(self) -> frozenset[str]:
        """Those whose rows begin at multiples of 16 bytes behind the copies."""
        return frozenset(copy.tensor for copy in self.rows if isinstance(copy, RowCopy))

    def of(self, tensor: str) -> RowCopy | None:
        """What takes a tensor's place."""
        copies = (copy for copy in self.rows if isinstance(copy, RowCopy))
        return next((copy for copy in copies if copy.tensor == tensor), None)
