"""What a CTA combines in shared memory: cleared in front of all else, added to the tensor's elements behind it (`tilec.passes.private`)."""

from __future__ import annotations

from math import prod

from tilec.ir import atomic_ops
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.layouts import blocked
from tilec.ir.symbolic import Sym
from tilec.passes.lower.access import coordinate
from tilec.passes.lower.context import Context
from tilec.passes.uses import all_ops

NEUTRAL = {"add": "sum", "max": "max", "min": "min"}
"""The reduction that an atomic is one step of."""


def open_private(context: Context) -> None:
    """Shared memory for such tensors, with neutral elements."""
    for name in sorted(context.variant.private):
        tensor = context.program.tensor(name)
        count = prod(dim.constant or 0 for dim in tensor.dims)
        own = context.names.unique(f"{name}_own")
        operation = _operation(context, name)
        purpose = f"what the CTA combines into `{name}`"
        context.shared.append(k.SharedBuffer(own, tensor.dtype, count, purpose))
        axis = _axis(context, own, count)
        store = k.StoreShared(
            own, k.Index(coordinate(axis), I32), k.Identity(NEUTRAL[operation], tensor.dtype)
        )
        context.out.append(_walk(axis, count, store))
        context.private[name] = own, axis
    if context.private:
        names = " and ".join(own for own, _ in context.private.values())
        context.out.append(k.CtaSync(f"{names}: cleared before anything is combined into it"))


def close_private(context: Context) -> None:
    """What was combined, into the tensors."""
    if context.private:
        names = " and ".join(own for own, _ in context.private.values())
        context.out.append(k.CtaSync(f"{names}: complete before it is read"))
    for name, (own, axis) in context.private.items():
        rep = context.program.tensor(name).dtype
        count = next(b.count for b in context.shared if b.name == own)
        operation = _operation(context, name)
        value = k.SharedElement(own, k.Index(coordinate(axis), I32), rep)
        total = context.names.unique(f"{name}_total")
        guards: tuple[k.Expr, ...] = ()
        if operation == "add":
            zero = k.Literal_(0.0 if rep.is_float else 0, rep)
            guards = (k.Apply("ne", (k.Local(total, rep), zero), BOOL),)
        context.pointers[name] = True
        atomic = atomic_ops.AtomicElement(
            operation,
            context.names.spell(name),
            k.Index(coordinate(axis), I32),
            k.Local(total, rep),
            guards,
        )
        context.out.append(_walk(axis, count, k.Let(total, rep, value), atomic))


def _operation(context: Context, name: str) -> str:
    return next(
        op.op
        for op in all_ops(context.nest.body)
        if isinstance(op, t.Atomic) and op.access.tensor == name
    )


def _axis(context: Context, name: str, count: int) -> k.LoopAxis:
    """The elements of a tensor along all threads of the CTA."""
    threads = context.variant.level.threads * context.variant.batch
    layout = blocked(-(-count // threads), threads, 1, 1)
    axis = k.LoopAxis(context.names.unique(f"{name}_at"), layout, Sym.of(count))
    context.extra_axes.append(axis)
    for word in (axis.coordinate, axis.element, axis.lane, axis.step, f"{axis.name}_sub"):
        context.names.used.add(word)
    return axis


def _walk(axis: k.LoopAxis, count: int, *ops: k.Op) -> k.TileLoop:
    at = k.Index(coordinate(axis), I32)
    bound = k.Apply("lt", (at, k.Literal_(count, I32)), BOOL)
    whole = axis.layout.capacity == count
    return k.TileLoop((axis,), () if whole else (bound,), (k.Elements((), ops),))
