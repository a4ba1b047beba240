"""Barriers: one `__syncthreads` for each hazard on a shared buffer, named.

    store_shared row_max_partial[...]              store_shared row_max_partial[...]
    row_max = warp_combine row_max_partial   ->    cta_sync "row_max_partial is written before it is read"
                                                   row_max = warp_combine row_max_partial

In a loop the end of one trip meets the start of the next, so that a buffer which is written again is guarded too. Of barriers with nothing
between them one is left.
"""

from __future__ import annotations

from dataclasses import field, replace

from tilec.ir import asynchronous as a
from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.lazy_dataclass import dataclass


@dataclass
class _State:
    """Buffers touched since the last barrier."""

    written: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)

    def copy(self) -> _State:
        return _State(set(self.written), set(self.read))

    def join(self, other: _State) -> None:
        self.written |= other.written
        self.read |= other.read


def run(kernel: k.Kernel) -> k.Kernel:
    """The kernel with its barriers."""
    body = _once(_block(kernel.body, _State()))
    if any(_is_pushed(op) for op in body):
        body = _in_cluster(body)
    return replace(kernel, body=body)


def _once(ops: tuple[k.Op, ...], met: bool = False) -> tuple[k.Op, ...]:
    """Without barriers that stand behind others. `met`: the threads have just met where the ops begin."""
    result: list[k.Op] = []
    for op in ops:
        if isinstance(op, k.CtaSync):
            if op.cluster or not met:
                result.append(op)
            met = True
            continue
        if isinstance(op, k.Loop | a.Instances):
            op = replace(op, body=_once(op.body))
        elif isinstance(op, k.IfUniform):
            op = replace(op, then=_once(op.then, met), otherwise=_once(op.otherwise, met))
        elif isinstance(op, a.Roles):
            op = replace(op, consumer=_once(op.consumer))
        result.append(op)
        met = False
    return tuple(result)


def _is_pushed(op: k.Op) -> bool:
    """Whether other CTAs of the cluster get what an op writes."""
    inner = (getattr(op, name, ()) for name in ("body", "then", "otherwise"))
    return isinstance(op, e.StoreCluster) or any(_is_pushed(o) for ops in inner for o in ops)


def _in_cluster(body: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """Barriers of the whole cluster, and one before the first push: the other CTAs have started."""
    first = next(n for n, op in enumerate(body) if _is_pushed(op))
    body = tuple(map(_wider, body))
    return (e.ClusterArrive(), *body[:first], e.ClusterWait(), *body[first:])


def _wider(op: k.Op) -> k.Op:
    match op:
        case k.CtaSync():
            return replace(op, cluster=True)
        case k.Loop():
            return replace(op, body=tuple(map(_wider, op.body)))
        case k.IfUniform():
            then, otherwise = tuple(map(_wider, op.then)), tuple(map(_wider, op.otherwise))
            return replace(op, then=then, otherwise=otherwise)
        case _:
            return op


def _block(ops: tuple[k.Op, ...], state: _State) -> tuple[k.Op, ...]:
    result: list[k.Op] = []
    for op in ops:
        if isinstance(op, k.CtaSync):
            state.written.clear()
            state.read.clear()
            result.append(op)
            continue
        if isinstance(op, a.Roles):
            result.append(replace(op, consumer=_block(op.consumer, state)))
            continue
        if isinstance(op, k.Loop | a.Instances):
            first = state.copy()
            _block(op.body, first)
            entry = state.copy()
            entry.join(first)
            body = _block(op.body, entry)
            state.join(entry)
            result.append(replace(op, body=body))
            continue
        if isinstance(op, k.IfUniform):
            then, otherwise = state.copy(), state.copy()
            op = replace(op, then=_block(op.then, then), otherwise=_block(op.otherwise, otherwise))
            state.join(then)
            state.join(otherwise)
            result.append(op)
            continue
        hazard = _hazard(op, state)
        if hazard:
            state.written.clear()
            state.read.clear()
            result.append(k.CtaSync(hazard, span=op.span))
        state.written |= set(op.writes)
        state.read |= set(op.reads)
        result.append(op)
    return tuple(result)


def _hazard(op: k.Op, state: _State) -> str:
    for buffer in op.reads:
        if buffer in state.written:
            return f"{buffer} is written before it is read"
    for buffer in op.writes:
        if buffer in state.read:
            return f"{buffer} is read before it is written again"
        if buffer in state.written:
            return f"{buffer} is written before it is written again"
    return ""
