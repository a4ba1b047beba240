"""Every product of the samples by `nvcuda::wmma` (`schedule mma = wmma`), at ragged sizes and with NaN beyond every bound."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tilec.plan.parameters import has_product
from tilec.syntax import ast
from tilec.syntax.loading import load
from verification.evidence import Evidence
from verification.kernels import SAMPLES, Source, build_all
from verification.ragged import jobs_of, run

CLAUSE = "    schedule mma = wmma\n"
SIZES = 20
"""Ragged size sets of a kernel."""


def wmma_sources(folder: Path, only: Iterable[str] = ()) -> list[Source]:
    """Copies of the samples in `folder` whose kernels with a product ask for this form; `only` names some of the kernels."""
    wanted = set(only)
    found = []
    for sample in sorted(SAMPLES.glob("*.tile")):
        lines = sample.read_text(encoding="utf-8").splitlines(keepends=True)
        path = folder / sample.name
        kernels = [i for i in load(str(sample)).main.items if isinstance(i, ast.Kernel)]
        kernels = [k for k in kernels if has_product(k)]
        for kernel in reversed(kernels):
            first = min(n.span.line for n in (*kernel.clauses, *kernel.body))
            lines.insert(first - 1, CLAUSE)
        path.write_text("".join(lines), encoding="utf-8")
        found += [Source(str(path), k.name) for k in kernels if not wanted or k.name in wanted]
    return found


def wmma(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part. What the form cannot do says so, with a code."""
    evidence = Evidence("wmma")
    with tempfile.TemporaryDirectory() as folder:
        ready, refused = build_all(wmma_sources(Path(folder), only), arch, "cubin", jobs)
        for source, error in refused:
            evidence.add(source.kernel, "refused")
            first = error.diagnostics[0]
            evidence.notes.append(f"{source.kernel}: {first.code} {first.message}")
        for one in ready:
            text = one.compiled.cu
            if "nvcuda::wmma::mma_sync" not in text:
                evidence.record(one.source.kernel, False, "its code has no `wmma::mma_sync`")
        found = [jobs_of(r, SIZES) for r in ready]
        run(evidence, ready, found, jobs, seconds, dry)
    return evidence
