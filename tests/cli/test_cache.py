"""`tilec cache`."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
from pathlib import Path

import pytest

from tilec.jobs.caching import age_text, size_text
from tilec.resources import publish, resource_text
from tilec.syntax.tables import build
from tilec.toolchain.cache import Cache, cache_key
from tilec.toolchain.fault import save_bundle
from tilec.tuning.records import Found, Subject, publish_found

KEY = cache_key("a cubin")


def an_entry_of_each_kind(root: Path) -> dict[str, Path]:
    """Fill the cache; the paths by kind."""
    cache = Cache(root)
    cache.put(KEY, b"code", {"kind": "cubin"})
    cubin = cache.path(KEY)
    assert cubin is not None
    template = root / "templates" / f"{'0' * 32}.code"
    publish(template, hashlib.sha256(b"code").digest() + b"code")
    tables = root / "grammar" / f"{'1' * 16}.tables"
    publish(tables, build(resource_text("grammar", "tile.lark")))
    emulator = root / "emulator" / ("2" * 32)
    emulator.mkdir(parents=True)
    (emulator / "runtime.o").write_bytes(b"object")
    (emulator / "complete").touch()
    library = root / "launchers" / f"{'4' * 32}.so"
    # one section, whose entry follows the header
    publish(
        library, b"\x7fELF".ljust(40, b"\0") + struct.pack("<Q10xHHH", 64, 64, 1, 0) + bytes(64)
    )
    fault = save_bundle({"a.tile": "kernel"})
    assert fault is not None
    subject = Subject("f", "p" * 16, {"M": 1}, {"M": 1}, {}, "GPU", "sm_80", "13.0", "0.1.0")
    found = Found(subject)
    assert publish_found(found)
    tuning = root / "tuning" / ("p" * 16) / f"{found.subject.id}.jsonl"
    return {
        "cubin": cubin,
        "template": template,
        "parse tables": tables,
        "emulator": emulator,
        "library": library,
        "fault": fault,
        "tuning": tuning,
    }


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache that holds nothing."""
    root = tmp_path / "kept"
    monkeypatch.setenv("TILEC_CACHE_DIR", str(root))
    return root


def test_path(tilec, cache) -> None:
    assert tilec("cache", "path") == (0, f"{cache}\n", "")


def test_a_folder_that_is_not_there_is_empty(tilec, cache) -> None:
    assert tilec("cache", "list") == (0, f"0 entries (0 B) in `{cache}`\n", "")
    assert tilec("cache", "verify") == (0, f"0 entries (0 B) in `{cache}`, 0 broken\n", "")
    assert tilec("cache", "clear") == (0, f"removed 0 entries (0 B) from `{cache}`\n", "")
    assert not cache.exists()


def test_list_says_kind_size_and_age(tilec, cache) -> None:
    entries = an_entry_of_each_kind(cache)
    old = time.time() - 3 * 86400
    os.utime(entries["cubin"], (old, old))
    status, out, err = tilec("cache", "list")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1].startswith("7 entries (") and lines[-1].endswith(f" in `{cache}`")
    shown = {line.split("  ")[0].rstrip(): line for line in lines[:-1]}
    assert {kind: Path(line.split()[-1]) for kind, line in shown.items()} == entries
    assert "   3 d  " in shown["cubin"] and "    36 B  " in shown["template"]
    assert " 0 min  " in shown["emulator"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("cubin", "its bytes are not those that were written"),
        ("template", "its bytes are not those that were written"),
        ("parse tables", "its bytes are not those that were written"),
        ("emulator", "it is not complete"),
        ("library", "its bytes are not those that were written"),
        ("fault", "`about.json` is missing"),
        ("tuning", "is not JSON"),
    ],
)
def test_verify_names_what_is_broken(tilec, cache, kind, reason) -> None:
    path = an_entry_of_each_kind(cache)[kind]
    status, out, _ = tilec("cache", "verify")
    assert (status, out.splitlines()[1:]) == (0, [])
    match kind:
        case "emulator":
            (path / "complete").unlink()
        case "fault":
            (path / "about.json").unlink()
        case "library":
            path.write_bytes(path.read_bytes()[:-1])
        case _:
            path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    status, out, err = tilec("cache", "verify")
    assert (status, err) == (1, "")
    first, last = out.splitlines()
    assert first.startswith(f"broken {kind}: {path}: ") and first.endswith(reason)
    assert last.endswith("1 broken")


def test_clear_removes_entries_and_nothing_else(tilec, cache, tmp_path) -> None:
    entries = an_entry_of_each_kind(cache)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / f"{'0' * 32}.code").write_text("not ours")
    (outside / f"{'ab' * 32}.entry").write_text("not ours")
    (cache / "ab").symlink_to(outside)
    (cache / "emulator" / ("3" * 32)).symlink_to(outside)
    mine = [
        cache / "notes.txt",
        cache / "templates" / "notes.code",
        cache / KEY[:2] / "notes.entry",
        cache / "00x" / f"{KEY}.entry",
        cache / "faults" / "notes" / "about.json",
        cache / f"{KEY}.entry",
    ]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    status, out, _ = tilec("cache", "clear")
    assert status == 0 and out.startswith("removed 7 entries (")
    assert not [path for path in entries.values() if path.exists()]
    assert [path.read_text() for path in mine] == ["mine"] * len(mine)
    assert sorted(os.listdir(outside)) == [f"{'0' * 32}.code", f"{'ab' * 32}.entry"]
    assert not (cache / "grammar").exists() and not (cache / "tuning").exists()


def test_clear_older_than(tilec, cache) -> None:
    entries = an_entry_of_each_kind(cache)
    old = time.time() - 2.5 * 86400
    for kind in ("cubin", "emulator"):
        os.utime(entries[kind], (old, old))
    assert tilec("cache", "clear", "--older-than", "3")[1].startswith("removed 0 entries")
    assert tilec("cache", "clear", "--older-than", "2")[1].startswith("removed 2 entries")
    assert sorted(k for k, path in entries.items() if not path.exists()) == ["cubin", "emulator"]
    status, _, err = tilec("cache", "clear", "--older-than", "-1")
    assert status == 2 and err.startswith("error[E0701]")


def test_what_a_stopped_process_left_is_listed_after_an_hour(tilec, cache) -> None:
    path = cache / "00" / ".new-abc_12"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    assert tilec("cache", "list")[1].startswith("0 entries")
    old = time.time() - 4000
    os.utime(path, (old, old))
    assert tilec("cache", "list")[1].startswith("left over       4 B     1 h  ")
    assert tilec("cache", "verify")[0] == 1
    tilec("cache", "clear")
    assert os.listdir(cache) == []


def test_no_cache_is_said_plainly(tilec, monkeypatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", "/dev/null")
    said = "TILEC_CACHE_DIR is `/dev/null`, which is no folder: nothing is kept\n"
    for command in ("list", "verify", "clear"):
        assert tilec("cache", command) == (0, said, "")
    assert tilec("cache", "path") == (0, "/dev/null\n", said)
    assert Path("/dev/null").is_char_device()


def test_an_entry_that_cannot_be_removed(tilec, cache, monkeypatch) -> None:
    an_entry_of_each_kind(cache)

    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refused)
    status, out, err = tilec("cache", "clear")
    assert (status, out) == (2, "")
    assert err.startswith("error[E0721]: cannot remove `") and "permission denied" in err


def test_the_header_of_an_entry_decides_its_kind(tilec, cache) -> None:
    store = Cache(cache)
    store.put(cache_key("a"), b"", {"real_fingerprint": "x"})
    store.put(cache_key("b"), json.dumps(1.0).encode(), {"kind": "ceiling"})
    store.put(cache_key("c"), b"", {})
    kinds = sorted(line.split()[0] for line in tilec("cache", "list")[1].splitlines()[:-1])
    assert kinds == ["built", "ceiling", "nvcc"]


def test_sizes_and_ages() -> None:
    sizes = [999, 1000, 999_949, 999_951, 20_400_000, 3_000_000_000_000]
    wanted = ["999 B", "1.0 kB", "999.9 kB", "1.0 MB", "20.4 MB", "3000.0 GB"]
    assert [size_text(size) for size in sizes] == wanted
    ages = [-5, 59 * 60, 3600, 47 * 3600, 48 * 3600]
    assert [age_text(age) for age in ages] == ["0 min", "59 min", "1 h", "47 h", "2 d"]
