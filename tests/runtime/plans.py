"""Launch plans made by hand."""

from __future__ import annotations

from tilec.ir.dtypes import BF16, F32, I8, U4
from tilec.ir.launch import (
    Aligned,
    Always,
    IntegerArgument,
    Launch,
    LaunchPlan,
    PointerArgument,
    ScalarArgument,
    Step,
    TargetPlan,
    Workspace,
)
from tilec.ir.symbolic import Sym, Var, ceildiv
from tilec.ir.tile_ir import Contract, HostNumber, HostOp, HostScalar, ScalarInput, Tensor

M, N, LDA = Var("M", "dim"), Var("N", "dim"), Var("lda", "dim")
m, n, lda = Sym.of(M), Sym.of(N), Sym.of(LDA)


def scaled_rows() -> LaunchPlan:
    """`y = x * scale` by rows: a vector variant for aligned bases and a general one, for two architectures."""
    arguments = (
        PointerArgument("x"),
        PointerArgument("y"),
        IntegerArgument("N", n),
        IntegerArgument("total", m * n, wide=True),
        ScalarArgument("scale"),
    )
    step = Step(
        (
            Launch(
                "scaled_rows_v8", Aligned("x", 16), ceildiv(m, 4), 128, arguments, shared_bytes=1024
            ),
            Launch("scaled_rows_v1", Always(), m, 64, arguments),
        )
    )
    return LaunchPlan(
        "scaled_rows",
        (Tensor("x", BF16, (m, n), "input"), Tensor("y", F32, (m, n), "output")),
        (M, N),
        (ScalarInput("scale", F32, 0.1),),
        (TargetPlan("sm_80", (step,)), TargetPlan("sm_90", (step,))),
        contracts=(
            Contract(HostOp("==", (n % 8, HostNumber(0))), "N % 8 == 0"),
            Contract(HostOp(">", (HostScalar("scale"), HostNumber(0.0))), "scale > 0.0"),
        ),
    )


def two_steps() -> LaunchPlan:
    """A sum through a workspace: two launches, the second of one CTA."""
    first = Launch(
        "part", Always(), ceildiv(n, 256), 256, (PointerArgument("x"), PointerArgument("parts"))
    )
    last = Launch(
        "whole", Always(), Sym.of(1), 32, (PointerArgument("parts"), PointerArgument("s"))
    )
    bytes_ = ceildiv(n, 256) * 4
    return LaunchPlan(
        "two_steps",
        (
            Tensor("x", F32, (n,), "input"),
            Tensor("s", F32, (Sym.of(1),), "output"),
            Tensor("parts", F32, (ceildiv(n, 256),), "temp"),
        ),
        (N,),
        (),
        (TargetPlan("sm_80", (Step((first,)), Step((last,)))),),
        workspace=(Workspace("parts", Sym.of(256), bytes_),),
        workspace_bytes=bytes_ + 256,
    )


def strided() -> LaunchPlan:
    """`x` with row stride `lda`, 4-bit `q`, and dims that are expressions."""
    return LaunchPlan(
        "strided",
        (
            Tensor("x", I8, (m, n), "input", strides=(lda, Sym.of(1))),
            Tensor("q", U4, (m, 2 * n), "input"),
            Tensor("h", I8, (m // 2,), "input"),
            Tensor("z", I8, (m, n + 1), "inout"),
        ),
        (M, N),
        (),
        (TargetPlan("sm_80", ()),),
        strides=(LDA,),
    )
