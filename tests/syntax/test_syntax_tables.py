"""The parse tables: where they come from, and that a bad file costs nothing but time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tilec.resources import resource_text
from tilec.syntax import tables
from tilec.syntax.building import Builder


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and no tables beside the grammar."""
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "TABLES", "absent.tables")
    return tmp_path / "cache"


def test_built_once_into_the_cache(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.load_parser(Builder())
    (cached,) = (checkout / "grammar").iterdir()
    built = cached.read_bytes()
    monkeypatch.setattr(tables, "build", lambda grammar: pytest.fail("built again"))
    assert tables.load_parser(Builder()).terminals
    assert cached.read_bytes() == built


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x80\x05N."])
def test_damaged_tables_are_replaced(
    checkout: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.load_parser(Builder())
    (cached,) = (checkout / "grammar").iterdir()
    good = cached.read_bytes()
    cached.write_bytes(good[: len(good) // 2] + damage)
    assert tables.load_parser(Builder()).terminals
    monkeypatch.setattr(tables, "build", lambda grammar: pytest.fail("built again"))
    assert tables.load_parser(Builder()).terminals


def test_cache_that_cannot_be_written(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert tables.load_parser(Builder()).terminals
    assert not checkout.exists()


def test_fingerprint_follows_the_grammar() -> None:
    grammar = resource_text("grammar", "tile.lark")
    assert tables.fingerprint(grammar) != tables.fingerprint(grammar + "\n")


def test_build_step_writes_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = tmp_path / "tile.lark"
    grammar.write_text(resource_text("grammar", "tile.lark"), encoding="utf-8")
    monkeypatch.setattr(tables, "resource_path", lambda kind, relative: tmp_path / relative)
    assert tables.main() == 0
    monkeypatch.setattr(tables, "build", lambda grammar: pytest.fail("built again"))
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "unused"))
    assert tables.load_parser(Builder()).terminals
    assert not (tmp_path / "unused").exists()


def test_importing_the_parser_does_not_import_lark() -> None:
    code = "import sys, tilec.syntax.parser; assert 'lark' not in sys.modules and 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
