"""What each architecture offers: limits, features, product instructions.

Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Product shapes: PTX ISA,
"Warp-level matrix instructions" and "Asynchronous warpgroup-level matrix instructions".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

from tilec.ir.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, U8, DType
from tilec.lazy_dataclass import dataclass

PRODUCT_TILES = (128, 128, 64)
"""`auto` tile sizes of products where one warp multiplies, if nothing speaks against them."""

WARP_TILES = (
    PRODUCT_TILES, (128, 64, 64), (64, 64, 64), (64, 32, 64), (32, 64, 32), (32, 32, 32), (16, 32, 32), (16, 16, 16),
)  # fmt: skip
"""The same: the first with room for accumulators, operands and rings of two slots; where it is more than a block holds all the same, smaller
ones one after the other. A tile of fewer than 64 rows shares its columns out over warps. Plain products have theirs from
`plan.product_tiles`."""

CHAINED_WARP_TILES = ((128, 64, 64), (128, 32, 64))
"""The same of products that are chained in registers, tried before: the first with which a warp has room for two blocks of rows, so that what it
reads of an operand is multiplied twice. With one block shared memory takes longer than the tensor cores."""

APART_TILES = ((64, 64, 64), (64, 32, 64))
"""The same, tried last, where warpgroups have the same rows and share out the columns of a product that is too wide for one."""

WARPGROUP_TILES = ((128, 256, 64), (192, 128, 64), (128, 128, 64), (128, 64, 64))
"""The same where a warpgroup does, each 64 rows by all columns: the first that the asynchronous form has registers for."""


@dataclass(frozen=True)
class Product:
    """A tensor-core instruction (wmma: a block of `nvcuda::wmma`, CUDA C++ Programming Guide, "Warp Matrix Functions"): m x n x k for operand dtypes `a`, `b` and accumulator `acc`. `b_major` lists how B may lie in
    shared memory ("k": [N, K] rows, "n": [K, N] rows) where the instruction reads it from there."""

    form: Literal["mma", "wmma", "wgmma"]
    a: DType
    b: DType
    acc: DType
    m: int
    n: int
    k: int
    tf32: bool = False
    b_major: tuple[Literal["k", "n"], ...] = ("k",)
    unpacked: bool = False
    """ptxas widens the operands to 16 bits first: they take twice their registers again"""


@dataclass(frozen=True)
class Target:
    """One `--arch`. Sizes in bytes, registers in 32-bit words."""

    arch: str
    compute: int
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    shared_per_block: int = 49152
    shared_per_block_optin: int = 101376
    shared_per_sm: int = 102400
    registers_besides: int = 30
    """registers that a thread of a row kernel needs beside the tiles it holds, measured once with ptxas: addresses, a vector in flight,
    temporaries of a reduction"""
    window_registers: int = 64
    """registers that a thread of a row kernel needs where rows start anywhere: where the row starts, what is left of it, a vector that
    is shifted; measured with ptxas"""
    row_registers_of_stores: int = 0
    """registers more that a thread needs for a few vectors of a row from which several tensors are written; measured with ptxas"""
    product_tiles: tuple[tuple[int, ...], ...] = ()
    """choices of `auto` tile sizes of a kernel with a product, in the order declared (further ones are as the last): the first that suits
    products of warpgroups, else one of WARP_TILES"""
    uneven_product_tiles: tuple[tuple[int, ...], ...] = ()
    """the same, tried first, where chained products take longer for some instances than for others: narrow steps waste less behind a
    bound that crosses them"""
    narrow_chain_tiles: tuple[tuple[int, ...], ...] = ()
    """the same, tried before `product_tiles`, where accumulators are left operands of 8 bits: more warpgroups have less to hold each"""
    apart_product_tiles: tuple[tuple[int, ...], ...] = ()
    """the same, tried last, for forms in which warpgroups with the same rows share out columns"""
    busy_chain_tiles: tuple[tuple[int, ...], ...] = ()
    """the same, where chained products have much to compute between them"""
    own_pointers: bool = True
    """a pointer for each thread and operand of a product's copies: fewer instructions, two registers each"""
    product_registers_besides: int = 64
    """the same for a product beside its accumulators and operands"""
    chained_registers_besides: int = 0
    """more of them where a product's left operand stays in registers; measured with ptxas"""
    consumer_registers_besides: int = 30
    """the same for a thread of a consumer of tiles that a producer brings, beside accumulators and packed operands: fewer spill"""
    role_registers: Mapping[int, tuple[int, int]] = field(default_factory=dict, hash=False)
    """registers of a producer's and a consumer's thread by the number of consumer warpgroups; together what the launch gives"""
    cluster_size: int = 1
    """CTAs that share operands: larger clusters leave multiprocessors idle where these come in uneven groups"""
    stream_tiles: tuple[tuple[int, int], ...] = ()
    """`auto` tile sizes of a product one of whose sides is short, of the other side and of the consumed axis: the first with which its
    rings are deep enough"""
    shared_stream_tiles: tuple[tuple[int, int], ...] = ()
    """the same where a cluster's CTAs share the consumed axis, as many as these tiles are wider: tried first where the copies of the
    short operand for those that each CTA reads by itself take a large part of the L2's rate (`rates.is_crowded`)"""
    paired_stream_tiles: tuple[tuple[int, int], ...] = ()
    """the same where a cluster's CTAs share the stream and have their parts of the short side, each as many rows as a warpgroup multiplies:
    for launches whose stream has a policy of the L2. No sums are exchanged: 134 MB by 128 rows take 2 to 7 % less time on an H200, but
    470 MB 0.5 to 3 % more"""
    wide_stream_tiles: tuple[tuple[int, int], ...] = ()
    """the same for launches whose tiles fill the multiprocessors (`full_rounds`): so wide that each CTA has enough to read by itself"""
    even_tiles: tuple[tuple[int, int, int], ...] = ()
    """further tile sizes of a plain product, its rows, columns and consumed axis, for launches of whose rounds of CTAs they leave less
    unused than those of `product_tiles` (`even_rounds`); CTAs share nothing, as pairs need an even number of tiles"""
    staggered_slots: int = 0
    """slots of a ring from which on warpgroups end a loop of products one after the other, 0 where they never do"""
    bytes_under_way: int = 0
    """of an operand that the grid reads once, in a ring of a CTA alone on its multiprocessor: what hides memory's latency, and some"""
    most_under_way: int = 0
    """the most of it, as far as two slots: more ask for rows of memory that are too far apart (470 MB in tiles of 64 x 256 take 2.5 % less time
    with four slots than with six on an H200)"""
    evict_first_below: int = 0
    """bytes of such an operand up to which it leaves the L2 before anything else: a few times the L2. Lines that others have written
    then stay there, and what reads memory does not wait until they are written back; of a larger operand all is written back anyway"""
    features: frozenset[str] = frozenset()
    products: tuple[Product, ...] = ()
    vector_atomics: Mapping[tuple[str, DType], int] = field(default_factory=dict, hash=False)
    """bytes of the widest atomic on a vector in global memory, by operation and dtype: each element by itself, as that of one element
    would do it. Absent where there is none"""

    def atomic_elements(self, op: str, dtype: DType) -> int:
        """Elements that one atomic takes at most."""
        found = self.vector_atomics.get((op, dtype))
        return 1 if found is None else found * 8 // dtype.bits

    @property
    def macro(self) -> int:
        """Value of `__CUDA_ARCH__`."""
        return self.compute * 10


_WMMA_SM75 = (
    Product("wmma", F16, F16, F32, 16, 16, 16),
    Product("wmma", I8, I8, I32, 16, 16, 16),
    Product("wmma", U8, U8, I32, 16, 16, 16),
)
_WMMA_SM80 = (
    *_WMMA_SM75,
    Product("wmma", BF16, BF16, F32, 16, 16, 16),
    Product("wmma", F32, F32, F32, 16, 16, 8, tf32=True),
)
_SM75 = (Product("mma", F16, F16, F32, 16, 8, 8), *_WMMA_SM75)
_SM80 = (
    Product("mma", F16, F16, F32, 16, 8, 16),
    Product("mma", BF16, BF16, F32, 16, 8, 16),
    Product("mma", F32, F32, F32, 16, 8, 8, tf32=True),
    Product("mma", F64, F64, F64, 8, 8, 4),
    Product("mma", I8, I8, I32, 16, 8, 32),
    Product("mma", U8, U8, I32, 16, 8, 32),
    *_WMMA_SM80,
)
_SM89 = _SM80 + tuple(
    Product("mma", a, b, F32, 16, 8, 32) for a in (F8E4M3, F8E5M2) for b in (F8E4M3, F8E5M2)
)
_SM90 = tuple(replace(p, unpacked=p.a.is_float and p.a.bits == 8) for p in _SM89)
_Majors = tuple[Literal["k", "n"], ...]
_K: _Majors = ("k",)
_KN: _Majors = ("k", "n")
_SM90A = _SM90 + tuple(
    Product("wgmma", a, b, acc, 64, 256, k, tf32, majors)
    for a, b, acc, k, tf32, majors in (
        (F16, F16, F32, 16, False, _KN),
        (BF16, BF16, F32, 16, False, _KN),
        (F32, F32, F32, 8, True, _K),
        (I8, I8, I32, 32, False, _K),
        (U8, U8, I32, 32, False, _K),
        (F8E4M3, F8E4M3, F32, 32, False, _K),
        (F8E4M3, F8E5M2, F32, 32, False, _K),
        (F8E5M2, F8E4M3, F32, 32, False, _K),
        (F8E5M2, F8E5M2, F32, 32, False, _K),
    )
)

_PACKED_ATOMICS = {("add", F16): 4}
_VECTOR_ATOMICS = {("add", F32): 16, ("add", F16): 16, ("add", BF16): 16}
"""PTX ISA, `red`: pairs of f16 everywhere, vectors of 8 and 16 bytes and pairs of bf16 since sm_90. Maxima and minima are left out: it has those of
16-bit floats, and does not say what they make of a NaN, which wins in the language."""

_BASE = frozenset({"bf16_cvt", "cp_async", "max_nan"})
_HOPPER = _BASE | {"f8_cvt", "cluster", "tma", "mbarrier"}
_ROWS = _HOPPER | {
    "row_clusters",
    "row_queue",
    "row_exchange",
    "filled_rows",
    "filled_ctas",
    "filled_windows",
    "merged_exchanges",
    "early_queue",
    "row_slices",
}
"""What is done for rows, each where another feature lets it: `row_clusters` hold long ones, which stay and take one after the other
(`row_queue`), beginning beside the kernel that clears the counter (`early_queue`), with what all rows are combined with in shared memory (`row_slices`); barriers count what their CTAs send each other
(`row_exchange`); reductions that follow from each other share an exchange (`merged_exchanges`); rows that fill a cluster have walks
without masks (`filled_rows`), those of one CTA too that holds them in eight steps or more (`filled_ctas`), and those in windows for all
but their ends (`filled_windows`). No target has: two CTAs
instead of one of 1024 threads for rows of one or two streams (`row_pairs`)."""

TARGETS: dict[str, Target] = {
    t.arch: t
    for t in (
        Target("sm_75", 75, own_pointers=False, threads_per_sm=1024, blocks_per_sm=16, shared_per_block_optin=65536,
               shared_per_sm=65536, products=_SM75, vector_atomics=_PACKED_ATOMICS),
        Target("sm_80", 80, row_registers_of_stores=8, own_pointers=False, shared_per_block_optin=166912, shared_per_sm=167936, features=_BASE, products=_SM80, vector_atomics=_PACKED_ATOMICS),
        Target("sm_86", 86, own_pointers=False, threads_per_sm=1536, blocks_per_sm=16, features=_BASE, products=_SM80, vector_atomics=_PACKED_ATOMICS),
        Target("sm_87", 87, own_pointers=False, threads_per_sm=1536, blocks_per_sm=16, shared_per_block_optin=166912,
               shared_per_sm=167936, features=_BASE, products=_SM80, vector_atomics=_PACKED_ATOMICS),
        Target("sm_89", 89, own_pointers=False, threads_per_sm=1536, blocks_per_sm=24, features=_BASE | {"f8_cvt"}, products=_SM89, vector_atomics=_PACKED_ATOMICS),
        Target("sm_90", 90, window_registers=48, product_registers_besides=48, shared_per_block_optin=232448, shared_per_sm=233472, features=_ROWS, products=_SM90, vector_atomics=_VECTOR_ATOMICS),
        Target("sm_90a", 90, window_registers=48, product_registers_besides=48, shared_per_block_optin=232448, shared_per_sm=233472,
               product_tiles=WARPGROUP_TILES, apart_product_tiles=APART_TILES, uneven_product_tiles=((256, 64, 64),), narrow_chain_tiles=((192, 128, 64), (192, 96, 64)), busy_chain_tiles=((192, 128, 64), (192, 64, 64)), role_registers={1: (0, 0), 2: (40, 232), 3: (32, 160), 4: (32, 112)}, cluster_size=2,
               stream_tiles=((64, 128), (64, 64)), shared_stream_tiles=((128, 64),), paired_stream_tiles=((128, 64),), wide_stream_tiles=((256, 64),), even_tiles=((192, 160, 64), (128, 192, 64), (128, 128, 64)),
               staggered_slots=4, bytes_under_way=80 << 10, most_under_way=128 << 10, evict_first_below=200 << 20,
               features=_ROWS | {"wgmma", "setmaxnreg"}, products=_SM90A, vector_atomics=_VECTOR_ATOMICS),
        Target("sm_100", 100, window_registers=48, product_registers_besides=48, chained_registers_besides=24, registers_besides=33, shared_per_block_optin=232448, shared_per_sm=233472, features=_HOPPER | {"row_clusters"}, products=_SM90, vector_atomics=_VECTOR_ATOMICS),
        Target("sm_103", 103, window_registers=48, product_registers_besides=48, registers_besides=33, shared_per_block_optin=232448, shared_per_sm=233472, features=_HOPPER | {"row_clusters"}, products=_SM90, vector_atomics=_VECTOR_ATOMICS),
        Target("sm_120", 120, window_registers=48, product_registers_besides=48, threads_per_sm=1536, blocks_per_sm=24, features=_HOPPER, products=_SM89, vector_atomics=_VECTOR_ATOMICS),
    )
}  # fmt: skip
"""Every architecture that `--arch` takes, oldest first."""

DEFAULT_ARCH = "sm_80"
"""What `compile` targets where no `--arch` is given, on any machine."""
