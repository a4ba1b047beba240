"""Calls of known forms in C: an extension of CPython (`templates/python/fast_call.cc`), built by the host compiler once for a Python,
a compiler and a machine, and kept in the cache.

It does what `tilec.calling.repeated` does in Python, and is not needed for a result. It is taken where there are a compiler and `Python.h`,
unless `TILEC_FAST_CALL` is 0.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from tilec.calling import repeated
from tilec.calling.launchers import kept_folder
from tilec.resources import resource_text
from tilec.source.diagnostics import TileError

FAST_WAY = "c launcher, fast call"
"""`Kernel.last_path` of such a call."""

_MODULE = "tilec_fast_call"
_FILES = ("fast_call.cc", "reading.h")
_FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-w",
    "-Wl,--as-needed",
)  # fmt: skip


@cache
def extension() -> Any | None:
    """The extension; None where it is switched off, or cannot be built or loaded."""
    if os.environ.get("TILEC_FAST_CALL") == "0" or sys.implementation.name != "cpython":
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None  # it relies on the lock of the interpreter
    places = [sysconfig.get_path(kind) for kind in ("include", "platinclude")]
    if not any(Path(place, "Python.h").is_file() for place in places):
        return None
    try:
        return _loaded(list(dict.fromkeys(places)))
    except (TileError, OSError, ImportError):
        return None


def _loaded(places: list[str]) -> Any:
    """The library, built where the cache has none. Raises TileError without a compiler, ImportError where it does not compile."""
    from tilec.toolchain.cache import cache_key
    from tilec.toolchain.host_compiler import find_host_compiler

    texts = {name: resource_text("templates", f"python/{name}") for name in _FILES}
    compiler = find_host_compiler()
    machine = os.uname().machine
    identity = (sys.version, str(sysconfig.get_config_var("SOABI")), compiler.identity, machine)
    folder, temporary = kept_folder("extensions")
    path = (
        folder / f"{cache_key('fast call 1', *texts.values(), *identity, *_FLAGS, *places)[:32]}.so"
    )
    if not path.is_file():
        _build([str(compiler.path), *_FLAGS, *(f"-I{place}" for place in places)], texts, path)
    loader = ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    if temporary is not None:
        temporary.cleanup()  # what is loaded stays
    return module


def _build(command: list[str], texts: Mapping[str, str], path: Path) -> None:
    from tilec.toolchain.process import run_tool

    with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as made:
        for name, text in texts.items():
            Path(made, name).write_text(text, encoding="utf-8")
        library = Path(made, path.name)
        ran = run_tool([*command, str(Path(made, _FILES[0])), "-o", str(library)], timeout=300)
        if ran.status != 0 or not library.is_file():
            raise ImportError(ran.output)
        os.replace(library, path)


def new_forms(fallback: Callable[..., Any]) -> Any:
    """An empty collection of forms with what a call needs of PyTorch, which must be imported; `fallback` is called, with the kernel in
    front, for what is no call of a known form. `extension()` must be there."""
    module, torch = extension(), sys.modules["torch"]
    assert module is not None
    count = getattr(torch.cuda, "device_count", None)
    return module.Forms(
        tensor=torch.Tensor,
        parameter=torch.nn.Parameter,
        empty=torch.empty,
        byte=torch.uint8,
        # the only device is always the current one
        current_device=None
        if count is not None and count() == 1
        else repeated.current_device(torch),
        stream=repeated.stream_reader(torch),
        exchange=getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
        fallback=fallback,
        way=FAST_WAY,
        limit=repeated.FORMS_KEPT,
    )


@cache
def fast_class(base: type) -> type:
    """A class as `base` whose instances are called through the extension, which must be there."""
    module = extension()
    assert module is not None
    names = {n: getattr(base, n) for n in ("__module__", "__qualname__", "__doc__")}
    made = type(base.__name__, (base,), {"__slots__": (), **names})
    module.install(made)
    return made
