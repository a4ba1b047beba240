"""Placement: which tiles live in registers and which are computed again where they are used.

Everything that is cheap to compute again from what registers hold is *inline*: it exists only inside the loops over
registers that end in a reduction, a store or a carried name (the sinks). A loaded tile that one sink reads is loaded
there; one that several read is *held*. Keeping narrow data and widening it again costs less than wide copies that
live across a reduction (measured on row kernels: half the registers).
"""

from __future__ import annotations

from dataclasses import field

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL
from tilec.lazy_dataclass import dataclass
from tilec.passes.interior import affine
from tilec.passes.uses import Definitions, all_ops, operands

COSTS = {
    "exp": 3, "exp2": 3, "log": 3, "log2": 2, "sqrt": 4, "rsqrt": 2, "div": 4, "sin": 20, "cos": 20, "tanh": 12, "erf": 20,
    "sigmoid": 6, "pow": 20, "floordiv": 20, "mod": 20,
}  # fmt: skip
"""Issue slots of an element-wise op, relative to an addition; what is not listed costs 1."""

LOAD_COST = 4
HOLD_ABOVE = 12
"""A computed tile with several sinks is held if computing it again costs more than this many slots an element."""
HOLD_ABOVE_BESIDE_PRODUCTS = 2
"""The same in a nest with products, whose tiles are in f32 registers anyway."""


@dataclass
class Placement:
    """`held`: ids of tiles in registers (loads and computed ones; results of reductions and carried names always are).
    `hazards`: loads that a later store may overwrite before their last sink: they cannot be read again."""

    held: set[int] = field(default_factory=set)
    hazards: dict[int, t.Store | t.Atomic] = field(default_factory=dict)
    sinks: dict[int, list[t.Op]] = field(default_factory=dict)
    products: bool = False
    places: dict[int, dict[tuple[int, int], t.Op]] = field(default_factory=dict)
    """the sinks of a value, each with the place of it that takes the value"""


def place(nest: t.Nest) -> Placement:
    """Decide for every tile of a nest."""
    found = Placement()
    found.products = any(isinstance(op, t.Dot) for op in all_ops(nest.body))
    definitions = Definitions.of(nest.body)
    ops = list(all_ops(nest.body))
    position = {id(op): n for n, op in enumerate(ops)}
    last = _last_positions(nest.body, position)
    group = _store_groups(nest.body)
    costs: dict[int, int] = {}
    for op in reversed(ops):
        for value in op.outs:
            if value.type.rank:
                found.sinks[value.id] = _sinks_of(value, definitions, found)
    for op in ops:
        for value in op.outs:
            if value.type.rank == 0:
                continue
            _decide(op, value, definitions, found, costs, position, last, group, ops)
    if not found.products:
        _release(ops, definitions, found)
    return found


def _release(ops: list[t.Op], definitions: Definitions, found: Placement) -> None:
    """Tiles that only one other held tile beside them is made of exist where that is made; of what is made of several such tiles it is
    the result that registers hold."""
    for op in ops:
        if isinstance(op, t.Elementwise) and op.out.type.rank and op.out.id not in found.held:
            parts = {a.id for a in op.args if a.id in found.held and _is_made(a, definitions)}
            if len(parts) > 1 and all(definitions.users[n] == [op] for n in parts):
                found.held.add(op.out.id)
    # whether an element is there is asked in every walk
    asked = {
        c.index
        for op in ops
        for value in op.outs
        for axis in value.type.axes
        for c in axis.presence
        if isinstance(c, t.InRange)
    }
    ends: dict[int, set[int]] = {}
    """the sinks and held tiles that take a tile, by the id of the op"""
    for op in reversed(ops):
        for value in op.outs:
            taken: set[int] = set()
            for user in definitions.users[value.id]:
                inline = is_inline_kind(user) and user.out.id not in found.held
                taken |= ends.get(user.out.id, set()) if inline else {id(user)}
            ends[value.id] = taken
            free = isinstance(op, t.Load) and value.id not in found.hazards
            if value.id not in found.held or value.id in asked:
                continue
            if not (free or _is_made(value, definitions)):
                continue
            beside = [o for o in ops if id(o) in taken]
            if len(taken) != 1 or not beside or not is_inline_kind(beside[0]):
                continue
            if definitions.loops[beside[0].out.id] == definitions.loops[value.id]:
                found.held.discard(value.id)


def _is_made(value: t.Value, definitions: Definitions) -> bool:
    """Whether a tile is computed element by element."""
    op = definitions.defining[value.id]
    return isinstance(op, t.Elementwise | t.Cast | t.Bitcast)


def is_inline_kind(op: t.Op) -> bool:
    """Ops that exist only inside the loops that use them."""
    return isinstance(
        op, t.Elementwise | t.Cast | t.Bitcast | t.Rearrange | t.Fill | t.Load | t.Iota | t.Full
    )


def from_memory(value: t.Value, definitions: Definitions) -> bool:
    """Whether loads, spans and scalars alone make a tile."""
    if value.type.rank == 0:
        return True
    op = definitions.defining.get(value.id)
    if op is None or not is_inline_kind(op):
        return False
    return all(from_memory(v, definitions) for v in operands(op))


def _sinks_of(value: t.Value, definitions: Definitions, found: Placement) -> list[t.Op]:
    sinks: dict[tuple[int, int], t.Op] = {}
    for user in definitions.users[value.id]:
        if (
            isinstance(user, t.Dot)
            and value is not user.accumulate
            and from_memory(value, definitions)
        ):
            continue  # staged in shared memory by the product itself
        if is_inline_kind(user) and user.outs and user.out.type.rank:
            for key, sink in found.places[user.out.id].items():
                sinks[key] = sink
        elif found.products and isinstance(user, t.For):
            # each carried name is a sink of its own
            for n, c in enumerate(user.carried):
                if c.next is value or c.initial is value:
                    sinks[id(user), n] = user
        elif isinstance(user, t.If) and user.rare:
            # and each merged one
            for n, m in enumerate(user.merges):
                if value in (m.then, m.otherwise):
                    sinks[id(user), n] = user
        else:
            sinks[id(user), 0] = user
    found.places[value.id] = sinks
    return list(sinks.values())


def _decide(
    op: t.Op,
    value: t.Value,
    definitions: Definitions,
    found: Placement,
    costs: dict[int, int],
    position: dict[int, int],
    last: dict[int, int],
    group: dict[int, int],
    ops: list[t.Op],
) -> None:
    if not is_inline_kind(op):
        found.held.add(value.id)
        costs[value.id] = 0
        return
    cost = LOAD_COST if isinstance(op, t.Load) else COSTS.get(getattr(op, "op", ""), 1)
    cost += sum(costs.get(a.id, 0) for a in operands(op) if a.type.rank)
    costs[value.id] = cost
    if isinstance(op, t.Iota | t.Full | t.Rearrange):
        return
    if found.products and not isinstance(op, t.Load) and affine(value, definitions) is not None:
        costs[value.id] = 0  # a constant of the register beside one number of the thread
        return
    sinks = found.sinks[value.id]
    home = definitions.loops[value.id]
    deeper = any(
        isinstance(loop, t.For) and loop not in home
        for sink in sinks
        for loop in _loops_around(sink, definitions)
    )
    step = _is_step(op, definitions.users[value.id]) and not deeper
    shared_mask = isinstance(op, t.Fill) and len(sinks) > 1 and not step
    rare = isinstance(op, t.Elementwise) and op.op == "sub_if"
    if found.products and (shared_mask or rare):
        found.held.add(value.id)
        costs[value.id] = 0
        return
    narrow = found.products and value.type.dtype != BOOL
    limit = HOLD_ABOVE_BESIDE_PRODUCTS if narrow else HOLD_ABOVE
    hold = (len(sinks) > 1 and cost > limit and not step) or (deeper and cost > 1)
    if isinstance(op, t.Load):
        hold = len(sinks) > 1 or deeper
        for other in ops:
            if not isinstance(other, t.Store | t.Atomic) or other.access.tensor != op.access.tensor:
                continue
            for sink in sinks:
                if position[id(op)] < position[id(other)] and _after(
                    sink, other, position, last, group, op
                ):
                    hold = True
                    found.hazards[value.id] = other
            if _share_loop(op, other, definitions):
                hold = True
                found.hazards[value.id] = other
    if hold:
        found.held.add(value.id)
        costs[value.id] = 0


def _is_step(op: t.Op, users: list[t.Op]) -> bool:
    """Whether a tile is a step of an exponential's argument, by multiply-adds: registers hold the exponential, if anything."""
    if len(users) != 1 or not isinstance(op, t.Elementwise | t.Fill):
        return False
    ops = [x.op if isinstance(x, t.Elementwise) else "where" for x in (op, users[0])]
    known = isinstance(users[0], t.Elementwise | t.Fill)
    return known and ops[0] in ("fma", "where") and ops[1] in ("fma", "where", "exp2")


def _after(
    sink: t.Op,
    store: t.Store | t.Atomic,
    position: dict[int, int],
    last: dict[int, int],
    group: dict[int, int],
    load: t.Load,
) -> bool:
    """Whether `sink` may read after `store` has written."""
    if sink is store or (id(store) in group and group[id(store)] == group.get(id(sink))):
        return store.access != load.access
    return last.get(id(sink), position[id(sink)]) > position[id(store)]


def _share_loop(load: t.Load, store: t.Op, definitions: Definitions) -> bool:
    loops = {id(loop) for loop in definitions.loops[load.out.id] if isinstance(loop, t.For)}
    return any(id(loop) in loops for loop in definitions.around[id(store)])


def _loops_around(op: t.Op, definitions: Definitions) -> tuple[t.Op, ...]:
    if op.outs and not isinstance(op, t.For | t.If):
        return definitions.loops[op.outs[0].id]
    if isinstance(op, t.For):
        # initial values are read in front of the loop, and next ones are made inside it
        return definitions.loops[op.carried[0].result.id] if op.carried else ()
    return definitions.around.get(id(op), ())


def _last_positions(block: t.Block, position: dict[int, int]) -> dict[int, int]:
    """For a loop or branch the position of its last inner op: what it yields is read there."""
    found: dict[int, int] = {}
    for op in all_ops(block):
        match op:
            case t.For():
                inner = list(all_ops(op.body))
            case t.If():
                inner = [*all_ops(op.then), *all_ops(op.otherwise)]
            case _:
                continue
        found[id(op)] = max((position[id(o)] for o in inner), default=position[id(op)])
    return found


def _store_groups(block: t.Block) -> dict[int, int]:
    """Neighbouring stores, which are walked together, by the id of the op."""
    found: dict[int, int] = {}
    number = 0

    def visit(part: t.Block) -> None:
        nonlocal number
        previous = False
        for op in part.ops:
            if isinstance(op, t.Store):
                if not previous:
                    number += 1
                found[id(op)] = number
            previous = isinstance(op, t.Store)
            match op:
                case t.For():
                    visit(op.body)
                case t.If():
                    visit(op.then)
                    visit(op.otherwise)
                case _:
                    pass

    visit(block)
    return found
