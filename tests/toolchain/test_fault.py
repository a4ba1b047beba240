"""The message and the bundle of an internal fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.toolchain.fault import internal_fault, save_bundle


def test_internal_fault_names_work_and_bundle() -> None:
    try:
        {}["missing"]
    except KeyError as caught:
        error = internal_fault(caught, "running the pass `fold`", {"gemm.tile": "kernel …"})
    (message,) = error.diagnostics
    assert (message.code, error.exit_code) == ("E7001", 70)
    assert message.message == "tilec failed while running the pass `fold`: KeyError: 'missing'"
    folder = Path(message.notes[0].split("`")[1])
    assert (folder / "gemm.tile").read_text(encoding="utf-8") == "kernel …"
    assert "KeyError" in (folder / "traceback.txt").read_text()


def test_same_fault_same_folder() -> None:
    first = save_bundle({"a": "1", "b": b"2"})
    assert first is not None
    assert save_bundle({"b": b"2", "a": "1"}) == first
    assert save_bundle({"a": "2", "b": b"2"}) != first


def test_no_folder_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("tilec.toolchain.fault.tempfile.gettempdir", lambda: str(tmp_path / "file"))
    assert save_bundle({"a": "1"}) is None
    message = internal_fault(ValueError("wrong"), "waiting").diagnostics[0]
    assert "ValueError: wrong" in message.notes[0]
