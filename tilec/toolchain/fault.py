"""Faults of tilec itself: one paragraph for the user, and a folder from which the fault can be seen again."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

import tilec
from tilec.resources import cache_directory
from tilec.source.diagnostics import TileError, fail
from tilec.toolchain.cache import cache_key


def save_bundle(files: Mapping[str, str | bytes]) -> Path | None:
    """Write `files` (name to content) into a folder named after their content; returns it, None if nothing can be written.

    The folder lies in the cache folder under `faults/`, else in the folder for temporary files. `about.json` with the
    versions is added.
    """
    about = {
        "tilec": tilec.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": sys.argv,
    }
    parts = [p for name in sorted(files) for p in (name, files[name])]
    name = cache_key(*parts)[:12]
    for parent in (cache_directory() / "faults", Path(tempfile.gettempdir()) / "tilec-faults"):
        folder = parent / name
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(files):
                content = files[file]
                raw = content if isinstance(content, bytes) else content.encode()
                (folder / file).write_bytes(raw)
            (folder / "about.json").write_text(json.dumps(about, indent=2) + "\n")
            return folder
    return None


def internal_fault(
    error: BaseException, doing: str, files: Mapping[str, str | bytes] | None = None
) -> TileError:
    """The TileError (E7001, exit status 70) for an exception nobody expected.

    `doing` completes `tilec failed while …`, for example ``running the pass `synchronize` on `gemm.tile` ``; `files`
    are the inputs that show the fault again.
    """
    trace = "".join(traceback.format_exception(error))
    folder = save_bundle({**(files or {}), "traceback.txt": trace})
    where = f"the inputs and the traceback are in `{folder}`" if folder else trace.strip()
    return fail(
        "E7001",
        f"tilec failed while {doing}: {type(error).__name__}: {_first_line(str(error))}",
        note=where,
        help="this is a fault of tilec, not of the program: please report it with that folder",
    )


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text.strip() else "no message"
