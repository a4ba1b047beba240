"""Kernel IR: what one CTA does.

Per-thread scalar expressions, loops over the registers of a layout, copies, reductions, barriers. Every op is one
frozen dataclass and one template macro. Names are final C names. An op declares which shared buffers it reads and
writes (`reads`, `writes`), through which proxy and with which completion token, so that `synchronize` and the
verifier need no op-specific code. Expressions are in `kernel_expressions.py`, registers and shared memory in
`kernel_storage.py`.

A `TileLoop` walks the registers of some axes; on each vector it loads, computes element by element, stores:

    tile_loop c steps 4 threads 128 vector 8
      x_tile = load_vector x_row + c  guard c < C
      elements guard c < C
        row = convert f32 x_tile
        accumulate max row_max row
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Literal

from tilec.ir.dtypes import DType
from tilec.ir.kernel_expressions import (
    Apply as Apply,
)
from tilec.ir.kernel_expressions import (
    Element as Element,
)
from tilec.ir.kernel_expressions import (
    Expr as Expr,
)
from tilec.ir.kernel_expressions import (
    Identity as Identity,
)
from tilec.ir.kernel_expressions import (
    Index as Index,
)
from tilec.ir.kernel_expressions import (
    LaneReduce as LaneReduce,
)
from tilec.ir.kernel_expressions import (
    Literal_ as Literal_,
)
from tilec.ir.kernel_expressions import (
    Local as Local,
)
from tilec.ir.kernel_expressions import (
    Memory as Memory,
)
from tilec.ir.kernel_expressions import (
    Relative as Relative,
)
from tilec.ir.kernel_expressions import (
    SharedElement as SharedElement,
)
from tilec.ir.kernel_expressions import (
    WarpCombine as WarpCombine,
)
from tilec.ir.kernel_expressions import (
    shared_reads as shared_reads,
)
from tilec.ir.kernel_storage import Barrier as Barrier
from tilec.ir.kernel_storage import Fragment as Fragment
from tilec.ir.kernel_storage import LoopAxis as LoopAxis
from tilec.ir.kernel_storage import PanelBuffer as PanelBuffer
from tilec.ir.kernel_storage import Part as Part
from tilec.ir.kernel_storage import SharedBuffer as SharedBuffer
from tilec.ir.kernel_storage import TileAddress as TileAddress
from tilec.ir.kernel_storage import TileBuffer as TileBuffer
from tilec.ir.launch import Argument
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.source.text import NOWHERE, Span

# ----------------------------------------------------------------------------------------------- ops


@dataclass(frozen=True, kw_only=True)
class Op:
    """Anything in a body. `proxy` is how it touches memory, `token` what completes it."""

    span: Span = field(default=NOWHERE, repr=False, compare=False)
    proxy: ClassVar[Literal["none", "generic", "async"]] = "generic"
    token: ClassVar[Literal["none", "cp_async", "bulk", "wgmma", "mbarrier"]] = "none"

    @property
    def reads(self) -> tuple[str, ...]:
        """Shared buffers read."""
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        """Shared buffers written."""
        return ()


@dataclass(frozen=True)
class Let(Op):
    """`const T name = value;`"""

    name: str
    rep: DType
    value: Expr
    mutable: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        return shared_reads(self.value)


@dataclass(frozen=True)
class Pointer(Op):
    """`const T* name = base + offset;`, offset in elements (64-bit), bytes for 4-bit types halved by the template."""

    name: str
    tensor: str
    dtype: DType
    offset: Expr
    writable: bool


@dataclass(frozen=True)
class Declare(Op):
    """A fragment, every element `initial` (None: not initialised)."""

    fragment: Fragment
    initial: Expr | None


@dataclass(frozen=True)
class Assign(Op):
    """`name = value;` of a mutable scalar, or of the current element of a fragment."""

    target: Fragment
    value: Expr

    @property
    def reads(self) -> tuple[str, ...]:
        return shared_reads(self.value)


@dataclass(frozen=True)
class Accumulate(Op):
    """`target = target op value` on the current element; `target = value` where `first` holds. `op` is sum, max, min, prod, any, all,
    argmax, argmin."""

    target: Fragment
    op: str
    value: Expr
    first: Expr | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return shared_reads(self.value)


@dataclass(frozen=True)
class LoadVector(Op):
    """The vector at `pointer + offset` into the current vector of `target`; zeros where a guard fails. `count`: elements that exist
    from here on (a tail), None where all do. `aligned`: the address is a multiple of the vector's size (16 bytes at most),
    else of an element's."""

    target: Fragment
    pointer: str
    offset: Expr
    aligned: bool
    guards: tuple[Expr, ...] = ()
    count: Expr | None = None


@dataclass(frozen=True)
class Reload(Op):
    """The current vector of `source` again as `target`, hidden from the compiler's memory of what earlier walks derived from it."""

    target: Fragment
    source: Fragment
    walk: int


@dataclass(frozen=True)
class WidenVector(Op):
    """The current vector of `source` as floats; `walk` as in Reload, 0 for the first one."""

    target: Fragment
    source: Fragment
    walk: int


@dataclass(frozen=True)
class AccumulateVector(Op):
    """`target = target op …` of all elements of the current vector of `source`. `op` is max or min."""

    target: Fragment
    op: str
    source: Fragment


@dataclass(frozen=True)
class LetDivisor(Op):
    """What many elements are divided by, prepared once: `name` stands for `value` as the second argument of `div_by`."""

    name: str
    value: Expr


@dataclass(frozen=True)
class StoreVector(Op):
    """The current vector of `source`, converted to `rep`, to `pointer + offset`; as LoadVector."""

    source: Fragment
    rep: DType
    pointer: str
    offset: Expr
    aligned: bool
    guards: tuple[Expr, ...] = ()
    count: Expr | None = None


@dataclass(frozen=True)
class StoreElement(Op):
    """`if (guards) pointer[offset] = value;`"""

    pointer: str
    offset: Expr
    value: Expr
    guards: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class StoreShared(Op):
    """`if (guards) shared.buffer[offset] = value;`"""

    buffer: str
    offset: Expr
    value: Expr
    guards: tuple[Expr, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return shared_reads(self.value)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.buffer,)


@dataclass(frozen=True)
class Elements(Op):
    """The ops once for each element of the current vector where every guard holds."""

    guards: tuple[Expr, ...]
    body: tuple[Op, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return collected(self.body, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return collected(self.body, "writes")


@dataclass(frozen=True)
class TileLoop(Op):
    """The ops once for each vector of the axes that the thread holds, or walks. `guards` hold for whole vectors. `parts`: of some axes
    certain steps only."""

    axes: tuple[LoopAxis, ...]
    guards: tuple[Expr, ...]
    body: tuple[Op, ...]
    parts: tuple[Part, ...] = ()

    def part(self, axis: LoopAxis) -> Part | None:
        """The steps that are walked along an axis, None for all."""
        return next((p for p in self.parts if p.axis == axis), None)

    @property
    def reads(self) -> tuple[str, ...]:
        return collected(self.body, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return collected(self.body, "writes")


@dataclass(frozen=True)
class Loop(Op):
    """`for (int name = first; name < trips; name += step)`, the same trips in every thread of the CTA. `rolled`: nvcc does not unroll it;
    `unrolled`: nvcc unrolls it by so many trips, 0 for as many as it likes."""

    name: str
    trips: Expr
    body: tuple[Op, ...]
    first: Expr | None = None
    step: int = 1
    rolled: bool = False
    unrolled: int = 0

    @property
    def reads(self) -> tuple[str, ...]:
        return collected(self.body, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return collected(self.body, "writes")


@dataclass(frozen=True)
class IfUniform(Op):
    """A branch that every thread of the CTA takes alike."""

    condition: Expr
    then: tuple[Op, ...]
    otherwise: tuple[Op, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return collected(self.then + self.otherwise, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return collected(self.then + self.otherwise, "writes")


@dataclass(frozen=True)
class IfAnyLane(Op):
    """A branch that warps take seldom, on a condition that is the same in all threads of each."""

    condition: Expr
    then: tuple[Op, ...]
    otherwise: tuple[Op, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return collected(self.then + self.otherwise, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return collected(self.then + self.otherwise, "writes")


@dataclass(frozen=True)
class CopyAsync(Op):
    """16 bytes from `pointer + offset` to the current (row, col) of an operand tile, without waiting; zeros where a guard fails and
    behind `count` elements."""

    proxy: ClassVar[Literal["none", "generic", "async"]] = "async"
    token: ClassVar[Literal["none", "cp_async", "bulk", "wgmma", "mbarrier"]] = "cp_async"
    tile: TileAddress
    rep: DType
    row: LoopAxis
    col: LoopAxis
    pointer: str
    offset: Expr
    guards: tuple[Expr, ...] = ()
    count: Expr | None = None


@dataclass(frozen=True)
class StoreTile(Op):
    """A vector (`source`) or an element (`value`) to the current (row, col) of an operand tile."""

    tile: TileAddress
    rep: DType
    row: LoopAxis
    col: LoopAxis
    source: Fragment | None = None
    value: Expr | None = None


@dataclass(frozen=True)
class Commit(Op):
    """Closes a group of asynchronous copies."""


@dataclass(frozen=True)
class WaitGroup(Op):
    """Waits until at most `pending` groups are under way."""

    pending: int


@dataclass(frozen=True)
class Product(Op):
    """`target += a @ b` by warps. `a` is a tile or a fragment of accumulators' shape, `b` a tile; `a_transposed`, `b_transposed`:
    the tile's rows are the consumed axis. `row`, `col` name the axes of the target."""

    target: Fragment
    mma: str
    k_extent: int
    k_step: int
    a: TileAddress | Fragment
    b: TileAddress
    a_transposed: bool
    b_transposed: bool
    row_tiles: int
    col_tiles: int
    row_first: str
    col_first: str
    rolled: bool = False
    """the loop over the consumed axis stays a loop: registers are short"""
    ahead: bool = False
    """operands of the next step are read while this one multiplies: twice their registers"""
    columns_at_once: int = 0
    """so many blocks of columns have their operands in registers at a time; 0: all"""


@dataclass(frozen=True)
class ConvertVector(Op):
    """The current vector of `target` from that of `source`, packed conversions."""

    target: Fragment
    source: Fragment


@dataclass(frozen=True)
class GatherLine(Op):
    """Eight neighbouring columns of the current row from a fragment of accumulators' shape: four lanes exchange pairs. `row` and
    `line` are the axes of the walk."""

    target: Fragment
    source: Fragment
    row: LoopAxis
    line: LoopAxis


@dataclass(frozen=True)
class SpreadLine(Op):
    """A vector of neighbouring columns of the current row, 16 bytes, into a fragment of accumulators' shape: four lanes exchange pairs.
    `row` and `line` are the axes of the walk; `blocks` of eight columns lie in four lanes' vectors."""

    target: Fragment
    source: Fragment
    row: LoopAxis
    line: LoopAxis
    blocks: int


@dataclass(frozen=True)
class TransposeBlock(Op):
    """A pair of neighbours along the rows of accumulators, from a fragment of their shape whose pairs lie along columns: the lanes
    of a warp transpose a block of 8 x 8. `row` and `line` are the axes of the walk, across and along the pair."""

    target: Fragment
    source: Fragment
    row: LoopAxis
    line: LoopAxis


@dataclass(frozen=True)
class JoinRows(Op):
    """Two neighbouring rows of accumulators that one thread holds, of a single column, from a fragment whose pairs lie along columns.
    `row` and `line` are the axes of the walk: single columns, and pairs of rows."""

    target: Fragment
    source: Fragment
    row: LoopAxis
    line: LoopAxis


@dataclass(frozen=True)
class CopyFragment(Op):
    """`target = source`, all registers."""

    target: Fragment
    source: Fragment


@dataclass(frozen=True)
class CtaSync(Op):
    """`__syncthreads()` for the named hazard, or a barrier of all threads of the cluster."""

    hazard: str
    cluster: bool = False


@dataclass(frozen=True)
class PrintOp(Op):
    """`printf` by one thread of the instance."""

    parts: tuple[str | Expr, ...]
    guards: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class AssertOp(Op):
    """In debug builds: report and trap unless the condition holds."""

    condition: Expr
    message: str


# --------------------------------------------------------------------------------------------- kernels


@dataclass(frozen=True)
class GridDigit:
    """A grid loop as the kernel decodes it: `name` is the C name of its trip number, `trips` how many there are. The last varies
    fastest. With `batch` threads groups of a CTA take neighbouring instances."""

    name: str
    trips: Sym
    backwards: bool = False
    """the last trip comes first: later ones take longer"""
    uneven: bool = False
    """later trips take longer, and the CTAs, which are resident, share them out so that all have about the same to do"""
    swept: int = 1
    """so many neighbouring trips of this digit, the last but one, are taken together for each trip of the last digit"""
    most: int | None = None
    """how many trips there are at most, None where that is not known"""
    section: str = ""
    """of the last digit, where later trips come first: the parameter that says how many trips of the other digits are taken together,
    the longest of all first; "" where one ends before the next begins"""


@dataclass(frozen=True)
class Kernel:
    """One compiled variant of one nest. `constants` are the configuration's `constexpr int`s in order; `names` maps the variables
    of Syms to C names; `batch` instances share a CTA, `live` names the variable that is false in a group without one. Where there
    is a `queue` each of them is a team's of the CTA, which is given one after the other as a cluster of its own."""

    name: str
    body_name: str
    threads: int
    blocks_per_sm: int
    batch: int
    constants: tuple[tuple[str, int], ...]
    arguments: tuple[Argument, ...]
    tensors: tuple[tuple[str, DType, bool], ...]
    """(name, dtype, writable) of the pointer arguments"""
    grid: tuple[GridDigit, ...]
    instances: Sym
    axes: tuple[LoopAxis, ...]
    shared: tuple[SharedBuffer, ...]
    tiles: tuple[TileBuffer, ...]
    body: tuple[Op, ...]
    names: tuple[tuple[Var, str], ...] = ()
    live: bool = False
    producers: int = 0
    """threads behind those that the layouts speak of"""
    panels: tuple[PanelBuffer, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    cluster: int = 1
    cluster_digit: str = ""
    """name of the grid's digit whose neighbouring trips the CTAs of a cluster take"""
    early: bool = False
    """begins while the grid in front of it ends, and waits for that one itself before it touches memory"""
    queue: str = ""
    """the temp with the counter by which resident clusters are given one instance after the other, "" where each has one"""
    span: Span = field(default=NOWHERE, repr=False, compare=False)

    @property
    def workers(self) -> int:
        """Threads that the layouts speak of."""
        return self.threads - self.producers

    @property
    def dynamic(self) -> bool:
        """Whether the shared memory is more than a kernel may declare."""
        return bool(self.panels) or self.shared_bytes > STATIC_SHARED_LIMIT

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory."""
        total = sum(b.bytes for b in self.panels) + sum(b.bytes for b in self.barriers)
        total += sum(b.bytes for b in self.tiles) + sum(b.bytes for b in self.shared)
        if not self.panels:
            return total
        return (-(-total // PANEL_ALIGNMENT) + 1) * PANEL_ALIGNMENT


PANEL_ALIGNMENT = 1024
"""Where the swizzle of an operand tile begins; dynamic shared memory is aligned to 16 bytes only."""

STATIC_SHARED_LIMIT = 48 * 1024
"""Shared memory that a kernel may declare; more must be dynamic (CUDA C++ Programming Guide)."""


def collected(body: tuple[Op, ...], what: Literal["reads", "writes"]) -> tuple[str, ...]:
    """What all ops of a body read, or write, each once."""
    found: dict[str, None] = {}
    for op in body:
        found.update(dict.fromkeys(getattr(op, what)))
    return tuple(found)
