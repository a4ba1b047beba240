"""Bracket parameters of a kernel and the values that they take: defaults, options, `tune`, `schedule`.

A *tile size* is used only as an extent (after `by`, as the second argument of `span`) and in `require`, `tune` and `key`;
every other bracket parameter is a *program* parameter, part of the meaning.

The rule for `auto`: in a kernel with a product the tile sizes are those of the target's table in the order declared, the first row of it
with room for them, 128, 128, 64, 64, … on most; those of a plain product of warps are ranked (`product_tiles`). Without a product a lone tile size is 1024, two are 32 and 128, more are 16 each, so that a tile has at most
4096 elements. Sizes that a pass chose for what it knows of the program (`chosen`) go before all of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Literal, cast

from tilec.ir.dtypes import DTYPES, DType
from tilec.lazy_dataclass import dataclass
from tilec.plan.candidate import Candidate, Choice, Static
from tilec.plan.constants import ConstantFault, fold_binary
from tilec.source.diagnostics import Sink
from tilec.source.text import Span
from tilec.syntax import ast
from tilec.syntax.loading import Binding, Scope
from tilec.targets.table import PRODUCT_TILES

SETTINGS = ("stages", "warps", "mma", "math")
"""Names that `schedule` sets."""

TUNED_SETTINGS = ("stages", "warps")
"""Names besides bracket parameters that `tune` lists values for."""

MMA = ("auto", "wmma", "mma", "wgmma")
"""Values of `schedule mma = …`."""

MATH = ("fast", "strict")
"""Values of `schedule math = …`."""


class _Unknown(Exception):
    """An expression that is not known at compile time; `span` is the part that isn't."""

    def __init__(self, span: Span, reason: str):
        super().__init__(reason)
        self.span = span
        self.reason = reason


def tile_sizes(kernel: ast.Kernel) -> frozenset[str]:
    """The bracket parameters that are tile sizes: used as an extent at least once and nowhere but as extents and in
    `require` and `tune`."""
    names = {b.name for b in kernel.brackets}
    extents: set[str] = set()
    elsewhere: set[str] = set()
    nodes: list[object] = [*kernel.params, *kernel.outputs, *kernel.body]
    nodes += [
        c
        for c in kernel.clauses
        if not isinstance(c, (ast.Require, ast.Tune, ast.Check, ast.Example))
    ]
    for node in nodes:
        _uses(node, extents, elsewhere)
    return frozenset((extents & names) - elsewhere)


def _uses(node: object, extents: set[str], elsewhere: set[str]) -> None:
    match node:
        case ast.Name(name):
            elsewhere.add(name)
            return
        case ast.Range(lower, upper, ast.Name(step)):
            extents.add(step)
            _uses(lower, extents, elsewhere)
            _uses(upper, extents, elsewhere)
            return
        case ast.Call(ast.Name("span"), (start, ast.Name(extent), *rest), keywords):
            extents.add(extent)
            for part in (start, *rest, *keywords):
                _uses(part, extents, elsewhere)
            return
        case ast.Setting(_, value):
            _uses(value, extents, elsewhere)
            return
    if isinstance(node, tuple):
        for part in node:
            _uses(part, extents, elsewhere)
    elif is_dataclass(node) and isinstance(node, ast.Node):
        for field in fields(node):
            if field.name not in ("span", "name_span"):
                _uses(getattr(node, field.name), extents, elsewhere)


def has_product(kernel: ast.Kernel) -> bool:
    """Whether the kernel's body contains `@` or `dot`, calls of the user's functions not looked into."""
    return any(
        (isinstance(n, (ast.Binary, ast.AugAssign)) and n.op == "@")
        or (isinstance(n, ast.Call) and isinstance(n.function, ast.Name) and n.function.id == "dot")
        for n in _nodes(kernel.body)
    )


def _nodes(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        for part in node:
            yield from _nodes(part)
    elif is_dataclass(node) and isinstance(node, ast.Node):
        yield node
        for field in fields(node):
            if field.name not in ("span", "name_span"):
                yield from _nodes(getattr(node, field.name))


@dataclass
class _Planner:
    kernel: ast.Kernel
    scope: Scope
    sink: Sink
    values: dict[str, Static]
    origin: dict[str, str]
    depth: int = 0

    def evaluate(self, expr: ast.Expr) -> Static | str:
        """A compile-time value; the name itself for `auto`, `wmma`, …; raises _Unknown."""
        match expr:
            case ast.Number(value) | ast.Boolean(value):
                return value
            case ast.Name(name):
                return self.name(expr, name)
            case ast.Unary("-", operand):
                return -self.number(operand)
            case ast.Unary("+", operand):
                return self.number(operand)
            case ast.Unary("not", operand):
                return not self.number(operand)
            case ast.Binary("and", left, right):
                return bool(self.number(left)) and bool(self.number(right))
            case ast.Binary("or", left, right):
                return bool(self.number(left)) or bool(self.number(right))
            case ast.Binary(op, left, right) | ast.Compare(op, left, right):
                if op == "@":
                    raise _Unknown(expr.span, "`@` is no compile-time operation")
                a, b = self.evaluate(left), self.evaluate(right)
                if isinstance(a, DType) or isinstance(b, DType):
                    if op in ("==", "!="):
                        return (a == b) == (op == "==")
                    raise _Unknown(expr.span, f"`{op}` of dtypes")
                try:
                    return fold_binary(op, self.checked(left, a), self.checked(right, b))
                except ConstantFault as fault:
                    raise _Unknown(expr.span, str(fault)) from None
            case ast.Call(ast.Name("min" | "max" as name), arguments) if arguments:
                numbers = [self.number(a) for a in arguments]
                return min(numbers) if name == "min" else max(numbers)
            case ast.Call(ast.Name("ceildiv"), (left, right)):
                a, b = self.number(left), self.number(right)
                if not b:
                    raise _Unknown(expr.span, "division by zero")
                return -(-a // b)
            case ast.Conditional(condition, then, otherwise):
                return self.evaluate(then if self.number(condition) else otherwise)
            case _:
                raise _Unknown(expr.span, "it is not known at compile time")

    def name(self, expr: ast.Name, name: str) -> Static | str:
        if name in self.values:
            return self.values[name]
        if name in DTYPES:
            return DTYPES[name]
        if name in ("inf", "nan"):
            return float(name)
        bound = self.scope.get(name)
        if isinstance(bound, Binding) and isinstance(bound.item, ast.Const):
            if self.depth > 50:
                raise _Unknown(expr.span, f"the const `{name}` is defined by itself")
            self.depth += 1
            try:
                return self.evaluate(bound.item.value)
            finally:
                self.depth -= 1
        return name

    def checked(self, expr: ast.Expr, value: Static | str) -> int | float | bool:
        if isinstance(value, str):
            raise _Unknown(expr.span, f"the name `{value}` is not known here")
        if isinstance(value, DType):
            raise _Unknown(expr.span, f"`{value}` is a dtype, not a number")
        return value

    def number(self, expr: ast.Expr) -> int | float | bool:
        return self.checked(expr, self.evaluate(expr))


def make_candidate(
    kernel: ast.Kernel,
    scope: Scope,
    options: Mapping[str, str],
    sink: Sink,
    *,
    elsewhere: Collection[str] = (),
    product_tiles: Sequence[int] = PRODUCT_TILES,
    chosen: Mapping[str, int] | None = None,
    opened: bool = False,
) -> Candidate | None:
    """The candidate that defaults, `-D` options, `tune` and `schedule` give; `scope` holds the consts of the kernel's file,
    `product_tiles` the target's `auto` tile sizes of a kernel with a product, `chosen` some that go before them; `opened`: all tile sizes are taken for `auto`. An option named in `elsewhere` is for another kernel and passed over if this one has no such parameter.
    None after an error: E0215 to E0218 in the program, E0751 and E0752 in the options."""
    before = len(sink.errors)
    planner = _Planner(kernel, scope, sink, {}, {})
    tiles = tile_sizes(kernel)
    brackets = {b.name: b for b in kernel.brackets}
    own = {b.name for b in kernel.brackets}
    options = {n: t for n, t in options.items() if n in own or n not in elsewhere}
    given = _options(kernel, tiles, options, sink)
    if opened:
        given = {name: value for name, value in given.items() if name not in tiles}
    tuned = _tune(planner, brackets, tiles)
    automatic = _automatic(kernel, tiles, given, product_tiles, opened)
    automatic |= {name: (chosen or {}).get(name, number) for name, number in automatic.items()}
    for bracket in kernel.brackets:
        _choose(planner, bracket, tiles, given, tuned, automatic)
    warps, stages, mma, math = _schedule(planner, tuned)
    _check_where(planner, tuned)
    if len(sink.errors) > before:
        return None
    return Candidate(planner.values, tiles, warps, stages, mma, math, planner.origin)


@dataclass(frozen=True)
class TuningSpace:
    """What `tune` lists: `names` in the order written, `choices` the value of each name, one mapping a candidate. The first
    choice is empty: what is compiled without tuning. `key` names the sizes that a result is for."""

    names: tuple[str, ...]
    choices: tuple[Choice, ...]
    key: tuple[str, ...]


def tuning_space(
    kernel: ast.Kernel,
    scope: Scope,
    options: Mapping[str, str],
    sink: Sink,
    *,
    elsewhere: Collection[str] = (),
) -> TuningSpace | None:
    """Every combination of the values that `tune` lists, the last name varying fastest, less those that `where` excludes. A name
    that an option sets keeps that value. None without a `tune` clause, and after an error (as `make_candidate`)."""
    base = make_candidate(kernel, scope, options, sink, elsewhere=elsewhere)
    if base is None or not any(isinstance(c, ast.Tune) for c in kernel.clauses):
        return None
    planner = _Planner(kernel, scope, sink, dict(base.values), {})
    tuned = _tune(planner, {b.name: b for b in kernel.brackets}, base.tiles)
    values = {n: v for n, v in tuned.values.items() if base.origin.get(n) != "option"}
    choices: list[Choice] = [{}]
    for combination in product(*(dict.fromkeys(v) for v in values.values())):
        choice = dict(zip(values, combination, strict=True))
        trial = _Planner(kernel, scope, sink, {**base.values, **choice}, {})
        for name, setting in (("warps", base.warps), ("stages", base.stages)):
            trial.values.setdefault(name, tuned.first.get(name, 1) if setting is None else setting)
        try:
            if all(trial.evaluate(condition) for condition in tuned.conditions):
                choices.append(choice)
        except _Unknown as unknown:
            sink.error("E0217", f"`where` cannot be decided: {unknown.reason}", unknown.span)
            return None
    keys = [k.id for c in kernel.clauses if isinstance(c, ast.Tune) for k in c.key]
    return TuningSpace(tuple(values), tuple(choices), tuple(dict.fromkeys(keys)))


def candidates(
    kernel: ast.Kernel,
    scope: Scope,
    options: Mapping[str, str],
    sink: Sink,
    *,
    elsewhere: Collection[str] = (),
) -> list[Candidate]:
    """The candidates of a kernel's `tune` clause in the order of `tuning_space`, the untuned one first; that one alone without
    `tune`. Empty after an error."""
    base = make_candidate(kernel, scope, options, sink, elsewhere=elsewhere)
    if base is None:
        return []
    space = tuning_space(kernel, scope, options, sink, elsewhere=elsewhere)
    choices = space.choices if space is not None else ({},)
    return [] if sink.errors else [base.with_choice(choice) for choice in choices]


def _options(
    kernel: ast.Kernel, tiles: frozenset[str], options: Mapping[str, str], sink: Sink
) -> dict[str, Static]:
    names = [b.name for b in kernel.brackets]
    given: dict[str, Static] = {}
    for name, text in options.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            sink.error(
                "E0751",
                f"the kernel `{kernel.name}` has no bracket parameter `{name}`",
                help=f"did you mean `{near[0]}`?"
                if near
                else f"it has {', '.join(f'`{n}`' for n in names) or 'none'}",
            )
            continue
        value = parse_static(text)
        if value is None:
            sink.error(
                "E0752",
                f"`-D {name}={text}`: not an integer, a float, `true`, `false` or a dtype",
                help=f"write for example `-D {name}=128`",
            )
        elif name in tiles and not _is_extent(value):
            sink.error(
                "E0752", f"`-D {name}={text}`: `{name}` is a tile size, an integer from 1 on"
            )
        else:
            given[name] = value
    return given


def parse_static(text: str) -> Static | None:
    """The value that an option's text says, None where it is none."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if text in DTYPES:
        return DTYPES[text]
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def _is_extent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass
class _Tuned:
    """The first value that `tune` lists for each name, all of them, and its conditions."""

    first: dict[str, Static]
    conditions: list[ast.Expr]
    values: dict[str, list[Static]]


def _tune(
    planner: _Planner, brackets: Mapping[str, ast.BracketParam], tiles: frozenset[str]
) -> _Tuned:
    tuned = _Tuned({}, [], {})
    kernel, sink = planner.kernel, planner.sink
    dims = _dimension_names(kernel)
    for clause in kernel.clauses:
        if not isinstance(clause, ast.Tune):
            continue
        for entry in clause.entries:
            name = entry.name.id
            if name not in brackets and name not in TUNED_SETTINGS:
                near = difflib.get_close_matches(name, [*brackets, *TUNED_SETTINGS], n=1)
                sink.error(
                    "E0217",
                    f"`tune` names `{name}`, which is no bracket parameter",
                    entry.name.span,
                    help=f"did you mean `{near[0]}`?"
                    if near
                    else "tune bracket parameters, `stages` or `warps`",
                )
                continue
            for number, expr in enumerate(entry.values):
                value = _value(planner, expr, f"a value of `{name}`")
                if value is None:
                    continue
                if (name in tiles or name in TUNED_SETTINGS) and not _is_extent(value):
                    sink.error("E0217", f"a value of `{name}` is an integer from 1 on", expr.span)
                    continue
                tuned.values.setdefault(name, []).append(value)
                if number == 0:
                    tuned.first.setdefault(name, value)
        if clause.where is not None:
            tuned.conditions.append(clause.where)
        for key in clause.key:
            if key.id not in dims:
                near = difflib.get_close_matches(key.id, dims, n=1)
                sink.error(
                    "E0217",
                    f"the key `{key.id}` is no dimension or scalar of the kernel",
                    key.span,
                    help=f"did you mean `{near[0]}`?" if near else f"it has {', '.join(dims)}",
                )
    return tuned


def _dimension_names(kernel: ast.Kernel) -> list[str]:
    names: list[str] = []
    for param in (*kernel.params, *kernel.outputs):
        if isinstance(param, ast.TensorParam):
            for dim in (*param.dims, *(param.strides or ())):
                names += [n.id for n in _nodes(dim) if isinstance(n, ast.Name)]
        else:
            names.append(param.name)
    return list(dict.fromkeys(names))


def _value(planner: _Planner, expr: ast.Expr, what: str) -> Static | None:
    try:
        value = planner.evaluate(expr)
        if isinstance(value, str):
            raise _Unknown(expr.span, f"the name `{value}` is not known here")
        return value
    except _Unknown as unknown:
        planner.sink.error(
            "E0217", f"{what} is not a compile-time value: {unknown.reason}", unknown.span
        )
        return None


def _automatic(
    kernel: ast.Kernel,
    tiles: frozenset[str],
    given: Mapping[str, Static],
    product_tiles: Sequence[int],
    opened: bool,
) -> dict[str, int]:
    """The values of `auto` tile sizes by the rule above, of all tile sizes where these are `opened`."""
    open_names = [
        b.name
        for b in kernel.brackets
        if (opened or _is_auto(b)) and b.name in tiles and b.name not in given
    ]
    if has_product(kernel):
        order = [b.name for b in kernel.brackets if b.name in tiles]
        return {n: product_tiles[min(order.index(n), len(product_tiles) - 1)] for n in open_names}
    sizes = {1: (1024,), 2: (32, 128)}.get(len(open_names), (16,) * len(open_names))
    return dict(zip(open_names, sizes, strict=True))


def _is_auto(bracket: ast.BracketParam) -> bool:
    return isinstance(bracket.default, ast.Name) and bracket.default.id == "auto"


def _choose(
    planner: _Planner,
    bracket: ast.BracketParam,
    tiles: frozenset[str],
    given: Mapping[str, Static],
    tuned: _Tuned,
    automatic: Mapping[str, int],
) -> None:
    name, sink = bracket.name, planner.sink
    if name in automatic:  # whatever `tune` lists: it must not change what is not tuned
        planner.values[name], planner.origin[name] = automatic[name], "auto"
        return
    if name in given:
        planner.values[name], planner.origin[name] = given[name], "option"
        if bracket.default is not None and not _is_auto(bracket):
            _same_kind(planner, bracket, given[name])
        return
    if _is_auto(bracket):
        if name in tuned.first:
            planner.values[name], planner.origin[name] = tuned.first[name], "auto"
        else:
            sink.error(
                "E0215",
                f"`{name} = auto`: `{name}` is no tile size, so its value is part of the meaning",
                bracket.span,
                help=f"give a number: `{name} = 128`, or `-D {name}=128`",
            )
        return
    if bracket.default is None:
        sink.error(
            "E0215",
            f"the bracket parameter `{name}` has no value",
            bracket.span,
            help=f"give it one: `-D {name}=128`, or a default: `{name} = 128`",
        )
        return
    try:
        value = planner.evaluate(bracket.default)
        if isinstance(value, str):
            raise _Unknown(bracket.default.span, f"the name `{value}` is not known here")
    except _Unknown as unknown:
        sink.error(
            "E0215",
            f"the default of `{name}` is no compile-time value: {unknown.reason}",
            unknown.span,
            help=f"element types stand without quotes: `{name} = bf16`"
            if isinstance(bracket.default, ast.String)
            else "defaults are numbers, `true`, `false`, element types, consts and arithmetic",
        )
        return
    if name in tiles and not _is_extent(value):
        sink.error(
            "E0215",
            f"`{name}` is a tile size, an integer from 1 on, not {value}",
            bracket.default.span,
            help=f"write `{name} = 64`",
        )
        return
    planner.values[name], planner.origin[name] = value, "default"


def _same_kind(planner: _Planner, bracket: ast.BracketParam, value: Static) -> None:
    """An option replaces a dtype by a dtype, a truth value by a truth value, a number by a number."""
    try:
        default = planner.evaluate(bracket.default) if bracket.default is not None else value
    except _Unknown:
        return
    if _kind(default) != _kind(value) and not (
        _kind(default) == "float" and _kind(value) == "integer"
    ):
        planner.sink.error(
            "E0752",
            f"`-D {bracket.name}={value}`: `{bracket.name}` is {_article(_kind(default))}, not {_article(_kind(value))}",
        )


def _kind(value: Static | str) -> str:
    if isinstance(value, DType):
        return "dtype"
    if isinstance(value, bool):
        return "truth value"
    return "float" if isinstance(value, float) else "integer" if isinstance(value, int) else "name"


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _schedule(
    planner: _Planner, tuned: _Tuned
) -> tuple[
    int | None, int | None, Literal["auto", "wmma", "mma", "wgmma"], Literal["fast", "strict"]
]:
    found: dict[str, int | str] = {}
    sink = planner.sink
    for clause in planner.kernel.clauses:
        if not isinstance(clause, ast.Schedule):
            continue
        for setting in clause.settings:
            name, expr = setting.name.id, setting.value
            if name not in SETTINGS:
                near = difflib.get_close_matches(name, SETTINGS, n=1)
                sink.error(
                    "E0217",
                    f"`schedule` has no setting `{name}`",
                    setting.name.span,
                    help=f"did you mean `{near[0]}`?"
                    if near
                    else f"settings are {', '.join(SETTINGS)}",
                )
                continue
            if name in ("mma", "math"):
                allowed = MMA if name == "mma" else MATH
                if isinstance(expr, ast.Name) and expr.id in allowed:
                    found[name] = expr.id
                else:
                    sink.error("E0217", f"`{name}` is one of {', '.join(allowed)}", expr.span)
                continue
            if isinstance(expr, ast.Name) and expr.id == "auto":
                continue
            value = _value(planner, expr, f"`{name}`")
            if value is None:
                continue
            if not _is_extent(value):
                sink.error("E0217", f"`{name}` is an integer from 1 on", expr.span)
                continue
            found[name] = cast(int, value)
    mma = cast(Literal["auto", "wmma", "mma", "wgmma"], found.get("mma", "auto"))
    math = cast(Literal["fast", "strict"], found.get("math", "fast"))
    warps, stages = found.get("warps"), found.get("stages")
    return cast("int | None", warps), cast("int | None", stages), mma, math


def _check_where(planner: _Planner, tuned: _Tuned) -> None:
    """`where` must be decided by the names that can be tuned; the defaults need not fulfil it."""
    trial = _Planner(planner.kernel, planner.scope, planner.sink, dict(planner.values), {})
    for name in TUNED_SETTINGS:
        trial.values.setdefault(name, tuned.first.get(name, 1))
    for bracket in planner.kernel.brackets:
        trial.values.setdefault(bracket.name, 1)
    for condition in tuned.conditions:
        try:
            value = trial.evaluate(condition)
        except _Unknown as unknown:
            planner.sink.error(
                "E0217", f"`where` is not decided at compile time: {unknown.reason}", unknown.span
            )
            continue
        if not isinstance(value, bool):
            planner.sink.error(
                "E0217",
                "`where` needs a condition",
                condition.span,
                help="compare: `where BM * BN <= 16384`",
            )
