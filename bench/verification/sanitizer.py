"""compute-sanitizer over every sample kernel and some of the benches' at one ragged size, and over kernels with a seeded fault that it
must find."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import CallSizes
from verification.calls import Call
from verification.cases import SEED, Job, inputs, ragged
from verification.evidence import Evidence, Refused
from verification.kernels import BENCH, Ready, build_all, build_texts, library_path, sources
from verification.sanitized import Launched

OURS = "kns=_kernel"
"""A part of the names of all generated kernels; a library's own are left out."""

FORMS = {
    "attention_forms": ("masked", "biased", "block_sparse", "f8", "soft_cap"),
    "attention_unseen": (
        "cached",
        "first_and_window",
        "switched",
        "rope",
        "qk_norm",
        "latent",
        "packed_soft_cap",
        "documents_skipped",
        "singles",
        "widths",
    ),
    "filters": ("blocks",),
}
"""Kernels of `bench/`: loops one after the other, versions for an argument, rows computed by a launch in front, warpgroups that share out
columns, instances drawn from a counter, masks and biases in rings, trips left out."""

BARRIER = "  __syncthreads();  // max_row_partial is written before it is read\n"
BOUND = "const int i_end = N - BN * i_tile;"
_ERRORS = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:error|hazard)s?")
_REFUSALS = (
    "Device not supported",
    "not supported on this",
    "Failed to initialize",
    "Unable to find",
)


def sanitizer(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part. Raises Refused where the tool does not work on this machine."""
    evidence = Evidence("sanitizer")
    wanted = sources(only=only)
    for name, kernels in FORMS.items():
        named = [k for k in kernels if not only or k in only]
        wanted += sources([BENCH / f"{name}.tile"], named) if named else []
    ready, refused = build_all(wanted, arch, "shared", jobs)
    evidence.notes += [
        f"{s.kernel} does not compile: {e.diagnostics[0].message}" for s, e in refused
    ]
    by_name = {r.source.kernel: r for r in ready}
    clean = [_launched(r, _one_size(r), r.compiled.cu) for r in ready]
    seeded = {}
    if "softmax" in by_name:
        race = _seeded(by_name["softmax"], BARRIER, "", CallSizes({"R": 3, "C": 5000}), arch)
        seeded["racecheck"] = ("a race", race)
    if "vector_add" in by_name:
        bound = _seeded(by_name["vector_add"], BOUND, BOUND.replace(";", " + 300;"),
                        CallSizes({"N": 4096 + 3}), arch)  # fmt: skip
        seeded["memcheck"] = ("an access out of bounds", bound)
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if dry:
        evidence.add("kernels", "prepared", len(clean) + len(seeded))
        for one in [*clean, *(s for _, s in seeded.values())]:
            Call(one.kernel, one.library)
        return evidence
    if not Path(tool).exists():
        raise Refused("there is no compute-sanitizer")
    only_ours = _filter(tool)
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        status, text = _run([], clean, folder, deadline)
        names = [c.kernel.name for c in clean]
        evidence.record("without a tool", status == 0, text[-800:], kernels=names)
        for check in ("memcheck", "racecheck"):
            words = [tool, "--tool", check, *only_ours, "--error-exitcode", "9"]
            if check in seeded:
                what, fault = seeded[check]
                status, text = _run(words, [fault], folder, deadline)
                found = _count(text)
                evidence.record(
                    f"{check} finds {what}",
                    bool(found),
                    text[-800:],
                    found=found,
                    kernel=fault.kernel.name,
                )
            status, text = _run(words, clean, folder, deadline)
            found = _count(text)
            launched = sum(line.endswith("status 0, 0") for line in text.splitlines())
            ok = status == 0 and found == 0 and launched == len(clean)
            evidence.record(check, ok, text[-1500:], errors=found, launched=launched, of=len(clean),
                            kernels=names, sizes=[str(c.sizes) for c in clean])  # fmt: skip
    return evidence


def _filter(tool: str) -> list[str]:
    """The option that checks our kernels only, by the name that this version has for it."""
    said = subprocess.run([tool, "--help"], capture_output=True, text=True, check=False).stdout
    for option in ("--kernel-name", "--kernel-regex", "--filter"):
        if re.search(rf"{option}(?![\w-])", said):
            return [option, OURS]
    return []


def _one_size(ready: Ready) -> CallSizes:
    """A ragged size set with elements, a small one: the tool is slow."""
    sizes = [s for s in ragged(ready) if all(v > 1 for v in s.dims.values())]
    return min(sizes[:8], key=lambda s: sum(s.dims.values()))


def _launched(ready: Ready, sizes: CallSizes, text: str) -> Launched:
    arrays = inputs(Job(ready.source, sizes, beyond=True), ready.kernel.program)
    return Launched(
        ready.kernel,
        library_path(text, ready.built),
        sizes,
        arrays,
    )


def _seeded(ready: Ready, line: str, instead: str, sizes: CallSizes, arch: str) -> Launched:
    """A kernel with one line of its text changed everywhere. Raises Refused where the text has no such line."""
    text = ready.compiled.cu
    if line not in text:
        raise Refused(f"the text of {ready.source.kernel} has no `{line.strip()}` to change")
    changed = text.replace(line, instead)
    (built,) = build_texts([changed], arch, "shared", 1)
    scalars = dict(_scalars(ready))
    whole = replace(sizes, scalars=scalars)
    arrays = make_inputs(ready.kernel.program, whole.numbers, scalars, SEED)
    return Launched(ready.kernel, library_path(changed, built), whole, arrays)


def _scalars(ready: Ready) -> dict[str, float]:
    return {s.name: s.default for s in ready.kernel.plan.scalars if s.default is not None}


def _run(words: list[str], calls: list[Launched], folder: str, deadline: float) -> tuple[int, str]:
    """(exit status, output) of the launches under a tool. Raises Refused where the tool does not start."""
    path = Path(folder) / "jobs.pickle"
    path.write_bytes(pickle.dumps(calls))
    command = [*words, sys.executable, "-m", "verification.sanitized", str(path)]
    seconds = max(1.0, deadline - time.monotonic())
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        return 124, f"not done in {seconds:g} s: {error.stdout!r}"
    text = ran.stdout + ran.stderr
    if words and any(r in text for r in _REFUSALS):
        raise Refused(f"compute-sanitizer is refused: {text.strip()[-600:]}")
    return ran.returncode, text


def _count(text: str) -> int | None:
    """Errors or hazards that the tool counted; None where it printed no summary."""
    found = [int(n) for n in _ERRORS.findall(text)]
    return max(found) if found else None
