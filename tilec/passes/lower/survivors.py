"""Trips that survive a filter, as each role walks them.

j_trips = survivors j < N: alive[j]                j_walk; j_trips = count of j < N where alive[j]
for o < j_trips:                                   for o < j_trips:
    j = survivor o of j_trips                ->        seek j = o in j_walk, asking alive[j]
    …                                                  …

A walk keeps the trip that it stands at and the one before: a rotated loop asks for two neighbours. The producer has one for all trips of an
instance. Consumers need no number in trips without masks, and have registers for nothing else there: each of their loops that asks begins a
walk, which passes by what lies in front of it 32 trips at a time.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from tilec.ir import asynchronous as a
from tilec.ir import kernel_filters as f
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import I32
from tilec.ir.symbolic import Sym, Var
from tilec.passes.interior import Interior
from tilec.passes.lower.context import Context


def lower_survivors(context: Context, op: t.Survivors) -> None:
    """The walk, and the number of trips."""
    name = context.names.unique(op.out.name or "trips")
    walk = context.names.unique(f"{op.survives.inputs[0].name or 'trip'}_walk")
    context.filters[op.out.id] = (op, walk)
    if context.one_thread:
        context.out.append(f.SurvivorWalk(walk, span=op.span))
    _count(context, op, name, op.trips)
    context.bind_scalar(op.out, k.Local(name, I32))


def lower_survivor(context: Context, op: t.Survivor, behind: bool) -> None:
    """The trip's number. `behind`: other trips have been asked about in front of a loop, whose registers what those have in common with this
    one would take."""
    source, walk = context.filters[op.of.id]
    number = context.index(op.number)
    name = context.names.unique(op.out.name or "trip")
    trips, at, body, condition = _question(context, source, source.trips, behind)
    context.out.append(
        f.SeekSurvivor(
            name=name,
            walk=walk,
            number=number,
            trips=trips,
            at=at,
            body=body,
            condition=condition,
            by_lanes=not context.one_thread,
            span=op.span,
        )
    )
    context.bind_scalar(op.out, k.Local(name, I32))


def _count(context: Context, op: t.Survivors, name: str, end: Sym) -> None:
    """Count those in front of a trip."""
    trips, at, body, condition = _question(context, op, end)
    context.out.append(
        f.CountSurvivors(
            name=name,
            trips=trips,
            at=at,
            body=body,
            condition=condition,
            by_lanes=not context.one_thread,
            span=op.span,
        )
    )


def _question(
    context: Context, op: t.Survivors, end: Sym, anew: bool = False
) -> tuple[k.Expr, str, tuple[k.Op, ...], k.Expr]:
    """The trips in question, the variable of a trip, the ops that the answer is made of, and the answer. `anew`: of sizes that nothing before
    was made of."""
    trips = context.limit(end, f"{op.survives.inputs[0].name or 'trip'}_all")
    words = set(context.names.used)
    outer, context.out = context.out, []
    context.limits.append({})
    (asked,) = op.survives.inputs
    at = context.names.unique(asked.name or "trip")
    context.bind_scalar(asked, k.Local(at, I32))
    renames = context.renames
    again = _again(context) if anew else {}
    context.renames = {**renames, **{v: Sym.of(Var(x, "local")) for v, x in again.items()}}
    for inner in op.survives.body.ops:
        context.lower_scalar(inner)
    condition = context.scalar(op.survives.outputs[0])
    context.renames = renames
    context.limits.pop()
    body, context.out = tuple(context.out), outer
    read = [v for v, x in again.items() if _reads((body, condition), x)]
    body = (*(f.Again(again[v], context.index(Sym.of(v))) for v in read), *body)
    context.names.used = words
    return trips, at, body, condition


def _again(context: Context) -> dict[Var, str]:
    """Other names of the sizes."""
    return {v: context.names.unique(f"{v.name}_again") for v in context.program.dims}


def with_counts(context: Context, interior: Interior) -> Interior:
    """An interior whose bounds count trips that survive, with what counts them in front of the loop."""
    known: dict[Var, Sym] = {}
    for count in interior.counts:
        op, _ = context.filters[count.of.id]
        name = context.names.unique(f"{op.out.name or 'trips'}_whole")
        end = count.end
        if end != op.trips:
            bound = context.limit(end, f"{name}_all")
            least = k.Apply("min", (bound, context.index(op.trips)), I32)
            inner = context.names.unique(f"{name}_end")
            context.out.append(k.Let(inner, I32, least))
            end = Sym.of(Var(inner, "local"))
        _count(context, op, name, end)
        known[count.var] = Sym.of(Var(name, "local"))

    def named(sym: Sym) -> Sym:
        return sym.substitute(known.get)

    return replace(
        interior,
        first=named(interior.first),
        end=named(interior.end),
        trips={var: named(sym) for var, sym in interior.trips.items()},
        positive=tuple(map(named, interior.positive)),
        counts=(),
    )


def walked(ops: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """A role's ops, without numbers of trips that nothing reads; what seeks others has a walk. What can waits for memory beside a product."""
    return _with_walks(_beside_products(_pruned(ops)), frozenset(), {})


def _beside_products(ops: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """Questions behind the start of the first products, of which these read nothing: answers come from memory."""
    first = next((n for n, op in enumerate(ops) if isinstance(op, a.WarpgroupCommit)), None)
    if first is None:
        return _behind_copies(ops)
    before, after = list(ops[: first + 1]), list(ops[first + 1 :])
    moved: list[k.Op] = []
    for op in reversed(before):
        if isinstance(op, f.Question) and not any(_reads(x, op.name) for x in before):
            moved.insert(0, op)
    loop = next((n for n, op in enumerate(after) if isinstance(op, k.Loop)), len(after))
    asked: list[k.Op] = []
    for op in reversed(after[:loop]):
        if isinstance(op, f.Question) or (
            isinstance(op, k.Let) and any(_reads(x, op.name) for x in asked)
        ):
            asked.append(op)
    late: set[str] = set()
    for op in after[:loop]:
        if op in asked and not any(_reads(op, name) for name in late):
            moved.append(op)
        elif isinstance(op, k.Let | f.Question):
            late.add(op.name)
        elif isinstance(op, k.Declare):
            late.add(op.fragment.name)
    return (
        *(op for op in before if op not in moved),
        *moved,
        *(op for op in after if op not in moved),
    )


def _behind_copies(ops: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """The producer's: how many trips there are is asked behind the copies in front of its loop."""
    result = list(ops)
    for op in ops:
        if isinstance(op, f.CountSurvivors):
            place = result.index(op)
            readers = (n for n in range(place + 1, len(result)) if _reads(result[n], op.name))
            result.insert(next(readers, place + 1) - 1, result.pop(place))
    return tuple(result)


def _pruned(ops: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    result: list[k.Op] = []
    for op in reversed(ops):
        match op:
            case f.SurvivorWalk() | f.CountSurvivors() | f.SeekSurvivor():
                if not any(_reads(other, op.name) for other in result):
                    continue
            case k.Loop():
                op = replace(op, body=_pruned(op.body))
            case k.IfUniform():
                op = replace(op, then=_pruned(op.then), otherwise=_pruned(op.otherwise))
            case _:
                pass
        result.insert(0, op)
    return tuple(result)


def _with_walks(
    ops: tuple[k.Op, ...], known: frozenset[str], begun: dict[str, k.Expr | None]
) -> tuple[k.Op, ...]:
    """Ops behind the declarations of the walks `known`: a loop has those that its own trips go on with in front of it. `begun`: of a loop's
    trips, the numbers at which walks stand in front of the first one, None where they stand in front of all."""
    before = dict(begun)
    unmoved: set[str] = set()
    result: list[k.Op] = []
    reached: dict[str, k.Expr] = {}
    declared: set[str] = set()
    for op in ops:
        match op:
            case f.SurvivorWalk():
                known |= {op.name}
                unmoved.add(op.name)
            case f.SeekSurvivor():
                op = replace(
                    op,
                    alone=op.walk not in known,
                    there=_is_there(op.number, reached.get(op.walk)),
                    follows=op.walk in before and _follows(op.number, before.pop(op.walk)),
                )
                if not op.there and not op.alone:
                    reached[op.walk] = op.number
            case k.Loop():
                sought = [x.walk for x in op.body if isinstance(x, f.SeekSurvivor)]
                fresh = [walk for walk in dict.fromkeys(sought) if walk not in known]
                result += [f.SurvivorWalk(w, w in declared, span=op.span) for w in fresh]
                declared |= set(fresh)
                begun = dict.fromkeys((*sorted(unmoved), *fresh)) | reached
                for walk in sorted(begun):
                    # of a walk that goes on several times in a trip nobody knows where the next one finds it
                    if op.first is not None or op.step != 1 or _moves(op.body, walk) != 1:
                        del begun[walk]
                op = replace(op, body=_with_walks(op.body, known | set(fresh), begun))
                reached.clear()
                unmoved.clear()
            case k.IfUniform():
                op = replace(
                    op,
                    then=_with_walks(op.then, known, {}),
                    otherwise=_with_walks(op.otherwise, known, {}),
                )
                reached.clear()
                unmoved.clear()
                before = {}
            case _:
                pass
        result.append(op)
    return tuple(result)


def _moves(ops: tuple[k.Op, ...], walk: str) -> int:
    """How often a walk goes on in a trip of a loop."""
    total = 0
    reached: k.Expr | None = None
    for op in ops:
        if isinstance(op, f.SeekSurvivor) and op.walk == walk:
            if not _is_there(op.number, reached):
                total, reached = total + 1, op.number
        elif _reads(op, walk):
            total += 2
    return total


def _follows(number: k.Expr, before: k.Expr | None) -> bool:
    """Whether a number of a loop's trips, which it counts from 0, is the next one in each of them; `before`: the one in front of its first trip,
    None: none."""
    if not isinstance(number, k.Index) or len(number.sym.variables) != 1:
        return False
    (index,) = number.sym.variables
    ahead = (number.sym - Sym.of(index)).constant
    if index.kind != "trip" or ahead is None:
        return False
    if before is None:
        return ahead == 0
    return isinstance(before, k.Literal_) and before.value == ahead - 1


def _is_there(number: k.Expr, reached: k.Expr | None) -> bool:
    """Whether a walk that has gone to `reached` stands at a number, or has it just behind itself."""
    if not isinstance(number, k.Index) or not isinstance(reached, k.Index):
        return False
    return (reached.sym - number.sym).constant in (0, 1)


def _reads(node: Any, name: str) -> bool:
    """Whether an op, or something in it, reads a variable or goes on with a walk."""
    match node:
        case k.Local() | Var():
            return node.name == name
        case Sym():
            return any(_reads(v, name) for v in node.variables)
        case tuple():
            return any(_reads(part, name) for part in node)
        case f.SeekSurvivor() if node.walk == name:
            return True
        case f.Question() if node.at == name:  # another variable, which hides this one
            return _reads((node.trips, getattr(node, "number", None)), name)
        case _ if is_dataclass(node):
            return any(_reads(getattr(node, x.name), name) for x in fields(node))
        case _:
            return False
