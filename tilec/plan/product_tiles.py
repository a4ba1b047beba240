"""`auto` tile sizes of a plain product of warps (`mma.sync`), ranked by what a multiprocessor does in a trip of the loop over the consumed
axis.

A trip of all resident CTAs takes, in clocks,

    tensor   multiply-adds by the tensor cores' rate, more where few warps share a scheduler: who waits for operands stalls it
    shared   bytes that warps read as operands, and those that copies write
    trip     a wait, a barrier and the first operands, more where a ring of two slots leaves copies no time

Trips come in waves of as many CTAs as are resident. Beside that stands memory: bytes that are read at least, at the rate that the bytes
under way allow (Little's law), which is all that counts where one side is short. Weights are fitted to 92 runs on an H200, squares of two
sizes. In a later sweep (bench/results/sweep_gemm.json) the rank correlation with the measured times is 0.74 to 0.80 for squares and above 0.93
for few rows; the first has 0.955 of the fastest and more for squares and 16 rows, 0.87 and 0.90 for 64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from tilec.lazy_dataclass import dataclass
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.occupancy import SHARED_RESERVE
from tilec.targets.rates import RATES, dram_bytes
from tilec.targets.table import Target

TYPICAL = 8192
"""Of an extent that is not known."""

SIDES = (64, 128, 256)
"""Sizes of a tile along a side that is not known to be short."""
LEAST_SIDE = 16
DEPTHS = (64, 128, 256)
"""Bytes of a tile along the consumed axis: rows of these lie in shared memory without conflicts."""

ACCUMULATORS_PER_THREAD = 128
"""f32 accumulators of a thread: warp tiles of 64 x 64 read each operand byte for 64 others. Half of it and twice the warps was
measured slower on an H200."""
MOST_STAGES = 4
ENOUGH_UNDER_WAY = 64 << 10
"""Bytes of two slots of a ring with which a fourth gains nothing: 256 x 128 x 64 is 2 % slower with it on an H200."""

TENSOR, SHARED, TRIP, FEW, SHALLOW = 1.25, 0.16, 250.0, 0.2, 260.0
"""Weights of clocks of the tensor cores and of shared memory; clocks of a trip; weight of warps that are less than WARPS_A_SCHEDULER; clocks of a
trip with a ring of two slots."""
SCHEDULERS, WARPS_A_SCHEDULER = 4, 2
SHARED_BYTES = 128
"""Of shared memory in a clock (CUDA C++ Programming Guide)."""
LATENCY = 2300
"""Clocks from a request to a busy DRAM to its answer: 128 CTAs with 24 KB under way read 2.5 TB/s on an H200."""
MEMORY_SHARE = 0.65
"""Of the DRAM's rate that a product reads at, most."""
AGAIN = 0.5
"""Weight of clocks of the L2 for what is read again."""
HIDDEN = 0.1
"""Of what takes less long than the rest: not all of it hides."""


@dataclass(frozen=True)
class Sides:
    """What is known of a product: bounds of its rows and columns, None where there is none, and the bits of an operand's element."""

    rows: int | None
    columns: int | None
    bits: int


@dataclass(frozen=True)
class Given:
    """What the user fixed, None or absent what is open: tile sizes by place (rows, columns, consumed), warps, stages."""

    tiles: Mapping[int, int]
    warps: int | None = None
    stages: int | None = None


def ranked(target: Target, sides: Sides, given: Given) -> tuple[tuple[int, int, int], ...]:
    """Tile sizes (rows, columns, consumed), best first. () where the target multiplies no such elements."""
    if sides.bits not in RATES[target.arch].tensor:
        return ()
    options: list[Sequence[int]] = [_sizes(sides.rows), _sizes(sides.columns)]
    options.append([depth * 8 // sides.bits for depth in DEPTHS])
    options = [[given.tiles[n]] if n in given.tiles else own for n, own in enumerate(options)]
    found: list[tuple[float, tuple[int, int, int]]] = []
    for rows, columns, depth in product(*options):
        tile = (rows, columns, depth)
        clocks = estimate(target, sides, tile, given.warps, given.stages)
        if clocks is not None:
            found.append((clocks, tile))
    # of equals the one with more rows: 1 to 3 % on an H200
    return tuple(tile for _, tile in sorted(found, key=lambda x: (x[0], -x[1][0], x[1])))


def _sizes(bound: int | None) -> Sequence[int]:
    if bound is None or bound >= SIDES[-1]:
        return SIDES
    return (
        [max(LEAST_SIDE, 1 << (bound - 1).bit_length())]
        if bound < SIDES[0]
        else [n for n in SIDES if n < 2 * bound]
    )


def estimate(
    target: Target,
    sides: Sides,
    tile: tuple[int, int, int],
    warps: int | None = None,
    stages: int | None = None,
    typical: int = TYPICAL,
) -> float | None:
    """Clocks of a multiprocessor for a product whose open extents are `typical`; None where a tile is too much for registers or for
    shared memory."""
    rows, columns, depth = tile
    extents = [typical if n is None else n for n in (sides.rows, sides.columns)]
    warps = warps or warps_of(rows * columns, rows, columns)
    row_warps = split_rows(warps, rows, columns)
    down = -(-rows // (16 * row_warps)) * 16
    across = -(-columns // (16 * (warps // row_warps))) * 16
    accumulators = down * across // 32
    if accumulators > ACCUMULATORS_PER_THREAD:
        return None
    stage = (rows + columns) * depth * sides.bits // 8
    stages = stages or ring_depth(target, stage)
    if stage * stages > target.shared_per_block_optin:
        return None
    registers = min(target.registers_per_thread, accumulators + target.product_registers_besides)
    by_registers = target.registers_per_sm // (-(-registers // 8) * 8 * 32 * warps)
    by_shared = target.shared_per_sm // (stage * stages + SHARED_RESERVE)
    resident = min(by_registers, by_shared)
    if not resident:
        return None
    device = REPRESENTATIVES.get(target.arch)
    multiprocessors = device.multiprocessors if device is not None else 1
    ctas = -(-extents[0] // rows) * -(-extents[1] // columns)
    resident = min(resident, -(-ctas // multiprocessors))
    waves = -(-ctas // (multiprocessors * resident))
    trips = -(-typical // depth)
    rates = RATES[target.arch]
    tensor = rows * columns * depth * resident / (rates.tensor[sides.bits] * rates.warp_share)
    read = warps * (down + across) * depth * sides.bits // 8
    shared = resident * (read + stage) / SHARED_BYTES
    few = max(0.0, WARPS_A_SCHEDULER * SCHEDULERS / (resident * warps) - 1)
    trip = TRIP + (SHALLOW if stages < 3 else 0.0)
    computing = waves * trips * (tensor * (TENSOR + FEW * few) + SHARED * shared + trip)
    moved = (extents[0] + extents[1]) * typical * sides.bits / 8
    # the other operand is the same for all CTAs where one side is short, and comes from the L2
    streamed = max(rows, columns) * depth * sides.bits // 8
    under_way = min(ctas, multiprocessors * resident) * (stages - 1) * streamed
    memory = dram_bytes(target.arch) or 0.0
    rate = max(1.0, min(memory * MEMORY_SHARE * multiprocessors, under_way / LATENCY))
    requested = ctas * (rows + columns) * typical * sides.bits / 8
    again = max(0.0, requested - moved) / (rates.l2_bytes * multiprocessors)
    longer, shorter = sorted((computing, moved / rate + AGAIN * again), reverse=True)
    return longer + HIDDEN * shorter


def warps_of(accumulators: int, rows: int, columns: int | None) -> int:
    """Warps for so many accumulators of tiles of so many rows and columns: 4 or more, but no more than there are blocks of 16 x 16.
    `columns` None: each warp has all of them."""
    count = max(4, min(8, power(-(-accumulators // (32 * ACCUMULATORS_PER_THREAD)))))
    if accumulators > 32 * count * ACCUMULATORS_PER_THREAD:
        count *= 2
    if columns is None:
        return min(count, power(-(-rows // 16)))
    return max(2, min(count, power(-(-rows // 16)) * power(-(-columns // 16))))


def split_rows(count: int, rows: int, columns: int) -> int:
    """Of `count` warps those along the rows: the most nearly square warp tiles, in blocks of 16 x 16."""
    best, best_cost = 1, None
    for r in (1, 2, 4, 8, 16, 32):
        if r > count or count % r:
            continue
        down = -(-rows // (16 * r)) * 16
        across = -(-columns // (16 * (count // r))) * 16
        cost = (down * across, down + across)
        if best_cost is None or cost <= best_cost:  # fewer rows a warp: fewer row vectors
            best, best_cost = r, cost
    return best


def ring_depth(target: Target, ring: int, fixed: int = 0, least: int = 3) -> int:
    """Slots of rings of `ring` bytes a trip from the shared memory of about two resident CTAs, of one where less than `least` fit, `fixed`
    bytes of which are taken."""
    share = target.shared_per_sm // 2 - SHARED_RESERVE
    room = (share if ring * least + fixed <= share else target.shared_per_block_optin) - fixed
    most = MOST_STAGES - (2 * ring >= ENOUGH_UNDER_WAY)
    return min(most, max(1, room // ring)) if ring else 1


def power(number: int) -> int:
    """Least power of two that is at least `number`."""
    return 1 << max(0, number - 1).bit_length()
