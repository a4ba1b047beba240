"""Clusters that stay: each takes one instance after the other, as a counter gives them out.

    cluster_arrive                                cluster_arrive
    x_tile = load_vector x …                      instance_queue
    sum_x = …                                       x_tile = load_vector x …
    cluster_wait                                    draw_item
    store_cluster sum_x_partial              →      sum_x = …
    cta_sync (cluster)                              cluster_wait
    sum_x = warp_combine sum_x_partial              announce_item
    store_vector y …                                store_cluster sum_x_partial
                                                    cta_sync (cluster)
                                                    sum_x = warp_combine sum_x_partial
                                                    take_item
                                                    cluster_arrive
                                                    store_vector y …
                                                  cluster_wait

A cluster starts only where all of its CTAs have room, so that one for each row leaves multiprocessors idle between rows: 5 to
13 % on an H200. Rows by a fixed stride lose nearly as much, as the slower multiprocessors finish last. What a turn reads of the
partial results is read before it arrives, and the next turn's are not written before all have: that wait lies behind the
loads of its row. Where barriers count what CTAs send each other (`exchange`) no turn arrives or waits: the item travels with the
last exchange, and the cluster meets once, before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.launch import PointerArgument
from tilec.ir.symbolic import Sym, Var, sym_max, sym_min

ITEM = "next_item"
"""Shared memory in which the CTAs of a cluster learn their next instance."""

COUNTER = "item_counter"


def run(kernel: k.Kernel, counter: str, early: bool = False) -> k.Kernel:
    """The kernel with its queue, which the tensor `counter` counts; as it is where it has no cluster with one exchange at least
    that all of its instances make. `early`: it begins beside the kernel that clears the counter."""
    found = _run(kernel, counter)
    return replace(found, early=early and bool(found.queue))


def _run(kernel: k.Kernel, counter: str) -> k.Kernel:
    body = kernel.body
    if body and isinstance(body[0], e.ReadyBarriers):
        return _sending(kernel, counter)
    waits = [n for n, op in enumerate(body) if isinstance(op, e.ClusterWait)]
    if len(waits) != 1 or not isinstance(body[0], e.ClusterArrive):
        return kernel
    (wait,) = waits
    syncs = [
        n for n, op in enumerate(body) if isinstance(op, k.CtaSync) and op.cluster and n > wait
    ]
    pushed = {name for op in _all(body) if isinstance(op, e.StoreCluster) for name in op.writes}
    reads = [n for n, op in enumerate(body) if pushed & set(op.reads)]
    if not syncs or not reads:
        return kernel
    buffer = k.SharedBuffer(_free(kernel), I32, 1, "the next instance")
    # nobody may arrive again, as whole meetings do, before it has waited
    meetings = [
        n
        for n, op in enumerate(body)
        if any(isinstance(x, k.CtaSync) and x.cluster for x in _all((op,)))
    ]
    if any(n < wait for n in meetings):
        return kernel
    done = max(reads[-1], *meetings) + 1
    compute = next((n for n, op in enumerate(body) if _computes(op)), wait)
    first = min(compute, wait)
    turn = (
        *body[1:first],
        e.DrawItem(counter),
        *body[first:wait],
        e.ClusterWait(memory=True),
        e.AnnounceItem(buffer.name),
        *body[wait + 1 : reads[-1] + 1],
        e.TakeItem(buffer.name),
        *body[reads[-1] + 1 : done],
        e.ClusterArrive(memory=True),
        *body[done:],
    )
    queue = e.InstanceQueue(counter, turn)
    whole = (e.ClusterArrive(memory=True), queue, e.ClusterWait(memory=True))
    return _queued(kernel, counter, whole, buffer)


def _sending(kernel: k.Kernel, counter: str) -> k.Kernel:
    """The queue of a kernel whose exchanges are counted by barriers: the next instance is one more thing sent in the last of them."""
    ready, arrive, *body = kernel.body
    wait = next(n for n, op in enumerate(body) if isinstance(op, e.ClusterWait))
    await_last = max(n for n, op in enumerate(body) if isinstance(op, e.AwaitSent))
    last = body[await_last]
    assert isinstance(last, e.AwaitSent)
    send = next(
        n
        for n, op in enumerate(body)
        if isinstance(op, e.SendCluster) and op.barrier == last.barrier
    )
    slots = next(b.slots for b in kernel.barriers if b.name == last.barrier)
    buffer = k.SharedBuffer(_free(kernel), I32, slots, "the next instance")
    pushed = {op.buffer for op in body if isinstance(op, e.SendCluster)}
    take = max(n for n, op in enumerate(body) if pushed & set(op.reads)) + 1
    turn = (
        e.DrawItem(counter),
        *body[:wait],
        e.ClusterWait(memory=True, first=True),
        *(_with_item(op, last.barrier) for op in body[wait + 1 : send]),
        e.AnnounceItem(buffer.name, last.barrier, last.slot),
        *body[send:take],
        e.TakeItem(buffer.name, last.slot),
        *body[take:],
    )
    return _queued(kernel, counter, (ready, arrive, e.InstanceQueue(counter, turn)), buffer)


def _with_item(op: k.Op, barrier: str) -> k.Op:
    """What is expected of an exchange with which the next instance is sent."""
    if not isinstance(op, e.ExpectSent):
        return op
    more = I32.bits // 8
    sent = ((b, k.Index(n.sym + more, I32) if b == barrier else n) for b, n in op.sent)
    return replace(op, sent=tuple(sent))


def _queued(
    kernel: k.Kernel, counter: str, body: tuple[k.Op, ...], buffer: k.SharedBuffer
) -> k.Kernel:
    return replace(
        kernel,
        body=body,
        arguments=(*kernel.arguments, PointerArgument(counter)),
        tensors=(*kernel.tensors, (counter, I32, True)),
        shared=(*kernel.shared, buffer),
        queue=counter,
    )


def counter_name(program: t.Program) -> str:
    """The name of the counter among the workspace's tensors."""
    name, number = COUNTER, 1
    while name in program.names:
        number += 1
        name = f"{COUNTER}_{number}"
    return name


def shortest(beyond: list[tuple[Sym, Sym]]) -> tuple[Sym, Sym]:
    """An extent, and from which size on one of several variants may be launched: those are all of one extent."""
    return min(beyond, key=lambda pair: pair[1].constant or 0)


def temps(counter: str, queued: list[tuple[Sym, Sym]]) -> tuple[t.Tensor, ...]:
    """The counter, an element where rows are that long and none where they are not."""
    if not queued:
        return ()
    count = Sym.of(0)
    for extent, capacity in dict.fromkeys(queued):
        count = count + sym_min([sym_max([extent - capacity, 0]), 1])
    return (t.Tensor(counter, I32, (count,), "temp"),)


def always(counter: str) -> tuple[t.Tensor, ...]:
    """The counter of instances that are drawn at every size."""
    return (t.Tensor(counter, I32, (Sym.of(1),), "temp"),)


def cleared(counter: str, base: str, suffix: str, flags: tuple[str, ...] = ()) -> k.Kernel:
    """A kernel that sets the counter to 0, and `flags`. The rows' kernel begins beside it: what that one reads and writes, all kernels in front
    have done with before this one began."""
    thread = k.Index(Sym.of(Var("thread", "local")), I32)
    first = k.Apply("eq", (thread, k.Literal_(0, I32)), BOOL)
    zero = k.Literal_(0, I32)
    stores = [k.StoreElement(name, zero, zero, (first,)) for name in (counter, *flags)]
    return k.Kernel(
        "_".join(part for part in (base, "kernel_cleared", suffix) if part),
        f"{base}_cleared_body",
        32,
        1,
        1,
        (),
        tuple(map(PointerArgument, (counter, *flags))),
        tuple((name, I32, True) for name in (counter, *flags)),
        (),
        Sym.of(1),
        (),
        (),
        (),
        (e.LaunchDependents(), *stores),
    )


def _free(kernel: k.Kernel) -> str:
    taken = {b.name for b in kernel.shared} | {b.name for b in kernel.tiles}
    name, number = ITEM, 1
    while name in taken:
        number += 1
        name = f"{ITEM}_{number}"
    return name


def _computes(op: k.Op) -> bool:
    """Whether an op works on what loads brought: from there on a thread waits for them."""
    return isinstance(op, k.TileLoop) and any(
        isinstance(inner, k.Elements | k.AccumulateVector) for inner in _all(op.body)
    )


def _all(ops: tuple[k.Op, ...]) -> Iterator[k.Op]:
    for op in ops:
        yield op
        for name in ("body", "then", "otherwise"):
            yield from _all(getattr(op, name, ()))
