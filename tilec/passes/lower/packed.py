"""Walks of registers, made cheaper for the lanes: what whole words or one preparation can do for many elements.

tile_loop c                              const Divisor by_sum_e = divisor(sum_e)
  for each element                       tile_loop c
    row = convert f32 x_tile        →      x_tile_wide = widen_vector x_tile
    y = exp(row - m) / sum_e               for each element
                                             row = x_tile_wide
                                             y = div_by(exp(row - m), by_sum_e)

A bf16 is the upper half of a float: two of them in a word are widened by one instruction each, where elements taken one by one
cost two or three. A division by what all elements have in common becomes two multiplications, of which accumulators have one alone
unless a row of the warp is divided by a number that is tiny or huge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields, is_dataclass, replace
from typing import Any

from tilec.ir import kernel_ir as k
from tilec.ir import window_ops as w
from tilec.ir.dtypes import BF16, BOOL, F32
from tilec.lazy_dataclass import dataclass


@dataclass
class Walk:
    """The parts of a walk: loads of vectors, and what is done for each element."""

    loads: list[k.Op]
    elements: list[k.Op]
    inside: list[k.Op]
    before: list[k.Op]
    """prepared in front of the walk"""
    scales: dict[k.Fragment, None] = field(default_factory=dict)
    """factors of rows that are 1 but for divisors that are tiny or huge"""
    known: dict[k.Expr | frozenset[k.Fragment], list[k.Fragment]] = field(default_factory=dict)
    """what walks of the same tile have prepared: both factors by the divisor, and by factors whether any is not 1"""


def packs(fragment: k.Fragment) -> bool:
    """Whether two elements of a fragment's vectors make a word that is widened as a whole."""
    fast = next((a for a in fragment.axes if a.vectorised), None)
    return fragment.rep == BF16 and fast is not None and fast.layout.vector % 2 == 0


LONG_WALK = 64
"""Operations an element from which on each is widened, and divided, in its turn: a whole wide vector, or a prepared divisor, would
take registers for as long."""


def widen(
    walk: Walk,
    guards: Sequence[k.Expr],
    name: Callable[[str], str],
    widest: int | None = None,
) -> None:
    """Vectors all of whose uses for elements widen them are widened at once, those of `widest` elements at most. `name` gives a free
    name."""
    if _operations((walk.elements, walk.inside)) > LONG_WALK:
        return
    raw: set[k.Fragment] = set()
    wanted: dict[k.Fragment, None] = {}
    _find_uses((guards, walk.elements, walk.inside), raw, wanted)
    for fragment in wanted:
        if fragment in raw or not packs(fragment):
            continue
        fast = next(a for a in fragment.axes if a.vectorised)
        if widest is not None and fast.layout.vector > widest:
            continue
        wide = k.Fragment(name(f"{_stem(fragment.name)}_wide"), F32, (fast,), local=True)
        source, number = fragment, 0
        for op in walk.loads:
            if isinstance(op, k.Reload) and op.target == fragment:
                source, number = op.source, op.walk
                walk.loads.remove(op)
                break
        walk.loads.append(k.WidenVector(wide, source, number))

        def change(node: Any, fragment: k.Fragment = fragment, wide: k.Fragment = wide) -> Any:
            return k.Element(wide, F32) if _widened(node) == fragment else node

        walk.elements = [rewritten(op, change) for op in walk.elements]
        walk.inside = [rewritten(op, change) for op in walk.inside]


def prepare_divisors(walk: Walk, axes: Sequence[k.LoopAxis], outside: Callable[[str], str]) -> None:
    """Divisions by a variable that the walk does not change, or by what is the same along an axis of it. `outside` gives a name that
    lasts behind the walk."""
    parts = (walk.elements, walk.inside)
    if not _divides(parts) or _operations(parts) > LONG_WALK:
        return
    inner = {op.name for op in walk.elements if isinstance(op, k.Let)}
    found: dict[k.Expr, Callable[[k.Expr], k.Expr]] = {}

    def change(node: Any) -> Any:
        if not isinstance(node, k.Apply) or (node.op, node.rep, node.math) != ("div", F32, "fast"):
            return node
        x, by = node.args
        if by not in found:
            made = _prepared(by, inner, walk, axes, outside)
            if made is None:
                return node
            found[by] = made
        return found[by](x)

    walk.elements = [rewritten(op, change) for op in walk.elements]
    walk.inside = [rewritten(op, change) for op in walk.inside]


def _prepared(
    by: k.Expr,
    inner: set[str],
    walk: Walk,
    axes: Sequence[k.LoopAxis],
    outside: Callable[[str], str],
) -> Callable[[k.Expr], k.Expr] | None:
    """The division by an expression, which is prepared in front of the walk; None where that does not pay or does not go."""
    if isinstance(by, k.Local):
        if by.name in inner:
            return None
        name = outside(f"by_{by.name}")
        walk.before.append(k.LetDivisor(name, by))
        return lambda x: k.Apply("div_by", (x, k.Local(name, F32)), F32)
    along = _rows_of(by, axes)
    if along is None or not along:
        return None
    parts = walk.known.setdefault(by, [])
    for part in () if parts else ("scale", "reciprocal"):
        held = k.Fragment(outside(f"by_{part}"), F32, along)
        walk.before.append(k.Declare(held, None))
        value = k.Apply(f"divisor_{part}", (by,), F32)
        body = k.Elements((), (k.Assign(held, value),))
        walk.before.append(k.TileLoop(along, (), (body,)))
        parts.append(held)
    walk.scales[parts[0]] = None

    def divided(x: k.Expr) -> k.Expr:
        for held in parts:
            x = k.Apply("mul", (x, k.Element(held, F32)), F32)
        return x

    return divided


def where_scaled(op: k.Op, walk: Walk, outside: Callable[[str], str]) -> k.Op:
    """A walk from registers to registers, or one without the factors of rows where these are 1 in all of a warp's."""
    if not walk.scales or not isinstance(op, k.TileLoop):
        return op
    inside = [
        x for part in op.body for x in (part.body if isinstance(part, k.Elements) else (part,))
    ]
    if not all(isinstance(x, k.Let | k.Assign | k.Declare | k.ConvertVector) for x in inside):
        return op
    asked = walk.known.setdefault(frozenset(walk.scales), [])
    fresh = not asked
    if fresh:
        asked.append(k.Fragment(outside("scaled"), BOOL, ()))
        walk.before.append(k.Declare(asked[0], k.Literal_(False, BOOL)))
    held = k.Element(asked[0], BOOL)
    for scale in walk.scales if fresh else ():
        other = k.Apply("ne", (k.Element(scale, F32), k.Literal_(1.0, F32)), BOOL)
        body = k.Elements((), (k.Assign(asked[0], k.Apply("or", (held, other), BOOL)),))
        walk.before.append(k.TileLoop(scale.axes, (), (body,)))

    def change(node: Any) -> Any:
        if isinstance(node, k.Apply) and node.op == "mul":
            left, right = node.args
            if isinstance(right, k.Element) and right.fragment in walk.scales:
                return left
        return node

    return k.IfAnyLane(k.Apply("any_lane", (held,), BOOL), (op,), (rewritten(op, change),))


def _rows_of(by: k.Expr, axes: Sequence[k.LoopAxis]) -> tuple[k.LoopAxis, ...] | None:
    """The axes that a divisor depends on, of a walk that has a longer one besides; None if it depends on more than registers."""
    match by:
        case k.Element():
            found = tuple(a for a in axes if a in by.fragment.axes)
            whole = len(found) == len(by.fragment.axes) < len(axes)
            return None if not whole or any(a.vectorised for a in found) else found
        case k.Literal_():
            return ()
        case k.Apply():
            names: dict[str, None] = {}
            for arg in by.args:
                inner = _rows_of(arg, axes)
                if inner is None:
                    return None
                names |= dict.fromkeys(a.name for a in inner)
            return tuple(a for a in axes if a.name in names) if len(names) < len(axes) else None
        case _:
            return None


def extremes(body: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """The body of a walk in which a maximum or minimum of all elements is one of whole words, wherever it stands."""
    result: list[k.Op] = []
    for op in body:
        if isinstance(op, w.IfWhole):
            op = replace(op, then=extremes(op.then))
        elif isinstance(op, k.Elements) and not op.guards and result:
            found = _extreme(result[-1], op)
            if found is not None:
                result.pop()
                op = found
        result.append(op)
    return tuple(result)


def _extreme(before: k.Op, op: k.Elements) -> k.AccumulateVector | None:
    """What `before`, which widens a vector, and the accumulation of its elements are together."""
    *lets, last = op.body
    if not isinstance(before, k.WidenVector) or not isinstance(last, k.Accumulate):
        return None
    value: k.Expr = k.Element(before.target, F32)
    for let in lets:
        if not isinstance(let, k.Let) or let.value != value:
            return None
        value = k.Local(let.name, let.rep)
    if (
        last.op not in ("max", "min")
        or last.first is not None
        or last.value != value
        or last.target.axes
    ):
        return None
    return k.AccumulateVector(last.target, last.op, before.source, span=op.span)


def _widened(node: object) -> k.Fragment | None:
    """The fragment whose element an expression converts to a float."""
    if isinstance(node, k.Apply) and node.op == "convert" and node.rep == F32:
        (arg,) = node.args
        return arg.fragment if isinstance(arg, k.Element) else None
    return None


def _stem(name: str) -> str:
    return name.removesuffix("_again")


_PARTS: dict[type, tuple[str, ...]] = {}


def _parts(node: object) -> tuple[str, ...]:
    """The fields of a node in which there are ops or expressions; none of what is no node."""
    kind = type(node)
    if kind not in _PARTS:
        words = ("Expr", "Op", "TileAddress")
        inner = is_dataclass(kind) and not issubclass(kind, k.Fragment)
        found = fields(kind) if inner else ()  # type: ignore[arg-type]
        _PARTS[kind] = tuple(f.name for f in found if any(word in str(f.type) for word in words))
    return _PARTS[kind]


def _find_uses(node: object, raw: set[k.Fragment], wanted: dict[k.Fragment, None]) -> None:
    """Fragments whose elements are converted to floats, and those of which something else reads elements."""
    if isinstance(node, tuple | list):
        for item in node:
            _find_uses(item, raw, wanted)
    elif isinstance(node, k.Element):
        raw.add(node.fragment)
    elif (fragment := _widened(node)) is not None:
        wanted[fragment] = None
    else:
        for name in _parts(node):
            _find_uses(getattr(node, name), raw, wanted)


def _operations(node: object) -> int:
    """How many operations there are in ops and expressions."""
    if isinstance(node, tuple | list):
        return sum(map(_operations, node))
    inner = sum(_operations(getattr(node, name)) for name in _parts(node))
    return inner + isinstance(node, k.Apply)


def _divides(node: object) -> bool:
    """Whether there is a division in ops and expressions."""
    if isinstance(node, tuple | list):
        return any(map(_divides, node))
    if isinstance(node, k.Apply) and node.op == "div":
        return True
    return any(_divides(getattr(node, name)) for name in _parts(node))


def rewritten(node: Any, change: Callable[[Any], Any]) -> Any:
    """The node with `change` made everywhere in it, innermost first."""
    if isinstance(node, tuple):
        return tuple(rewritten(item, change) for item in node)
    changed = {}
    for name in _parts(node):
        old = getattr(node, name)
        new = rewritten(old, change)
        if new is not old and new != old:
            changed[name] = new
    return change(replace(node, **changed) if changed else node)
