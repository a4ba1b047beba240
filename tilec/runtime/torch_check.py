"""The `check` clause evaluated by PyTorch, as its user would write it: whole tensors in the kernel's own element types.

Products are `torch.matmul`, hence cuBLAS, of the operands as they are; f8 operands are widened to f16, for which PyTorch has
arithmetic, and products of f32 use TF32 where the kernel does. Nothing is fused; what one statement says twice is computed once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilec.ir.dtypes import DTYPES, DType
from tilec.ir.tile_ir import Program
from tilec.plan.constants import ConstantFault, fold_binary, fold_extreme, fold_function
from tilec.source.diagnostics import TileError, fail
from tilec.source.text import Span
from tilec.syntax import ast
from tilec.syntax.loading import Binding, Namespace, Scope
from tilec.syntax.loading import Program as Files

TORCH_DTYPES = {
    "bool": "bool",
    "i4": "int8",
    "u4": "uint8",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u16": "int32",
    "u32": "int64",
    "u64": "int64",
    "f8e4m3": "float16",
    "f8e5m2": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}
"""The type that an element type is calculated in: PyTorch has no arithmetic of f8, and none of unsigned types but u8."""

STORED_F8 = {"f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
"""The types that f8 values are stored in."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MAPPED = frozenset(
    "abs exp exp2 log log2 sqrt rsqrt sin cos tanh erf sigmoid floor ceil round".split()
)
_REDUCED = ("sum", "max", "min", "prod", "any", "all", "argmax", "argmin")
_BUILT_IN = frozenset(
    {*_MAPPED, *_REDUCED}
    | set("maximum minimum where fma pow ceildiv cumsum cummax topk arange repeat".split())
    | {"zeros", "full", "dot"}
)


@dataclass
class TorchCheck:
    """One check clause on tensors of one device. `torch` is the module; `inputs` are the tensors by name, as `calculated` gives
    them; `outputs` the shape and element type of what a check may speak of. `wide`: floats are calculated in float64."""

    torch: Any
    device: Any
    kernel: ast.Kernel
    files: Files
    program: Program
    sizes: Mapping[str, int]
    scalars: Mapping[str, Any]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, tuple[tuple[int, ...], DType]]
    wide: bool = False
    results: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> dict[str, Any]:
        """Evaluate every check of the kernel: a tensor of the output's element type for each output that they speak of.

        Raises TileError (E0816) for what PyTorch cannot evaluate.
        """
        self.results = {}
        for clause in self.kernel.clauses:
            if isinstance(clause, ast.Check):
                evaluation = _Evaluation(self, self.files.scope(self.files.main), {}, True)
                for statement in clause.body:
                    evaluation.statement(statement)
        return self.results

    def type_of(self, dtype: DType) -> Any:
        """The PyTorch type that `dtype` is calculated in."""
        if self.wide and dtype.is_float:
            return self.torch.float64
        return getattr(self.torch, TORCH_DTYPES[dtype.name])

    def calculated(self, tensor: Any, dtype: DType) -> Any:
        """A stored tensor in the type that is calculated with."""
        return tensor.to(self.type_of(dtype))


def stored_type(torch: Any, dtype: DType) -> Any:
    """The PyTorch type whose bytes are those of `dtype` (not of 4-bit types)."""
    name = STORED_F8.get(dtype.name, TORCH_DTYPES[dtype.name])
    if dtype.kind == "uint":
        name = f"uint{dtype.bits}"
    return getattr(torch, name)


class _Evaluation:
    """Names of one evaluation."""

    def __init__(
        self, check: TorchCheck, scope: Scope, names: dict[str, Any], in_kernel: bool
    ) -> None:
        self.check = check
        self.torch = check.torch
        self.scope = scope
        self.locals = names
        self.in_kernel = in_kernel
        self.known: dict[ast.Expr, Any] = {}

    def no(self, message: str, span: Span) -> TileError:
        """The message for what has no form here."""
        return fail(
            "E0816",
            message,
            span,
            help="`--against MODULE:FUNCTION` compares with a function of your own",
        )

    # ---- statements

    def statement(self, statement: ast.Stmt) -> None:
        """One statement."""
        self.known.clear()
        match statement:
            case ast.Assign(ast.Name(name), value):
                self.locals[name] = self.value(value)
            case ast.Assign(ast.TupleExpr(elements), value):
                parts = self.value(value)
                for element, part in zip(elements, parts, strict=True):
                    if isinstance(element, ast.Name):
                        self.locals[element.id] = part
            case ast.AugAssign(op, ast.Name(name) as target, value):
                self.locals[name] = self.binary(
                    op, self.value(target), self.value(value), statement.span
                )
            case ast.For(targets, "range" | "unroll", ranges, body):
                lower = 0 if ranges[0].lower is None else int(self.value(ranges[0].lower))
                for number in range(lower, int(self.value(ranges[0].upper))):
                    self.locals[targets[0].id] = number
                    for inner in body:
                        self.statement(inner)
            case ast.If(condition, then, otherwise):
                for inner in then if self.value(condition) else otherwise:
                    self.statement(inner)
            case ast.ExprStmt(ast.Compare("==", left, right)):
                self.claim(left, right)
            case _:
                raise self.no("PyTorch has no form of this statement", statement.span)

    def claim(self, left: ast.Expr, right: ast.Expr) -> None:
        """`output == expression`, `output[…] == expression`."""
        check = self.check
        place: tuple[Any, ...] = ()
        name = left
        if isinstance(left, ast.Index):
            name = left.value
            place = tuple(self.term(t) for t in left.indices)
        if not isinstance(name, ast.Name) or name.id not in check.outputs:
            raise self.no("a check compares an output with an expression", left.span)
        shape, dtype = check.outputs[name.id]
        value = self.value(right)
        if not self.is_tensor(value):
            value = self.torch.tensor(value, device=check.device)
        value = value.to(check.type_of(dtype))
        if not place:
            check.results[name.id] = value.broadcast_to(shape)
            return
        if name.id not in check.results:
            check.results[name.id] = self.torch.zeros(
                shape, dtype=check.type_of(dtype), device=check.device
            )
        check.results[name.id][place] = value

    # ---- expressions

    def is_tensor(self, value: Any) -> bool:
        """Not a number, a dtype or a function."""
        return isinstance(value, self.torch.Tensor)

    def value(self, expression: ast.Expr) -> Any:
        """Whatever an expression stands for; what a statement says twice is evaluated once."""
        if not isinstance(expression, ast.Call | ast.Binary):
            return self.fresh(expression)
        if expression not in self.known:
            self.known[expression] = self.fresh(expression)
        return self.known[expression]

    def fresh(self, expression: ast.Expr) -> Any:
        """The value of an expression."""
        match expression:
            case ast.Number(value) | ast.Boolean(value):
                return value
            case ast.Name(name):
                return self.name(name, expression.span)
            case ast.Unary(op, operand):
                inner = self.value(operand)
                if op == "not":
                    return self.torch.logical_not(inner) if self.is_tensor(inner) else not inner
                return -inner if op == "-" else ~inner if op == "~" else inner
            case ast.Binary("and", left, right):
                return bool(self.value(left)) and bool(self.value(right))
            case ast.Binary("or", left, right):
                return bool(self.value(left)) or bool(self.value(right))
            case ast.Binary(op, left, right) | ast.Compare(op, left, right):
                return self.binary(op, self.value(left), self.value(right), expression.span)
            case ast.Conditional(condition, then, otherwise):
                return self.value(then if self.value(condition) else otherwise)
            case ast.TupleExpr(elements):
                return tuple(self.value(e) for e in elements)
            case ast.Attribute(value, name):
                return self.attribute(expression, self.value(value), name)
            case ast.Index(value, indices):
                return self.index(self.value(value), indices, expression.span)
            case ast.Call():
                return self.call(expression)
            case _:
                raise self.no("PyTorch has no form of this expression", expression.span)

    def name(self, name: str, span: Span) -> Any:
        """What a name stands for."""
        check = self.check
        if name in self.locals:
            return self.locals[name]
        if self.in_kernel:
            for known in (check.inputs, check.sizes, check.scalars, check.program.statics):
                if name in known:
                    return known[name]
        bound = self.scope.get(name)
        if isinstance(bound, Binding) and isinstance(bound.item, ast.Const):
            scope = check.files.scope(bound.module)
            return _Evaluation(check, scope, {}, False).value(bound.item.value)
        if bound is not None:
            return bound
        if name in ("inf", "nan"):
            return float(name)
        if name in DTYPES:
            return DTYPES[name]
        if name in _BUILT_IN:
            return name
        raise self.no(f"`{name}` is not known in a check", span)

    def binary(self, op: str, left: Any, right: Any, span: Span) -> Any:
        """An operator."""
        if op == "@":
            return self.matmul(left, right, span)
        if not (self.is_tensor(left) or self.is_tensor(right)):
            if isinstance(left, DType) or isinstance(right, DType):
                return (left == right) == (op == "==")
            try:
                return fold_binary(op, left, right)
            except ConstantFault as fault:
                raise self.no(str(fault), span) from None
        return _OPERATORS[op](left, right)

    def matmul(self, left: Any, right: Any, span: Span) -> Any:
        """`a @ b` in the operands' own type."""
        torch = self.torch
        if left.dtype != right.dtype:
            common = torch.promote_types(left.dtype, right.dtype)
            left, right = left.to(common), right.to(common)
        if left.dtype.is_floating_point:
            return torch.matmul(left, right)
        if left.dtype == torch.int8 and left.ndim == right.ndim == 2:
            return torch._int_mm(left, right)
        raise self.no(f"PyTorch has no product of {left.dtype} on a GPU", span)

    def attribute(self, expression: ast.Attribute, value: Any, name: str) -> Any:
        """`.T`, `.shape`, `.dtype`, a name of an imported module."""
        if isinstance(value, Namespace) and name in value.names:
            return value.names[name]
        if self.is_tensor(value):
            if name == "T" and value.ndim >= 2:
                return value.transpose(-1, -2)
            if name == "shape":
                return tuple(value.shape)
        raise self.no(f"PyTorch has no form of `.{name}`", expression.span)

    def term(self, term: ast.Expr | ast.Slice | ast.NewAxis) -> Any:
        """An index: None, a slice, a number or a tensor."""
        match term:
            case ast.NewAxis():
                return None
            case ast.Slice(lower, upper):
                low = None if lower is None else int(self.value(lower))
                return slice(low, None if upper is None else int(self.value(upper)))
            case _:
                return self.value(term)

    def index(
        self, value: Any, indices: tuple[ast.Expr | ast.Slice | ast.NewAxis, ...], span: Span
    ) -> Any:
        """`x[…]`: each term selects along its own axis."""
        if isinstance(value, tuple) and len(indices) == 1:
            return value[int(self.term(indices[0]))]
        if not self.is_tensor(value):
            raise self.no("this cannot be indexed", span)
        axis = 0
        for term in map(self.term, indices):
            if term is None:
                value = value.unsqueeze(axis)
            elif isinstance(term, slice):
                value = value[(slice(None),) * axis + (term,)]
            elif self.is_tensor(term) and term.ndim == 1:
                value = value.index_select(axis, term.long())
            else:
                value = value.select(axis, int(term))
                continue
            axis += 1
        return value

    # ---- calls

    def call(self, call: ast.Call) -> Any:
        """A method, a function of the file, a function of the language."""
        if isinstance(call.function, ast.Attribute):
            target = self.value(call.function.value)
            if not isinstance(target, Namespace):
                return self.method(call, call.function.name, target)
        function = self.value(call.function)
        if isinstance(function, Binding) and isinstance(function.item, ast.Fn):
            return self.inline(function, function.item, call)
        if isinstance(function, str):
            return self.built_in(function, call)
        raise self.no("this is no function", call.span)

    def inline(self, binding: Binding, fn: ast.Fn, call: ast.Call) -> Any:
        """The body of a `fn`."""
        names = {p.id: self.value(a) for p, a in zip(fn.params, call.arguments, strict=True)}
        inner = _Evaluation(self.check, self.check.files.scope(binding.module), names, False)
        for statement in fn.body:
            if isinstance(statement, ast.Return):
                return inner.value(statement.value)
            inner.statement(statement)
        raise self.no(f"`{fn.name}` returns nothing", call.span)

    def method(self, call: ast.Call, name: str, value: Any) -> Any:
        """`.to`, `.fill`, `.reshape`."""
        if name == "to" and len(call.arguments) == 1:
            dtype = self.value(call.arguments[0])
            if isinstance(dtype, DType):
                return self.convert(value, dtype)
        if name == "fill":
            return value
        if name == "reshape":
            return value.reshape(tuple(int(self.value(a)) for a in call.arguments))
        raise self.no(f"PyTorch has no form of `.{name}`", call.span)

    def convert(self, value: Any, dtype: DType) -> Any:
        """`.to(dtype)`."""
        if not self.is_tensor(value):
            return float(value) if dtype.is_float else int(value)
        if dtype.name in STORED_F8:
            value = value.to(stored_type(self.torch, dtype))
        return value.to(self.check.type_of(dtype))

    def argument(self, call: ast.Call, name: str, place: int) -> Any:
        """An argument by keyword or position; None where it is not given."""
        for keyword in call.keywords:
            if keyword.name == name:
                return self.value(keyword.value)
        return self.value(call.arguments[place]) if place < len(call.arguments) else None

    def built_in(self, name: str, call: ast.Call) -> Any:
        """A function of the language, or one that a check adds."""
        torch, device = self.torch, self.check.device
        if name in ("zeros", "full", "arange"):
            arguments = [self.value(a) for a in call.arguments]
            if name == "arange":
                return torch.arange(arguments[0], device=device)
            shape = tuple(int(n) for n in arguments[1 if name == "zeros" else 2 :])
            filler = 0 if name == "zeros" else arguments[1]
            kind = self.check.type_of(arguments[0])
            return torch.full(shape, filler, dtype=kind, device=device)
        values = [self.value(a) for a in call.arguments]
        if name in _MAPPED:
            (only,) = values
            return self.mapped(name, only, call.span)
        if name in ("maximum", "minimum") or (name in ("max", "min") and len(values) > 1):
            result = values[0]
            for other in values[1:]:
                result = self.extreme(name[:3], result, other)
            return result
        if name in _REDUCED:
            return self.reduced(name, values[0], self.argument(call, "axis", 1))
        match name:
            case "where":
                condition, then, otherwise = values
                if not self.is_tensor(condition):
                    return then if condition else otherwise
                return torch.where(condition, then, otherwise)
            case "fma":
                return values[0] * values[1] + values[2]
            case "pow":
                return values[0] ** values[1]
            case "ceildiv":
                return -(-values[0] // values[1])
            case "dot":
                return self.matmul(values[0], values[1], call.span)
            case "repeat":
                count, axis = self.argument(call, "n", 1), self.argument(call, "axis", 2)
                return torch.repeat_interleave(values[0], int(count), dim=int(axis))
            case "cumsum":
                return torch.cumsum(values[0], dim=int(self.argument(call, "axis", 1) or 0))
            case "cummax":
                axis = int(self.argument(call, "axis", 1) or 0)
                return torch.cummax(values[0], dim=axis).values
            case "topk":
                axis = self.argument(call, "axis", 2)
                count = int(self.argument(call, "k", 1))
                return self.greatest(values[0], count, -1 if axis is None else int(axis))
            case _:
                raise self.no(f"PyTorch has no form of `{name}` here", call.span)

    def greatest(self, value: Any, count: int, axis: int) -> tuple[Any, Any]:
        """The greatest elements and their places. What is compared takes the first of equal ones, which `torch.topk` leaves open."""
        if not self.check.wide:
            found = self.torch.topk(value, count, dim=axis)
            return found.values, found.indices
        found = self.torch.sort(value, dim=axis, descending=True, stable=True)
        return found.values.narrow(axis, 0, count), found.indices.narrow(axis, 0, count)

    def mapped(self, name: str, value: Any, span: Span) -> Any:
        """A function of one argument."""
        if not self.is_tensor(value):
            try:
                return fold_function(name, value)
            except ConstantFault as fault:
                raise self.no(str(fault), span) from None
        return getattr(self.torch, name)(value)

    def extreme(self, name: str, left: Any, right: Any) -> Any:
        """The greater or the lesser one, element by element."""
        if not (self.is_tensor(left) or self.is_tensor(right)):
            return fold_extreme(name, [left, right])
        if self.is_tensor(left) and self.is_tensor(right):
            both = self.torch.maximum if name == "max" else self.torch.minimum
            return both(left, right)
        tensor, number = (left, right) if self.is_tensor(left) else (right, left)
        if tensor.dtype.is_floating_point:  # -1e300 stands for "less than everything"
            limits = self.torch.finfo(tensor.dtype)
            number = min(max(float(number), float(limits.min)), float(limits.max))
        bound = {"min" if name == "max" else "max": number}
        return self.torch.clamp(tensor, **bound)

    def reduced(self, name: str, value: Any, axis: Any) -> Any:
        """A reduction over one axis, several or all."""
        torch = self.torch
        axes = axis if isinstance(axis, tuple) else (axis,)
        over = tuple(range(value.ndim)) if axis is None else tuple(int(a) for a in axes)
        match name:
            case "sum":
                return torch.sum(value, dim=over)
            case "max":
                return torch.amax(value, dim=over)
            case "min":
                return torch.amin(value, dim=over)
            case "argmax" | "argmin":
                return getattr(torch, name)(value, dim=None if axis is None else over[0])
            case _:
                one = getattr(torch, name)
                for each in sorted((a % value.ndim for a in over), reverse=True):
                    value = one(value, dim=each)
                return value
