"""A slice of the mutants: each is noticed, or explained."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.mutants.rewrites import Mutant, mutants
from tests.mutants.runs import ARCH, Laboratory, Subject
from tests.mutants.subjects import SUBJECTS
from tests.mutants.survivors import explanation
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_operands import DeclareOperands
from tilec.ir.kernel_printer import print_expr

BY_NAME = {(subject.kernel, subject.arch): subject for subject in SUBJECTS}


@pytest.mark.parametrize(
    ("kernel", "arch", "every"),
    [
        ("vector_add", ARCH, 1),
        ("online_softmax", ARCH, 3),
        ("gemv", ARCH, 3),
        ("gemm_nt", ARCH, 5),
        ("attention", ARCH, 9),
        ("gemm_nn", "sm_90a", 3),
        ("attention", "sm_90a", 18),
    ],
)
def test_each_mutant_is_noticed_or_explained(kernel: str, arch: str, every: int) -> None:
    laboratory = Laboratory(BY_NAME[kernel, arch])
    verdicts = list(laboratory.verdicts(every=every, may_survive=explanation))
    lost = [v for v in verdicts if not v.noticed]
    assert [f"{v.variant} {v.kind}: {v.what}" for v in lost if not explanation(v)] == []
    assert len(lost) < len(verdicts) / 2


def test_mutants_cover_every_barrier_and_wait() -> None:
    laboratory = Laboratory(BY_NAME["gemm_nt", ARCH])
    for low in laboratory.kernel.lowered[ARCH]:
        kinds = [m.kind for m in mutants(low)]
        text = laboratory.file.cu
        assert kinds.count("barrier dropped") >= 1 and "__syncthreads" in text
        # of operands that are read ahead across trips the first trip's have a wait of their own
        across = any(isinstance(op, DeclareOperands) for op in low.body)
        assert kinds.count("wait weakened") == 1 + across
        assert kinds.count("slot + 1") >= 4


def test_mutants_cover_what_works_beside_the_threads() -> None:
    kinds: set[str] = set()
    for name in ("attention", "gemm_nn"):
        laboratory = Laboratory(BY_NAME[name, "sm_90a"])
        kinds |= {m.kind for low in laboratory.kernels() for m in mutants(low)}
    assert kinds >= {
        "phase not waited for", "expect dropped", "bytes - 16", "release dropped", "advance dropped",
        "parity flipped", "product not waited for", "wait for one less", "fence dropped",
        "group not closed", "turn dropped", "edges not cleared", "edge end + 1", "copy moved",
        "chunks dropped", "drain dropped", "arrivals + 1", "arrivals - 1",
    }  # fmt: skip


def test_turns_that_are_not_taken_are_noticed_whichever_warpgroup_runs_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first product's, in front of the loops, and those of the loops. Those of masked trips hang only where the second warpgroup runs ahead of the first."""
    monkeypatch.setattr("tests.mutants.runs.MOST_RUNS", 1)
    small = replace(
        BY_NAME["attention", "sm_90a"],
        defines=(("D", "32"), ("BM", "128"), ("BN", "16"), ("CAUSAL", "true")),
        sizes=((("B", 1), ("H", 7), ("S", 136), ("T", 136)),),
    )

    def not_taken(low: k.Kernel) -> list[Mutant]:
        # those of the loops over keys; behind them a warpgroup may go through turns that are left
        found = [m for m in mutants(low) if m.kind == "turn dropped" and m.what.endswith("take")]
        return [m for m in found if not m.what.startswith("line 0:")]

    verdicts = list(Laboratory(small).verdicts(of=not_taken))
    assert len(verdicts) == 3 and all(v.noticed for v in verdicts)


def test_rows_of_a_sequence_that_both_guards_let_through_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Either of two guards of an end is enough, which `survivors` says; a store without both is noticed."""
    pairs = (("t_end", "t_end_2"), ("t_begin_end", "t_begin_end_2"))

    def without_both(low: k.Kernel) -> list[Mutant]:
        found = [
            Mutant("guards dropped", f"{low.name}: {' '.join(p)}", _unguarded(low, p))
            for p in pairs
        ]
        assert all(m.kernel != low for m in found)
        return found

    monkeypatch.setattr("tests.mutants.runs.MOST_RUNS", 1)
    small = replace(
        BY_NAME["packed", "sm_90a"],
        scalars=(("scale", 0.1), ("longest", 100)),
        sizes=((("TOTAL", 100), ("H", 1), ("NSEQ1", 3)),),
    )
    verdicts = list(Laboratory(small).verdicts(of=without_both))
    assert {v.variant for v in verdicts} == {"packed_kernel", "packed_kernel_any_out"}
    assert len(verdicts) == 4 and all(v.noticed for v in verdicts)


def _unguarded(node: Any, names: tuple[str, ...]) -> Any:
    """Without the guards of stores of vectors, or of walks in which elements are stored, that compare with one of some names."""
    if isinstance(node, tuple):
        return tuple(_unguarded(part, names) for part in node)
    if not isinstance(node, (k.Kernel, k.Op)):
        return node
    parts = {f.name: getattr(node, f.name) for f in fields(node)}
    changed = {n: _unguarded(v, names) for n, v in parts.items() if isinstance(v, tuple)}
    if isinstance(node, k.StoreVector | k.TileLoop):
        changed["guards"] = tuple(
            g for g in node.guards if print_expr(g).rstrip(")").split()[-1] not in names
        )
    return replace(node, **changed)


def test_no_mutant_is_the_kernel_itself() -> None:
    laboratory = Laboratory(Subject("vector_add.tile", "vector_add"))
    for low in laboratory.kernel.lowered[ARCH]:
        assert all(m.kernel != low for m in mutants(low))
