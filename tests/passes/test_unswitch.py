"""Versions of programs for what the host knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import analyse_file, compile_file
from tilec.ir import tile_ir as t
from tilec.ir.launch import AllOf
from tilec.ir.printer import print_program
from tilec.passes.unswitch import assuming, condition_of
from tilec.passes.uses import all_ops
from tilec.runtime.variant_sizes import chosen_variants, compiled_variants, variant_sizes

HEAD = """
kernel sums[BM = 64, BN = 64, BK = 64](a: bf16[M, K], b: bf16[K, N], flag: bool, n: i32, x: f32) -> c: f32[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
"""
TAIL = """
        c[i, j] = acc
"""
PLAIN = """
        for k in range(0 : K by BK):
            acc += a[i, k] @ b[k, j]
"""
BOUND = """
        end = K
        if n != 0:
            end = min(K, i.stop)
        for k in range(0 : end by BK):
            acc += a[i, k] @ b[k, j]
"""


def analysed(path: Path, body: str) -> t.Program:
    path.write_text(HEAD + body + TAIL, encoding="utf-8")
    return analyse_file(str(path), arch="sm_90a")[1][0].program


def trips(program: t.Program) -> list[str]:
    return [str(op.trips) for op in all_ops(program.nests[0].body) if isinstance(op, t.For)]


def test_a_bound_is_what_its_branch_says(tmp_path: Path) -> None:
    program = analysed(tmp_path / "p.tile", BOUND)
    question = condition_of(program)
    assert question == t.HostOp("==", (t.HostScalar("n"), t.HostNumber(0)))
    always, causal = (assuming(program, [(question, answer)]) for answer in (True, False))
    plain = analysed(tmp_path / "q.tile", PLAIN)
    assert trips(always) == trips(plain)
    assert trips(causal) == ["(BK + min(BM*i.1 + BM, K, M) - 1) // BK"]
    for version in (always, causal):
        assert condition_of(version) is None and "if " not in print_program(version)


@pytest.mark.parametrize(
    ("condition", "question"),
    [
        ("flag", t.HostScalar("flag")),
        ("0 == n", t.HostOp("==", (t.HostScalar("n"), t.HostNumber(0)))),
        ("n > 2 and not flag", t.HostOp("and", (
            t.HostOp("not", (t.HostOp("<=", (t.HostScalar("n"), t.HostNumber(2))),)),
            t.HostOp("not", (t.HostScalar("flag"),))))),
        # what lies in memory, in floats, or in the grid the host is not asked
        ("x > 0.0", None),
        ("i.start > n", None),
    ],
)  # fmt: skip
def test_what_the_host_is_asked(
    tmp_path: Path, condition: str, question: t.HostExpr | None
) -> None:
    body = f"{PLAIN}        if {condition}:\n            acc = acc * 2.0\n"
    assert condition_of(analysed(tmp_path / "p.tile", body)) == question


def test_a_chosen_bound_and_a_branch_give_four_versions(tmp_path: Path) -> None:
    path = tmp_path / "p.tile"
    body = BOUND.replace("if n != 0:\n            end = min(K, i.stop)", "end = n if flag else K")
    body = f"{body}            if n < 3:\n                acc = acc + x\n            if n < 5:\n                acc = acc - x\n"
    program = analysed(path, body)
    question = condition_of(program)
    assert question == t.HostScalar("flag")
    assert trips(assuming(program, [(question, True)])) == ["(n + BK - 1) // BK"]
    (kernel,) = compile_file(str(path), archs=("sm_90a",), stop="kernel-ir").kernels
    names = [low.name for low in kernel.lowered["sm_90a"] if low.producers]
    pairs = [f"{a}_{b}" for a in ("then", "otherwise") for b in ("then", "otherwise")]
    assert [n for n in names if not n.endswith(("out", "copied"))] == [
        f"sums_kernel_{p}" for p in pairs
    ]
    (target,) = kernel.plan.targets
    conditions = [x.condition for step in target.steps for x in step.launches]
    first = conditions[0]
    assert isinstance(first, AllOf) and first.parts[0] == t.HostScalar("flag")
    # size sets around the thresholds know both sides of what is asked
    sets = variant_sizes(kernel.program, target)
    ran = {name for one in sets for name in chosen_variants(kernel.program, target, one)}
    assert ran == set(compiled_variants(target))
