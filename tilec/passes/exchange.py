"""Reductions of a cluster wait for what is sent to them instead of for all of its threads.

    cluster_arrive                                  ready_barriers exchange
    x_tile = load_vector x …                        cluster_arrive
    sum_x = …                                       x_tile = load_vector x …
    cluster_wait                                    sum_x = …
    store_cluster sum_x_partial              →      cluster_wait
    cta_sync (cluster)                              expect_sent exchange
    sum_x = warp_combine sum_x_partial              send_cluster sum_x_partial, exchange
                                                    await_sent exchange
                                                    sum_x = warp_combine sum_x_partial

A barrier of a cluster is one of each CTA too, and takes a way there and back; what is sent takes one way, and the other warps of a
CTA go on. Where clusters stay (`queue`), a warp may be a turn ahead of others: it has sent its part of the last exchange of a turn
only after it read that of the exchange before. So what a turn sends first is not in the way of what is still read, if it has two
exchanges at least; of a single one there are two slots, for turns of either parity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir.asynchronous import Barrier
from tilec.ir.dtypes import I32
from tilec.ir.symbolic import Sym, Var
from tilec.targets.occupancy import WARP

EXCHANGE = "exchange"
"""Name of the first barrier."""

TURN = Sym.of(Var("turn", "local"))
"""Number of the turn of a cluster that stays."""

TEAM = Sym.of(Var("team", "local"))
"""Number of a thread's team in its CTA, where several share one."""


@dataclass(frozen=True)
class _Exchange:
    """What is pushed (by position in the body) before one barrier of the cluster, at position `sync`."""

    pushes: tuple[int, ...]
    sync: int


def run(kernel: k.Kernel, stays: bool, teams: int = 1) -> k.Kernel:
    """The kernel with its exchanges counted by barriers; as it is where it has none, or not all of them can be. `stays`: its clusters
    will take one instance after the other, each of their `teams` its own."""
    found = _exchanges(kernel)
    if not found:
        return kernel
    turns = 2 if stays and len(found) == 1 else 1
    slots = turns * teams
    place = TURN % 2 if turns == 2 else Sym.of(0)
    if teams > 1:
        place = place + TEAM * turns
    slot = k.Index(place, I32) if slots > 1 else None
    parity: k.Expr = k.Literal_(0, I32)
    if stays:
        parity = k.Index(TURN // 2 % 2 if turns == 2 else TURN % 2, I32)
    buffers = {b.name: b for b in kernel.shared}
    names = _names(kernel, len(found))
    body: list[k.Op] = list(kernel.body)
    expected: list[tuple[str, k.Index]] = []
    for name, one in zip(names, found, strict=True):
        total = Sym.of(0)
        for number, at in enumerate(one.pushes):
            push = body[at]
            assert isinstance(push, e.StoreCluster)
            buffer = buffers[push.buffer]
            total = total + _count(buffer, kernel) * buffer.element_bytes
            offset = _moved(push.offset, buffer, kernel, slot)
            body[at] = e.SendCluster(
                push.buffer, offset, push.value, name, slot, number == 0, span=push.span
            )
        sync = body[one.sync]
        assert isinstance(sync, k.CtaSync)
        body[one.sync] = e.AwaitSent(name, slot, parity, sync.hazard, span=sync.span)
        expected.append((name, k.Index(total, I32)))
    if slot is not None:
        pushed = {op.buffer for op in body if isinstance(op, e.SendCluster)}
        body = [_reading(op, pushed, buffers, kernel, slot) for op in body]
        buffers |= {name: _repeated(buffers[name], slots) for name in pushed}
    wait = next(n for n, op in enumerate(body) if isinstance(op, e.ClusterWait))
    body[wait : wait + 1] = [e.ClusterWait(memory=True), e.ExpectSent(tuple(expected), slot)]
    body[0] = e.ClusterArrive(memory=True)
    barriers = tuple(Barrier(name, slots, 1) for name in names)
    ready = e.ReadyBarriers()
    return replace(
        kernel,
        body=(ready, *body),
        shared=tuple(buffers[b.name] for b in kernel.shared),
        barriers=(*kernel.barriers, *barriers),
    )


def is_sent(kernel: k.Kernel) -> bool:
    """Whether `run` would have barriers count the exchanges."""
    return bool(_exchanges(kernel))


def _exchanges(kernel: k.Kernel) -> list[_Exchange]:
    """All exchanges in order; none where one of them stands in a loop or a branch, is of other than 4 or 8 bytes, or is read again
    before it is written again: such barriers order more than what is sent."""
    body = kernel.body
    if not body or not isinstance(body[0], e.ClusterArrive):
        return []
    if sum(isinstance(op, e.ClusterWait) for op in body) != 1:
        return []
    buffers = {b.name: b for b in kernel.shared}
    found: list[_Exchange] = []
    pushes: list[int] = []
    written: set[str] = set()
    for n, op in enumerate(body):
        match op:
            case e.StoreCluster():
                if op.buffer in written or buffers[op.buffer].element_bytes not in (4, 8):
                    return []
                pushes.append(n)
                written.add(op.buffer)
            case k.CtaSync() if op.cluster:
                if not pushes:
                    return []
                found.append(_Exchange(tuple(pushes), n))
                pushes = []
            case k.StoreShared():
                return []
            case _ if written & set(op.reads) and not _combines(op):
                return []
            case _ if _meets(op):
                return []
    return [] if pushes else found


def _meets(op: k.Op) -> bool:
    """Whether threads meet, or send, inside of an op."""
    inner = [o for name in ("body", "then", "otherwise") for o in getattr(op, name, ())]
    return any(
        isinstance(o, e.StoreCluster | k.StoreShared | k.CtaSync) or _meets(o) for o in inner
    )


def _combines(op: k.Op) -> bool:
    """Whether all that an op reads of shared memory is the partial results that it combines."""
    return isinstance(op, k.Assign) and isinstance(op.value, k.WarpCombine)


def _count(buffer: k.SharedBuffer, kernel: k.Kernel) -> Sym:
    """Elements of a buffer in terms of the configuration's constants."""
    threads = next(
        (a for a in kernel.axes if f"kThreads{a.suffix} / 32" == buffer.count_text), None
    )
    if threads is None:
        return Sym.of(buffer.count)
    return Sym.of(Var(f"kThreads{threads.suffix}", "local")) // WARP


def _moved(
    offset: k.Expr, buffer: k.SharedBuffer, kernel: k.Kernel, slot: k.Index | None
) -> k.Expr:
    """An offset within a slot."""
    assert isinstance(offset, k.Index | k.Literal_)
    if slot is None:
        return offset
    inner = offset.sym if isinstance(offset, k.Index) else Sym.of(int(offset.value))
    return k.Index(slot.sym * _count(buffer, kernel) + inner, I32)


def _reading(
    op: k.Op,
    pushed: set[str],
    buffers: dict[str, k.SharedBuffer],
    kernel: k.Kernel,
    slot: k.Index,
) -> k.Op:
    """A combination that reads the turn's slot."""
    value = op.value if isinstance(op, k.Assign) else None
    if isinstance(op, k.Assign) and isinstance(value, k.WarpCombine) and value.buffer in pushed:
        offset = _moved(value.offset, buffers[value.buffer], kernel, slot)
        relative = value.relative
        if relative is not None:
            place = _moved(relative.offset, buffers[relative.buffer], kernel, slot)
            relative = replace(relative, offset=place)
        return replace(op, value=replace(value, offset=offset, relative=relative))
    return op


def _repeated(buffer: k.SharedBuffer, slots: int) -> k.SharedBuffer:
    text = f"{slots} * ({buffer.count_text})" if buffer.count_text else ""
    return replace(buffer, count=slots * buffer.count, count_text=text)


def _names(kernel: k.Kernel, count: int) -> list[str]:
    taken = {b.name for b in kernel.shared} | {b.name for b in kernel.tiles}
    names: list[str] = []
    number = 1
    while len(names) < count:
        name = EXCHANGE if number == 1 else f"{EXCHANGE}_{number}"
        number += 1
        if name not in taken:
            names.append(name)
    return names
