"""Nsight Compute: its table, and how it is called; a script stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.toolchain.ncu import Counted, find_ncu, measure, parse_csv

HEAD = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
TABLE = (
    "==PROF== Connected to process 77\n"
    + HEAD
    + '"0","77","f_kernel(const float *, int)","dram__bytes_read.sum","Mbyte","1,234.5"\n'
    + '"0","77","f_kernel(const float *, int)","dram__bytes_write.sum","Kbyte","500"\n'
    + '"0","77","f_kernel(const float *, int)","sm__warps_active.avg.pct_of_peak_sustained_active","%","43.75"\n'
    + '"0","77","f_kernel(const float *, int)","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active","%","12.5"\n'
    + '"0","77","f_kernel(const float *, int)","sm__maximum_warps_per_active_cycle_pct","%","50"\n'
    + '"1","77","g_kernel","dram__bytes_read.sum","byte","64"\n'
    + '"1","77","g_kernel","dram__bytes_write.sum","byte","n/a"\n'
)


def test_the_table() -> None:
    assert parse_csv(TABLE) == [
        Counted("f_kernel", 1234.5e6 + 500e3, 0.125, 0.4375, 0.5),
        Counted("g_kernel", None, None, None),
    ]
    assert parse_csv("==ERROR== nothing\n") == []


def script(folder: Path, body: str) -> Path:
    path = folder / "ncu"
    path.write_text(
        f"#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'Version 2025.3'; exit 0; fi\n{body}\n"
    )
    path.chmod(0o755)
    return path


def test_finding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert find_ncu(places=()) == "there is no ncu"
    assert find_ncu(str(tmp_path / "none")) == f"`{tmp_path / 'none'}` does not start"
    path = script(tmp_path, "")
    found = find_ncu(places=(str(tmp_path / "*"),))
    assert not isinstance(found, str)
    assert (found.path, found.version) == (path, "Version 2025.3")


def test_clocks_are_left_alone_and_a_missing_counter_left_out(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(HEAD + TABLE.split(HEAD)[1])
    log = tmp_path / "log"
    body = (
        f'echo "$@" >> {log}\n'
        'case "$*" in *tensor*) echo "==ERROR== Failed to find metric sm__pipe"; exit 1;; esac\n'
        f"cat {tmp_path / 'table'}"
    )
    tool = find_ncu(str(script(tmp_path, body)))
    assert not isinstance(tool, str)
    found = measure(tool, "f.tile", "f", ("N=3", "M=4"), ())
    assert not isinstance(found, str)
    assert [c.kernel for c in found] == ["f_kernel", "g_kernel"]
    calls = log.read_text().splitlines()
    assert len(calls) == 3
    assert all("--clock-control none" in call for call in calls)
    assert all("tilec.jobs.profile_child f.tile f N=3 M=4" in call for call in calls)


def test_why_it_gave_nothing(tmp_path: Path) -> None:
    tool = find_ncu(
        str(script(tmp_path, "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1"))
    )
    assert not isinstance(tool, str)
    assert measure(tool, "f.tile", "f", (), ()) == "ERR_NVGPUCTRPERM - no permission"
