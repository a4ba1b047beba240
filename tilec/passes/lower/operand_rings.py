"""Rings of operand tiles in shared memory: their names and barriers, what waits for a tile, and what gives its slot back."""

from __future__ import annotations

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import I32
from tilec.passes.asynchronous import Asynchronous
from tilec.passes.channels import Channel, Site
from tilec.passes.lower.context import Context
from tilec.passes.products import Staged


class OperandRings:
    """Names of rings and barriers of one nest in the asynchronous form, and the consumers' side of them."""

    def __init__(self, context: Context, form: Asynchronous):
        self.context = context
        self.form = form
        self.turns: set[int] = set()
        """loops in which warpgroups take turns at starting products, by id of the op"""
        self.panels: list[a.PanelBuffer] = []
        self.buffers: dict[int, a.PanelBuffer] = {}
        """by id of the operand's value"""
        self.rings: dict[Channel, str] = {}
        self.channel_of: dict[int, Channel] = {}
        self.sites: dict[int, tuple[Channel, Site]] = {}
        """by id of a load op"""
        self.site_of: dict[int, Site] = {}
        """by id of the operand's value"""
        self.barriers: list[a.Barrier] = []
        self.pairs: dict[Channel, tuple[a.Barrier, a.Barrier]] = {}
        """of what a slot is full and free by"""
        for channel in form.rings:
            base = "_".join(dict.fromkeys(m.tensor for m in channel.members))
            ring = context.names.unique(f"{base}_ring")
            self.rings[channel] = ring
            for n, member in enumerate(channel.members):
                if channel.again is not None:
                    known = channel.again.sites[0].operands[n]
                    buffer = self.buffers[known.source.id]
                else:
                    name = context.names.unique(f"{member.tensor}_tiles")
                    sides = (member.rows, member.cols)
                    buffer = a.PanelBuffer(name, member.dtype, *sides, channel.slots)
                    self.panels.append(buffer)
                for site in channel.sites:
                    self.buffers[site.operands[n].source.id] = buffer
                    self.channel_of[site.operands[n].source.id] = channel
                    self.site_of[site.operands[n].source.id] = site
                    if channel not in form.rows:
                        self.sites[id(site.loads[n])] = (channel, site)
            if channel.again is not None:
                self.pairs[channel] = self.pairs[channel.again]
                continue
            warps = form.warpgroups * 4 * self.peers_of(channel)
            pair = (
                a.Barrier(context.names.unique(f"{ring[:-5]}_full"), channel.slots, 1),
                a.Barrier(context.names.unique(f"{ring[:-5]}_free"), channel.slots, warps),
            )
            self.pairs[channel] = pair
            self.barriers += pair

    def peers_of(self, channel: Channel) -> int:
        """CTAs whose copies land in this CTA's slots."""
        sharing = self.form.sharing
        loads = [load for site in channel.sites for load in site.loads]
        if sharing is None or not any(load.out.id in sharing.shared for load in loads):
            return 1
        return sharing.size

    def barrier(self, channel: Channel, free: bool) -> str:
        return self.pairs[channel][free].name

    def wait(self, channel: Channel) -> None:
        self.context.out.append(
            a.BarrierWait(self.barrier(channel, free=False), self.rings[channel])
        )

    def release(self, channel: Channel, previous: bool = False) -> list[k.Op]:
        """The slot is free, and the ring goes on; of the slot before: free alone."""
        ring = self.rings[channel]
        barrier = self.barrier(channel, free=True)
        release: list[k.Op] = [a.BarrierRelease(barrier, ring, previous, self.peers_of(channel))]
        if any(c.again == channel for c in self.form.channels):
            release = []  # the slot is read once more
        return release if previous else [*release, a.RingAdvance(ring)]

    def tile(self, operand: Staged) -> k.TileAddress:
        number = operand.source.id
        ring = self.rings[self.channel_of[number]]
        return k.TileAddress(self.buffers[number].name, k.Local(f"{ring}.slot", I32))
