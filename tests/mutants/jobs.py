"""The mutants of several kernels on several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from multiprocessing import get_context

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: each job is a thread

from tests.mutants.runs import Laboratory, Subject, Verdict

PARTS = 2
"""Parts of a kernel's mutants for each process: the last ones wait for one part."""


@lru_cache(maxsize=1)
def _laboratory(subject: Subject) -> Laboratory:
    return Laboratory(subject)


def _verdicts(task: tuple[Subject, tuple[int, int]]) -> list[Verdict]:
    """The verdicts on one part of a subject's mutants."""
    subject, part = task
    return list(_laboratory(subject).verdicts(part=part))


def all_verdicts(subjects: Sequence[Subject], jobs: int) -> Iterator[tuple[Subject, list[Verdict]]]:
    """Each subject with the verdicts on all of its mutants, in order."""
    parts = PARTS * jobs if jobs > 1 else 1
    tasks = [(subject, (n, parts)) for subject in subjects for n in range(parts)]
    if jobs == 1:
        for task in tasks:
            yield task[0], _verdicts(task)
        return
    with get_context("spawn").Pool(jobs) as pool:
        found = pool.imap(_verdicts, tasks)
        for subject in subjects:
            yield subject, [v for _ in range(parts) for v in next(found)]
