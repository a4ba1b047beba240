"""Abstract syntax of a `.tile` file: what was written, nothing resolved.

Every node carries the span of its text; two nodes are equal iff they say the same, wherever they stand.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from tilec.lazy_dataclass import dataclass
from tilec.source.text import NOWHERE, Source, Span


@dataclass(frozen=True, kw_only=True)
class Node:
    """Anything with a place in the source."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


# ---------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Number(Node):
    """`1024`, `0x1F`, `1_000` (int) or `0.5`, `1e-6`, (float; `inf` and `nan` are names). `text` is the literal as written."""

    value: int | float
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Boolean(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True)
class String(Node):
    """A message of `assert` or `print`."""

    value: str


@dataclass(frozen=True)
class Name(Node):
    """A bare name: parameter, dimension, variable, dtype, function, `inf`, `nan`, `auto`."""

    id: str


@dataclass(frozen=True)
class Unary(Node):
    """`-x`, `+x`, `~x` (bitwise not; of bool tiles logical), `not x`."""

    op: Literal["-", "+", "~", "not"]
    operand: Expr


@dataclass(frozen=True)
class Binary(Node):
    """Arithmetic and bitwise operators, `@` included; `and`/`or` too."""

    op: Literal["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>", "and", "or"]
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Compare(Node):
    """One comparison; chains are a syntax error."""

    op: Literal["==", "!=", "<", "<=", ">", ">="]
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Conditional(Node):
    """`a if c else b`, c a scalar."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Keyword(Node):
    """`axis=1` in a call."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Call(Node):
    """`f(x, axis=1)`, `x.to(f32)`, `softmax.step(…)`: `function` is a Name or an Attribute."""

    function: Expr
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


@dataclass(frozen=True)
class Attribute(Node):
    """`x.T`, `i.start`, `x.dtype`, `softmax.step`, `t.at`."""

    value: Expr
    name: str


@dataclass(frozen=True)
class Slice(Node):
    """`:` or `lo:hi` inside an index; bounds absent where not written."""

    lower: Expr | None
    upper: Expr | None


@dataclass(frozen=True)
class NewAxis(Node):
    """`None` inside an index."""


@dataclass(frozen=True)
class Index(Node):
    """`a[i, k]`, `x[:, None]`, `kv[:, 0:512]`, `t.at[i, j]` (value is then Attribute `at`)."""

    value: Expr
    indices: tuple[Expr | Slice | NewAxis, ...]


@dataclass(frozen=True)
class TupleExpr(Node):
    """`(a, b)` or `a, b`."""

    elements: tuple[Expr, ...]


Expr: TypeAlias = "Number | Boolean | String | Name | Unary | Binary | Compare | Conditional | Call | Attribute | Index | TupleExpr"

# ----------------------------------------------------------------------------------------- statements


@dataclass(frozen=True)
class Range(Node):
    """`N`, `N by B`, `lo : hi by B`, `lo : hi`. Without `by` the loop variable is a scalar, with it a span of `step` coordinates."""

    lower: Expr | None
    upper: Expr
    step: Expr | None


@dataclass(frozen=True)
class Assign(Node):
    """`x = e`, `a, b = e` (target TupleExpr of Names), `t[i, j] = e` (target Index: a store)."""

    target: Name | TupleExpr | Index
    value: Expr


@dataclass(frozen=True)
class AugAssign(Node):
    """`x += e`, `t[i, j] += e`; op without its `=`."""

    op: Literal["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]
    target: Name | Index
    value: Expr


@dataclass(frozen=True)
class For(Node):
    """`for TARGETS in KIND(RANGES):`; `unroll` and `range` have one range."""

    targets: tuple[Name, ...]
    kind: Literal["parallel", "range", "unroll"]
    ranges: tuple[Range, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If(Node):
    """`if c: … else: …`; `elif` is an If alone in `otherwise`."""

    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True)
class Assert(Node):
    """`assert c, "message"`."""

    condition: Expr
    message: str = ""


@dataclass(frozen=True)
class Print(Node):
    """`print("text", x, …)`."""

    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class ExprStmt(Node):
    """A call for its effect (`atomic_add(…)`); in `check:` a comparison `o == e`."""

    value: Expr


@dataclass(frozen=True)
class Return(Node):
    """`return e` of a `fn`, its last statement."""

    value: Expr


Stmt: TypeAlias = "Assign | AugAssign | For | If | Assert | Print | ExprStmt | Return"

# --------------------------------------------------------------------------------------- declarations


@dataclass(frozen=True)
class BracketParam(Node):
    """`BM = 128`, `D`, `T = bf16`, `BM = auto`, `CAUSAL = false`; `default` is None where none is written."""

    name: str
    default: Expr | None


@dataclass(frozen=True)
class TensorParam(Node):
    """`a: bf16[M, K]`, `inout x: f32[N]`, `a: f16[M, K] strides (lda, 1)`. `dtype` is a name: a dtype or a bracket parameter."""

    name: str
    dtype: Name
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None
    inout: bool = False


@dataclass(frozen=True)
class ScalarParam(Node):
    """`scale: f32`, `eps: f32 = 1e-5`."""

    name: str
    dtype: Name
    default: Expr | None = None


@dataclass(frozen=True)
class Require(Node):
    """`require EXPR`."""

    condition: Expr


@dataclass(frozen=True)
class TuneEntry(Node):
    """`BM in (64, 128, 256)`; the name may also be `stages` or `warps`."""

    name: Name
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Tune(Node):
    """`tune A in (…), B in (…) where CONDITION key (M, N)`."""

    entries: tuple[TuneEntry, ...]
    where: Expr | None
    key: tuple[Name, ...]


@dataclass(frozen=True)
class Setting(Node):
    """`stages = 4` of `schedule`, `M = 4096` of `example`."""

    name: Name
    value: Expr


@dataclass(frozen=True)
class Schedule(Node):
    """`schedule stages = 4, warps = 8, mma = wmma`."""

    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Temp(Node):
    """`temp part: f32[SPLITS, M, N]`: workspace between nests."""

    name: str
    dtype: Name
    dims: tuple[Expr, ...]


@dataclass(frozen=True)
class Check(Node):
    """`check c == e within rtol R, atol A` (one comparison in `body`) or `check:` with a block."""

    body: tuple[Stmt, ...]
    rtol: Expr | None = None
    atol: Expr | None = None


@dataclass(frozen=True)
class Example(Node):
    """`example M = 4096, …`; `example cpu …` has `device` "cpu"."""

    settings: tuple[Setting, ...]
    device: Literal["", "cpu"] = ""


@dataclass(frozen=True)
class Count(Node):
    """`flops EXPR` or `bytes EXPR`: what `--bench` counts."""

    kind: Literal["flops", "bytes"]
    value: Expr


Clause: TypeAlias = "Require | Tune | Schedule | Temp | Check | Example | Count"


@dataclass(frozen=True)
class Kernel(Node):
    """One kernel. `clauses` are the declarations in its body, `body` its statements, each in the order written."""

    name: str
    brackets: tuple[BracketParam, ...]
    params: tuple[TensorParam | ScalarParam, ...]
    outputs: tuple[TensorParam, ...]
    clauses: tuple[Clause, ...]
    body: tuple[Stmt, ...]
    name_span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Fn(Node):
    """`fn gelu(x): …`; the last statement is a Return."""

    name: str
    params: tuple[Name, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Const(Node):
    """`const NAME = e`."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Import(Node):
    """`import "other.tile"` (path, binds every name of it) or `import std.softmax` (module, binds its last part)."""

    path: str | None
    module: tuple[str, ...] = ()


Item: TypeAlias = "Import | Const | Fn | Kernel"


@dataclass(frozen=True)
class Comment(Node):
    """`# …` with the text after `#`, kept for the formatter."""

    text: str


@dataclass(frozen=True)
class Module(Node):
    """One file."""

    source: Source = field(compare=False, repr=False)
    items: tuple[Item, ...] = ()
    comments: tuple[Comment, ...] = field(default=(), compare=False)
