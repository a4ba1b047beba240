"""Launches say what sets them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.mark.parametrize(
    ("sample", "kernel", "arch"),
    [
        ("gemm", "gemm_nn", "sm_90a"),
        ("softmax", "softmax", "sm_90"),
        ("norms", "rms_norm", "sm_90a"),
    ],
)
def test_each_variant_beside_others_has_a_note(sample: str, kernel: str, arch: str) -> None:
    """Besides its name, if it has one; the first may have nothing but its tiles."""
    path = str(SAMPLES / f"{sample}.tile")
    compiled = compile_file(path, kernel=kernel, archs=(arch,), stop="kernel-ir").kernel(kernel)
    (target,) = compiled.plan.targets
    for step in (s for s in target.steps if len(s.launches) > 1):
        for launch in step.launches:
            variant = launch.kernel.removeprefix(f"{kernel}_kernel").strip("_")
            said = launch.about.partition(": ")[2] or launch.about
            assert said or not variant, launch.kernel
            assert "\\" not in said
        notes = [launch.about for launch in step.launches]
        assert len(set(notes)) == len(notes)
