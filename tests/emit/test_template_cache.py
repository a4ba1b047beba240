"""Compiled templates in the cache folder: read back, and of no consequence where they are damaged or cannot be kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from tilec.emit.template_cache import TemplateCache


def rendered(folder: Path, text: str = "{{ x }} and {{ x }}", options: str = "") -> str:
    cache = TemplateCache(folder, options)
    environment = Environment(loader=DictLoader({"t": text}), bytecode_cache=cache)
    return environment.get_template("t").render(x=3)


def test_code_is_kept_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rendered(tmp_path) == "3 and 3"
    assert len(list(tmp_path.iterdir())) == 1

    def compiled_again(*arguments: object, **named: object) -> object:
        raise AssertionError("compiled although its code is in the cache")

    monkeypatch.setattr(Environment, "_generate", compiled_again)
    assert rendered(tmp_path) == "3 and 3"


def test_other_text_and_other_options_are_other_files(tmp_path: Path) -> None:
    rendered(tmp_path)
    assert rendered(tmp_path, "{{ x }}!") == "3!"
    rendered(tmp_path, options="other")
    assert len(list(tmp_path.iterdir())) == 3


def test_damage_counts_as_absence(tmp_path: Path) -> None:
    rendered(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        assert rendered(tmp_path) == "3 and 3"
        assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_does_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert rendered(tmp_path / "file" / "folder") == "3 and 3"
