"""Expressions and statements of a `check` clause, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from tilec.ir.dtypes import DTYPES, F32, DType
from tilec.ir.tile_ir import Program, Tensor
from tilec.reference import elementwise
from tilec.reference.numbers import Array
from tilec.reference.whole import CannotBlock, Term, Whole, Wholes, convert
from tilec.source.diagnostics import TileError, fail
from tilec.source.text import Span
from tilec.syntax import ast
from tilec.syntax.loading import Binding, Namespace, Scope
from tilec.syntax.loading import Program as Files

Entity: TypeAlias = "Whole | DType | Binding | Namespace | tuple[Any, ...] | str"
"""What an expression stands for; a str is a built-in function."""

_BINARY: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.mod,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "and": np.logical_and,
    "or": np.logical_or,
}
_COMPARE: dict[str, Callable[..., Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_MAPPED: dict[str, Callable[..., Any]] = {
    **elementwise.FUNCTIONS,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "where": np.where,
    "fma": lambda a, b, c: a * b + c,
    "pow": lambda a, b: _power(a, b),
    "ceildiv": lambda a, b: -(-a // b),
}
_ARITY = {"maximum": 2, "minimum": 2, "where": 3, "fma": 3, "pow": 2, "ceildiv": 2}
_REDUCED = ("sum", "max", "min", "prod", "any", "all", "argmax", "argmin")
_BUILT_IN = frozenset(
    {
        *_MAPPED,
        *_REDUCED,
        "cumsum",
        "cummax",
        "topk",
        "reduce",
        "arange",
        "repeat",
        "zeros",
        "full",
        "dot",
    }
)


def _power(a: Array, b: Array) -> Array:
    return np.asarray(elementwise.evaluate("pow", [a, b]))


@dataclass(frozen=True)
class Block:
    """Coordinates [start, stop) of the dimension named `name`."""

    name: str
    start: int
    stop: int


class Clause(Protocol):
    """What an evaluation takes from the check that it belongs to."""

    files: Files
    scope: Scope
    program: Program
    numbers: dict[str, Entity]
    inputs: dict[str, tuple[Tensor, Array]]

    def state(
        self, name: str, position: tuple[Any, ...], value: Array, block: Block | None
    ) -> None:
        """Take note of `name[position] == value` for the rows of a block. ValueError where the shapes do not fit."""


class Evaluation:
    """Names of one evaluation; `block` restricts the leading dimension."""

    def __init__(self, clause: Clause, wholes: Wholes, block: Block | None) -> None:
        self.clause = clause
        self.wholes = wholes
        self.block = block
        self.scope: Scope = clause.scope
        self.locals: dict[str, Entity] = {}
        self.known: dict[ast.Expr, Entity] = {}
        self.in_kernel = True

    # ---- failures

    def no(self, message: str, span: Span) -> TileError:
        """A coded message for what has no meaning here."""
        return fail("E0905", message, span, help="write the check as NumPy over whole arrays")

    # ---- statements

    def statement(self, statement: ast.Stmt) -> None:
        """One statement of the clause or of a function."""
        self.known.clear()
        match statement:
            case ast.Assign(ast.Name(name), value):
                self.locals[name] = self.entity(value)
            case ast.Assign(ast.TupleExpr(elements), value):
                parts = self.entity(value)
                if not isinstance(parts, tuple) or len(parts) != len(elements):
                    raise self.no("the value cannot be unpacked into these names", value.span)
                for element, part in zip(elements, parts, strict=True):
                    if isinstance(element, ast.Name):
                        self.locals[element.id] = part
            case ast.AugAssign(op, ast.Name(name) as target, value):
                self.locals[name] = self.binary(
                    op, self.whole(target), self.whole(value), statement.span
                )
            case ast.For(targets, "range" | "unroll", ranges, body):
                lower = 0 if ranges[0].lower is None else self.integer(ranges[0].lower)
                if ranges[0].step is not None:
                    raise self.no("`by` has no meaning in a check", ranges[0].span)
                for number in range(lower, self.integer(ranges[0].upper)):
                    self.locals[targets[0].id] = Whole(np.asarray(number, np.int64))
                    for inner in body:
                        self.statement(inner)
            case ast.If(condition, then, otherwise):
                for inner in then if self.truth(condition) else otherwise:
                    self.statement(inner)
            case ast.ExprStmt(ast.Compare("==", left, right)):
                self.claim(left, right)
            case _:
                raise self.no("this statement cannot be evaluated in a check", statement.span)

    def claim(self, left: ast.Expr, right: ast.Expr) -> None:
        """`output == expression` or `output[…] == expression`."""
        terms: tuple[Any, ...] = ()
        name = left
        if isinstance(left, ast.Index):
            name = left.value
            terms = tuple(self.term(t) for t in left.indices)
        outputs = {t.name for t in self.clause.program.tensors if t.role in ("output", "inout")}
        if not isinstance(name, ast.Name) or name.id not in outputs:
            raise self.no("a check compares an output with an expression", left.span)
        if self.block is not None and terms and terms[0] != slice(None):
            raise CannotBlock
        position = tuple(
            int(t.data) if isinstance(t, Whole) and not t.data.ndim else t for t in terms
        )
        if not all(isinstance(p, int | slice) for p in position):
            raise self.no("an output is indexed by numbers and slices", left.span)
        value = self.whole(right)
        if self.block is not None and value.axis is not None:
            rank = len(self.clause.program.tensor(name.id).dims)
            if value.axis != -(rank - sum(isinstance(p, int) for p in position)):
                raise CannotBlock
        try:
            self.clause.state(name.id, position or (...,), value.data, self.block)
        except (ValueError, IndexError) as error:
            raise self.no(f"the shapes do not fit: {error}", right.span) from None

    # ---- expressions

    def whole(self, expression: ast.Expr) -> Whole:
        """An expression that is an array or a number."""
        entity = self.entity(expression)
        if not isinstance(entity, Whole):
            raise self.no("this is no array or number", expression.span)
        return entity

    def integer(self, expression: ast.Expr) -> int:
        """An integer scalar."""
        value = self.whole(expression)
        if value.data.ndim or value.data.dtype.kind not in "iub":
            raise self.no("this is no integer", expression.span)
        return int(value.data)

    def truth(self, expression: ast.Expr) -> bool:
        """A scalar condition."""
        value = self.whole(expression)
        if value.data.ndim:
            raise self.no("a condition is a scalar", expression.span)
        return bool(value.data)

    def entity(self, expression: ast.Expr) -> Entity:
        """Whatever an expression stands for; in a block what a statement says twice is evaluated once."""
        if self.block is None or not isinstance(expression, ast.Call | ast.Binary):
            return self.fresh(expression)
        known = self.known.get(expression)
        if known is None:
            known = self.known[expression] = self.fresh(expression)
        return known

    def fresh(self, expression: ast.Expr) -> Entity:
        """The value of an expression."""
        match expression:
            case ast.Number(value):
                return Whole(np.asarray(value))
            case ast.Boolean(value):
                return Whole(np.asarray(value))
            case ast.Name(name):
                return self.name(name, expression.span)
            case ast.Unary(op, operand):
                return self.unary(op, self.whole(operand))
            case ast.Binary("and" | "or" as op, left, right):
                first = self.truth(left)
                decided = first if op == "or" else not first
                return Whole(np.asarray(first if decided else self.truth(right)))
            case ast.Binary(op, left, right):
                return self.binary(op, self.whole(left), self.whole(right), expression.span)
            case ast.Compare(op, left, right):
                return self.apply(
                    _COMPARE[op], expression.span, self.whole(left), self.whole(right)
                )
            case ast.Conditional(condition, then, otherwise):
                return self.entity(then if self.truth(condition) else otherwise)
            case ast.TupleExpr(elements):
                return tuple(self.entity(e) for e in elements)
            case ast.Attribute():
                return self.attribute(expression)
            case ast.Index(ast.Name(name), indices) if self.is_input(name):
                # what is selected of a large tensor is widened, not all of it
                part = self.index(expression, self.tensor(name), indices)
                assert isinstance(part, Whole)
                return self.widened(part, self.clause.inputs[name][0].dtype)
            case ast.Index(value, indices):
                return self.index(expression, self.entity(value), indices)
            case ast.Call():
                return self.call(expression)
            case _:
                raise self.no("this expression cannot be evaluated in a check", expression.span)

    def name(self, name: str, span: Span) -> Entity:
        """A local name, a tensor, a number of the kernel, a declaration, a dtype, a function."""
        if name in self.locals:
            return self.locals[name]
        if self.in_kernel:
            if self.is_input(name):
                return self.widened(self.tensor(name), self.clause.inputs[name][0].dtype)
            if name in self.clause.numbers:
                if self.block is not None and name == self.block.name:
                    raise CannotBlock
                return self.clause.numbers[name]
        if name in self.scope:
            found = self.scope[name]
            if isinstance(found, Binding) and isinstance(found.item, ast.Const):
                return self.elsewhere(found, {}).entity(found.item.value)
            return found
        if name in ("inf", "nan"):
            return Whole(np.asarray(float(name)))
        if name in DTYPES:
            return DTYPES[name]
        if name in _BUILT_IN:
            return name
        raise self.no(f"`{name}` is not known in a check", span)

    def is_input(self, name: str) -> bool:
        """The name stands for a tensor here."""
        return self.in_kernel and name not in self.locals and name in self.clause.inputs

    def elsewhere(self, binding: Binding, names: Mapping[str, Entity]) -> Evaluation:
        """An evaluation in the scope of a declaration, with its parameters bound."""
        inner = Evaluation(self.clause, self.wholes, self.block)
        inner.scope = self.clause.files.scope(binding.module)
        inner.locals = dict(names)
        inner.in_kernel = False
        return inner

    def tensor(self, name: str) -> Whole:
        """An input, its rows of the block, as it is stored."""
        tensor, data = self.clause.inputs[name]
        axis = None
        if self.block is not None:
            mentions = [
                n
                for n, d in enumerate(tensor.dims)
                if any(v.name == self.block.name for v in d.variables)
            ]
            if mentions and (
                mentions != [0]
                or len(tensor.dims[0].terms) != 1
                or str(tensor.dims[0]) != self.block.name
            ):
                raise CannotBlock
            if mentions:
                data = data[self.block.start : self.block.stop]
                axis = -len(tensor.dims)
        return Whole(data, axis)

    def widened(self, stored: Whole, dtype: DType) -> Whole:
        """The same numbers in float64, int64 or bool."""
        self.wholes.room(stored.data.shape, stored.axis is not None)
        if dtype.is_float:
            return Whole(stored.data.astype(np.float64), stored.axis)
        kind = np.bool_ if dtype.kind == "bool" else np.int64
        return Whole(stored.data.astype(kind), stored.axis)

    def apply(self, function: Callable[..., Any], span: Span, *args: Whole) -> Whole:
        """An element-wise function; a message where shapes or types do not fit."""
        try:
            return self.wholes.elementwise(function, *args)
        except (ValueError, TypeError) as error:
            raise self.no(f"the operands do not fit: {error}", span) from None

    def unary(self, op: str, value: Whole) -> Whole:
        """`-x`, `+x`, `~x`, `not x`."""
        match op:
            case "-":
                return Whole(np.negative(value.data), value.axis)
            case "+":
                return value
            case "~":
                return Whole(np.invert(value.data), value.axis)
            case _:
                return Whole(np.logical_not(value.data), value.axis)

    def binary(self, op: str, left: Whole, right: Whole, span: Span) -> Whole:
        """An operator."""
        if op == "@":
            try:
                return self.wholes.matmul(left, right)
            except ValueError as error:
                raise self.no(f"the operands do not fit: {error}", span) from None
        if op == "**":
            return self.apply(_power, span, *_alike(left, right))
        return self.apply(_BINARY[op], span, left, right)

    def attribute(self, expression: ast.Attribute) -> Entity:
        """`.T`, `.dtype`, a name of an imported module."""
        value = self.entity(expression.value)
        if isinstance(value, Namespace) and expression.name in value.names:
            return value.names[expression.name]
        if isinstance(value, Whole):
            if expression.name == "T" and value.rank >= 2:
                return self.wholes.transpose(value)
            if expression.name == "shape":
                if value.axis is not None:
                    raise CannotBlock
                return tuple(Whole(np.asarray(n, np.int64)) for n in value.data.shape)
            if expression.name == "dtype":
                kind = value.data.dtype.kind
                return F32 if kind == "f" else DTYPES["bool" if kind == "b" else "i64"]
        raise self.no(f"`.{expression.name}` has no meaning here", expression.span)

    def term(self, term: ast.Expr | ast.Slice | ast.NewAxis) -> Term:
        """An index: None, a slice, or an integer array."""
        match term:
            case ast.NewAxis():
                return None
            case ast.Slice(lower, upper):
                low = None if lower is None else self.integer(lower)
                return slice(low, None if upper is None else self.integer(upper))
            case _:
                value = self.whole(term)
                if value.data.dtype.kind not in "iu":
                    raise self.no("an index is an integer or a tile of them", term.span)
                return value

    def index(
        self,
        expression: ast.Index,
        value: Entity,
        indices: tuple[ast.Expr | ast.Slice | ast.NewAxis, ...],
    ) -> Entity:
        """`x[…]` by outer indexing, an element of a tuple."""
        if isinstance(value, tuple) and len(indices) == 1:
            place = self.term(indices[0])
            if isinstance(place, Whole) and 0 <= int(place.data) < len(value):
                found: Entity = value[int(place.data)]
                return found
        if not isinstance(value, Whole):
            raise self.no("this cannot be indexed", expression.span)
        terms = [self.term(t) for t in indices]
        tiles = [t.data.ndim for t in terms if isinstance(t, Whole) and t.data.ndim]
        if len(tiles) > 1 and max(tiles) > 1:
            raise self.no("beside an index of several axes no other one has any", expression.span)
        plain: list[Term] = [
            int(t.data) if isinstance(t, Whole) and not t.data.ndim else t for t in terms
        ]
        try:
            return self.wholes.index(value, plain)
        except ValueError as error:
            raise self.no(f"the index does not fit: {error}", expression.span) from None

    # ---- calls

    def call(self, call: ast.Call) -> Entity:
        """A method, a function of the file, a function of the language."""
        if isinstance(call.function, ast.Attribute):
            target = self.entity(call.function.value)
            if isinstance(target, Whole):
                return self.method(call, call.function.name, target)
        function = self.entity(call.function)
        if isinstance(function, Binding) and isinstance(function.item, ast.Fn):
            arguments = [self.entity(a) for a in call.arguments]
            return self.inline(function, function.item, arguments, call)
        if isinstance(function, str):
            try:
                return self.built_in(function, call)
            except (ValueError, TypeError) as error:
                raise self.no(
                    f"the arguments of `{function}` do not fit: {error}", call.span
                ) from None
        raise self.no("this is no function", call.span)

    def inline(
        self, binding: Binding, fn: ast.Fn, arguments: list[Entity], call: ast.Call
    ) -> Entity:
        """The body of a `fn`."""
        if len(arguments) != len(fn.params) or call.keywords:
            raise self.no(f"`{fn.name}` takes {len(fn.params)} arguments", call.span)
        names = {p.id: a for p, a in zip(fn.params, arguments, strict=True)}
        inner = self.elsewhere(binding, names)
        for statement in fn.body:
            if isinstance(statement, ast.Return):
                return inner.entity(statement.value)
            inner.statement(statement)
        raise self.no(f"`{fn.name}` returns nothing", call.span)

    def method(self, call: ast.Call, name: str, value: Whole) -> Entity:
        """`.to`, `.fill`, `.reshape`."""
        if name == "to" and len(call.arguments) == 1:
            dtype = self.entity(call.arguments[0])
            if isinstance(dtype, DType):
                return convert(value, dtype)
        if name == "fill":
            return value
        if name == "reshape":
            if value.axis is not None:
                raise CannotBlock
            shape = tuple(self.integer(a) for a in call.arguments)
            try:
                return Whole(value.data.reshape(shape))
            except ValueError as error:
                raise self.no(f"the shape does not fit: {error}", call.span) from None
        raise self.no(f"`.{name}` cannot be evaluated in a check", call.span)

    def keyword(self, call: ast.Call, name: str, place: int) -> ast.Expr | None:
        """An argument by keyword or position."""
        for keyword in call.keywords:
            if keyword.name == name:
                return keyword.value
        return call.arguments[place] if place < len(call.arguments) else None

    def axes(self, call: ast.Call, place: int) -> tuple[int, ...] | None:
        """The `axis` argument."""
        written = self.keyword(call, "axis", place)
        if written is None:
            return None
        if isinstance(written, ast.TupleExpr):
            return tuple(self.integer(e) for e in written.elements)
        return (self.integer(written),)

    def extent(self, expression: ast.Expr) -> tuple[int, bool]:
        """A size, and whether it is the blocked dimension."""
        if self.block is not None and isinstance(expression, ast.Name):
            hidden = expression.id in self.locals or not self.in_kernel
            if expression.id == self.block.name and not hidden:
                return self.block.stop - self.block.start, True
        return self.integer(expression), False

    def built_in(self, name: str, call: ast.Call) -> Entity:
        """A function of the language, or one that a check adds."""
        arguments = call.arguments
        if name in ("max", "min") and len(arguments) > 1:
            result = self.whole(arguments[0])
            for argument in arguments[1:]:
                result = self.apply(
                    np.maximum if name == "max" else np.minimum,
                    call.span,
                    result,
                    self.whole(argument),
                )
            return result
        if name in _REDUCED:
            place = 1 if name not in ("max", "min") else len(arguments)
            return self.wholes.reduce(name, self.whole(arguments[0]), self.axes(call, place))
        if name in _MAPPED:
            if len(arguments) != _ARITY.get(name, 1):
                raise ValueError(f"{_ARITY.get(name, 1)} are needed")
            return self.apply(_MAPPED[name], call.span, *(self.whole(a) for a in arguments))
        match name:
            case "arange":
                extent, blocked = self.extent(arguments[0])
                start = self.block.start if self.block is not None and blocked else 0
                self.wholes.room((extent,), blocked)
                return Whole(np.arange(start, start + extent), -1 if blocked else None)
            case "repeat":
                count, axis = self.keyword(call, "n", 1), self.keyword(call, "axis", 2)
                if count is None or axis is None:
                    raise ValueError("`repeat(x, n, axis)`")
                return self.wholes.repeat(
                    self.whole(arguments[0]), self.integer(count), self.integer(axis)
                )
            case "zeros" | "full":
                return self.filled(name, call)
            case "cumsum" | "cummax":
                over = self.axes(call, 1) or (0,)
                op = "sum" if name == "cumsum" else "max"
                return self.wholes.scan(op, self.whole(arguments[0]), over[0])
            case "topk":
                over = self.axes(call, 2) or (-1,)
                count = self.keyword(call, "k", 1)
                if count is None:
                    raise ValueError("`topk(x, k)`")
                return self.wholes.topk(self.whole(arguments[0]), self.integer(count), over[0])
            case "dot":
                return self.wholes.matmul(self.whole(arguments[0]), self.whole(arguments[1]))
            case "reduce":
                return self.fold(call)
            case _:
                raise self.no(f"`{name}` cannot be evaluated in a check", call.span)

    def filled(self, name: str, call: ast.Call) -> Whole:
        """`zeros(f32, M, N)`, `full(f32, v, M, N)`."""
        dtype = self.entity(call.arguments[0])
        if not isinstance(dtype, DType):
            raise ValueError("the first is a dtype")
        skip = 1 if name == "zeros" else 2
        extents = [self.extent(a) for a in call.arguments[skip:]]
        value = 0.0 if name == "zeros" else float(self.whole(call.arguments[1]).data)
        shape = tuple(e for e, _ in extents)
        self.wholes.room(shape, any(blocked for _, blocked in extents))
        places = [n - len(shape) for n, (_, blocked) in enumerate(extents) if blocked]
        if len(places) > 1:
            raise CannotBlock
        kind = np.float64 if dtype.is_float else np.bool_ if dtype.kind == "bool" else np.int64
        return Whole(np.full(shape, value, kind), places[0] if places else None)

    def fold(self, call: ast.Call) -> Entity:
        """`reduce(x, axis, fn)`."""
        source, function = self.entity(call.arguments[0]), self.entity(call.arguments[-1])
        axis = self.axes(call, 1)
        if (
            axis is None
            or not isinstance(function, Binding)
            or not isinstance(function.item, ast.Fn)
        ):
            raise ValueError("`reduce(x, axis, fn)`")
        single = isinstance(source, Whole)
        parts = (source,) if isinstance(source, Whole) else source
        if not isinstance(parts, tuple):
            raise ValueError("`reduce(x, axis, fn)`")
        place = axis[0]

        def column(part: Whole, position: int) -> Whole:
            at: list[Term] = [slice(None)] * part.data.ndim
            at[place] = position
            return self.wholes.index(part, at)

        extent = parts[0].data.shape[place]
        state: list[Entity] = [column(p, 0) for p in parts] if extent else [Whole(np.asarray(0.0))]
        for position in range(1, extent):
            given: list[Entity] = [column(p, position) for p in parts]
            result = self.inline(function, function.item, [*state, *given], call)
            state = list(result) if isinstance(result, tuple) else [result]
        return state[0] if single else tuple(state)


def _alike(left: Whole, right: Whole) -> tuple[Whole, Whole]:
    """Both as floats where one is."""
    if left.data.dtype.kind == right.data.dtype.kind:
        return left, right
    return (
        Whole(left.data.astype(np.float64), left.axis),
        Whole(right.data.astype(np.float64), right.axis),
    )
