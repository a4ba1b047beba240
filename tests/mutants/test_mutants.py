"""A slice of the mutants: each is noticed, or explained."""

from __future__ import annotations

import pytest

from tests.mutants.rewrites import mutants
from tests.mutants.runs import ARCH, Laboratory, Subject
from tests.mutants.subjects import SUBJECTS
from tests.mutants.survivors import explanation

BY_NAME = {(subject.kernel, subject.arch): subject for subject in SUBJECTS}


@pytest.mark.parametrize(
    ("kernel", "arch", "every"),
    [
        ("vector_add", ARCH, 1),
        ("online_softmax", ARCH, 3),
        ("gemv", ARCH, 3),
        ("gemm_nt", ARCH, 5),
        ("attention", ARCH, 5),
        ("gemm_nn", "sm_90a", 3),
        ("attention", "sm_90a", 8),
    ],
)
def test_each_mutant_is_noticed_or_explained(kernel: str, arch: str, every: int) -> None:
    verdicts = list(Laboratory(BY_NAME[kernel, arch]).verdicts(every=every))
    lost = [v for v in verdicts if not v.noticed]
    assert [f"{v.variant} {v.kind}: {v.what}" for v in lost if not explanation(v)] == []
    assert len(lost) < len(verdicts) / 2


def test_mutants_cover_every_barrier_and_wait() -> None:
    laboratory = Laboratory(BY_NAME["gemm_nt", ARCH])
    for low in laboratory.kernel.lowered[ARCH]:
        kinds = [m.kind for m in mutants(low)]
        text = laboratory.file.cu
        assert kinds.count("barrier dropped") >= 1 and "__syncthreads" in text
        assert kinds.count("wait weakened") == 1
        assert kinds.count("slot + 1") >= 4


def test_mutants_cover_what_works_beside_the_threads() -> None:
    kinds: set[str] = set()
    for name in ("attention", "gemm_nn"):
        laboratory = Laboratory(BY_NAME[name, "sm_90a"])
        (low,) = laboratory.kernels()
        kinds |= {m.kind for m in mutants(low)}
    assert kinds >= {
        "phase not waited for", "expect dropped", "bytes - 16", "release dropped", "advance dropped",
        "parity flipped", "product not waited for", "wait for one less", "fence dropped",
        "group not closed", "turn dropped", "edges not cleared", "edge end + 1", "copy moved",
        "chunks dropped", "drain dropped", "arrivals + 1", "arrivals - 1",
    }  # fmt: skip


def test_no_mutant_is_the_kernel_itself() -> None:
    laboratory = Laboratory(Subject("vector_add.tile", "vector_add"))
    for low in laboratory.kernel.lowered[ARCH]:
        assert all(m.kernel != low for m in mutants(low))
