"""How many threads NumPy's products use.

OpenBLAS starts all cores for a product of a few million operations, and they spin for each other: beside another process on
two cores a tile of 128 x 64 x 256 took 12 ms where one thread takes 0.07 ms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("64_", "")


@contextmanager
def one_thread() -> Iterator[None]:
    """Products of NumPy use one thread here, where it brings an OpenBLAS; elsewhere nothing changes."""
    library = _library()
    if library is None:
        yield
        return
    get, put = library
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@cache
def _library() -> tuple[Any, Any] | None:
    """The functions that ask for and set the number of threads in the OpenBLAS of NumPy's wheel."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(path))
            except OSError:
                continue
            for prefix in _PREFIXES:
                for suffix in _SUFFIXES:
                    get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                    put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                    if get is not None and put is not None:
                        return get, put
    return None
