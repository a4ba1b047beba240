"""The files of a program: reading them, following their imports, and the names that each of them sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TypeAlias

from tilec.lazy_dataclass import dataclass
from tilec.source.diagnostics import Label, Sink, TileError, fail
from tilec.source.text import Source, Span
from tilec.syntax.ast import Const, Fn, Import, Kernel, Module
from tilec.syntax.parser import parse

SIZE_LIMIT = 64 << 20
"""Bytes of the largest file that is read."""

STD = Path(__file__).resolve().parent.parent / "std"
"""Where the library written in Tile lies."""


@dataclass(frozen=True)
class Binding:
    """What a name means: a declaration and the module that holds it, in whose scope its body is read."""

    item: Const | Fn | Kernel
    module: Module


@dataclass(frozen=True)
class Namespace:
    """What `softmax` means after `import std.softmax`: the declarations of that module."""

    module: Module
    names: Mapping[str, Binding]


Scope: TypeAlias = Mapping[str, Binding | Namespace]


@dataclass(frozen=True)
class Program:
    """A file and all that it imports.

    `modules` has imported modules before those that import them, `main` last. `files` are the paths read, as a
    dependency file lists them: `main` first, then the others sorted. `scopes` maps `module.source.path` to the
    names that the module binds.
    """

    main: Module
    modules: tuple[Module, ...]
    files: tuple[str, ...]
    scopes: Mapping[str, Scope] = field(repr=False)

    def scope(self, module: Module) -> Scope:
        """The names that `module` declares and imports."""
        return self.scopes[module.source.path]


def read_source(path: str, name: str = "") -> Source:
    """The text at `path`; messages call it `name`, by default the path as given.

    Raises TileError: E0120 no such file, E0121 a directory, E0122 not readable, E0123 not UTF-8, E0124 larger
    than SIZE_LIMIT.
    """
    name = name or path
    try:
        with open(path, "rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        shown = name.replace("\0", "\\0")
        raise fail("E0120", f"there is no file `{shown}`", help="check the path") from None
    except IsADirectoryError:
        raise fail("E0121", f"`{name}` is a directory", help="give a `.tile` file") from None
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise fail("E0122", f"`{name}` cannot be read: {reason}") from None
    if len(content) > SIZE_LIMIT:
        raise fail("E0124", f"`{name}` is larger than {SIZE_LIMIT >> 20} MB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise fail(
            "E0123",
            f"`{name}` is not UTF-8: byte 0x{content[error.start]:02X} in line {line}",
            help="save the file as UTF-8",
        ) from None
    return Source(name, text, os.path.realpath(path))


Read: TypeAlias = Callable[[str, str], Source]
"""Path and name to source, as `read_source`."""


def load(path: str, read: Read = read_source) -> Program:
    """The program at `path`. Raises TileError with all syntax errors of all its files, or what `read` raises."""
    return load_source(read(path, path), read)


def load_source(source: Source, read: Read = read_source) -> Program:
    """The program whose main file is `source`; with no path, its imports are relative to where tilec runs."""
    sink = Sink()
    modules, imports = _reachable(source, read, sink)
    ordered = _ordered(source.path, modules, imports, sink)
    sink.raise_if_errors()
    scopes: dict[str, Scope] = {}
    declared: dict[str, dict[str, Binding]] = {}
    for module in ordered:
        declared[module.source.path] = _declared(module, sink)
    for module in ordered:
        key = module.source.path
        scopes[key] = _scope(module, declared, imports[key], modules, sink)
    sink.raise_if_errors()
    files = {_listed(m.source) for m in ordered[:-1]}
    main = _listed(source)
    others = sorted(files - {main})
    return Program(ordered[-1], ordered, (main, *others) if source.path else tuple(others), scopes)


def _listed(source: Source) -> str:
    """How a dependency file names `source`: the library by its place, others as messages do."""
    return source.path if _in_std(source.path) else source.name


def _in_std(path: str) -> bool:
    return path.startswith(str(STD) + os.sep)


Imports: TypeAlias = dict[str, list[tuple[Import, str]]]
"""For each module's path its imports and the paths of the modules that they name."""


def _reachable(source: Source, read: Read, sink: Sink) -> tuple[dict[str, Module], Imports]:
    """All modules that `source` reaches, by path, parsed."""
    modules: dict[str, Module] = {}
    imports: Imports = {}
    waiting = [source]
    while waiting:
        current = waiting.pop()
        module = parse(current, sink)
        modules[current.path] = module
        imports[current.path] = []
        for item in module.items:
            if not isinstance(item, Import):
                continue
            try:
                path, name = _target(item, current)
                key = os.path.realpath(path)
                if key not in modules and all(w.path != key for w in waiting):
                    waiting.append(_placed(read(path, name), key))
            except TileError as error:
                for diagnostic in error.diagnostics:
                    sink.add(replace(diagnostic, span=diagnostic.span or item.span))
            else:
                imports[current.path].append((item, key))
    return modules, imports


def _placed(source: Source, path: str) -> Source:
    """`source` with its resolved path, which a reader of memory may not know."""
    library = _in_std(path)
    known = source.path == path and not library
    return source if known else Source(source.name, source.text, path, library)


def _target(item: Import, importer: Source) -> tuple[str, str]:
    """Path and name of the file that `item` means."""
    if item.path is None:
        if len(item.module) != 2 or item.module[0] != "std":
            shown = ".".join(item.module)
            raise fail(
                "E0127",
                f"there is no module `{shown}`",
                item.span,
                help='write `import std.NAME`, or `import "file.tile"` for a file of your own',
            )
        file = f"{item.module[1]}.tile"
        if not (STD / file).is_file():
            known = ", ".join(f"`std.{p.stem}`" for p in sorted(STD.glob("*.tile")))
            raise fail(
                "E0127",
                f"the library has no module `std.{item.module[1]}`",
                item.span,
                help=f"there is {known}",
            )
        return str(STD / file), f"std/{file}"
    path = item.path
    if not path.endswith(".tile") or path.startswith("/") or "\\" in path or "\0" in path:
        raise fail(
            "E0127",
            f"`{path}` is not the relative path of a `.tile` file",
            item.span,
            help='write it relative to this file: `import "blocks/other.tile"`',
        )
    base = os.path.dirname(importer.path) if importer.path else ""
    name = os.path.normpath(os.path.join(os.path.dirname(importer.name), path))
    return os.path.join(base, path), name


def _ordered(
    main: str, modules: dict[str, Module], imports: Imports, sink: Sink
) -> tuple[Module, ...]:
    """The modules with imported ones first; circles go to `sink`."""
    finished: dict[str, Module] = {}
    open_paths = {main: 0}
    stack = [(main, iter(imports[main]))]
    while stack:
        path, remaining = stack[-1]
        step = next(remaining, None)
        if step is None:
            stack.pop()
            del open_paths[path]
            finished[path] = modules[path]
            continue
        item, target = step
        if target in open_paths:
            circle = [modules[p].source.name for p, _ in stack[open_paths[target] :]]
            shown = " → ".join(f"`{n}`" for n in (*circle[:8], circle[0]))
            sink.error(
                "E0125",
                "this import closes a circle",
                item.span,
                note=f"the circle is {shown}",
                help="move what the files share into another file",
            )
        elif target not in finished:
            open_paths[target] = len(stack)
            stack.append((target, iter(imports[target])))
    return tuple(finished.values())


def _declared(module: Module, sink: Sink) -> dict[str, Binding]:
    """The declarations of `module` by name."""
    names: dict[str, Binding] = {}
    for item in module.items:
        if isinstance(item, Import):
            continue
        if item.name in names:
            _bound_twice(item.name, _name_span(item), _name_span(names[item.name].item), sink)
        else:
            names[item.name] = Binding(item, module)
    return names


def _name_span(item: Const | Fn | Kernel) -> Span:
    """The first line of a declaration, or a kernel's name."""
    if isinstance(item, Kernel):
        return item.name_span
    text = item.span.source.text
    start = text.index(item.name, item.span.start + (2 if isinstance(item, Fn) else 5))
    return Span(item.span.source, start, start + len(item.name))


def _scope(
    module: Module,
    declared: Mapping[str, dict[str, Binding]],
    imports: list[tuple[Import, str]],
    modules: Mapping[str, Module],
    sink: Sink,
) -> Scope:
    """What `module` declares and imports, by name."""
    names: dict[str, Binding | Namespace] = dict(declared[module.source.path])
    places = {name: _name_span(b.item) for name, b in declared[module.source.path].items()}
    for item, target in imports:
        if item.path is None:
            offered: dict[str, Binding | Namespace] = {
                item.module[-1]: Namespace(modules[target], declared[target])
            }
        else:
            offered = dict(declared[target])
        for name, bound in offered.items():
            if name not in names:
                names[name] = bound
                places[name] = item.span
            elif not _same(names[name], bound):
                _bound_twice(name, item.span, places[name], sink)
    return names


def _same(one: Binding | Namespace, other: Binding | Namespace) -> bool:
    """Whether both are the same declaration, reached twice."""
    if isinstance(one, Binding) and isinstance(other, Binding):
        return one.item is other.item
    return type(one) is type(other) and one.module is other.module


def _bound_twice(name: str, span: Span, first: Span, sink: Sink) -> None:
    sink.error(
        "E0126",
        f"the name `{name}` is bound twice",
        span,
        secondary=(Label(first, "first here"),),
        help="rename one of them",
    )
