"""A slice of the mutants: each is noticed, or explained."""

from __future__ import annotations

import pytest

from tests.mutants.rewrites import mutants
from tests.mutants.runs import ARCH, Laboratory, Subject
from tests.mutants.subjects import SUBJECTS
from tests.mutants.survivors import explanation

BY_NAME = {subject.kernel: subject for subject in SUBJECTS}


@pytest.mark.parametrize(
    ("kernel", "every"),
    [("vector_add", 1), ("online_softmax", 3), ("gemv", 3), ("gemm_nt", 5), ("attention", 5)],
)
def test_each_mutant_is_noticed_or_explained(kernel: str, every: int) -> None:
    verdicts = list(Laboratory(BY_NAME[kernel]).verdicts(every=every))
    lost = [v for v in verdicts if not v.noticed]
    assert [f"{v.variant} {v.kind}: {v.what}" for v in lost if not explanation(v)] == []
    assert len(lost) < len(verdicts) / 2


def test_mutants_cover_every_barrier_and_wait() -> None:
    laboratory = Laboratory(BY_NAME["gemm_nt"])
    for low in laboratory.kernel.lowered[ARCH]:
        kinds = [m.kind for m in mutants(low)]
        text = laboratory.file.cu
        assert kinds.count("barrier dropped") >= 1 and "__syncthreads" in text
        assert kinds.count("wait weakened") == 1
        assert kinds.count("slot + 1") >= 4


def test_no_mutant_is_the_kernel_itself() -> None:
    laboratory = Laboratory(Subject("vector_add.tile", "vector_add"))
    for low in laboratory.kernel.lowered[ARCH]:
        assert all(m.kernel != low for m in mutants(low))
