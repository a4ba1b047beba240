"""The third oracle: a kernel's syntax run by plain loops over Python numbers, one element at a time.

It knows nothing of the compiler's IRs and uses no NumPy operation: tiles are lists, presence is a list of bools for each
axis, floats are Python's (float64), integers wrap by their dtype. What it does not know raises `Unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilec.syntax import ast

Number = Any
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
FLOATS = ("bf16", "f16", "f32", "f64")


class Unknown(Exception):
    """A construct that this oracle does not run."""


@dataclass
class Tile:
    """Elements in row-major order; `dtype` is "" for a weak scalar. `present` has a list for each axis."""

    data: list[Number]
    shape: tuple[int, ...]
    present: list[list[bool]]
    dtype: str

    def at(self, place: Sequence[int]) -> Number:
        """One element."""
        flat = 0
        for extent, index in zip(self.shape, place, strict=True):
            flat = flat * extent + index
        return self.data[flat]


@dataclass
class Span:
    """Indices start … start + extent - 1, present in [lo, hi)."""

    start: int
    extent: int
    lo: int
    hi: int

    def shifted(self, by: int) -> Span:
        """Start and bound moved along."""
        return Span(self.start + by, self.extent, self.lo + by, self.hi + by)

    def tile(self) -> Tile:
        """The span as a value."""
        data = list(range(self.start, self.start + self.extent))
        return Tile(data, (self.extent,), [[self.lo <= n < self.hi for n in data]], "i32")


Value = Tile | Span


def scalar(value: Number, dtype: str = "") -> Tile:
    """A rank-0 tile."""
    return Tile([value], (), [], dtype)


def wrapped(value: Number, dtype: str) -> Number:
    """An integer in its dtype; a float as it is."""
    if dtype not in BITS:
        return value
    bits = BITS[dtype]
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value


OVERFLOW = {
    "bf16": (2 - 2**-8) * 2.0**127,
    "f16": 65520.0,
    "f32": (2 - 2**-24) * 2.0**127,
    "f64": math.inf,
}
"""From here on a value rounds to infinity."""


def converted(value: Number, source: str, target: str) -> Number:
    """`.to` of one element; rounding of floats is left to the bound."""
    if target == "bool":
        return bool(value)
    if target in FLOATS:
        value = float(value)
        beyond = abs(value) >= OVERFLOW[target]
        return math.copysign(math.inf, value) if beyond else value
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        low = -(1 << (BITS[target] - 1)) if target[0] == "i" else 0
        high = (1 << (BITS[target] - (target[0] == "i"))) - 1
        return low if value <= low else high if value >= high else int(value)
    return wrapped(int(value), target)


def promoted(a: str, b: str) -> str:
    """The dtype of an operation on two."""
    if not a or not b or a == b:
        return a or b
    if a == "weak float" or b == "weak float":
        other = b if a == "weak float" else a
        return other if other in FLOATS else "f32"
    if a in BITS and b in BITS:
        if a[0] == b[0]:
            return max(a, b, key=BITS.__getitem__)
        signed, unsigned = (a, b) if a[0] == "i" else (b, a)
        bits = max(BITS[signed], 2 * BITS[unsigned])
        return f"i{bits}" if bits <= 64 else "f64"
    if a in FLOATS and b in FLOATS and {a, b} != {"bf16", "f16"}:
        return max(a, b, key=FLOATS.index)
    raise Unknown(f"{a} and {b}")


def _safe(function: Callable[..., Number], *args: Number) -> Number:
    try:
        return function(*args)
    except (ValueError, OverflowError, ZeroDivisionError):
        return math.nan


def _divided(a: float, b: float) -> float:
    if b == 0:
        return (
            math.nan
            if a == 0 or math.isnan(a)
            else math.copysign(math.inf, a) * math.copysign(1, b)
        )
    return a / b


def _least(a: Number, b: Number) -> Number:
    return math.nan if a != a or b != b else min(a, b)


def _greatest(a: Number, b: Number) -> Number:
    return math.nan if a != a or b != b else max(a, b)


OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
    "//": lambda a, b: 0 if b == 0 else a // b,
    "%": lambda a, b: 0 if b == 0 else a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "maximum": _greatest,
    "minimum": _least,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

FUNCTIONS: dict[str, Callable[[Number], Number]] = {
    "abs": abs,
    "tanh": math.tanh,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "sigmoid": lambda x: 0.0 if x <= -700 else 1 / (1 + math.exp(-x)),
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "log": math.log,
}


class Runner:
    """One call of a kernel. `arrays` are nested by `shape`: (elements in row-major order, dims, dtype)."""

    def __init__(self, kernel: ast.Kernel, numbers: Mapping[str, Number]) -> None:
        self.kernel = kernel
        self.tensors: dict[str, Tile] = {}
        self.known: dict[str, Number] = dict(numbers)
        self.names: dict[str, Value] = {}
        self.stored: dict[str, set[int]] = {}

    def run(self) -> None:
        """All nests."""
        for statement in self.kernel.body:
            self.statement(statement)

    # ---- statements

    def statement(self, node: ast.Stmt) -> None:
        """One statement."""
        match node:
            case ast.Assign(target=ast.Name(id=name), value=value):
                self.names[name] = self.value(value)
            case ast.Assign(target=ast.Index() as target, value=value):
                self.store(target, self.tile(value), None)
            case ast.AugAssign(op=op, target=ast.Name(id=name) as target, value=value):
                self.names[name] = self.binary(op, self.value(target), self.value(value))
            case ast.AugAssign(op=op, target=ast.Index() as target, value=value):
                self.store(target, self.tile(value), op)
            case ast.For():
                self.loop(node)
            case ast.If(condition=condition, then=then, otherwise=otherwise):
                chosen = then if self.tile(condition).data[0] else otherwise
                for inner in chosen:
                    self.statement(inner)
            case ast.ExprStmt(value=ast.Call(function=ast.Name(id=name), arguments=arguments)):
                if not name.startswith("atomic_"):
                    raise Unknown(name)
                target, value = arguments
                if not isinstance(target, ast.Index):
                    raise Unknown(name)
                self.store(target, self.tile(value), name)
            case _:
                raise Unknown(type(node).__name__)

    def loop(self, node: ast.For) -> None:
        """Every trip in order."""
        trips: list[list[Value]] = []
        for range_ in node.ranges:
            low = 0 if range_.lower is None else self.number(range_.lower)
            high = self.number(range_.upper)
            if range_.step is None:
                trips.append([scalar(n) for n in range(low, high)])
            else:
                step = self.number(range_.step)
                trips.append([Span(n, step, low, high) for n in range(low, high, step)])
        before = set(self.names)
        for values in product(*trips):
            for target, value in zip(node.targets, values, strict=True):
                self.names[target.id] = value
            for inner in node.body:
                self.statement(inner)
        for name in set(self.names) - before:
            del self.names[name]

    # ---- memory

    def places(self, node: ast.Index, tensor: Tile) -> list[tuple[list[int | None], bool]]:
        """For each dimension the index of every coordinate, None where it is absent, and whether it is an axis."""
        found: list[tuple[list[int | None], bool]] = []
        for index, extent in zip(node.indices, tensor.shape, strict=True):
            if isinstance(index, ast.Slice) and index.lower is None and index.upper is None:
                found.append((list(range(extent)), True))
                continue
            if isinstance(index, ast.Slice | ast.NewAxis):
                raise Unknown("slice")
            value = self.value(index)
            axis = isinstance(value, Span) or bool(value.shape)
            tile = value.tile() if isinstance(value, Span) else value
            if len(tile.shape) > 1:
                raise Unknown("index of several axes")
            there = tile.present[0] if tile.present else [True]
            found.append(
                (
                    [
                        int(n) if ok and 0 <= n < extent else None
                        for n, ok in zip(tile.data, there, strict=True)
                    ],
                    axis,
                )
            )
        return found

    def load(self, node: ast.Index, tensor: Tile) -> Tile:
        """A block of a tensor."""
        places = self.places(node, tensor)
        data = [
            0 if None in place else tensor.at([n for n in place if n is not None])
            for place in product(*(p for p, _ in places))
        ]
        axes = [[n is not None for n in p] for p, axis in places if axis]
        return Tile(data, tuple(map(len, axes)), axes, tensor.dtype)

    def store(self, node: ast.Index, value: Tile, op: str | None) -> None:
        """Elements that exist and are present."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.tensors:
            raise Unknown("target")
        name = node.value.id
        tensor = self.tensors[name]
        places = self.places(node, tensor)
        shape = tuple(len(p) for p, axis in places if axis)
        for place in product(*(list(enumerate(p)) for p, _ in places)):
            if any(n is None for _, n in place):
                continue
            own = [at for (at, _), (_, axis) in zip(place, places, strict=True) if axis]
            if not _there(value, shape, own):
                continue
            flat = 0
            for extent, (_, n) in zip(tensor.shape, place, strict=True):
                assert n is not None
                flat = flat * extent + n
            new = _element(value, shape, own)
            if op is not None:
                sign = {"atomic_add": "+", "atomic_max": "maximum", "atomic_min": "minimum"}
                new = OPERATIONS[sign.get(op, op)](tensor.data[flat], new)
            if tensor.dtype in FLOATS:
                new = float(new)
            tensor.data[flat] = wrapped(new, tensor.dtype)
            self.stored.setdefault(name, set()).add(flat)

    # ---- expressions

    def number(self, node: ast.Expr) -> int:
        """An integer scalar."""
        return int(self.tile(node).data[0])

    def tile(self, node: ast.Expr) -> Tile:
        """A value, a span as its indices."""
        value = self.value(node)
        return value.tile() if isinstance(value, Span) else value

    def value(self, node: ast.Expr) -> Value:
        """An expression."""
        match node:
            case ast.Number(value=number):
                return scalar(number, "weak float" if isinstance(number, float) else "")
            case ast.Name(id=name):
                if name in self.names:
                    return self.names[name]
                if name in self.known:
                    return scalar(self.known[name])
                raise Unknown(name)
            case ast.Unary(op=op, operand=operand):
                arg = self.tile(operand)
                flip = {"-": lambda x: -x, "~": lambda x: ~x, "+": lambda x: x}.get(op)
                if flip is None:
                    raise Unknown(op)
                return self.each(arg, flip, arg.dtype)
            case ast.Binary(op=op, left=left, right=right):
                if op == "@":
                    return self.dot(self.tile(left), self.tile(right))
                return self.binary(op, self.value(left), self.value(right))
            case ast.Compare(op=op, left=left, right=right):
                return self.binary(op, self.value(left), self.value(right))
            case ast.Index(value=ast.Name(id=name)) if name in self.tensors:
                return self.load(node, self.tensors[name])
            case ast.Index():
                return self.rearranged(node)
            case ast.Attribute(value=value, name="T"):
                return _turned(self.tile(value))
            case ast.Attribute(value=value, name="stop"):
                span = self.value(value)
                if not isinstance(span, Span):
                    raise Unknown("stop")
                return scalar(max(span.start, min(span.start + span.extent, span.hi)))
            case ast.Call():
                return self.call(node)
            case _:
                raise Unknown(type(node).__name__)

    def call(self, node: ast.Call) -> Value:
        """A function or a method."""
        match node.function:
            case ast.Attribute(value=value, name="to"):
                target = _word(node.arguments[0])
                arg = self.tile(value)
                return self.each(arg, lambda x: converted(x, arg.dtype, target), target)
            case ast.Attribute(value=value, name="fill"):
                arg = self.tile(value)
                filler = self.tile(node.arguments[0]).data[0]
                data = [
                    arg.at(p) if all(m[n] for m, n in zip(arg.present, p, strict=True)) else filler
                    for p in _all(arg.shape)
                ]
                return Tile(data, arg.shape, [[True] * n for n in arg.shape], arg.dtype)
            case ast.Name(id="zeros" | "full" as name):
                skip = 1 if name == "zeros" else 2
                filler = 0 if name == "zeros" else self.tile(node.arguments[1]).data[0]
                present = []
                for extent in node.arguments[skip:]:
                    value = self.value(extent)
                    if isinstance(value, Span):
                        present.append(value.tile().present[0])
                    else:
                        present.append([True] * int(value.data[0]))
                shape = tuple(map(len, present))
                count = math.prod(shape)
                dtype = _word(node.arguments[0])
                return Tile([converted(filler, "", dtype)] * count, shape, present, dtype)
            case ast.Name(id="where"):
                test, yes, no = (self.tile(a) for a in node.arguments)
                dtype = promoted(yes.dtype, no.dtype)
                both = self.zipped(yes, no, lambda a, b: (a, b), dtype)
                return self.zipped(test, both, lambda t, ab: ab[0] if t else ab[1], dtype)
            case ast.Name(id="maximum" | "minimum" as name):
                left, right = (self.value(a) for a in node.arguments)
                return self.binary(name, left, right)
            case ast.Name(id="min" | "max" as name) if len(node.arguments) == 2:
                left, right = (self.value(a) for a in node.arguments)
                return self.binary(f"{name}imum", left, right)
            case ast.Name(id="sum" | "max" | "min" | "argmax" | "argmin" | "any" | "all" as name):
                axis = next((self.number(k.value) for k in node.keywords if k.name == "axis"), None)
                return self.reduced(name, self.tile(node.arguments[0]), axis)
            case ast.Name(id="cumsum" | "cummax" as name):
                (axis,) = (self.number(k.value) for k in node.keywords if k.name == "axis")
                return self.scanned(name[3:], self.tile(node.arguments[0]), axis)
            case ast.Name(id=name) if name in FUNCTIONS and len(node.arguments) == 1:
                arg = self.tile(node.arguments[0])
                return self.each(arg, lambda x: _safe(FUNCTIONS[name], x), arg.dtype)
            case _:
                raise Unknown("call")

    def each(self, arg: Tile, function: Callable[[Number], Number], dtype: str) -> Tile:
        """A function of every element."""
        data = [wrapped(function(x), dtype) for x in arg.data]
        return Tile(data, arg.shape, arg.present, dtype)

    def binary(self, op: str, left: Value, right: Value) -> Value:
        """An operation with broadcasting; spans shift."""
        for span, other in ((left, right), (right, left)):
            moves = op == "+" or (op == "-" and span is left)
            if moves and isinstance(span, Span) and isinstance(other, Tile) and not other.shape:
                return span.shifted(int(other.data[0]) * (-1 if op == "-" else 1))
        a = left.tile() if isinstance(left, Span) else left
        b = right.tile() if isinstance(right, Span) else right
        dtype = promoted(a.dtype, b.dtype)
        if op in ("==", "!=", "<", "<=", ">", ">="):
            dtype = "bool"
        return self.zipped(a, b, lambda x, y: _safe(OPERATIONS[op], x, y), dtype)

    def zipped(self, a: Tile, b: Tile, function: Callable[..., Number], dtype: str) -> Tile:
        """A function of two tiles' elements."""
        rank = max(len(a.shape), len(b.shape))
        wide = [(1,) * (rank - len(t.shape)) + t.shape for t in (a, b)]
        shape = tuple(y if x == 1 else x for x, y in zip(*wide, strict=True))
        present = []
        for n, extent in enumerate(shape):
            masks = []
            for t, own in zip((a, b), wide, strict=True):
                at = n - (rank - len(t.shape))
                if at >= 0:
                    masks.append(t.present[at] * extent if own[n] == 1 else t.present[at])
            present.append([all(m[c] for m in masks) for c in range(extent)])
        data = []
        for place in _all(shape):
            value = function(_element(a, shape, place), _element(b, shape, place))
            data.append(value if isinstance(value, tuple) else wrapped(value, dtype))
        return Tile(data, shape, present, dtype)

    def reduced(self, op: str, arg: Tile, axis: int | None) -> Tile:
        """Over one axis, or all; absent coordinates are skipped."""
        axes = list(range(len(arg.shape))) if axis is None else [axis]
        kept = [n for n in range(len(arg.shape)) if n not in axes]
        data = []
        for place in _all(tuple(arg.shape[n] for n in kept)):
            items = []
            for inner in _all(tuple(arg.shape[n] for n in axes)):
                if not all(arg.present[n][c] for n, c in zip(axes, inner, strict=True)):
                    continue
                at = [0] * len(arg.shape)
                for n, c in (*zip(kept, place, strict=True), *zip(axes, inner, strict=True)):
                    at[n] = c
                items.append((arg.at(at), inner[-1] if inner else 0))
            data.append(_folded(op, items, arg.dtype))
        dtype = "i32" if op.startswith("arg") else "bool" if op in ("any", "all") else arg.dtype
        shape = tuple(arg.shape[n] for n in kept)
        return Tile([wrapped(x, dtype) for x in data], shape, [arg.present[n] for n in kept], dtype)

    def scanned(self, op: str, arg: Tile, axis: int) -> Tile:
        """What is present up to each element of one axis, folded."""
        data = []
        for place in _all(arg.shape):
            before = [[*place[:axis], n, *place[axis + 1 :]] for n in range(place[axis] + 1)]
            items = [(arg.at(at), 0) for at in before if arg.present[axis][at[axis]]]
            data.append(wrapped(_folded(op, items, arg.dtype), arg.dtype))
        return Tile(data, arg.shape, arg.present, arg.dtype)

    def dot(self, a: Tile, b: Tile) -> Tile:
        """A product that skips absent coordinates of the consumed axis."""
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise Unknown("product")
        dtype = "i32" if a.dtype in BITS else "f32"
        both = [x and y for x, y in zip(a.present[1], b.present[0], strict=True)]
        data = []
        for m, n in _all((a.shape[0], b.shape[1])):
            terms = (
                a.data[m * a.shape[1] + k] * b.data[k * b.shape[1] + n]
                for k, there in enumerate(both)
                if there
            )
            data.append(wrapped(sum(terms), dtype))
        return Tile(data, (a.shape[0], b.shape[1]), [a.present[0], b.present[1]], dtype)

    def rearranged(self, node: ast.Index) -> Tile:
        """`[:, None]`."""
        arg = self.tile(node.value)
        shape: list[int] = []
        present: list[list[bool]] = []
        axis = 0
        for index in node.indices:
            if isinstance(index, ast.NewAxis):
                shape.append(1)
                present.append([True])
            elif isinstance(index, ast.Slice) and index.lower is None and index.upper is None:
                shape.append(arg.shape[axis])
                present.append(arg.present[axis])
                axis += 1
            else:
                raise Unknown("index of a value")
        return Tile(arg.data, tuple(shape), present, arg.dtype)


def _word(node: ast.Expr) -> str:
    if not isinstance(node, ast.Name):
        raise Unknown("dtype")
    return node.id


def _all(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return product(*(range(n) for n in shape))


def _element(tile: Tile, shape: tuple[int, ...], place: Sequence[int]) -> Number:
    own = place[len(shape) - len(tile.shape) :] if tile.shape else ()
    return tile.at([0 if n == 1 else c for n, c in zip(tile.shape, own, strict=True)])


def _there(tile: Tile, shape: tuple[int, ...], place: Sequence[int]) -> bool:
    own = place[len(shape) - len(tile.shape) :] if tile.shape else ()
    return all(mask[0 if len(mask) == 1 else c] for mask, c in zip(tile.present, own, strict=True))


def _turned(tile: Tile) -> Tile:
    rows, columns = tile.shape
    data = [tile.data[r * columns + c] for c in range(columns) for r in range(rows)]
    return Tile(data, (columns, rows), [tile.present[1], tile.present[0]], tile.dtype)


def _folded(op: str, items: list[tuple[Number, int]], dtype: str) -> Number:
    values = [v for v, _ in items]
    match op:
        case "sum":
            return sum(values, 0.0 if dtype in FLOATS else 0)
        case "any":
            return any(values)
        case "all":
            return all(values)
        case "max" | "min":
            pick = _greatest if op == "max" else _least
            if dtype in FLOATS:
                result: Number = -math.inf if op == "max" else math.inf
            else:
                bits = BITS[dtype]
                least = -(1 << (bits - 1)) if dtype[0] == "i" else 0
                most = (1 << (bits - (dtype[0] == "i"))) - 1
                result = least if op == "max" else most
            for v in values:
                result = pick(result, v)
            return result
        case _:
            if not items:
                return 0
            if any(v != v for v in values):
                raise Unknown("argmax of NaN")
            best = max(values) if op == "argmax" else min(values)
            return next(at for v, at in items if v == best)
