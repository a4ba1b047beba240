"""The tests of `tests/gpu` by pytest: known faults of other compilers, primitives, `tilec run`, the C++ drop-in."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
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
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", "tests/gpu", "-p", "no:cacheprovider"]
        words += [f"--junitxml={report}", "-o", "junit_family=xunit2"]
        words += ["-k", " or ".join(only)] if only else []
        if importlib.util.find_spec("xdist") is not None and jobs > 1 and not dry:
            words += ["-n", str(jobs), "--dist", "loadgroup"]
        if dry:
            words.append("--collect-only")
        try:
            ran = subprocess.run(
                words,
                cwd=ROOT,
                env=dict(os.environ),
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            evidence.record("tests/gpu", False, f"not done in {seconds:g} s")
            return evidence
        if dry:
            lines = [line for line in ran.stdout.splitlines() if "::" in line]
            evidence.add("tests/gpu", "collected", len(lines))
            if ran.returncode:
                evidence.record("tests/gpu", False, ran.stdout[-2000:] + ran.stderr[-2000:])
            return evidence
        if not report.exists():
            raise Refused(f"pytest wrote no report: {(ran.stdout + ran.stderr)[-1000:]}")
        _read(report, evidence)
    return evidence


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
