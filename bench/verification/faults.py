"""The tests of `tests/gpu` by pytest: known faults of other compilers, primitives, `tilec run`, the C++ drop-in."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from verification.evidence import Evidence, Refused
from verification.kernels import ROOT


def faults(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part; `only` are words that select tests. Raises Refused without pytest."""
    del arch
    if importlib.util.find_spec("pytest") is None:
        raise Refused("pytest is not installed")
    evidence = Evidence("faults")
    words = [sys.executable, "-m", "pytest", "-q", "tests/gpu", "-p", "no:cacheprovider"]
    words += ["-k", " or ".join(only)] if only else []
    end = time.monotonic() + seconds
    if dry:
        _run([*words, "--collect-only"], seconds, True, evidence)
    elif importlib.util.find_spec("xdist") is not None and jobs > 1:
        together = ["-n", str(jobs), "--dist", "loadgroup", "-m", "not measured"]
        _run([*words, *together], seconds, False, evidence)
        _run([*words, "-m", "measured"], end - time.monotonic(), False, evidence)
    else:
        _run(words, seconds, False, evidence)
    return evidence


def _run(words: list[str], seconds: float, dry: bool, evidence: Evidence) -> None:
    """One run of pytest, and what it found. Raises Refused where it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        try:
            ran = subprocess.run(
                [*words, f"--junitxml={report}", "-o", "junit_family=xunit2"],
                cwd=ROOT,
                env=dict(os.environ),
                capture_output=True,
                text=True,
                check=False,
                timeout=max(seconds, 1.0),
            )
        except subprocess.TimeoutExpired:
            evidence.record("tests/gpu", False, f"not done in {seconds:g} s")
            return
        if dry:
            lines = [line for line in ran.stdout.splitlines() if "::" in line]
            evidence.add("tests/gpu", "collected", len(lines))
            if ran.returncode:
                evidence.record("tests/gpu", False, ran.stdout[-2000:] + ran.stderr[-2000:])
            return
        if not report.exists():
            raise Refused(f"pytest wrote no report: {(ran.stdout + ran.stderr)[-1000:]}")
        _read(report, evidence)


def _read(report: Path, evidence: Evidence) -> None:
    for case in ElementTree.parse(report).iter("testcase"):
        module = case.get("classname", "")
        name = f"{module}::{case.get('name', '')}"
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        skipped = case.find("skipped")
        if skipped is not None:
            evidence.add(module, "skipped")
            evidence.notes.append(f"{name} skipped: {skipped.get('message', '')}")
            continue
        words = "" if problem is None else (problem.get("message") or problem.text or "")
        evidence.record(
            module, problem is None, f"{name}: {words[:600]}", test=name, seconds=case.get("time")
        )
