"""Products whose consumed axis is shared by the CTAs of a cluster: each adds up its trips, and they exchange their sums.

for i, j in parallel(M by 128, N by 128):          CTA 0: k = 0, 2, 4, …     CTA 1: k = 1, 3, 5, …
    for k in range(K by 64): acc += …        →     each warpgroup's sums to one of both, which does the rest
    c[i, j] = acc

A tile reads, beside what only it needs, as many bytes of the other operand as it has rows. In a wider tile these are fewer for each byte of the
stream, and the shares of a tile that is wider by as much as there are CTAs in a cluster leave as many CTAs to read it.
"""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import Axes
from tilec.passes.channels import Channel
from tilec.passes.products import Products, Staged
from tilec.passes.reuse import Stream
from tilec.passes.uses import Definitions, all_ops, running_sum
from tilec.targets.occupancy import WARPGROUP
from tilec.targets.table import Target


@dataclass(frozen=True)
class Split:
    """`size` CTAs share the trips of `loop`, whose only result are the accumulators; `bytes` of shared memory take a warpgroup's sums."""

    size: int
    loop: t.For
    bytes: int


def plan_split(
    nest: t.Nest,
    axes: Axes,
    channels: tuple[Channel, ...],
    products: Products,
    streams: tuple[Stream, ...],
    definitions: Definitions,
    warpgroups: int,
    target: Target,
) -> Split | None:
    """How a nest with an operand that the grid reads once is split: where its tiles are as much wider as a cluster has CTAs than those
    that one CTA reads by itself (still wider ones need little enough of the other operand for one CTA), the sum is all that its loop
    does, and nothing is written in front of it. Of two warpgroups each CTA finishes one, of one warpgroup the first."""
    size = target.cluster_size
    if size != 2 or len(streams) != 1 or warpgroups > size or len(channels) != 1:
        return None
    if len(products.plans) != 1 or len(channels[0].sites) != 1:
        return None
    (plan,) = products.plans.values()
    left = plan.a.load if isinstance(plan.a, Staged) else None
    side = 0 if left is not None and left.out.id == streams[0].value else 1
    along = axes.of(plan.op.out, side)
    narrowest = min(wide for wide, _ in target.stream_tiles)
    if along is None or products.layouts[along.number].capacity // narrowest != size:
        return None
    home = channels[0].sites[0].home
    loop = home[0] if len(home) == 1 else None
    ops = nest.body.ops
    place = next((n for n, op in enumerate(ops) if op is loop), None)
    if not isinstance(loop, t.For) or place is None or len(loop.carried) != 1:
        return None
    if running_sum(loop, definitions) is None:
        return None
    for op in all_ops(nest.body):
        if isinstance(op, t.Reduce | t.Combine | t.If) or (
            isinstance(op, t.For) and op is not loop
        ):
            return None
    if any(isinstance(op, t.Store | t.Atomic) for op in ops[:place]):
        return None
    return Split(size, loop, products.accumulators * WARPGROUP * 4)
