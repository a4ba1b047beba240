"""One change to a kernel's Kernel IR at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from tests.mutants import asynchronous
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.kernel_printer import print_expr
from tilec.ir.symbolic import Sym


@dataclass(frozen=True)
class Mutant:
    """A kernel with one change. `kind` groups the table; `what` says which."""

    kind: str
    what: str
    kernel: k.Kernel


class _Dropped:
    """In place of an op that goes."""


_DROPPED = _Dropped()


def mutants(kernel: k.Kernel) -> Iterator[Mutant]:
    """All mutants of a kernel, in the order of its ops."""
    for n, barrier in enumerate(kernel.barriers):
        for kind, change in (("arrivals + 1", 1), ("arrivals - 1", -1)):
            other = replace(barrier, arrivals=barrier.arrivals + change)
            if other.arrivals:
                barriers = (*kernel.barriers[:n], other, *kernel.barriers[n + 1 :])
                yield Mutant(kind, barrier.name, replace(kernel, barriers=barriers))
    for n, op in enumerate(kernel.body):
        for kind, what, new in _rewrites(op, _line(op, 0)):
            changed = () if new is _DROPPED else (new,)
            body = (*kernel.body[:n], *changed, *kernel.body[n + 1 :])
            yield Mutant(kind, what, replace(kernel, body=body))


def _line(op: Any, line: int) -> int:
    span = getattr(op, "span", None)
    return span.line if span is not None and span.end else line


def _rewrites(node: Any, line: int) -> Iterator[tuple[str, str, Any]]:
    """(kind, description, replacement) of each change to a node or to what is in it."""
    line = _line(node, line)
    yield from _own(node, line)
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, tuple):
            for n, child in enumerate(value):
                if not _inside(child):
                    continue
                for kind, what, new in _rewrites(child, line):
                    changed = () if new is _DROPPED else (new,)
                    parts = (*value[:n], *changed, *value[n + 1 :])
                    yield kind, what, replace(node, **{part.name: parts})
        elif _inside(value):
            for kind, what, new in _rewrites(value, line):
                if new is not _DROPPED:
                    yield kind, what, replace(node, **{part.name: new})


_EXPRESSIONS = (k.Apply, k.Memory, k.LaneReduce, k.WarpCombine, k.SharedElement)


def _inside(value: Any) -> bool:
    return isinstance(value, (k.Op, k.TileAddress, *_EXPRESSIONS)) and is_dataclass(value)


def _own(node: Any, line: int) -> Iterator[tuple[str, str, Any]]:
    yield from asynchronous.changes(node, line, _DROPPED)
    match node:
        case k.CtaSync():
            yield "barrier dropped", f"line {line}: {node.hazard}", _DROPPED
        case k.WaitGroup():
            yield (
                "wait weakened",
                f"line {line}: {node.pending} pending",
                replace(node, pending=node.pending + 1),
            )
        case k.Commit():
            yield "commit dropped", f"line {line}", _DROPPED
        case k.TileAddress() if node.slot is not None:
            assert isinstance(node.slot, k.Index | k.Local)
            slot = k.Apply("offset_add", (node.slot, k.Literal_(1, I32)), I32)
            yield "slot + 1", f"line {line}: {node.buffer}", replace(node, slot=slot)
        case k.LaneReduce() if node.lanes > 1:
            halved = replace(node, axis="", lanes=node.lanes // 2)
            yield "lanes halved", f"line {line}: {node.op} over {node.lanes}", halved
        case k.WarpCombine():
            count = k.Apply("offset_sub", (node.count, k.Literal_(1, I32)), I32)
            yield "partials - 1", f"line {line}: {node.op}", replace(node, count=count)
        case k.Loop():
            fewer = k.Apply("offset_sub", (node.trips, k.Literal_(1, I32)), I32)
            yield "trips - 1", f"line {line}: {node.name}", replace(node, trips=fewer)
        case k.Let() if node.name.endswith("_end") and isinstance(node.value, k.Index):
            wider = k.Index(node.value.sym + Sym.of(1), node.value.rep, node.value.wide)
            yield "bound + 1", f"line {line}: {node.name}", replace(node, value=wider)
        case k.IfUniform() if isinstance(node.condition, k.Apply) and node.condition.op == "lt":
            looser = replace(node.condition, op="le")
            place = f"line {line}: {print_expr(node.condition)}"
            yield "branch < to <=", place, replace(node, condition=looser)
        case _:
            pass
    guards = getattr(node, "guards", ())
    for n, guard in enumerate(guards):
        place = f"line {line}: {type(node).__name__} {_name(node)} if {print_expr(guard)}"
        rest = (*guards[:n], *guards[n + 1 :])
        yield "guard dropped", place, replace(node, guards=rest)
        if isinstance(guard, k.Apply) and guard.op == "lt":
            looser = (*guards[:n], replace(guard, op="le"), *guards[n + 1 :])
            yield "guard < to <=", place, replace(node, guards=looser)
    count = getattr(node, "count", None)
    if count is not None and not isinstance(node, k.WarpCombine):
        place = f"line {line}: {type(node).__name__} {_name(node)}"
        if any(f.name == "count" and "None" in str(f.type) for f in fields(node)):
            yield "tail dropped", place, replace(node, count=None)
        more = k.Apply("offset_add", (count, k.Literal_(1, I32)), I32)
        yield "tail + 1", place, replace(node, count=more)
    if isinstance(node, k.Apply) and node.op == "and" and node.rep == BOOL:
        for n, other in enumerate(node.args):
            yield "mask dropped", f"line {line}: {print_expr(node.args[1 - n])}", other


def _name(node: Any) -> str:
    for name in ("pointer", "buffer"):
        if hasattr(node, name):
            return str(getattr(node, name))
    return "" if not hasattr(node, "axes") else " ".join(a.name for a in node.axes)
