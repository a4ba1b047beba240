"""`check` clauses: names and outputs are checked here, the whole-array meaning is the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tilec.analysis.foreign import INSTEAD, unknown_name
from tilec.analysis.functions import FUNCTIONS
from tilec.analysis.scopes import closest
from tilec.ir.dtypes import DTYPES
from tilec.lazy_dataclass import dataclass
from tilec.plan.candidate import Candidate, Static
from tilec.source.diagnostics import Sink
from tilec.syntax import ast
from tilec.syntax.loading import Binding, Namespace, Scope
from tilec.syntax.loading import Program as Files

CHECK_FUNCTIONS = ("arange", "repeat")
"""Functions that exist in `check` only."""

ALLOWED = (
    *(f for f in FUNCTIONS if f not in ("span", "atomic_add", "atomic_max", "atomic_min")),
    *CHECK_FUNCTIONS,
)
"""Functions that a check calls."""


@dataclass(frozen=True)
class CheckProgram:
    """The checks of a kernel, names resolved: `checks` as written; `arrays` the tensors, `outputs` those that may be compared;
    `statics` the bracket parameters; `files` and `module` give the fns and consts that the clauses see."""

    kernel: ast.Kernel
    checks: tuple[ast.Check, ...]
    arrays: tuple[str, ...]
    outputs: tuple[str, ...]
    scalars: tuple[str, ...]
    dims: tuple[str, ...]
    statics: Mapping[str, Static]
    module: ast.Module = field(repr=False)
    files: Files = field(repr=False)


@dataclass
class _Checker:
    sink: Sink
    scope: Scope
    outputs: tuple[str, ...]
    compared: set[str]

    def error(self, code: str, message: str, node: ast.Node, help: str = "") -> None:
        self.sink.error(code, message, node.span, help=help)

    def block(self, statements: tuple[ast.Stmt, ...], names: set[str], *, top: bool) -> None:
        """Statements in order; `names` grows by what they bind. `top`: comparisons are allowed."""
        for statement in statements:
            match statement:
                case ast.Assign(ast.Name(name), value):
                    self.expr(value, names)
                    self._bind(statement.target, name, names)
                case ast.Assign(ast.TupleExpr(targets), value):
                    self.expr(value, names)
                    for target in targets:
                        if isinstance(target, ast.Name):
                            self._bind(target, target.id, names)
                case ast.AugAssign(_, ast.Name() as target, value):
                    self.expr(target, names)
                    self.expr(value, names)
                case ast.Assign(ast.Index() as target, value) | ast.AugAssign(
                    _, ast.Index() as target, value
                ):
                    self.expr(target, names)
                    self.expr(value, names)
                case ast.For(targets, kind, ranges, body):
                    if kind == "parallel" or any(r.step is not None for r in ranges):
                        self.error(
                            "E0223",
                            "a loop of `check` is `for n in range(N)`",
                            statement,
                            "a check speaks of whole arrays, without spans",
                        )
                    for range_ in ranges:
                        for bound in (range_.lower, range_.upper):
                            if bound is not None:
                                self.expr(bound, names)
                    inner = names | {t.id for t in targets}
                    self.block(body, inner, top=top)
                case ast.If(condition, then, otherwise):
                    self.expr(condition, names)
                    # both branches may bind: what the condition chooses is known when the check runs
                    first, second = set(names), set(names)
                    self.block(then, first, top=top)
                    self.block(otherwise, second, top=top)
                    names |= first | second
                case ast.ExprStmt(ast.Compare("==", left, right)) if top:
                    self._comparison(statement, left, right, names)
                case ast.Return(value):
                    self.expr(value, names)
                case _:
                    self.error(
                        "E0223",
                        "`check` holds assignments, loops, `if` and comparisons `output == expression`",
                        statement,
                    )

    def _bind(self, node: ast.Node, name: str, names: set[str]) -> None:
        if name in self.outputs:
            self.error(
                "E0223",
                f"the output `{name}` is assigned in `check`",
                node,
                f"compare it: `{name} == …`",
            )
        names.add(name)

    def _comparison(
        self, statement: ast.Stmt, left: ast.Expr, right: ast.Expr, names: set[str]
    ) -> None:
        base = left
        while isinstance(base, ast.Index):
            base = base.value
        if not isinstance(base, ast.Name) or base.id not in self.outputs:
            shown = base.id if isinstance(base, ast.Name) else "the left side"
            near = closest(shown, self.outputs)
            self.error(
                "E0223",
                f"`{shown}` is no output of the kernel"
                if isinstance(base, ast.Name)
                else f"{shown} is no output",
                left,
                f"did you mean `{near}`?" if near else f"outputs are {', '.join(self.outputs)}",
            )
        else:
            self.compared.add(base.id)
            if isinstance(left, ast.Index):
                self.expr(left, names)
        self.expr(right, names)

    def expr(self, expr: ast.Expr, names: set[str]) -> None:
        match expr:
            case ast.Name(name):
                self._name(expr, name, names)
            case ast.Unary(_, operand):
                self.expr(operand, names)
            case ast.Binary(_, left, right) | ast.Compare(_, left, right):
                self.expr(left, names)
                self.expr(right, names)
            case ast.Conditional(condition, then, otherwise):
                for part in (condition, then, otherwise):
                    self.expr(part, names)
            case ast.Call(function, arguments, keywords):
                self._function(function, names)
                for part in (*arguments, *(k.value for k in keywords)):
                    self.expr(part, names)
            case ast.Attribute(value, name):
                if not (
                    isinstance(value, ast.Name) and isinstance(self.scope.get(value.id), Namespace)
                ):
                    self.expr(value, names)
            case ast.Index(value, indices):
                self.expr(value, names)
                for index in indices:
                    if isinstance(index, ast.Slice):
                        for bound in (index.lower, index.upper):
                            if bound is not None:
                                self.expr(bound, names)
                    elif not isinstance(index, ast.NewAxis):
                        self.expr(index, names)
            case ast.TupleExpr(elements):
                for part in elements:
                    self.expr(part, names)
            case ast.Number() | ast.Boolean() | ast.String():
                return

    def _name(self, node: ast.Name, name: str, names: set[str]) -> None:
        if name in names or name in self.scope or name in DTYPES or name in ("inf", "nan"):
            return
        self.error(
            "E0201",
            f"the name `{name}` is not known here",
            node,
            unknown_name(name, [*sorted(names), *self.scope, *DTYPES]),
        )

    def _function(self, function: ast.Expr, names: set[str]) -> None:
        match function:
            case ast.Name(name) if name in names:
                self.error(
                    "E0209",
                    f"`{name}` is not a function",
                    function,
                    "a local name hides the function",
                )
            case ast.Name(name):
                bound = self.scope.get(name)
                if isinstance(bound, Binding) and isinstance(bound.item, ast.Fn):
                    return
                if bound is not None or name not in ALLOWED:
                    near = closest(name, [*self.scope, *ALLOWED])
                    self.error(
                        "E0201",
                        f"the function `{name}` is not known in `check`",
                        function,
                        INSTEAD.get(name)
                        or (
                            f"did you mean `{near}`?"
                            if near and near != name
                            else "a check calls fns and functions of whole arrays"
                        ),
                    )
            case ast.Attribute(ast.Name(module), name):
                space = self.scope.get(module)
                if isinstance(space, Namespace):
                    if name not in space.names:
                        self.error("E0201", f"the module `{module}` has no `{name}`", function)
                else:
                    self.expr(function.value, names)
            case ast.Attribute(value):
                self.expr(value, names)
            case _:
                self.error("E0209", "this is not a function", function)


def analyse_checks(
    files: Files, kernel: ast.Kernel, module: ast.Module, candidate: Candidate, sink: Sink
) -> CheckProgram | None:
    """The checks of `kernel` for the reference evaluator; None after an error (E0201, E0209, E0223) or where there is none."""
    checks = tuple(c for c in kernel.clauses if isinstance(c, ast.Check))
    examples = tuple(c for c in kernel.clauses if isinstance(c, ast.Example))
    tensors = [p for p in kernel.params if isinstance(p, ast.TensorParam)]
    scalars = tuple(p.name for p in kernel.params if isinstance(p, ast.ScalarParam))
    outputs = tuple([o.name for o in kernel.outputs] + [t.name for t in tensors if t.inout])
    dims = _dims(kernel, scalars)
    before = len(sink.errors)
    names = {
        *dims,
        *scalars,
        *outputs,
        *(t.name for t in tensors),
        *(b.name for b in kernel.brackets),
    }
    for example in examples:
        for setting in example.settings:
            if setting.name.id not in dims and setting.name.id not in scalars:
                near = closest(setting.name.id, [*dims, *scalars])
                sink.error(
                    "E0223",
                    f"`example` sets `{setting.name.id}`, which is no dimension or scalar of the kernel",
                    setting.name.span,
                    help=f"did you mean `{near}`?"
                    if near
                    else f"it has {', '.join([*dims, *scalars])}",
                )
    for check in checks:
        checker = _Checker(sink, files.scope(module), outputs, set())
        checker.block(check.body, set(names), top=True)
        for bound in (check.rtol, check.atol):
            if bound is not None:
                checker.expr(bound, names)
        if not checker.compared and len(sink.errors) == before:
            sink.error(
                "E0223",
                "the check compares nothing",
                check.span,
                help=f"end it with `{outputs[0] if outputs else 'output'} == …`",
            )
    if len(sink.errors) > before or not checks:
        return None
    return CheckProgram(
        kernel,
        checks,
        tuple(dict.fromkeys([*(t.name for t in tensors), *(o.name for o in kernel.outputs)])),
        outputs,
        scalars,
        dims,
        dict(candidate.values),
        module,
        files,
    )


def _dims(kernel: ast.Kernel, scalars: tuple[str, ...]) -> tuple[str, ...]:
    brackets = {b.name for b in kernel.brackets}
    found: list[str] = []
    for param in (*kernel.params, *kernel.outputs):
        if isinstance(param, ast.TensorParam):
            for dim in (*param.dims, *(param.strides or ())):
                if isinstance(dim, ast.Name) and dim.id not in brackets and dim.id not in scalars:
                    found.append(dim.id)
    return tuple(dict.fromkeys(found))
