"""Files, imports and the names that they bind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilec.source.diagnostics import TileError
from tilec.syntax import loading
from tilec.syntax.loading import Binding, Namespace, load, read_source


def files(directory: Path, **texts: str) -> str:
    """Write the files (`a__b` for `a/b`) and give the path of `main.tile`."""
    for name, text in texts.items():
        path = directory / (name.replace("__", "/") + ".tile")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(directory / "main.tile")


def refused(path: str) -> list[tuple[str, str]]:
    with pytest.raises(TileError) as caught:
        load(path)
    assert all(d.render() for d in caught.value.diagnostics)
    return [(d.code, d.message) for d in caught.value.diagnostics]


def test_names_of_imports(tmp_path: Path) -> None:
    path = files(
        tmp_path,
        main='import "lib/a.tile"\nimport std.softmax\nconst C = 1\n',
        lib__a='import "b.tile"\nfn f(x): return g(x)\n',
        lib__b="fn g(x): return x\n",
    )
    program = load(path)
    scope = program.scope(program.main)
    assert list(scope) == ["C", "f", "softmax"]
    bound, library = scope["f"], scope["softmax"]
    assert isinstance(bound, Binding) and isinstance(library, Namespace)
    assert list(program.scope(bound.module)) == ["f", "g"]
    assert sorted(library.names) == ["begin", "end", "step"]
    assert program.modules[-1] is program.main and len(program.modules) == 4
    order = [m.source.name for m in program.modules]
    assert order.index(str(tmp_path / "lib/b.tile")) < order.index(str(tmp_path / "lib/a.tile"))
    assert program.files[0] == path
    assert {os.path.basename(f) for f in program.files} == {
        "main.tile",
        "a.tile",
        "b.tile",
        "softmax.tile",
    }
    assert all(os.path.exists(f) for f in program.files)


def test_relative_paths_stay_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, d__main='import "../x.tile"\n', x="const A = 1\n")
    monkeypatch.chdir(tmp_path)
    assert load("d/main.tile").files == ("d/main.tile", "x.tile")


def test_the_same_declaration_reached_twice_is_one(tmp_path: Path) -> None:
    path = files(
        tmp_path,
        main='import "a.tile"\nimport "./a.tile"\nimport "b.tile"\n',
        a="const A = 1\n",
        b='import "a.tile"\nconst B = A\n',
    )
    program = load(path)
    assert list(program.scope(program.main)) == ["A", "B"] and len(program.modules) == 3


def test_names_bound_twice(tmp_path: Path) -> None:
    path = files(
        tmp_path,
        main='import "a.tile"\nfn A(x): return x\nconst B = 1\nconst B = 2\n',
        a="const A = 1\n",
    )
    assert refused(path) == [
        ("E0126", "the name `B` is bound twice"),
        ("E0126", "the name `A` is bound twice"),
    ]


def test_circle(tmp_path: Path) -> None:
    path = files(tmp_path, main='import "a.tile"\n', a='import "b.tile"\n', b='import "a.tile"\n')
    assert refused(path) == [("E0125", "this import closes a circle")]
    assert refused(files(tmp_path, main='import "main.tile"\n'))[0][0] == "E0125"


def test_long_chain_of_imports(tmp_path: Path) -> None:
    texts = {f"m{n}": f'import "m{n + 1}.tile"\n' for n in range(1500)}
    path = files(tmp_path, main='import "m0.tile"\n', m1500="const A = 1\n", **texts)
    assert len(load(path).modules) == 1502


def test_missing_import_points_at_it(tmp_path: Path) -> None:
    with pytest.raises(TileError) as caught:
        load(files(tmp_path, main='const A = 1\nimport "no.tile"\n'))
    (found,) = caught.value.diagnostics
    assert found.code == "E0120" and found.span is not None and found.span.line == 2
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        'import "a.txt"',
        'import "/a.tile"',
        'import "a\\\\b.tile"',
        "import std.nothing",
        "import other.x",
        "import std.a.b",
    ],
)
def test_import_that_names_no_file(tmp_path: Path, text: str) -> None:
    assert [c for c, _ in refused(files(tmp_path, main=text + "\n"))] == ["E0127"]


def test_errors_of_all_files_come_together(tmp_path: Path) -> None:
    path = files(tmp_path, main='import "a.tile"\nconst A = 1 +\n', a="const B = ;\n")
    assert sorted(c for c, _ in refused(path)) == ["E0101", "E0102"]


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def code(path: Path | str) -> str:
        with pytest.raises(TileError) as caught:
            read_source(str(path))
        return caught.value.diagnostics[0].code

    text = tmp_path / "x.tile"
    text.write_bytes(b"const A = 1\n# \xff\n")
    assert code(text) == "E0123"
    assert code(tmp_path / "no.tile") == "E0120"
    assert code(text / "below.tile") == "E0120"
    assert code("a\0b") == "E0120"
    assert code(tmp_path) == "E0121"
    monkeypatch.setattr(loading, "SIZE_LIMIT", 8)
    assert code(text) == "E0124"

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    assert code(text) == "E0122"


def test_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.tile"
    path.write_bytes(b"\xef\xbb\xbfconst A = 1\n")
    assert read_source(str(path)).text == "const A = 1\n"
