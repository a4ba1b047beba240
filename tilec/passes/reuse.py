"""Which operand tiles several instances of a grid need, and which the whole grid reads once.

for i, j in parallel(M by 128, N by 256): … a[i, k] @ b[k, j]      neighbours along i need the same b: a pair of CTAs brings it once
for i, j in parallel(M by 16, N by 64): … a[i, k] @ b[k, j]        with M <= 16 each byte of b is read once: a stream
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.filters import indices_of
from tilec.ir.launch import product
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.channels import Channel
from tilec.passes.skip_dead import left_of
from tilec.passes.uses import Definitions, all_ops, operands, syms_of
from tilec.targets.table import Target


@dataclass(frozen=True)
class Sharing:
    """CTAs of a cluster take neighbouring trips of a grid loop and share the tiles that do not depend on it."""

    size: int
    digit: Var
    shared: frozenset[int]
    """ids of the loads' values"""


@dataclass(frozen=True)
class Stream:
    """An operand (by id of the load's value) whose `bytes` the grid reads `times` times, 1 as far as one can expect."""

    value: int
    times: Sym
    bytes: Sym


class Reuse:
    """Questions about the operand tiles of a nest."""

    def __init__(
        self,
        program: t.Program,
        nest: t.Nest,
        channels: tuple[Channel, ...],
        definitions: Definitions,
        facts: Facts,
    ):
        self.program = program
        self.nest = nest
        self.channels = channels
        self.definitions = definitions
        self.facts = facts

    def streams(self, few_rows: bool, pair: Sharing | None = None) -> tuple[Stream, ...]:
        """The operands that the grid reads once: where loops that they do not depend on have one trip, or those of one `pair`, which shares
        them. In a nest for `few_rows` the larger tiles are taken to be so, and the launch finds out."""
        if not few_rows and pair is None and not any(map(self._is_single, self.nest.grid)):
            return ()
        found: list[Stream] = []
        for channel in self.channels:
            largest = max(member.bytes for member in channel.members)
            for site in channel.sites:
                for member, load in zip(channel.members, site.loads, strict=True):
                    syms = list(syms_of(load))
                    # trips that survive are as far apart as those of a loop at least
                    inside = [indices_of(x) for x in site.home if isinstance(x, t.For)]
                    if not all(any(_moves(syms, x) for x in indices) for indices in inside):
                        continue
                    others = [
                        digit.trips
                        for digit in self.nest.grid
                        if not _moves(syms, digit.index)
                        and not self._is_single(digit)
                        and not (pair and pair.digit == digit.index and load.out.id in pair.shared)
                    ]
                    if others and not (few_rows and member.bytes == largest):
                        continue
                    tensor = self.program.tensor(load.access.tensor)
                    size = product(tensor.dims) * (tensor.dtype.bits // 8)
                    found.append(Stream(load.out.id, product(tuple(others)), size))
        return tuple(found)

    def sharing(self, target: Target) -> Sharing | None:
        """A pair of CTAs along the grid loop whose operands are the smaller ones: the larger are shared. Only where both do the same
        number of trips, or none, and where products are all that a loop does. None beside streams of one CTA: what a pair shares then is small, and
        each would wait for the other (measured on an H200)."""
        sites = [site for channel in self.channels for site in channel.sites]
        if target.cluster_size < 2 or any(site.first is not site.last for site in sites):
            return None
        if any(isinstance(op, t.Reduce) for op in all_ops(self.nest.body)):
            return None
        best: Sharing | None = None
        most = 0
        left = left_of(self.nest, self.facts)
        for digit in self.nest.grid:
            if digit.step is None:
                continue
            index = digit.index
            if left is not None and self._depends([left], index):
                continue  # one of a pair may have nothing to store, and go on
            if any(self._depends(syms_of(loop), index) for s in sites for loop in s.home):
                continue
            shared = {
                load.out.id: member.bytes
                for channel in self.channels
                for site in channel.sites
                for member, load in zip(channel.members, site.loads, strict=True)
                if not self._depends(syms_of(load), index)
            }
            total = sum(shared.values())
            if 0 < len(shared) < sum(len(s.loads) for s in sites) and total > most:
                best, most = Sharing(target.cluster_size, index, frozenset(shared)), total
        return best

    def is_one_pair(self, sharing: Sharing) -> bool:
        """Whether the loop whose trips CTAs of a cluster take has no more of them than there are CTAs in one."""
        return any(
            digit.index == sharing.digit and self._is_single(digit, sharing.size)
            for digit in self.nest.grid
        )

    def _is_single(self, digit: t.GridAxis, most: int = 1) -> bool:
        """Whether a grid loop over spans is known to have one trip at most, or `most`."""
        trips = self.facts.numeric(digit.trips)
        return digit.step is not None and self.facts.prove_nonnegative(most - trips)

    def _depends(self, syms: Iterable[Sym], index: Var) -> bool:
        """Whether symbolic integers depend on a loop's trip, through loaded scalars too."""
        for sym in syms:
            for var in sym.variables:
                if var == index:
                    return True
                if var.kind == "value":
                    op = self.definitions.defining[var.key]
                    inner = [*syms_of(op), *(Sym.of(Var("", "value", v.id)) for v in operands(op))]
                    if self._depends(inner, index):
                        return True
        return False


def _moves(syms: Iterable[Sym], index: Var) -> bool:
    """Whether each trip of a loop is at another place: its number counts as it is, not rounded (`h // 4`) or looked up."""
    return any(index in atoms for sym in syms for atoms, _ in sym.terms)
