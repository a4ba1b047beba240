"""Code for sm_75 on a newer device, through PTX that the driver compiles; tensor-core kernels with f16 for bf16."""

from __future__ import annotations

import re
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from tilec.runtime.device import Gpu, open_gpu
from verification.cases import Job, Verifiers, example, ragged, run_jobs
from verification.evidence import Evidence
from verification.kernels import SAMPLES, Source, build_all, sources

OLDEST = "sm_75"
SIZES = 8
"""Ragged size sets of a kernel, besides the one of `example cpu`."""

SMALLER = {
    "attention": {"D": "64", "BM": "64", "BN": "32"},
    "sliding_window": {"D": "64", "BM": "64", "BN": "32"},
    "soft_cap_alibi": {"D": "64", "BM": "64", "BN": "32"},
    "packed": {"D": "64", "BM": "64", "BN": "32"},
    "flash_decode": {"D": "64", "BN": "64"},
    "gemm_split_k": {"BM": "64", "BN": "64", "BK": "32"},
    "grouped_gemm": {"BM": "64", "BN": "64", "BK": "32"},
    "moe_swiglu": {"BM": "64", "BN": "64", "BK": "32"},
}
"""Tiles that fit the 64 KB of shared memory of sm_75."""


class OldGpu(Gpu):
    """A device that takes the launch plan of sm_75: the code is PTX, which newer devices run."""

    @property
    def capability(self) -> tuple[int, int]:
        """That of the architecture whose code runs."""
        return (7, 5)


def archs(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part."""
    del arch
    evidence = Evidence("archs")
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for sample in sorted(SAMPLES.glob("*.tile")):
            path = Path(folder) / sample.name
            text = re.sub(r"\bbf16\b", "f16", sample.read_text(encoding="utf-8"))
            path.write_text(text, encoding="utf-8")
            paths.append(path)
        wanted = [Source(s.path, s.kernel, SMALLER.get(s.kernel, {})) for s in sources(paths, only)]
        ready, refused = build_all(wanted, OLDEST, "ptx", jobs)
        for source, error in refused:
            evidence.add(source.kernel, "refused")
            first = error.diagnostics[0]
            evidence.notes.append(f"{source.kernel}: {first.code} {first.message}")
        queue = []
        for one in ready:
            assert f".target {OLDEST}".encode() in one.built.blob, one.source.kernel
            sizes = [example(one, "cpu"), *ragged(one)[:SIZES]]
            queue += [Job(one.source, s) for s in sizes]
        print(f"{len(queue)} calls of {len(ready)} kernels, built for {OLDEST}", flush=True)
        by_key = {(r.source.path, r.source.kernel): r for r in ready}
        deadline = time.monotonic() + seconds
        with Verifiers(jobs) as verifiers, nullcontext(None) if dry else open_gpu() as gpu:
            old = None if gpu is None else OldGpu(gpu.driver, gpu.device)
            run_jobs(queue, by_key, old, verifiers, evidence, deadline, ptx=True)
            if old is not None:
                old.modules.clear()
    return evidence
