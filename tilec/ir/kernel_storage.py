"""Where Kernel IR keeps values: axes that loops walk, fragments in registers, buffers in shared memory. Names are final C names."""

from __future__ import annotations

from tilec.ir.dtypes import DType
from tilec.ir.kernel_expressions import Expr
from tilec.ir.layouts import AxisLayout
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LoopAxis:
    """An axis that a loop walks. C names: `step` of the step index, `coordinate` of the coordinate of the vector's first element,
    `lane` of the thread's digit; constants k{Steps,Threads,Width}`suffix`."""

    name: str
    layout: AxisLayout
    extent: Sym
    vectorised: bool = False
    """held in `Vector`s along this axis, of width 1 too"""
    windowed: bool = False
    """coordinates start below 0, at the aligned vector in which the row begins"""

    @property
    def suffix(self) -> str:
        """Ending of the constants' names."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_"))

    @property
    def step(self) -> str:
        """C name of the step index."""
        return f"{self.name}_step"

    @property
    def coordinate(self) -> str:
        """C name of the coordinate."""
        return f"{self.name}_at"

    @property
    def element(self) -> str:
        """C name of the coordinate of the current element."""
        return f"{self.name}_el" if self.vectorised else self.coordinate

    @property
    def lane(self) -> str:
        """C name of the thread's digit, or of its first coordinate where the layout is not blocked."""
        return f"{self.name}_lane" if self.layout.is_blocked else f"{self.name}_first"

    @property
    def shift(self) -> str:
        """C name of the elements in front of a window's row, fewer than a vector."""
        return f"{self.name}_shift"


@dataclass(frozen=True)
class Part:
    """`count` steps of an axis, from `first` on."""

    axis: LoopAxis
    first: int
    count: int

    @property
    def end(self) -> int:
        """The step behind the last."""
        return self.first + self.count


@dataclass(frozen=True)
class Fragment:
    """Registers: an array over the steps of `axes` in order, of vectors along the axis that has a width. `rep` is the dtype in
    storage. No axes: a scalar variable. `local`: lives in one trip of a loop only (one vector)."""

    name: str
    rep: DType
    axes: tuple[LoopAxis, ...] = ()
    local: bool = False
    indexed: bool = False
    """elements are pairs of a value and a coordinate"""
    packed: bool = False
    """a left operand of 8-bit elements: pairs of neighbouring vectors are words"""


@dataclass(frozen=True)
class SharedBuffer:
    """`count` elements of shared memory; `purpose` is the hazard's name in the manifest."""

    name: str
    rep: DType
    count: int
    purpose: str
    indexed: bool = False
    count_text: str = ""
    """the count in terms of the configuration's constants"""
    vector: int = 1
    """elements come in `Vector`s of so many"""
    alignment: int = 0
    """bytes of which its address is a multiple, 0: those of an element"""

    @property
    def bytes(self) -> int:
        """Bytes, up to a multiple of 16."""
        return -(-self.count * self.element_bytes // 16) * 16

    @property
    def element_bytes(self) -> int:
        """Bytes of an element. A pair of a value and a coordinate is as wide as the wider of both, twice."""
        width = self.rep.bits // 8
        return 2 * max(width, 4) if self.indexed else width


@dataclass(frozen=True)
class TileBuffer:
    """`slots` operand tiles in shared memory, `rows` x `cols`, 16-byte chunks placed without bank conflicts: by a swizzle where
    one is known to whoever reads them (not `plain`), else by an odd pitch, and in panels where elements have 8 bits."""

    name: str
    rep: DType
    rows: int
    cols: int
    slots: int
    plain: bool = False
    constant: bool = False
    """places differ by constants where coordinates do: at the cost of nothing where rows are known not to be negative"""

    @property
    def pitch(self) -> int:
        """Elements of a row and what is left free behind it."""
        chunk = 128 // self.rep.bits
        chunks = self.cols // chunk
        if self.plain:
            return self.cols if chunks % 2 or self.rep.bits == 8 else self.cols + chunk
        swizzled = chunks % 8 == 0 or chunks & (chunks - 1) == 0
        return self.cols if swizzled or chunks % 2 else self.cols + chunk

    @property
    def bytes(self) -> int:
        """Bytes of all slots."""
        one = self.rows * self.pitch * self.rep.bits // 8
        return -(-one // 128) * 128 * self.slots


@dataclass(frozen=True)
class TileAddress:
    """An operand tile: its buffer and the slot of a ring (None: the only one)."""

    buffer: str
    slot: Expr | None = None


@dataclass(frozen=True)
class PanelBuffer:
    """`slots` operand tiles in shared memory, `rows` x `cols`, in panels of up to 128 bytes of columns, swizzled. One row alone is one
    panel, as it lies in memory."""

    name: str
    rep: DType
    rows: int
    cols: int
    slots: int

    @property
    def span(self) -> int:
        """Bytes of a row of a panel, which the swizzle spans."""
        row = self.cols * self.rep.bits // 8
        return next(s for s in (128, 64, 32) if row % s == 0)

    @property
    def swizzle(self) -> int:
        """The swizzle's span in bytes, 0 for none."""
        return self.span if self.rows > 1 else 0

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.span * 8 // self.rep.bits if self.rows > 1 else self.cols

    @property
    def slot_bytes(self) -> int:
        """Bytes of one tile."""
        return self.rows * self.cols * self.rep.bits // 8

    @property
    def alignment(self) -> int:
        """Where a slot begins, in bytes: where the swizzle's pattern does, or where a bulk copy may write."""
        return 1024 if self.rows > 1 else 128

    @property
    def bytes(self) -> int:
        """Bytes of all slots, each at a multiple of the alignment."""
        return -(-self.slot_bytes // self.alignment) * self.alignment * self.slots


@dataclass(frozen=True)
class Barrier:
    """`slots` barriers of `arrivals` arrivals a phase."""

    name: str
    slots: int
    arrivals: int

    @property
    def bytes(self) -> int:
        """Bytes of all."""
        return 8 * self.slots
