"""Atomics: vectors at a time where the target has that for the operation and the addresses are aligned, else an element at a time.

atomic_add out[i, :] x       tile_loop c
                        →      x_tile = load_vector x_at + c
                               elements: out_sum = x_tile
                               atomic_vector add out_at + c, out_sum
"""

from __future__ import annotations

from tilec.ir import atomic_ops
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.passes.lower.access import Address, Guards
from tilec.passes.lower.body import Body, Coords, tail_count, vector_access
from tilec.passes.lower.context import Context, converted
from tilec.passes.lower.questions import before_rounding


def lower_atomic(
    context: Context, op: t.Atomic, coords: Coords, one_thread: tuple[k.Expr, ...]
) -> None:
    """Emit the walk of an atomic along `coords`; `one_thread` are guards that leave one of the threads that hold the same element."""
    axes = context.ordered(coords)
    body = Body(context, axes)
    source = before_rounding(context, op.value)
    own: Coords = ()
    if source.type.rank:
        own = tuple(
            None if axis.is_one else c
            for axis, c in zip(
                source.type.axes, coords[len(coords) - source.type.rank :], strict=True
            )
        )
    body.count(source)
    expr = body.value(source, own)
    address = body.address(op.access, coords, writable=True, span_op=op)
    guards = address.guards
    if own:
        guards.add(body.presence(source, own))
    guards.vector += [*one_thread, *context.live]
    fast = next((a for a in axes if a.vectorised), None)
    if fast is not None and _takes_vectors(context, op, address, fast):
        _vector(context, op, body, expr, address, fast)
        return
    dtype = context.program.tensor(op.access.tensor).dtype
    given = converted(expr, dtype), tuple(dict.fromkeys(guards.all))
    atomic: k.Op
    if op.access.tensor in context.private:
        buffer, _ = context.private[op.access.tensor]
        atomic = atomic_ops.AtomicShared(op.op, buffer, address.element, *given, span=op.span)
    else:
        atomic = atomic_ops.AtomicElement(
            op.op, address.pointer, address.element, *given, span=op.span
        )
    if axes:
        body.finish(Guards(), [atomic], [], op.span)
    else:
        context.out += [*body.prelude, *body.loads, *body.elements, atomic]


def _takes_vectors(context: Context, op: t.Atomic, address: Address, fast: k.LoopAxis) -> bool:
    """Whether the target has a form for a vector, which is aligned, and which at most an upper bound cuts."""
    dtype = context.program.tensor(op.access.tensor).dtype
    if fast.layout.vector == 1 or context.target.atomic_elements(op.op, dtype) == 1:
        return False
    return id(op) in context.variant.aligned and vector_access(address, fast)


def _vector(
    context: Context,
    op: t.Atomic,
    body: Body,
    expr: k.Expr,
    address: Address,
    fast: k.LoopAxis,
) -> None:
    """The walk in vectors: the elements into registers, then one op on all of them."""
    dtype = context.program.tensor(op.access.tensor).dtype
    each = min(fast.layout.vector, context.target.atomic_elements(op.op, dtype))
    summand = k.Fragment(
        body.local_name(f"{op.access.tensor}_{op.op}"), expr.rep, (fast,), local=True
    )
    body.loads.append(k.Declare(summand, None))
    vector = atomic_ops.AtomicVector(
        op.op,
        summand,
        dtype,
        address.pointer,
        address.vector,
        each * dtype.bits // 8,
        tuple(dict.fromkeys(address.guards.vector)),
        tail_count(address.guards, fast),
        span=op.span,
    )
    body.finish(Guards(), [k.Assign(summand, expr, span=op.span)], [vector], op.span)
