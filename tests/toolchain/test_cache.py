"""The cache: hits, damage, folders that cannot be written, two writers at once."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.resources import cache_directory
from tilec.toolchain.cache import Cache, cache_key, default_cache

KEY = cache_key("a key")


def test_an_entry_comes_back_and_describes_itself(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, b"\x00\nblob\n", {"arch": "sm_90"})
    entry = cache.get(KEY)
    assert entry is not None
    assert (entry.blob, entry.meta) == (b"\x00\nblob\n", {"arch": "sm_90"})
    path = cache.path(KEY)
    assert path is not None
    header = json.loads(path.read_bytes().split(b"\n")[0])
    assert (header["size"], header["meta"]) == (7, {"arch": "sm_90"})


def test_any_damage_makes_an_entry_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, b"blob", {"arch": "sm_90"})
    path = cache.path(KEY)
    assert path is not None
    whole = path.read_bytes()
    damaged = [whole[:n] for n in range(len(whole))]
    damaged += [
        whole.replace(b"sm_90", b"sm_80"),
        whole.replace(b"blob", b"blot"),
        whole + b"x",
        b"[]\n",
        b"\xff\n",
    ]
    for content in damaged:
        path.write_bytes(content)
        assert cache.get(KEY) is None, content
    cache.put(KEY, b"again", {})
    entry = cache.get(KEY)
    assert entry is not None
    assert entry.blob == b"again"


def test_an_entry_under_another_key_is_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    other = cache_key("another")
    cache.put(KEY, b"blob", {})
    source, target = cache.path(KEY), cache.path(other)
    assert source is not None
    assert target is not None
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(source.read_bytes())
    assert cache.get(other) is None


def test_a_folder_that_cannot_be_made_turns_the_cache_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "below")
    cache.put(KEY, b"blob", {})
    assert cache.get(KEY) is None


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tilec.toolchain.cache.os.replace", full)
    cache = Cache(tmp_path)
    cache.put(KEY, b"blob", {})
    assert cache.get(KEY) is None
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def _write_and_read(arguments: tuple[str, int]) -> bool:
    root, number = arguments
    cache = Cache(Path(root))
    for turn in range(50):
        cache.put(KEY, bytes([number]) * (1000 + turn), {"writer": number})
        entry = cache.get(KEY)
        if entry is None or entry.blob[:1] != bytes([entry.meta["writer"]]):
            return False
        if len(set(entry.blob)) != 1:
            return False
    return True


def test_two_processes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_write_and_read, [(str(tmp_path), 1), (str(tmp_path), 2)]) == [True, True]


@given(st.lists(st.text()), st.lists(st.text()))
def test_two_lists_of_parts_share_no_key(a: list[str], b: list[str]) -> None:
    assert (cache_key(*a) == cache_key(*b)) == (a == b)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    assert default_cache() == Cache(tmp_path)
    monkeypatch.setenv("TILEC_CACHE_DIR", "/dev/null")
    default_cache().put(KEY, b"blob", {})
    assert default_cache().get(KEY) is None
    Cache(None).put(KEY, b"blob", {})
    assert Cache(None).get(KEY) is None
    monkeypatch.delenv("TILEC_CACHE_DIR")
    assert cache_directory().name == "tilec"
