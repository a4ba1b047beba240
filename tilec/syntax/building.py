"""Reductions of the grammar to abstract syntax: one method a rule of `tile.lark`, without state.

Each method takes what Lark keeps of the rule's right side: lexemes of named terminals, nodes, and None for
an optional part that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilec.source.diagnostics import TileError, fail
from tilec.source.text import Span
from tilec.syntax import ast
from tilec.syntax.lexing import Lexeme

_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_LITERAL_LIMIT = 100


class Builder:
    """The callbacks of the parser. Raises TileError for what the grammar cannot exclude."""

    # ------------------------------------------------------------------------------- declarations

    def module(self, parts: list[ast.Item]) -> tuple[ast.Item, ...]:
        """The items of a file or of a part of it."""
        return tuple(parts)

    def import_path(self, parts: list[Any]) -> ast.Import:
        """`import "other.tile"`."""
        return ast.Import(_unquoted(parts[1]), (), span=_over(parts))

    def import_module(self, parts: list[Any]) -> ast.Import:
        """`import std.softmax`."""
        return ast.Import(None, tuple(p.text for p in parts[1:]), span=_over(parts))

    def const(self, parts: list[Any]) -> ast.Const:
        """`const NAME = e`."""
        return ast.Const(parts[1].text, parts[2], span=_over(parts))

    def fn(self, parts: list[Any]) -> ast.Fn:
        """`fn NAME(…): …`, which ends in its only `return`."""
        head, name, params, body = parts
        _require_effects(body)
        for returned in _returns(body[:-1], body[-1]):
            raise fail(
                "E0112",
                "`return` before the end of a `fn`",
                returned.span,
                help="choose with `where(c, a, b)` or `a if c else b` and return once, in the last line",
            )
        if not isinstance(body[-1], ast.Return):
            raise fail(
                "E0112",
                f"`fn {name.text}` does not end in `return`",
                name.span,
                help="its last line is `return VALUE`",
            )
        return ast.Fn(name.text, params or (), body, span=_over([head, *body]))

    def kernel(self, parts: list[Any]) -> ast.Kernel:
        """`kernel NAME[…](…) -> …: …`."""
        head, name, brackets, params, outputs, suite = parts
        clauses = tuple(p for p in suite if isinstance(p, _CLAUSES))
        body = tuple(p for p in suite if not isinstance(p, _CLAUSES))
        _require_effects(body)
        for clause in clauses:
            if isinstance(clause, ast.Check):
                _reject_returns(clause.body)
        _reject_returns(body)
        return ast.Kernel(
            name.text,
            brackets or (),
            params or (),
            outputs or (),
            clauses,
            body,
            name_span=name.span,
            span=_over([head, *suite]),
        )

    def brackets(self, parts: list[Any]) -> tuple[ast.BracketParam, ...]:
        """`[BM = 128, D]`; may be empty."""
        return tuple(p for p in parts if p is not None)

    def bracket(self, parts: list[Any]) -> ast.BracketParam:
        """`BM = 128` or `D`."""
        return ast.BracketParam(parts[0].text, parts[1], span=_over(parts))

    def params(self, parts: list[Any]) -> tuple[Any, ...]:
        """The parameters of a kernel."""
        return tuple(parts)

    outputs = params
    kernel_suite = params
    suite = params
    dims = params
    settings = params

    def tensor(self, parts: list[Any]) -> ast.TensorParam:
        """`a: bf16[M, K] strides (lda, 1)`."""
        name, dtype, dims, _, strides = parts
        return ast.TensorParam(
            name.text,
            self.name([dtype]),
            dims,
            strides[0] if strides else None,
            span=_over(parts[:4]) if strides is None else name.span.to(strides[1]),
        )

    def inout(self, parts: list[Any]) -> ast.TensorParam:
        """`inout x: f32[N]`."""
        tensor = parts[1]
        return ast.TensorParam(
            tensor.name, tensor.dtype, tensor.dims, tensor.strides, True, span=_over(parts)
        )

    def scalar(self, parts: list[Any]) -> ast.ScalarParam:
        """`eps: f32 = 1e-5`."""
        return ast.ScalarParam(parts[0].text, self.name([parts[1]]), parts[2], span=_over(parts))

    def strides(self, parts: list[Any]) -> tuple[tuple[ast.Expr, ...], Span]:
        """`strides (lda, 1)` and where it stands."""
        return parts[1], _over([parts[0], parts[2]])

    # ------------------------------------------------------------------------------------ clauses

    def require(self, parts: list[Any]) -> ast.Require:
        """`require EXPR`."""
        return ast.Require(parts[1], span=_over(parts))

    def tune(self, parts: list[Any]) -> ast.Tune:
        """`tune A in (…) where C key (M, N)`."""
        entries = tuple(p for p in parts if isinstance(p, ast.TuneEntry))
        _, where, _, key = parts[len(entries) + 1 :]
        last = [p for p in (where, *(key or ())) if p is not None]
        return ast.Tune(entries, where, key or (), span=_over([parts[0], *entries, *last]))

    def tune_entry(self, parts: list[Any]) -> ast.TuneEntry:
        """`BM in (64, 128)`."""
        return ast.TuneEntry(self.name([parts[0]]), parts[2], span=_over([parts[0], parts[3]]))

    def schedule(self, parts: list[Any]) -> ast.Schedule:
        """`schedule stages = 4`."""
        return ast.Schedule(parts[1], span=_over([parts[0], *parts[1]]))

    def setting(self, parts: list[Any]) -> ast.Setting:
        """`M = 4096`."""
        return ast.Setting(self.name([parts[0]]), parts[1], span=_over(parts))

    def temp(self, parts: list[Any]) -> ast.Temp:
        """`temp part: f32[SPLITS, M]`."""
        head, name, dtype, dims, end = parts
        return ast.Temp(name.text, self.name([dtype]), dims, span=_over([head, end]))

    def check(self, parts: list[Any]) -> ast.Check:
        """`check c == e within rtol R`."""
        head, value, within = parts
        if not (isinstance(value, ast.Compare) and value.op == "=="):
            raise fail(
                "E0108",
                "a `check` compares an output with `==`",
                value.span,
                help="write `check OUT == EXPR`, or `check:` and a block",
            )
        rtol, atol = within or (None, None)
        last = [p for p in (value, rtol, atol) if p is not None]
        body = (ast.ExprStmt(value, span=value.span),)
        return ast.Check(body, rtol, atol, span=_over([head, *last]))

    def check_block(self, parts: list[Any]) -> ast.Check:
        """`check:` and a block."""
        head, within, body = parts
        _require_effects(body, comparisons=True)
        return ast.Check(body, *(within or (None, None)), span=_over([head, *body]))

    def within(self, parts: list[Any]) -> tuple[ast.Expr | None, ast.Expr | None]:
        """`within rtol R, atol A` as (R, A)."""
        bounds: dict[str, ast.Expr] = {}
        for word, value in parts[1:]:
            if word.text in bounds:
                raise fail("E0116", f"`{word.text}` is given twice", word.span, help="remove one")
            bounds[word.text] = value
        return bounds.get("rtol"), bounds.get("atol")

    def tolerance(self, parts: list[Any]) -> tuple[Lexeme, ast.Expr]:
        """`rtol R`."""
        return parts[0], parts[1]

    def example(self, parts: list[Any]) -> ast.Example:
        """`example cpu M = 192`."""
        head, cpu, settings = parts
        span = _over([head, cpu, *(settings or ())])
        return ast.Example(settings or (), "cpu" if cpu else "", span=span)

    def count(self, parts: list[Any]) -> ast.Count:
        """`flops EXPR`, `bytes EXPR`."""
        return ast.Count(parts[0].text, parts[1], span=_over(parts))

    # --------------------------------------------------------------------------------- statements

    def assign(self, parts: list[Any]) -> ast.Assign:
        """`x = e`, `a, b = e`, `t[i] = e`."""
        target, value = parts
        elements = target.elements if isinstance(target, ast.TupleExpr) else (target,)
        for element in elements:
            whole = element is target and isinstance(element, ast.Index)
            if not (whole or isinstance(element, ast.Name)):
                raise _no_target(element)
        return ast.Assign(target, value, span=_over(parts))

    def augment(self, parts: list[Any]) -> ast.AugAssign:
        """`x += e`."""
        target, op, value = parts
        if not isinstance(target, (ast.Name, ast.Index)):
            raise _no_target(target)
        return ast.AugAssign(op.text[:-1], target, value, span=_over(parts))

    def assertion(self, parts: list[Any]) -> ast.Assert:
        """`assert c, "message"`."""
        message = _unquoted(parts[2]) if parts[2] else ""
        return ast.Assert(parts[1], message, span=_over(parts))

    def returning(self, parts: list[Any]) -> ast.Return:
        """`return e`."""
        return ast.Return(parts[1], span=_over(parts))

    def effect(self, parts: list[Any]) -> ast.ExprStmt | ast.Print:
        """A call for its effect, `print(…)`, or a comparison of a `check:` block."""
        value = parts[0]
        if isinstance(value, ast.Call) and value.function == ast.Name("print"):
            if value.keywords:
                raise fail(
                    "E0116",
                    "`print` takes no arguments by name",
                    value.keywords[0].span,
                    help="remove it",
                )
            return ast.Print(value.arguments, span=value.span)
        return ast.ExprStmt(value, span=value.span)

    def for_loop(self, parts: list[Any]) -> ast.For:
        """`for i, j in parallel(…): …`."""
        head, targets, _, kind, *ranges, body = parts
        if kind.text not in ("parallel", "range", "unroll"):
            raise fail(
                "E0115",
                f"there is no loop over `{kind.text}`",
                kind.span,
                help="loops go over `parallel(…)` (the grid), `range(…)` (in order) or `unroll(…)`",
            )
        if len(targets) != len(ranges):
            raise fail(
                "E0115",
                f"{len(targets)} name{'s' * (len(targets) > 1)} for {len(ranges)} "
                f"range{'s' * (len(ranges) > 1)}",
                _over([targets[0], targets[-1]]),
                help=_one_range(kind.text, len(targets), ranges),
            )
        if kind.text != "parallel" and len(ranges) != 1:
            raise fail(
                "E0115",
                f"`{kind.text}` goes over one range",
                kind.span,
                help=f"nest one `for … in {kind.text}(…)` in another",
            )
        return ast.For(targets, kind.text, tuple(ranges), body, span=_over([head, *body]))

    def range_from_zero(self, parts: list[Any]) -> ast.Range:
        """`N` or `N by B`."""
        upper, _, step = parts
        return ast.Range(None, upper, step, span=_over(parts))

    def range(self, parts: list[Any]) -> ast.Range:
        """`lo : hi` or `lo : hi by B`."""
        lower, upper, _, step = parts
        return ast.Range(lower, upper, step, span=_over(parts))

    def if_else(self, parts: list[Any]) -> ast.If:
        """`if c: … elif d: … else: …`."""
        head, condition, then, *branches, otherwise = parts
        rest: tuple[ast.Stmt, ...] = otherwise or ()
        for word, test, body in reversed(branches):
            rest = (ast.If(test, body, rest, span=_over([word, *(rest or body)])),)
        return ast.If(condition, then, rest, span=_over([head, *(rest or then)]))

    def elif_branch(self, parts: list[Any]) -> tuple[Any, ...]:
        """`elif c: …` as (word, c, block)."""
        return tuple(parts)

    def else_branch(self, parts: list[Any]) -> tuple[ast.Stmt, ...]:
        """The block of `else:`."""
        block: tuple[ast.Stmt, ...] = parts[1]
        return block

    def names(self, parts: list[Lexeme]) -> tuple[ast.Name, ...]:
        """Names separated by commas."""
        return tuple(self.name([p]) for p in parts)

    # -------------------------------------------------------------------------------- expressions

    def tuple_of(self, parts: list[Any]) -> ast.TupleExpr:
        """`a, b`."""
        return ast.TupleExpr(tuple(parts), span=_over(parts))

    def conditional(self, parts: list[Any]) -> ast.Conditional:
        """`a if c else b`."""
        then, _, condition, _, otherwise = parts
        return ast.Conditional(condition, then, otherwise, span=_over(parts))

    def binary(self, parts: list[Any]) -> ast.Binary:
        """`a + b`."""
        left, op, right = parts
        return ast.Binary(op.text, left, right, span=_over(parts))

    def compare(self, parts: list[Any]) -> ast.Compare:
        """`a < b`."""
        left, op, right = parts
        return ast.Compare(op.text, left, right, span=_over(parts))

    def unary(self, parts: list[Any]) -> ast.Unary:
        """`-x`, `not x`."""
        op, operand = parts
        return ast.Unary(op.text, operand, span=_over(parts))

    def attribute(self, parts: list[Any]) -> ast.Attribute:
        """`x.T`."""
        return ast.Attribute(parts[0], parts[1].text, span=_over(parts))

    def call(self, parts: list[Any]) -> ast.Call:
        """`f(x, axis=1)`."""
        function, arguments, _ = parts
        if not isinstance(function, (ast.Name, ast.Attribute)):
            raise fail(
                "E0116", "only a name can be called", function.span, help="write `f(…)` or `x.f(…)`"
            )
        plain: list[ast.Expr] = []
        keywords: list[ast.Keyword] = []
        for argument in arguments or ():
            if not isinstance(argument, ast.Keyword):
                if keywords:
                    raise fail(
                        "E0116",
                        "an argument without a name after one with a name",
                        argument.span,
                        help="put it first, or write `name = value`",
                    )
                plain.append(argument)
            elif any(k.name == argument.name for k in keywords):
                raise fail(
                    "E0116", f"`{argument.name}` is given twice", argument.span, help="remove one"
                )
            else:
                keywords.append(argument)
        return ast.Call(function, tuple(plain), tuple(keywords), span=_over(parts))

    def index(self, parts: list[Any]) -> ast.Index:
        """`a[i, k]`."""
        return ast.Index(parts[0], parts[1], span=_over([parts[0], parts[2]]))

    def arguments(self, parts: list[Any]) -> tuple[Any, ...]:
        """The arguments of a call."""
        return tuple(parts)

    indices = arguments

    def keyword(self, parts: list[Any]) -> ast.Keyword:
        """`axis = 1`."""
        return ast.Keyword(parts[0].text, parts[1], span=_over(parts))

    def new_axis(self, parts: list[Any]) -> ast.NewAxis:
        """`None`."""
        return ast.NewAxis(span=parts[0].span)

    def slice(self, parts: list[Any]) -> ast.Slice:
        """`:`, `lo:hi`."""
        return ast.Slice(parts[0], parts[2], span=_over(parts))

    def parenthesised(self, parts: list[Any]) -> ast.Expr:
        """`(e)`: e, with the parentheses in its span."""
        inner: ast.Expr = parts[1]
        # the node was built by the reduction just before and nothing else holds it yet
        object.__setattr__(inner, "span", _over([parts[0], parts[2]]))
        return inner

    def name(self, parts: list[Lexeme]) -> ast.Name:
        """A bare name."""
        word = parts[0]
        if word.text in ("True", "False"):
            raise fail(
                "E0114",
                f"`{word.text}` is not a boolean of Tile",
                word.span,
                help=f"write `{word.text.lower()}`",
            )
        return ast.Name(word.text, span=word.span)

    def integer(self, parts: list[Lexeme]) -> ast.Number:
        """`1024`, `0x1F`, `1_000`."""
        return _number(parts[0], lambda text: int(text, 0))

    def real(self, parts: list[Lexeme]) -> ast.Number:
        """`0.5`, `1e-6`."""
        return _number(parts[0], float)

    def boolean(self, parts: list[Lexeme]) -> ast.Boolean:
        """`true` or `false`."""
        return ast.Boolean(parts[0].text == "true", span=parts[0].span)

    def string(self, parts: list[Lexeme]) -> ast.String:
        """A string literal."""
        return ast.String(_unquoted(parts[0]), span=parts[0].span)


_CLAUSES = (
    ast.Require,
    ast.Tune,
    ast.Schedule,
    ast.Temp,
    ast.Check,
    ast.Example,
    ast.Count,
)


def _over(parts: Sequence[Any]) -> Span:
    """From the first to the last of `parts` that is there."""
    present = [p for p in parts if p is not None]
    first: Span = present[0].span
    return first.to(present[-1].span)


def _no_target(element: Any) -> TileError:
    return fail(
        "E0109",
        "this cannot be assigned to",
        element.span,
        help="assign to a name, to names separated by commas, or to one `tensor[…]`; compare with `==`",
    )


def _number(word: Lexeme, read: Any) -> ast.Number:
    text = word.text
    shown = text if len(text) <= 40 else text[:40] + "…"
    try:
        value = read(text) if len(text) <= _LITERAL_LIMIT else None
    except ValueError:
        value = None
    if value is None:
        raise fail(
            "E0106", f"`{shown}` is not a number", word.span, help="write `1024`, `1_000` or `0x1F`"
        )
    if value in (float("inf"), float("nan")):
        raise fail(
            "E0106",
            f"`{shown}` is beyond the range of f64",
            word.span,
            help="write `inf` for infinity",
        )
    return ast.Number(value, text, span=word.span)


def _unquoted(word: Lexeme) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise fail(
                "E0107",
                f"unknown escape `\\{found[1]}`",
                word.span,
                help='the escapes are `\\n`, `\\t`, `\\"` and `\\\\`',
            )
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.)", replaced, word.text[1:-1])


def _blocks(statement: ast.Stmt) -> tuple[tuple[ast.Stmt, ...], ...]:
    if isinstance(statement, ast.For):
        return (statement.body,)
    if isinstance(statement, ast.If):
        return (statement.then, statement.otherwise)
    return ()


def _returns(statements: Sequence[ast.Stmt], last: ast.Stmt | None = None) -> list[ast.Return]:
    """Every `return` in `statements` and in the blocks of `last`."""
    found: list[ast.Return] = []
    for statement in statements:
        if isinstance(statement, ast.Return):
            found.append(statement)
    for statement in (*statements, *([last] if last is not None else [])):
        for block in _blocks(statement):
            found += _returns(block)
    return found


def _reject_returns(statements: Sequence[ast.Stmt]) -> None:
    for returned in _returns(statements):
        raise fail(
            "E0112",
            "`return` outside a `fn`",
            returned.span,
            help="a kernel stores its results: `out[i, j] = …`",
        )


def _require_effects(statements: Sequence[ast.Stmt], comparisons: bool = False) -> None:
    """Each expression statement is a call, or where `comparisons` a `==`."""
    for statement in statements:
        for block in _blocks(statement):
            _require_effects(block, comparisons)
        if not isinstance(statement, ast.ExprStmt):
            continue
        value = statement.value
        equal = isinstance(value, ast.Compare) and value.op == "=="
        if comparisons and not equal:
            raise fail(
                "E0108",
                "only assignments, loops and `==` stand in a `check:` block",
                value.span,
                help="write `OUT == EXPR`",
            )
        if not comparisons and not isinstance(value, ast.Call):
            raise foreign_word(value) or fail(
                "E0108",
                "this statement has no effect",
                value.span,
                help="`=` assigns, `==` compares" if equal else "assign the value: `x = …`",
            )


def _one_range(kind: str, names: int, ranges: Sequence[ast.Range]) -> str:
    """The help where ranges do not fit the names; `range(0, n, 4)` is Python's for one of them."""
    texts = [r.span.text for r in ranges]
    if names == 1 and all(r.lower is None and r.step is None for r in ranges):
        if len(texts) == 3:
            return (
                f"write `{kind}({texts[0]} : {texts[1]} by {texts[2]})`, or one range for each name"
            )
        if kind != "parallel":
            return f"write `{kind}({texts[0]} : {texts[1]})`"
        if len(texts) == 2:
            return f"write `{kind}({texts[0]} by {texts[1]})`, or one range for each name"
    if kind == "parallel" and len(texts) == 2 * names:
        spans = (f"{n} by {size}" for n, size in zip(texts[:names], texts[names:], strict=True))
        return f"write `parallel({', '.join(spans)})`, or one range for each name"
    return "give one range for each name"


FOREIGN = {
    "while": "loops are `for … in range(…)`, with bounds known at their start",
    "break": "bound the loop instead: `for k in range(min(K, limit) by BK)`",
    "continue": "put the rest of the body under an `if`",
    "pass": "leave the empty block out",
    "class": "there are only `kernel` and `fn`",
    "struct": "there are only `kernel` and `fn`",
    "template": "`fn` is generic over shapes and dtypes as it is",
    "def": "write `fn NAME(…):`, or `kernel NAME(…) -> …:`",
    "lambda": "give it a name: `fn f(x):` and `return …`",
    "from": 'write `import "file.tile"` or `import std.NAME`',
    "try": "nothing raises inside a kernel; `assert` stops a debug build",
    "raise": "nothing raises inside a kernel; `assert` stops a debug build",
    "with": "memory and barriers are the compiler's work",
    "global": "a kernel sees its parameters and `const` only",
    "del": "names end with their block",
    "yield": "a `fn` returns once, in its last line",
    "async": "copies become asynchronous by themselves",
    "await": "copies become asynchronous by themselves",
    "var": "write `x = …`",
    "let": "write `x = …`",
    "void": "write `kernel NAME(…) -> …:`",
    "static": "write `const NAME = …`",
}
"""Words that begin a construct elsewhere, and what to write instead."""


def foreign_word(value: ast.Expr) -> TileError | None:
    """The error where a statement is nothing but `break`, `pass` and the like."""
    if isinstance(value, ast.Name) and value.id in FOREIGN:
        return fail(
            "E0111", f"`{value.id}` is not part of Tile", value.span, help=FOREIGN[value.id]
        )
    return None
