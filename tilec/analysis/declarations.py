"""A kernel's declarations: bracket parameters, tensors, scalars, dimensions, workspace."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    Integer,
    Known,
    Poison,
    ScalarRef,
    TensorRef,
    TypeOf,
)
from tilec.analysis.foreign import dtype_meant
from tilec.analysis.scopes import closest
from tilec.ir.dtypes import DTYPES, F32, I32, I64, DType
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import ScalarInput, Tensor
from tilec.source.diagnostics import Label
from tilec.source.text import Span
from tilec.syntax import ast


def declare_kernel(cx: Context, kernel: ast.Kernel) -> tuple[Var, ...]:
    """Bind everything that the kernel's head and its `temp` clauses declare; the run-time sizes in order of first appearance."""
    declared: dict[str, Span] = {}
    for bracket in kernel.brackets:
        if _fresh(cx, declared, bracket.name, bracket.span):
            cx.scope.declare(bracket.name, _bracket(cx, bracket), "parameter", bracket.span)
    tensors = [p for p in kernel.params if isinstance(p, ast.TensorParam)]
    temps = [c for c in kernel.clauses if isinstance(c, ast.Temp)]
    doubled = [
        param.name
        for param in (*kernel.params, *kernel.outputs, *temps)
        if not _fresh(cx, declared, param.name, param.span)
    ]
    for param in kernel.params:
        if isinstance(param, ast.ScalarParam):
            _scalar(cx, param)
    dims = _dimensions(cx, [*tensors, *kernel.outputs], declared)
    for param in tensors:
        _tensor(cx, param, "inout" if param.inout else "input")
    for output in kernel.outputs:
        _tensor(cx, output, "output")
    for temp in temps:
        _tensor(cx, temp, "temp")
    for name in doubled:
        cx.scope.declare(name, POISON, "parameter", declared[name])
    return dims


def _fresh(cx: Context, declared: dict[str, Span], name: str, span: Span) -> bool:
    if name in declared:
        cx.error(
            "E0202",
            f"`{name}` is declared twice",
            span,
            secondary=(Label(declared[name], "first here"),),
            help="rename one of them",
        )
        return False
    declared[name] = span
    return True


def _bracket(cx: Context, bracket: ast.BracketParam) -> Entity:
    value = cx.candidate.values.get(bracket.name)
    if value is None:
        return POISON
    if isinstance(value, DType):
        return TypeOf(value)
    if bracket.name in cx.candidate.tiles:
        return Integer(Sym.of(Var(bracket.name, "tile")))
    return Known(value)


def dtype_of(cx: Context, name: ast.Name) -> DType | None:
    """The dtype that a declaration names; None after a message."""
    binding = cx.scope.find(name.id)
    if binding is not None:
        if isinstance(binding.entity, TypeOf):
            return binding.entity.dtype
        if isinstance(binding.entity, Poison):
            return None
    elif name.id in DTYPES:
        return DTYPES[name.id]
    near = dtype_meant(name.id) or closest(name.id, DTYPES)
    cx.error(
        "E0205",
        f"`{name.id}` is not a dtype",
        name.span,
        help=f"did you mean `{near}`?" if near else f"dtypes are {', '.join(DTYPES)}",
    )
    return None


def _scalar(cx: Context, param: ast.ScalarParam) -> None:
    dtype = dtype_of(cx, param.dtype)
    default: int | float | bool | None = None
    if param.default is not None:
        with cx.at(param.default.span):
            entity = cx.evaluate(cx, param.default)
            if isinstance(entity, Known) and dtype is not None and cx.fits(entity.value, dtype):
                default = float(entity.value) if dtype.is_float else entity.value
            elif not isinstance(entity, Poison) and dtype is not None:
                cx.error("E0221", f"the default of `{param.name}` is no compile-time `{dtype}`")
    entity = POISON
    if dtype is not None:
        if dtype.bits < 8:
            cx.error(
                "E0205",
                f"a scalar parameter is not `{dtype}`",
                param.dtype.span,
                help="use `i32` or `u8`",
            )
        cx.scalars[param.name] = ScalarInput(param.name, dtype, default)
        if dtype in (I32, I64):
            entity = Integer(Sym.of(Var(param.name, "scalar")), dtype)
        else:
            entity = ScalarRef(param.name, dtype)
    cx.scope.declare(param.name, entity, "parameter", param.span)


def _dimensions(
    cx: Context, tensors: list[ast.TensorParam], declared: dict[str, Span]
) -> tuple[Var, ...]:
    """Bind each bare name among the dimensions and strides to a run-time size."""
    dims: list[Var] = []
    for tensor in tensors:
        for dim in (*tensor.dims, *(tensor.strides or ())):
            if not isinstance(dim, ast.Name) or cx.scope.find(dim.id) is not None:
                continue
            if dim.id in declared:
                cx.error(
                    "E0202",
                    f"`{dim.id}` is a dimension here and also a parameter",
                    dim.span,
                    secondary=(Label(declared[dim.id], "the parameter"),),
                    help="rename one of them",
                )
                cx.scope.declare(dim.id, POISON, "dimension", dim.span)
                continue
            var = Var(dim.id, "dim")
            dims.append(var)
            cx.scope.declare(dim.id, Integer(Sym.of(var)), "dimension", dim.span)
    return tuple(dims)


def names_in(expr: ast.Expr) -> Iterator[ast.Name]:
    """The names in an expression, called functions left out, in order."""
    match expr:
        case ast.Name():
            yield expr
        case ast.Unary(_, operand):
            yield from names_in(operand)
        case ast.Binary(_, left, right) | ast.Compare(_, left, right):
            yield from names_in(left)
            yield from names_in(right)
        case ast.Conditional(condition, then, otherwise):
            for part in (condition, then, otherwise):
                yield from names_in(part)
        case ast.Call(function, arguments, keywords):
            if not isinstance(function, ast.Name):
                yield from names_in(function)
            for part in (*arguments, *(k.value for k in keywords)):
                yield from names_in(part)
        case ast.Attribute(value):
            yield from names_in(value)
        case ast.Index(value, indices):
            yield from names_in(value)
            for index in indices:
                if isinstance(index, ast.Slice):
                    for bound in (index.lower, index.upper):
                        if bound is not None:
                            yield from names_in(bound)
                elif not isinstance(index, ast.NewAxis):
                    yield from names_in(index)
        case ast.TupleExpr(elements):
            for part in elements:
                yield from names_in(part)
        case ast.Number() | ast.Boolean() | ast.String():
            return


def _dim(cx: Context, expr: ast.Expr) -> Sym | None:
    """A dimension or stride; None after a message."""
    with cx.at(expr.span):
        known = cx.files.scope(cx.scope.home)
        for name in names_in(expr):
            if cx.scope.find(name.id) is None and name.id not in known:
                near = closest(name.id, cx.scope.visible())
                cx.error(
                    "E0204",
                    f"the dimension `{name.id}` is never bound",
                    name.span,
                    note="a dimension is bound where it stands alone: `a: f32[N]`",
                    help=f"did you mean `{near}`?"
                    if near
                    else f"add `{name.id}` to the bracket parameters or use it alone in a tensor",
                )
                return None
        with cx.block() as ops:
            sym = cx.sym_of(cx.evaluate(cx, expr), "a dimension")
        if sym is not None and (ops or any(v.kind == "value" for v in sym.variables)):
            cx.error(
                "E0321", "a dimension is made of sizes, integer scalars and bracket parameters"
            )
            return None
        if sym is not None and sym.constant is not None and sym.constant < 0:
            cx.error("E0322", f"the dimension {sym.constant} is negative")
            return None
        return sym


def _tensor(cx: Context, param: ast.TensorParam | ast.Temp, role: str) -> None:
    dtype = dtype_of(cx, param.dtype)
    dims = [_dim(cx, d) for d in param.dims]
    strides: list[Sym | None] | None = None
    if isinstance(param, ast.TensorParam) and param.strides is not None:
        strides = [_dim(cx, s) for s in param.strides]
        if len(strides) != len(dims):
            cx.error(
                "E0302",
                f"`{param.name}` has {len(dims)} dimensions and {len(strides)} strides",
                param.span,
                help="give one stride, in elements, for each dimension",
            )
    # a tensor with a wrong head still binds its name, so that its uses say nothing
    known = [Sym.of(1) if d is None else d for d in dims]
    bad = dtype is None or any(d is None for d in dims)
    match role:
        case "input" | "output" | "inout" | "temp":
            tensor = Tensor(
                param.name,
                dtype or F32,
                tuple(known),
                role,
                None if strides is None else tuple(Sym.of(1) if s is None else s for s in strides),
                param.span,
            )
    cx.tensors[param.name] = tensor
    reference: Entity = POISON if bad else TensorRef(param.name, tensor.dtype, tensor.dims)
    if bad:
        cx.stored.add(param.name)
    if cx.scope.find(param.name) is None or cx.scope.frames[-1][param.name].kind != "parameter":
        cx.scope.declare(param.name, reference, "parameter", param.span)
