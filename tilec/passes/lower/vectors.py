"""Accesses of whole vectors: at aligned addresses, element by element, or in the aligned window of a row."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir import window_ops as w
from tilec.ir.dtypes import I32, DType
from tilec.ir.symbolic import Sym
from tilec.passes.lower.access import Address, Guards, coordinate
from tilec.passes.lower.context import Context
from tilec.passes.windows import SHIFTED_ACCESS


def vector_access(address: Address, fast: k.LoopAxis) -> bool:
    """Whether whole vectors can be moved: contiguous, and cut off at most by upper bounds."""
    guards = address.guards
    return address.contiguous and not guards.awkward and all(a is fast for a, _ in guards.tails)


def tail_count(guards: Guards, fast: k.LoopAxis) -> k.Expr | None:
    """How many elements of the current vector exist, None for all."""
    counts = [
        k.Apply("offset_sub", (bound, k.Index(coordinate(fast, element=False), I32)), I32)
        for _, bound in guards.tails
    ]
    if not counts:
        return None
    total: k.Expr = counts[0]
    for count in counts[1:]:
        total = k.Apply("min", (total, count), I32)
    return total


def load_op(
    context: Context, op: t.Load, fragment: k.Fragment, address: Address, fast: k.LoopAxis
) -> k.LoadVector | w.LoadWindow | w.LoadShifted:
    """The load of the current vector of `fragment`."""
    window = context.variant.window
    guards = tuple(address.guards.vector)
    if window is not None and id(op) in window.whole:
        room = _room(context, address.pointer, op.access.tensor)
        return w.LoadWindow(fragment, address.pointer, room, guards, span=op.span)
    if window is not None and id(op) in window.shifted:
        count = _least([bound for _, bound in address.guards.tails])
        assert count is not None
        size = fragment.rep.bits // 8
        access = min(SHIFTED_ACCESS.get(size, 16), size * fast.layout.vector)
        return w.LoadShifted(fragment, address.pointer, count, access, guards, span=op.span)
    return k.LoadVector(
        fragment,
        address.pointer,
        address.vector,
        id(op) in context.variant.aligned,
        guards,
        tail_count(address.guards, fast),
        span=op.span,
    )


def store_op(
    context: Context,
    op: t.Store,
    vector: k.Fragment,
    dtype: DType,
    address: Address,
    guards: Guards,
    fast: k.LoopAxis,
) -> k.StoreVector | w.StoreWindow:
    """The store of the current vector."""
    window = context.variant.window
    count = tail_count(guards, fast)
    around = tuple(guards.vector)
    if window is not None and id(op) in window.whole:
        assert count is not None
        return w.StoreWindow(
            vector, dtype, address.pointer, address.vector, count, around, span=op.span
        )
    aligned = id(op) in context.variant.aligned
    return k.StoreVector(
        vector, dtype, address.pointer, address.vector, aligned, around, count, span=op.span
    )


def declare_window(context: Context) -> None:
    """How far the window's row is from an aligned address."""
    window = context.variant.window
    if window is None:
        return
    context.pointers.setdefault(window.tensor, False)
    axis = next(a for a in context.variant.level.axes.values() if a.windowed)
    offset = context.index(window.base, wide=True)
    context.out.append(w.WindowShift(axis, context.names.spell(window.tensor), offset))


def _room(context: Context, pointer: str, name: str) -> str:
    """A variable that counts the elements from a row's start to the end of its tensor."""
    if pointer not in context.rooms:
        total = Sym.of(1)
        for dim in context.program.tensor(name).dims:
            total = total * dim
        room = context.names.unique(f"{name}_room")
        whole = context.names.spell(name)
        context.out.append(w.WindowRoom(room, pointer, whole, context.index(total, wide=True)))
        context.rooms[pointer] = room
    return context.rooms[pointer]


def _least(bounds: list[k.Expr]) -> k.Expr | None:
    total: k.Expr | None = None
    for bound in bounds:
        total = bound if total is None else k.Apply("min", (total, bound), I32)
    return total
