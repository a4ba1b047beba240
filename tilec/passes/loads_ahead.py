"""Tiles that a loop loads are loaded some trips ahead, where nothing in it stops at a barrier, or for tiles that are not.

    for t: x_tile = x[t, …]              for d below 6: x_tile_ahead[d] = x[d, …]        where there are so many trips
           s = a_tile * s + x_tile  →    for t: x_tile_next = x[min(t + 6, T - 1), …]
                                                x_tile = x_tile_ahead[0], those behind it move up, x_tile_next is the last
                                                s = a_tile * s + x_tile

A trip that carries something on waits for its own loads, and few instances have too few of them on their way for memory's latency.
The loop is unrolled by as many trips, so that nothing really moves. What decides are the registers that the tiles take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from tilec.ir import covering_ops as c
from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir import window_ops as w
from tilec.ir.ahead_ops import MoveUp
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.kernel_walking import inside, substituted
from tilec.ir.layouts import blocked
from tilec.ir.symbolic import Sym, Var, sym_min
from tilec.lazy_dataclass import dataclass
from tilec.passes.levels import resident_ctas
from tilec.passes.lower.packed import rewritten
from tilec.targets.table import Target

DEPTHS = (6, 4, 3)
"""Trips ahead, the first that has room."""

MARGIN = 1.2
"""Registers that ptxas takes for each that is counted: with fewer it spilled."""


@dataclass(frozen=True)
class _Load:
    """A tile that a loop loads into registers: the places of its declaration and of its walk in the loop's body."""

    declare: int
    walk: int
    fragment: k.Fragment

    @property
    def words(self) -> int:
        """Registers of a thread; single elements have addresses of their own."""
        elements = prod(a.layout.steps * a.layout.vector for a in self.fragment.axes)
        words = -(-elements * self.fragment.rep.bits // 32)
        single = all(a.layout.vector == 1 for a in self.fragment.axes)
        return 2 * max(words, elements) if single else words


def run(kernel: k.Kernel, target: Target, held: int) -> k.Kernel:
    """The kernel, whose threads hold tiles in so many registers, with such loops at the top of its body."""
    body: list[k.Op] = []
    axes = list(kernel.axes)
    registers = 0
    room = min(target.registers_per_thread, target.registers_per_sm // kernel.threads)
    for op in kernel.body:
        trip = _trip(kernel, op)
        loads = _loads(op) if trip is not None and isinstance(op, k.Loop) else []
        needed = {d: _registers(target, held, loads, d) for d in DEPTHS}
        depth = next((d for d in DEPTHS if needed[d] <= room), 0)
        if not loads or not depth or trip is None or not isinstance(op, k.Loop):
            body.append(op)
            continue
        taken = {a.name for a in axes}
        name = next(n for n in _names("ahead") if n not in taken)
        axis = k.LoopAxis(name, blocked(depth, 1, 1, 1), Sym.of(depth))
        axes.append(axis)
        body += _ahead(op, loads, axis, depth, trip)
        registers = max(registers, needed[depth])
    if not registers:
        return kernel
    blocks = min(kernel.blocks_per_sm, resident_ctas(target, kernel.threads, registers))
    return replace(kernel, body=tuple(body), axes=tuple(axes), blocks_per_sm=blocks)


def _registers(target: Target, held: int, loads: list[_Load], depth: int) -> int:
    """Registers of a thread with tiles so many trips ahead, and an address of each."""
    ahead = depth * sum(load.words + 2 for load in loads)
    return int((target.registers_besides + held + ahead) * MARGIN)


def _names(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}{number}"
        number += 1


def _trip(kernel: k.Kernel, op: k.Op) -> Var | None:
    """What counts the trips of a loop, where nothing in it waits for other threads or for more than its own trip."""
    if not isinstance(op, k.Loop) or op.first is not None or op.step != 1 or op.rolled:
        return None
    if not isinstance(op.trips, k.Index):
        return None
    if kernel.cluster > 1 or kernel.producers:
        return None
    plain = (k.Let, k.Pointer, k.Declare, k.TileLoop, k.Assign, k.CopyFragment)
    if not all(isinstance(x, plain) for x in op.body):
        return None
    if any(x.reads or x.writes for x in op.body):
        return None
    if not _carries_more_than_sums(op):
        return None
    waits = (k.LaneReduce, k.WarpCombine, k.SharedElement, e.LoadSlice)
    if any(isinstance(x, waits) for x in inside(op.body)):
        return None
    return next((v for v, name in kernel.names if name == op.name), None)


def _carries_more_than_sums(loop: k.Loop) -> bool:
    """Whether a variable from outside of a loop becomes anything but itself and something more: trips that only add up run beside each
    other as they are, and registers for more of their tiles cost threads (65536 rows of one trip took 152 µs in place of 63)."""
    own = {x.fragment.name for x in loop.body if isinstance(x, k.Declare)}
    own |= {x.fragment.name for x in inside(loop.body) if isinstance(x, k.Declare)}
    made = {x.name: x.value for x in inside(loop.body) if isinstance(x, k.Let)}

    def is_itself(value: object, name: str) -> bool:
        if isinstance(value, k.Element):
            return value.fragment.name == name
        return isinstance(value, k.Local) and value.name == name

    for op in inside(loop.body):
        if isinstance(op, k.CopyFragment) and op.target.name not in own:
            return True
        if not isinstance(op, k.Assign) or op.target.name in own:
            continue
        value = op.value
        while isinstance(value, k.Local) and value.name in made:
            value = made[value.name]
        parts = value.args if isinstance(value, k.Apply) and value.op == "add" else ()
        if not any(is_itself(part, op.target.name) for part in parts):
            return True
    return False


def _loads(loop: k.Loop) -> list[_Load]:
    """Tiles of a loop that loads alone fill, from tensors that nothing in it writes."""
    reading = (k.LoadVector, k.Memory, c.LoadCovering)
    written = {
        name
        for x in inside(loop.body)
        if (name := getattr(x, "pointer", None)) and not isinstance(x, reading)
    }
    tensors = {x.name: x.tensor for x in loop.body if isinstance(x, k.Pointer)}
    changed = {tensors.get(name, name) for name in written}
    found: list[_Load] = []
    for n, op in enumerate(loop.body):
        if not isinstance(op, k.Declare) or op.initial is not None:
            continue
        fills = [
            m
            for m, x in enumerate(loop.body)
            if isinstance(x, k.TileLoop)
            and any(isinstance(y, k.LoadVector) and y.target == op.fragment for y in x.body)
        ]
        if len(fills) != 1:
            continue
        walk = loop.body[fills[0]]
        assert isinstance(walk, k.TileLoop)
        (load, *others) = walk.body
        if others or not isinstance(load, k.LoadVector) or walk.parts:
            continue
        if tensors.get(load.pointer, load.pointer) in changed or load.target.local:
            continue
        if any(a.layout.streams for a in walk.axes) or _asks_loaded(loop, walk):
            continue
        found.append(_Load(n, fills[0], op.fragment))
    # a trip that waits for another tile waits for that
    taken = {load.fragment for load in found}
    loading = (k.LoadVector, c.LoadCovering, w.LoadWindow, w.LoadShifted, k.Memory)
    waited = [
        x
        for walk in loop.body
        if isinstance(walk, k.TileLoop)
        for x in inside(walk)
        if isinstance(x, loading) and getattr(x, "target", None) not in taken
    ]
    return [] if waited else found


def _asks_loaded(loop: k.Loop, walk: k.TileLoop) -> bool:
    """Whether an address or a guard of a walk hangs on anything that the loop computes beside sizes."""
    made = {x.name: x for x in loop.body if isinstance(x, k.Let | k.Pointer)}
    fixed = {x.fragment.name for x in loop.body if isinstance(x, k.Declare)}
    assigned = {x.target.name for x in inside(loop.body) if isinstance(x, k.Assign)}
    pending: list[Any] = [walk]
    seen: set[str] = set()
    while pending:
        for part in inside(pending.pop()):
            if isinstance(part, k.Memory | k.Element):
                return True
            names = {part.name} if isinstance(part, k.Local) else set()
            if isinstance(part, k.LoadVector):
                names.add(part.pointer)
            if isinstance(part, Sym):
                names |= {v.name for v in part.variables if v.kind == "local"}
            if names & (fixed | assigned) - {
                x.target.name for x in walk.body if isinstance(x, k.LoadVector)
            }:
                return True
            for name in sorted(names - seen):
                seen.add(name)
                if name in made:
                    op = made[name]
                    pending.append(op.value if isinstance(op, k.Let) else op.offset)
    return False


def _ahead(loop: k.Loop, loads: list[_Load], axis: k.LoopAxis, depth: int, trip: Var) -> list[k.Op]:
    """What stands in front of the loop, and the loop."""
    first = Sym.of(Var(axis.step, "local"))
    front: list[k.Op] = []
    rings: dict[int, k.Fragment] = {}
    body: list[tuple[k.Op, ...]] = [(op,) for op in loop.body]
    for load in loads:
        fragment = load.fragment
        ring = replace(fragment, name=f"{fragment.name}_ahead", axes=(axis, *fragment.axes))
        rings[load.walk] = ring
        walk = loop.body[load.walk]
        assert isinstance(walk, k.TileLoop)
        front.append(k.Declare(ring, None, span=walk.span))
        before, filled = _at(loop, walk, {trip: first}, ring, "_first", True)
        there = k.Apply("lt", (k.Index(first, I32), loop.trips), BOOL)
        filled = _guarded(filled, there)
        inner = (*before, *filled.body)
        front.append(replace(filled, axes=(axis, *walk.axes), body=inner))
    for load in loads:
        fragment = load.fragment
        ring = rings[load.walk]
        walk = loop.body[load.walk]
        assert isinstance(walk, k.TileLoop)
        following = replace(fragment, name=f"{fragment.name}_next")
        assert isinstance(loop.trips, k.Index)
        # the last tile again where there is no such trip: what is loaded under a condition is waited for
        later = sym_min([Sym.of(trip) + depth, loop.trips.sym - 1])
        before, filled = _at(loop, walk, {trip: later}, following, "_next", False)
        body[load.declare] = ()
        body[load.walk] = (
            *before,
            k.Declare(following, None, span=walk.span),
            filled,
            k.Declare(fragment, None, span=walk.span),
            MoveUp(fragment, ring, following, axis, span=walk.span),
        )
    flat = tuple(op for ops in body for op in ops)
    return [*front, replace(loop, body=_used(flat), unrolled=depth)]


def _at(
    loop: k.Loop,
    walk: k.TileLoop,
    trips: Mapping[Var, Sym],
    target: k.Fragment,
    ending: str,
    outside: bool,
) -> tuple[list[k.Op], k.TileLoop]:
    """A walk of another trip into `target`, and what it needs in front of it: variables that follow the trip, and `outside` of the loop all
    others too."""
    made = {x.name: x for x in loop.body if isinstance(x, k.Let | k.Pointer)}
    needed: dict[str, None] = {}

    def visit(node: Any) -> None:
        for part in inside(node):
            name = part.name if isinstance(part, k.Local) else getattr(part, "pointer", None)
            if name in made and name not in needed:
                op = made[name]
                visit(op.value if isinstance(op, k.Let) else op.offset)
                needed[name] = None

    visit(walk)
    renamed: dict[str, str] = {}
    before: list[k.Op] = []

    def change(node: Any) -> Any:
        if isinstance(node, k.Local) and node.name in renamed:
            return replace(node, name=renamed[node.name])
        if isinstance(node, k.LoadVector) and node.pointer in renamed:
            return replace(node, pointer=renamed[node.pointer])
        return node

    for name in needed:
        old = made[name]
        new = rewritten(substituted(old, trips), change)
        if outside or new != old:
            renamed[name] = f"{name}{ending}"
            before.append(replace(new, name=renamed[name]))
    new_walk = rewritten(substituted(walk, trips), change)
    body = tuple(replace(x, target=target) for x in new_walk.body)
    return before, replace(new_walk, body=body)


def _guarded(walk: k.TileLoop, there: k.Expr) -> k.TileLoop:
    """The walk where there is the trip."""
    body = tuple(
        replace(x, guards=(there, *x.guards)) if isinstance(x, k.LoadVector) else x
        for x in walk.body
    )
    return replace(walk, body=body)


def _used(body: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """The body without variables and pointers that nothing reads."""
    read = {part.name for op in body for part in inside(_reading(op)) if isinstance(part, k.Local)}
    read |= {name for part in inside(body) if (name := getattr(part, "pointer", None))}
    kept = tuple(x for x in body if not isinstance(x, k.Let | k.Pointer) or x.name in read)
    return kept if len(kept) == len(body) else _used(kept)


def _reading(op: k.Op) -> object:
    return op.value if isinstance(op, k.Let) else op.offset if isinstance(op, k.Pointer) else op
