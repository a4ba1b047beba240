"""Kernel IR of what works beside the threads: rings of operand tiles that bulk copies fill, warpgroup products, roles.

roles consumers 256 registers 40 232
  producer
    instances
      loop k_tile
        barrier_wait  ab_free ab_ring
        barrier_expect ab_full ab_ring bytes 49152
        tensor_copy a_map -> a_tiles[ab_ring.slot] (BK*k_tile, BM*i_tile)
        ring_advance ab_ring
  consumer
    instances
      loop k_tile
        barrier_wait ab_full ab_ring
        warpgroup_product acc += a_tiles[ab_ring.slot] @ b_tiles[ab_ring.slot]
        …
        barrier_release ab_free ab_ring
        ring_advance ab_ring
"""

from __future__ import annotations

from typing import ClassVar, Literal

from tilec.ir.kernel_expressions import Expr
from tilec.ir.kernel_ir import Fragment, LoopAxis, Op, TileAddress, collected
from tilec.ir.kernel_storage import Barrier as Barrier
from tilec.ir.kernel_storage import PanelBuffer as PanelBuffer
from tilec.lazy_dataclass import dataclass

Token = Literal["none", "cp_async", "bulk", "wgmma", "mbarrier"]
Proxy = Literal["none", "generic", "async"]
Share = Literal["none", "rows", "panels"]
"""How CTAs of a cluster deal a tile out."""


# ----------------------------------------------------------------------------------------------- ops


@dataclass(frozen=True)
class RingDeclare(Op):
    """The place in a ring: slot and parity. `filled`: as a consumer sees it, whose first wait is for the first phase; else as the
    producer, whose first round passes at once."""

    name: str
    slots: int
    filled: bool


@dataclass(frozen=True)
class RingAdvance(Op):
    """On to the next slot."""

    name: str


@dataclass(frozen=True)
class BarrierWait(Op):
    """Waits for the phase of the ring's place."""

    barrier: str
    ring: str


@dataclass(frozen=True)
class BarrierExpect(Op):
    """Arrives, and announces the bytes of the copies that follow."""

    barrier: str
    ring: str
    bytes: int


@dataclass(frozen=True)
class BarrierRelease(Op):
    """One lane of each warp arrives: its reads of the slot are done; `previous`: of the slot before the ring's place. `peers` > 1:
    at as many CTAs of the cluster."""

    barrier: str
    ring: str
    previous: bool = False
    peers: int = 1


@dataclass(frozen=True)
class CachePolicy(Op):
    """What becomes of lines in the L2 that copies have read: they are the first to leave where `first` holds, and ordinary ones where it
    does not."""

    name: str
    first: Expr


@dataclass(frozen=True)
class TensorCopy(Op):
    """Ordered by barriers alone: a tile by bulk copies through a map, panel by panel, from coordinates (fastest first) on. `share`: how a cluster of that many CTAs
    deals the tile out, each part going to all: by rows, or by panels. `policy` names a CachePolicy."""

    proxy: ClassVar[Proxy] = "async"
    token: ClassVar[Token] = "mbarrier"
    map: str
    buffer: PanelBuffer
    ring: str
    barrier: str
    coordinates: tuple[Expr, ...]
    row_axis: int
    """which coordinate counts the tile's rows; the first counts its columns"""
    peers: int = 1
    share: Share = "none"
    policy: str = ""

    @property
    def writes(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class TensorAhead(Op):
    """The L2 fetches what this CTA's part of a TensorCopy with the same fields will read. It waits for nothing, and nothing waits for it."""

    map: str
    buffer: PanelBuffer
    coordinates: tuple[Expr, ...]
    row_axis: int
    share: Share = "none"
    peers: int = 1


@dataclass(frozen=True)
class LeftPlace(Op):
    """Declares where in its ring's tiles a thread's left operands begin, `blocks` of 64 of a tile's columns a warpgroup, from
    `row_first` on: known before a loop, as nothing is multiplied while a trip works it out."""

    name: str
    tile: TileAddress
    blocks: int
    row_first: str


@dataclass(frozen=True)
class LeftLoad(Op):
    """Left operands for products of rows `k_first` on, `k_extent` in steps of `k_step`, from a tile whose rows are consumed, into registers: for elements
    that products do not read across. `blocks` of 64 of the tile's columns a warpgroup, from `place` on, which a LeftPlace declares."""

    target: Fragment
    tile: TileAddress
    k_first: int
    k_extent: int
    k_step: int
    blocks: int
    place: str


@dataclass(frozen=True)
class TileLoad(Op):
    """The rows of each warp of a tile into registers of accumulators' shape, pairs of columns in each thread; all its lanes have read them
    behind it. `blocks` of 64 rows a warpgroup, from `row_first` on. `bits`: of truth values, a word for each row, with a bit for each of a
    thread's columns; `words`: they lie as such words."""

    target: Fragment
    tile: TileAddress
    blocks: int
    row_first: str
    bits: bool = False
    words: bool = False


@dataclass(frozen=True)
class RowLoad(Op):
    """A tile of one row into registers, pairs of columns in each thread as accumulators have them; all lanes of a warp have read it
    behind it."""

    target: Fragment
    tile: TileAddress


@dataclass(frozen=True)
class WarpgroupProduct(Op):
    """Starts `target += a @ b` by each warpgroup on its rows; `target = a @ b` where it is `fresh` (not read) or where `continues`
    does not hold. `a`: a tile, a fragment of accumulators' shape, or, where it is `loaded`, what a LeftLoad has brought. Transposed: the tile's rows are the consumed axis. `blocks` of 64
    rows a warpgroup, `columns` of the target in pieces of `piece`."""

    proxy: ClassVar[Proxy] = "async"
    token: ClassVar[Token] = "wgmma"
    target: Fragment
    types: str
    k_extent: int
    k_step: int
    a: TileAddress | Fragment
    b: TileAddress
    a_transposed: bool
    b_transposed: bool
    blocks: int
    columns: int
    piece: int
    row_first: str
    transposable: bool
    fresh: bool = False
    """the first instruction does not add to what the registers hold"""
    continues: Expr | None = None
    """nor in a trip where this does not hold"""
    loaded: bool = False
    k_first: int = 0
    """where along the consumed axis of the tiles the product begins, for a part of it"""
    col_first: str = "0"
    """the first column of a warpgroup in the right tile, as C++"""


@dataclass(frozen=True)
class WarpgroupFence(Op):
    """Registers written so far are seen by the products that follow."""


@dataclass(frozen=True)
class WarpgroupCommit(Op):
    """Closes a group of products. `targets` and `sources` are registers that nobody touches, and nobody overwrites, before the group is
    done; `releases` are for `retire` to put behind the wait for it."""

    targets: tuple[Fragment, ...] = ()
    sources: tuple[Fragment, ...] = ()
    releases: tuple[Op, ...] = ()


@dataclass(frozen=True)
class WarpgroupWait(Op):
    """Waits until at most `pending` groups of products are under way; `settled` are the registers that may be read from here on."""

    pending: int
    settled: tuple[Fragment, ...] = ()


@dataclass(frozen=True)
class Turn(Op):
    """Warpgroups take turns at starting products: `take` waits for one's own, `pass` gives it to the next; `begin` gives the first one
    to the first warpgroup, `end` takes the one that is left."""

    what: Literal["begin", "take", "pass", "end"]
    warpgroups: int


@dataclass(frozen=True)
class Stagger(Op):
    """Warpgroups end a loop of products one after the other: each but the first waits in front of its last `lag` trips (`wait`) until the
    one before has started all of its own (`pass`). `begin`, in front of the loop, finds that trip, `name`. Those of a loop of fewer trips
    end together."""

    what: Literal["begin", "wait", "pass"]
    name: str
    warpgroups: int
    lag: int
    trips: Expr
    trip: Expr | None = None


@dataclass(frozen=True)
class ClearEdges(Op):
    """All consumers: zeros in the rows (`axis` 0) or columns (1) of a tile that are not in [begin, end), seen by products from here on;
    `interleaved`: columns are, as in `passes.turning`. `beside_zeros`: the other operand is 0 there, so that only infinities and NaNs
    have to go, which each warp looks for; a ReadFence stands between that and the slot's release."""

    tile: TileAddress
    buffer: PanelBuffer
    axis: int
    begin: Expr
    end: Expr
    interleaved: bool = False
    beside_zeros: bool = False


@dataclass(frozen=True)
class ReadFence(Op):
    """What the lanes of a warp have read of shared memory so far may be overwritten by copies, as soon as one of them says so."""


@dataclass(frozen=True)
class RowsAnywhere:
    """A matrix whose rows begin anywhere: from `offset` of `pointer` on, `stride` elements apart, with so many rows and columns."""

    pointer: str
    offset: Expr
    stride: Expr
    row_end: Expr
    col_end: Expr


@dataclass(frozen=True)
class SendChunks(Op):
    """Chunks of 16 rows of accumulators and `depth` columns of each warp, from registers of accumulators' shape through `buffer` (`under_way` slots
    a warp) to the tensor of a map, or to the rows at `rows` by the warp's own stores: each as soon as its slot has been read. Coordinates, fastest first, are
    those of the warp's first element; rows of accumulators lie along `row_axis`, their columns along `col_axis`. `across`: the latter are the tensor's rows; `paired`: accumulators' rows are neighbours in pairs. `trip`: chunk n in trip `every` * n of the loop around; `trips`: those that came to no trip of so
    many, `least` at least; `only`: these, under one fence; none of them: all."""

    proxy: ClassVar[Proxy] = "async"
    token: ClassVar[Token] = "bulk"
    source: Fragment
    buffer: PanelBuffer
    map: str
    coordinates: tuple[Expr, ...]
    row_axis: int
    col_axis: int
    blocks: int
    panels: int
    depth: int
    under_way: int
    every: int = 2
    trip: Expr | None = None
    trips: Expr | None = None
    least: int = 0
    only: tuple[int, ...] = ()
    rows: RowsAnywhere | None = None
    across: bool = False
    paired: bool = False

    @property
    def chunks(self) -> tuple[int, ...]:
        """Numbers of the chunks that may leave here."""
        if self.only:
            return self.only
        all_chunks = range(self.blocks * self.panels)
        return tuple(n for n in all_chunks if self.trips is None or self.every * n >= self.least)

    def others(self, number: int) -> int:
        """Chunks that went out between this one and the last that had its slot, which is one of the tile before for the first ones."""
        if number >= self.under_way:
            return self.under_way - 1
        chunks = self.blocks * self.panels
        last = chunks - 1 - (chunks - 1 - number) % self.under_way
        return chunks - 1 - last + number


@dataclass(frozen=True)
class BulkDrain(Op):
    """Waits until the shared memory of all chunks has been read. `elected`: by the elected lane of a warp, which sends several chunks
    at once; others are sent by the first one, which takes fewer registers."""

    elected: bool = False


@dataclass(frozen=True)
class Renew(Op):
    """The threads' coordinates along these axes as if they were computed here: nothing that follows from them is kept in registers
    over the loop in front."""

    axes: tuple[LoopAxis, ...]


@dataclass(frozen=True)
class NextUnless(Op):
    """On to the next instance, unless this one has something to do: every thread of the role finds the same."""

    condition: Expr


@dataclass(frozen=True)
class NextPlace(Op):
    """Finds the next instance of an uneven grid, or of those that a role is told, for the loop around, which is `ahead`."""


SHARES = "_shares"
"""Behind the name of an uneven loop's trip: four words of shared memory with what is the same for all places of its grid."""


@dataclass(frozen=True)
class Tickets:
    """How numbers of instances get to a CTA's roles: `counter` in memory, from which the producer draws them, `numbers` in shared memory, a ring
    of them, and its barriers."""

    counter: str
    numbers: str
    ring: str
    full: str
    free: str


@dataclass(frozen=True)
class TellInstance(Op):
    """The producer: the consumers' next instance is this one; `last`: there are no more."""

    tickets: Tickets
    last: bool = False


@dataclass(frozen=True)
class Instances(Op):
    """The body for each instance of the nest that falls to this CTA, or to its cluster. With `keep` registers hold what instance
    numbers are divided by from one to the next. `rotated`: a CTA's place moves on by one in each round, so that the instances with little
    to do are not all of the same CTAs. With `tickets` those that the CTA draws: the role itself (`draws`), or its producer, which tells it.
    `ahead`: the body finds the next one (`NextPlace`)."""

    body: tuple[Op, ...]
    keep: bool = True
    rotated: bool = False
    tickets: Tickets | None = None
    draws: bool = False
    ahead: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        return collected(self.body, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return collected(self.body, "writes")


@dataclass(frozen=True)
class Roles(Op):
    """One elected thread behind the consumers does `producer`, the first `consumers` threads do `consumer`, each with as many
    registers. `ahead` is done by the first thread behind the consumers while others set the barriers, for this CTA's first instance."""

    consumers: int
    producer_registers: int
    consumer_registers: int
    producer: tuple[Op, ...]
    consumer: tuple[Op, ...]
    ahead: tuple[Op, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return collected(self.consumer, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return collected(self.consumer, "writes")
