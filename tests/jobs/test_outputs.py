"""Output files: all or none, each in one step."""

from __future__ import annotations

import os
import stat

import pytest

from tilec.jobs import outputs
from tilec.jobs.depfile import depfile_text, escape
from tilec.jobs.requests import check_source, parse_archs, parse_pairs
from tilec.source.diagnostics import TileError


def code_of(error: pytest.ExceptionInfo[TileError]) -> str:
    return error.value.diagnostics[0].code


def test_files_are_replaced_and_keep_their_mode(tmp_path) -> None:
    old = tmp_path / "old"
    old.write_text("before")
    old.chmod(0o640)
    inode = old.stat().st_ino
    outputs.write_outputs({str(old): b"after", str(tmp_path / "new"): b""})
    assert old.read_text() == "after"
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert old.stat().st_ino != inode
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~outputs._umask()
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def test_nothing_is_written_where_one_path_is_wrong(tmp_path) -> None:
    with pytest.raises(TileError) as error:
        outputs.write_outputs({str(tmp_path / "a"): b"a", str(tmp_path / "gone" / "b"): b"b"})
    assert code_of(error) == "E0704"
    assert error.value.exit_code == 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_paths_that_are_none(name) -> None:
    with pytest.raises(TileError) as error:
        outputs.write_outputs({name: b""})
    assert code_of(error) == "E0704"


def test_folders_and_files_as_folders_are_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    for name in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(TileError, match="cannot write"):
            outputs.write_outputs({str(name): b""})
    with pytest.raises(TileError, match="cannot write"):
        outputs.make_folder(str(tmp_path / "file" / "below"))


def test_a_read_only_file_is_refused(tmp_path, monkeypatch) -> None:
    target = tmp_path / "out.cu"
    target.write_text("before")
    monkeypatch.setattr(outputs.os, "access", lambda path, mode: False)
    with pytest.raises(TileError, match="permission denied"):
        outputs.write_outputs({str(target): b"after"})
    assert target.read_text() == "before"


def test_links_are_followed_and_devices_written(tmp_path) -> None:
    target = tmp_path / "target"
    target.write_text("before")
    (tmp_path / "link").symlink_to(target)
    outputs.write_outputs({str(tmp_path / "link"): b"after", os.devnull: b"gone"})
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "after"


def test_standard_output_gets_bytes(capsysbinary) -> None:
    outputs.write_outputs({"-": b"\xff\x00"})
    assert capsysbinary.readouterr().out == b"\xff\x00"


def test_dependency_files() -> None:
    text = depfile_text(escape("out dir/a.cu"), ["a.tile", "my $lib/b#1.tile", "/std/softmax.tile"])
    assert text == (
        "out\\ dir/a.cu: \\\n  a.tile \\\n  my\\ $$lib/b\\#1.tile \\\n  /std/softmax.tile\n"
        "\nmy\\ $$lib/b\\#1.tile:\n\n/std/softmax.tile:\n"
    )


def test_pairs() -> None:
    assert parse_pairs(["A=1", "B = x=y", "A=1"], "-D") == {"A": "1", "B": "x=y"}
    for wrong in ("A", "=1", "1A=2", "A=", "A B=1"):
        with pytest.raises(TileError) as error:
            parse_pairs([wrong], "-D")
        assert code_of(error) == "E0705"
    with pytest.raises(TileError, match="two values, 1 and 2"):
        parse_pairs(["A=1", "A=2"], "-D")


def test_architectures_are_ordered_and_single() -> None:
    assert parse_archs(["sm_90a", "sm_80", "sm_90", "sm_80"]) == ("sm_80", "sm_90", "sm_90a")
    assert parse_archs([]) == ("sm_80",)
    with pytest.raises(TileError) as error:
        parse_archs(["sm_42"])
    assert code_of(error) == "E0707"


def test_sources_that_cannot_be_read(tmp_path, monkeypatch) -> None:
    there = tmp_path / "there.tile"
    there.write_text("")
    check_source(str(there))
    with pytest.raises(TileError) as error:
        check_source(str(tmp_path / "other.tile"))
    assert error.value.diagnostics[0].helps == ("that folder has `there.tile`",)
    for wrong in ("", "a\0b", str(tmp_path)):
        with pytest.raises(TileError) as error:
            check_source(wrong)
        assert (code_of(error), error.value.exit_code) == ("E0703", 2)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(TileError, match="permission denied"):
        check_source(str(there))
