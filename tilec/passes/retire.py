"""Waits for asynchronous products: in front of the first op that touches what a group reads or writes, the weakest that covers it.

start s; commit             start s; commit
start acc; commit           start acc; commit
max_s = … s …          ->   wait 1; release k        the group of s is done, that of acc goes on
p = exp(s - max_s)          max_s = … s …
                            wait 0; release v        long functions run when no product is under way
                            p = exp(s - max_s)
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_walking import inside
from tilec.lazy_dataclass import dataclass

LONG = frozenset({"exp", "exp2", "log", "log2", "tanh", "sigmoid", "erf", "sin", "cos", "pow"})
"""Functions beside which products gain nothing: exponentials before the wait cost 4 to 7 % on an H200, and ptxas moves the wait
in front of them anyway. Where lanes exchange something in between, as a maximum of a function before exponentials, those in front of the
last exchange run beside products."""


def run(kernel: k.Kernel) -> k.Kernel:
    """The kernel with its waits."""
    body = tuple(
        replace(op, consumer=_block(op.consumer)) if isinstance(op, a.Roles) else op
        for op in kernel.body
    )
    return replace(kernel, body=body)


def _block(ops: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    result: list[k.Op] = []
    pending: list[a.WarpgroupCommit] = []

    def settle(count: int) -> None:
        """Wait for the `count` oldest groups, one after the other: what the first has read is free while the second goes on."""
        for group in pending[:count]:
            del pending[0]
            result.append(a.WarpgroupWait(len(pending), group.targets))
            result.extend(group.releases)

    about = [_About.of(op) for op in ops]
    exchanges = [n for n, op in enumerate(ops) if about[n].exchanges and not _is_loop(op)]
    last = exchanges[-1] if exchanges and any(x.is_long for x in about[exchanges[-1] :]) else -1
    for n, op in enumerate(ops):
        match op:
            case a.WarpgroupCommit() if op.targets:
                result.append(replace(op, releases=()))
                pending.append(op)
                continue
            case k.Loop() | a.Instances():
                settle(len(pending))
                result.append(replace(op, body=_block(op.body)))
                continue
            case a.BarrierWait():
                # the ring goes on before its next slot is waited for
                behind = [m + 1 for m, g in enumerate(pending) if _advances(g, op.ring)]
                settle(max(behind, default=0))
            case a.WarpgroupFence() | a.WarpgroupProduct():
                touched = {f.name for f in (getattr(op, "a", None),) if isinstance(f, k.Fragment)}
                settle(_covering(pending, touched))
            case _:
                if n > last and about[n].is_long:
                    settle(len(pending))
                else:
                    settle(_covering(pending, about[n].fragments))
        result.append(op)
    settle(len(pending))
    return tuple(result)


def _advances(group: a.WarpgroupCommit, ring: str) -> bool:
    return any(isinstance(op, a.RingAdvance) and op.name == ring for op in group.releases)


def _covering(pending: list[a.WarpgroupCommit], names: Set[str]) -> int:
    """How many of the oldest groups must be done before these registers are touched."""
    return max(
        (
            n + 1
            for n, group in enumerate(pending)
            if names & {f.name for f in (*group.targets, *group.sources)}
        ),
        default=0,
    )


def _is_loop(op: k.Op) -> bool:
    """Whether an op has trips, which have waits of their own."""
    return isinstance(op, k.Loop | a.Instances)


@dataclass(frozen=True)
class _About:
    """What an op and all in it does: the fragments that it names; whether lanes exchange something, as what waits for that stands behind it;
    whether there are long functions."""

    fragments: Set[str]
    exchanges: bool
    is_long: bool

    @staticmethod
    def of(op: k.Op) -> _About:
        fragments: set[str] = set()
        exchanges = is_long = False
        for part in inside(op):
            match part:
                case k.Fragment():
                    fragments.add(part.name)
                case k.LaneReduce():
                    exchanges = True
                case k.Apply():
                    is_long |= part.op in LONG
                case _:
                    pass
        return _About(fragments, exchanges, is_long)
