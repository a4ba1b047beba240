"""Changes to ops that work beside the threads: waits, releases, expected bytes, fences, turns, cleared edges, parity, chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import I32
from tilec.ir.kernel_printer import print_expr
from tilec.ir.shares import AddShare, AwaitShare, ExpectShare, ReleaseShare, SendShare


def _more(expr: k.Expr, by: int) -> k.Expr:
    return k.Apply("offset_add", (expr, k.Literal_(by, I32)), I32)


def changes(node: Any, line: int, dropped: Any) -> Iterator[tuple[str, str, Any]]:
    """(kind, description, replacement) of each change to one op."""
    place = f"line {line}"
    match node:
        case a.RingDeclare():
            yield "parity flipped", node.name, replace(node, filled=not node.filled)
        case a.RingAdvance():
            yield "advance dropped", f"{place}: {node.name}", dropped
        case a.BarrierWait():
            yield "phase not waited for", f"{place}: {node.barrier}", dropped
        case a.BarrierExpect():
            what = f"{place}: {node.barrier}"
            yield "expect dropped", what, dropped
            yield "bytes - 16", what, replace(node, bytes=node.bytes - 16)
        case ExpectShare():
            what = f"{place}: {node.barrier}"
            yield "expect dropped", what, dropped
            yield "bytes - 16", what, replace(node, bytes=node.bytes - 16)
        case AwaitShare():
            yield "phase not waited for", f"{place}: {node.barrier}", dropped
        case AddShare():
            yield "sums not added", f"{place}: {node.buffer}", dropped
        case ReleaseShare():
            yield "release dropped", f"{place}: {node.barrier}", dropped
        case SendShare():
            yield "sums not sent", f"{place}: {node.buffer}", dropped
        case a.BarrierRelease():
            what = f"{place}: {node.barrier}"
            yield "release dropped", what, dropped
            yield "release of another slot", what, replace(node, previous=not node.previous)
            if node.peers > 1:
                yield "release of fewer peers", what, replace(node, peers=node.peers - 1)
        case a.TensorCopy():
            what = f"{place}: {node.map}"
            for n, expr in enumerate(node.coordinates):
                moved = (*node.coordinates[:n], _more(expr, 8), *node.coordinates[n + 1 :])
                yield "copy moved", f"{what}, coordinate {n}", replace(node, coordinates=moved)
            if node.peers > 1:
                yield "copy not shared", what, replace(node, share="none", peers=1)
        case a.WarpgroupProduct():
            what = f"{place}: {node.target.name}"
            yield "fresh flipped", what, replace(node, fresh=not node.fresh)
            if node.continues is not None:
                yield "begins anew in no trip", what, replace(node, continues=None)
            if node.k_extent > node.k_step:
                fewer = node.k_extent - node.k_step
                yield "steps - 1", what, replace(node, k_extent=fewer)
        case a.WarpgroupFence():
            yield "fence dropped", place, dropped
        case a.WarpgroupCommit():
            yield "group not closed", place, dropped
        case a.WarpgroupWait():
            yield "product not waited for", f"{place}: {node.pending} pending", dropped
            one_more = replace(node, pending=node.pending + 1)
            yield "wait for one less", f"{place}: {node.pending} pending", one_more
        case a.Turn():
            yield "turn dropped", f"{place}: {node.what}", dropped
        case a.Stagger():
            what = f"{place}: {node.what} {node.name}"
            if node.what == "begin":
                yield "ends one trip further apart", what, replace(node, lag=node.lag + 1)
            else:
                yield "end's turn dropped", what, dropped
        case a.ClearEdges():
            what = f"{place}: {node.tile.buffer} {print_expr(node.end)}"
            yield "edges not cleared", what, dropped
            yield "edge end + 1", what, replace(node, end=_more(node.end, 1))
            if not isinstance(node.begin, k.Literal_):
                yield "edge begin - 1", what, replace(node, begin=_more(node.begin, -1))
        case a.ReadFence():
            yield "reads not fenced", place, dropped
        case a.SendChunks():
            what = f"{place}: {'trip' if node.trip else 'trips' if node.trips else 'all'}"
            yield "chunks dropped", what, dropped
            yield "slots too soon", what, replace(node, under_way=node.under_way + 1)
            if node.trip is not None:
                yield "chunks one trip apart", what, replace(node, every=node.every - 1)
            if node.trips is not None:
                yield "chunks three trips apart", what, replace(node, every=node.every + 1)
        case a.BulkDrain():
            yield "drain dropped", place, dropped
        case _:
            pass
