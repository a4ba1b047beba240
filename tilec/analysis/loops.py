"""Loops in order: ranges, carried names, unrolled loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    Integer,
    Known,
    Poison,
    SpanTile,
    Tile,
    TupleOf,
    describe,
)
from tilec.analysis.merging import Execute, assigned_names
from tilec.analysis.presence import after_loop, meet, variables
from tilec.analysis.scopes import Binding
from tilec.analysis.typing_rules import show_extent, strong_dtype, weak_kind
from tilec.ir.dtypes import BOOL, F32, I32, DType
from tilec.ir.symbolic import Sym, Var, ceildiv
from tilec.ir.tile_ir import Axis, Block, Carried, Constraint, For, Op, TileType, Value
from tilec.lazy_dataclass import dataclass
from tilec.source.diagnostics import Sink
from tilec.source.text import Span
from tilec.syntax import ast

ATTEMPTS = 8
"""Passes over a body until the types of its carried names hold."""

UNROLL_LIMIT = 1024
"""Trips of an unrolled loop."""


@dataclass(frozen=True)
class RangeOf:
    """A range as evaluated: coordinates lo … hi-1, in steps of an extent or one by one."""

    lo: Sym
    hi: Sym
    step: Sym | None

    @property
    def trips(self) -> Sym:
        """Number of trips; none where it is not positive."""
        length = self.hi - self.lo
        return length if self.step is None else ceildiv(length, self.step)

    def entity(self, index: Var) -> Entity:
        """What the loop variable stands for in trip `index`."""
        if self.step is None:
            return Integer(self.lo + Sym.of(index))
        return SpanTile(self.lo + self.step * Sym.of(index), self.step, self.lo, self.hi)


def evaluate_range(cx: Context, range_: ast.Range) -> RangeOf | None:
    """`N`, `N by B`, `lo : hi by B`; None after a message."""
    with cx.at(range_.span):
        lo: Sym | None = Sym.of(0)
        if range_.lower is not None:
            lo = cx.sym_of(cx.evaluate(cx, range_.lower), "a bound of a range")
        hi = cx.sym_of(cx.evaluate(cx, range_.upper), "a bound of a range")
        step = None
        if range_.step is not None:
            with cx.at(range_.step.span):
                step = cx.sym_of(cx.evaluate(cx, range_.step), "the extent after `by`", "E0315")
                if step is None:
                    return None
                if any(v.kind != "tile" for v in step.variables):
                    cx.error(
                        "E0315",
                        f"the extent after `by` must be known at compile time, not `{step}`",
                        help="make it a bracket parameter: `kernel name[BN = 128](…)`",
                    )
                    return None
                if step.constant is not None and step.constant < 1:
                    cx.error("E0322", f"the extent after `by` is at least 1, not {step.constant}")
                    return None
        return None if lo is None or hi is None else RangeOf(lo, hi, step)


def run_unroll(cx: Context, statement: ast.For, execute: Execute) -> None:
    """`for n in unroll(4)`: the body once for each number."""
    range_ = statement.ranges[0]
    bounds: list[int] = []
    with cx.at(range_.span):
        if range_.step is not None:
            cx.error(
                "E0321",
                "`unroll` has no `by`",
                help="multiply the index: `for n in unroll(4)` and `n * 32`",
            )
            return
        for bound in (range_.lower, range_.upper):
            number = (
                0
                if bound is None
                else cx.static_number(cx.evaluate(cx, bound), "the range of `unroll`")
            )
            if number is None:
                return
            bounds.append(number)
        if bounds[1] - bounds[0] > UNROLL_LIMIT:
            cx.error(
                "E0321",
                f"`unroll` of {bounds[1] - bounds[0]} trips",
                help=f"at most {UNROLL_LIMIT}; use `range`",
            )
            return
    target = statement.targets[0]
    if not check_target(cx, target):
        return
    for number in range(*bounds):
        cx.scope.enter()
        cx.scope.declare(target.id, Known(number), "span", target.span)
        execute(cx, statement.body)
        cx.scope.leave("loop")


def check_target(cx: Context, target: ast.Name) -> bool:
    """Whether a loop may bind this name; False after a message."""
    binding = cx.scope.find(target.id)
    if binding is None:
        return True
    what = {
        "span": "loop variable",
        "dimension": "dimension",
        "parameter": "parameter",
        "local": "name",
    }
    cx.error(
        "E0203",
        f"`{target.id}` is a {what[binding.kind]} in scope and is not bound again by a loop",
        target.span,
        help="choose another name",
    )
    return False


@dataclass(frozen=True)
class _Leaf:
    """The type that a carried value has at the start of a trip; `weak` while only literals and sizes went into it."""

    dtype: DType
    axes: tuple[Axis, ...]
    weak: bool


@dataclass
class _Attempt:
    """One pass over the body."""

    index: Var
    ops: list[Op]
    entries: dict[str, Entity]
    nexts: dict[str, Entity]
    initials: dict[str, Entity]


@dataclass(frozen=True)
class _State:
    """Where an attempt starts over."""

    frames: list[dict[str, Binding]]
    next_value: int
    next_trip: int
    length: int
    views: int


def run_range(cx: Context, statement: ast.For, execute: Execute) -> None:
    """`for … in range(…)`: infer the types of carried names, then write the loop."""
    target = statement.targets[0]
    range_ = evaluate_range(cx, statement.ranges[0])
    usable = check_target(cx, target)
    if range_ is None or not usable:
        poisoned_body(cx, statement, execute)
        return
    carried: dict[str, Entity] = {}
    for name in assigned_names(statement.body):
        binding = cx.scope.find(name)
        if (
            binding is not None
            and binding.kind == "local"
            and not isinstance(binding.entity, Poison)
        ):
            carried[name] = binding.entity
    leaves = {name: _leaves(entity) for name, entity in carried.items()}
    state = _State(
        [dict(f) for f in cx.scope.frames],
        cx.next_value,
        cx.next_trip,
        len(cx.blocks[-1]),
        len(cx.views),
    )
    sink = cx.sink
    for _ in range(ATTEMPTS):
        cx.scope.frames = [dict(f) for f in state.frames]
        cx.next_value, cx.next_trip = state.next_value, state.next_trip
        del cx.blocks[-1][state.length :]
        del cx.views[state.views :]
        cx.sink = Sink()
        attempt = _attempt(cx, statement, target, range_, carried, leaves, execute)
        trial = cx.sink.diagnostics
        cx.sink = sink
        if any(d.level == "error" for d in trial):
            cx.report(trial)
            _finish(cx, statement, range_, attempt, carried, leaves, ok=False)
            return
        unchanged = [n for n in carried if _same(attempt.entries[n], attempt.nexts[n])]
        changed = False
        for name in unchanged:
            del carried[name], leaves[name]
            changed = True
        for name in carried:
            with cx.at(_span_of(cx, name) or cx.span):
                adapted = _adapt(
                    cx, name, leaves[name], attempt.nexts[name], state.next_value, attempt.index
                )
            if adapted is None:
                _finish(cx, statement, range_, attempt, carried, leaves, ok=False)
                return
            changed |= adapted != leaves[name]
            leaves[name] = adapted
        if not changed:
            cx.report(trial)
            _finish(cx, statement, range_, attempt, carried, leaves, ok=True)
            return
    cx.error(
        "E0402",
        "the types of this loop's carried names do not settle",
        help="convert them with `.to` before the loop",
    )


def poisoned_body(cx: Context, statement: ast.For, execute: Execute) -> None:
    """Check the body of a loop whose head is wrong: everything that it binds is poison."""
    frames = [dict(f) for f in cx.scope.frames]
    with cx.block():
        cx.scope.enter()
        for target in statement.targets:
            cx.scope.declare(target.id, POISON, "span", target.span)
        execute(cx, statement.body)
        cx.scope.leave("loop")
    cx.scope.frames = frames
    for name in assigned_names(statement.body):
        binding = cx.scope.find(name)
        if binding is not None and binding.kind == "local":
            cx.scope.bind(name, POISON, span=binding.span)


def _leaves(entity: Entity) -> list[_Leaf | None]:
    """The types of an entity's parts, None for what is no value."""
    match entity:
        case TupleOf(elements):
            return [leaf for e in elements for leaf in _leaves(e)]
        case Tile(value, weak):
            return [_Leaf(value.type.dtype, value.type.axes, weak)]
        case Known() | Integer():
            strong = strong_dtype(entity)
            kinds = {"float": F32, "int": I32, "bool": BOOL}
            return [_Leaf(strong or kinds[weak_kind(entity)], (), strong is None)]
        case _:
            return [None]


def _parts(entity: Entity) -> Iterator[Entity]:
    if isinstance(entity, TupleOf):
        for element in entity.elements:
            yield from _parts(element)
    else:
        yield entity


def _rebuild(entity: Entity, parts: Iterator[Entity]) -> Entity:
    if isinstance(entity, TupleOf):
        return TupleOf(tuple(_rebuild(e, parts) for e in entity.elements))
    return next(parts)


def _same(entry: Entity, after: Entity) -> bool:
    """Whether a name has not been bound again by the body."""
    if isinstance(entry, TupleOf) and isinstance(after, TupleOf):
        return len(entry.elements) == len(after.elements) and all(
            _same(a, b) for a, b in zip(entry.elements, after.elements, strict=True)
        )
    if isinstance(entry, Tile) and isinstance(after, Tile):
        return entry.value is after.value
    return not isinstance(entry, Tile) and entry == after


def _attempt(
    cx: Context,
    statement: ast.For,
    target: ast.Name,
    range_: RangeOf,
    carried: dict[str, Entity],
    leaves: dict[str, list[_Leaf | None]],
    execute: Execute,
) -> _Attempt:
    initials: dict[str, Entity] = {}
    entries: dict[str, Entity] = {}
    for name, entity in carried.items():
        start: list[Entity] = []
        entry: list[Entity] = []
        for number, (part, leaf) in enumerate(zip(_parts(entity), leaves[name], strict=True)):
            value = None if leaf is None else cx.materialise(part, leaf.dtype)
            if leaf is None or value is None:
                start.append(part)
                entry.append(part)
                continue
            label = f"{name}.{number}" if isinstance(entity, TupleOf) else name
            start.append(Tile(value, leaf.weak))
            entry.append(Tile(cx.new_value(TileType(leaf.dtype, leaf.axes), label), leaf.weak))
        initials[name] = _rebuild(entity, iter(start))
        entries[name] = _rebuild(entity, iter(entry))
        cx.scope.bind(name, entries[name], span=_span_of(cx, name))
    index = cx.fresh_trip(target.id, range_.trips)
    with cx.block() as ops:
        cx.scope.enter()
        cx.scope.declare(target.id, range_.entity(index), "span", target.span)
        execute(cx, statement.body)
        cx.scope.leave("loop")
        nexts = {}
        for name in carried:
            binding = cx.scope.find(name)
            assert binding is not None
            nexts[name] = _next(cx, binding.entity, leaves[name], entries[name])
    return _Attempt(index, ops, entries, nexts, initials)


def _next(cx: Context, entity: Entity, leaves: list[_Leaf | None], entry: Entity) -> Entity:
    """The entity at the end of a trip with literals and sizes as values of the carried dtype where they fit."""
    parts = list(_parts(entity))
    if len(parts) != len(leaves):
        return entity
    made: list[Entity] = []
    for part, leaf, before in zip(parts, leaves, _parts(entry), strict=True):
        weak = strong_dtype(part) is None
        if (
            leaf is None
            or not isinstance(part, (Known, Integer, Tile))
            or (isinstance(part, Tile) and not part.weak)
        ):
            made.append(part)
            continue
        if part == before:
            made.append(part)
            continue
        fits = not weak or not (weak_kind(part) == "float" and not leaf.dtype.is_float)
        value = cx.materialise(part, leaf.dtype if fits else F32)
        made.append(POISON if value is None else Tile(value, weak))
    return _rebuild(entity, iter(made))


def _span_of(cx: Context, name: str) -> Span | None:
    binding = cx.scope.find(name)
    return None if binding is None else binding.span


def _adapt(
    cx: Context,
    name: str,
    leaves: list[_Leaf | None],
    after: Entity,
    first_inside: int,
    index: Var,
) -> list[_Leaf | None] | None:
    """The types with which the next attempt enters; None after a message."""
    parts = list(_parts(after))
    if len(parts) != len(leaves):
        cx.error(
            "E0402",
            f"`{name}` becomes {describe(after)} in the loop",
            help="keep the number of parts",
        )
        return None
    result: list[_Leaf | None] = []
    for leaf, part in zip(leaves, parts, strict=True):
        if isinstance(part, Poison):
            return None
        if leaf is None or not isinstance(part, Tile):
            cx.error(
                "E0406",
                f"`{name}` is {describe(part)} and changes in a loop",
                help="only tiles, scalars and tuples of them are carried from trip to trip",
            )
            return None
        adapted = _adapt_leaf(cx, name, leaf, part, first_inside, index)
        if adapted is None:
            return None
        result.append(adapted)
    return result


def _adapt_leaf(
    cx: Context, name: str, leaf: _Leaf, after: Tile, first_inside: int, index: Var
) -> _Leaf | None:
    type_ = after.type
    if [a.extent for a in leaf.axes] != [a.extent for a in type_.axes]:
        before = ", ".join(show_extent(cx, a.extent) for a in leaf.axes)
        behind = ", ".join(show_extent(cx, a.extent) for a in type_.axes)
        cx.error(
            "E0401",
            f"`{name}` has the extents [{before}] before the loop and [{behind}] after a trip",
            help=f"start with the shape of the update: `{name} = full(f32, …, i)` or `zeros(f32, i, j)`",
        )
        return None
    if type_.dtype != leaf.dtype:
        if not leaf.weak:
            cx.error(
                "E0402",
                f"`{name}` is `{leaf.dtype}` before the loop and `{type_.dtype}` after a trip",
                help=f"convert the update with `.to({leaf.dtype})`, or start with `{type_.dtype}`",
            )
            return None
        leaf = replace(leaf, dtype=type_.dtype, weak=after.weak)
    elif leaf.weak and not after.weak:
        leaf = replace(leaf, weak=False)
    axes: list[Axis] = []
    for before_axis, axis in zip(leaf.axes, type_.axes, strict=True):
        both = meet(before_axis.presence, axis.presence, axis.extent, cx.facts)
        if both != before_axis.presence:
            added = [c for c in both if c not in before_axis.presence]
            if any(_moves(c, first_inside, index) for c in added):
                cx.error(
                    "E0403",
                    f"`{name}` could lose elements in a later trip: what it is combined with can be absent there",
                    note="an element that is absent in one operand is absent in the result",
                    help="make the absent elements a number first: `x[j].fill(0)`",
                )
                return None
            axes.append(replace(before_axis, presence=both))
        elif axis.presence != before_axis.presence:
            cx.error(
                "E0407",
                f"`{name}` can have absent elements before the loop that are present after a trip",
                help="fill it before the loop: `.fill(0)`",
            )
            return None
        else:
            axes.append(before_axis)
    return replace(leaf, axes=tuple(axes))


def _behind(cx: Context, start: TileType, inside: TileType, trips: Sym) -> TileType:
    """The type of a carried name behind its loop."""
    axes = [
        replace(
            after,
            presence=after_loop(before.presence, after.presence, after.extent, trips, cx.facts),
        )
        for before, after in zip(start.axes, inside.axes, strict=True)
    ]
    return replace(inside, axes=tuple(axes))


def _moves(constraint: Constraint, first_inside: int, index: Var) -> bool:
    """Whether a constraint can change from trip to trip."""
    return any(
        v == index
        or (v.kind == "value" and v.key >= first_inside)
        or (v.kind == "trip" and v.key > index.key)
        for v in variables(constraint)
    )


def _finish(
    cx: Context,
    statement: ast.For,
    range_: RangeOf,
    attempt: _Attempt,
    carried: dict[str, Entity],
    leaves: dict[str, list[_Leaf | None]],
    *,
    ok: bool,
) -> None:
    """Write the loop and bind the results; where it has an error, its carried names are poison."""
    items: list[Carried] = []
    for name, entity in carried.items():
        results: list[Entity] = []
        triples = zip(
            _parts(attempt.initials[name]),
            _parts(attempt.entries[name]),
            _parts(attempt.nexts[name]),
            strict=False,
        )
        for start, entry, after in triples:
            if not ok:
                results.append(POISON)
                continue
            assert isinstance(start, Tile) and isinstance(entry, Tile) and isinstance(after, Tile)
            result: Value = cx.new_value(
                _behind(cx, start.type, entry.type, range_.trips), entry.value.name
            )
            items.append(Carried(start.value, entry.value, after.value, result))
            results.append(Tile(result, entry.weak))
        bound = _rebuild(entity, iter(results)) if ok else POISON
        cx.scope.bind(name, bound, span=_span_of(cx, name))
    if ok:
        cx.add(
            For(
                outs=tuple(c.result for c in items),
                span=cx.span,
                name=statement.targets[0].id,
                index=attempt.index,
                trips=range_.trips,
                carried=tuple(items),
                body=Block(tuple(attempt.ops)),
            )
        )
