"""Writing output files: all of them or none, each in one step."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tilec.source.diagnostics import TileError, fail

STANDARD_OUTPUT = "-"
"""The path that stands for standard output."""


def write_outputs(files: Mapping[str, bytes], *, if_changed: bool = False) -> None:
    """Write each path's bytes; `-` is standard output, written last.

    Everything is first written beside its place, then renamed into it, so that nobody sees a partial file and an
    error leaves all of them as they were. A device or a pipe is written directly. With `if_changed` a file that holds
    these bytes already keeps its time of modification. Raises TileError (E0704).
    """
    staged: list[tuple[Path, Path]] = []
    direct: list[tuple[str, bytes]] = []
    try:
        for name, content in files.items():
            if name == STANDARD_OUTPUT or (if_changed and _holds(name, content)):
                continue
            place = _stage(name, content)
            if place is None:
                direct.append((name, content))
            else:
                staged.append(place)
        for temporary, target in staged:
            try:
                os.replace(temporary, target)
            except OSError as error:
                raise unwritable(str(target), error) from error
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()
    for name, content in direct:
        try:
            with open(name, "wb") as file:
                file.write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise unwritable(name, error) from error
    if STANDARD_OUTPUT in files:
        sys.stdout.flush()
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None:
            sys.stdout.write(files[STANDARD_OUTPUT].decode(errors="replace"))
        else:
            stream.write(files[STANDARD_OUTPUT])
            stream.flush()


def _holds(name: str, content: bytes) -> bool:
    """Whether `name` is a regular file of these bytes; what cannot be read holds something else."""
    try:
        path = Path(name)
        return (
            path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
        )
    except (OSError, ValueError):
        return False


def unwritable(name: str, error: OSError) -> TileError:
    """The message for a path that cannot be written."""
    reason = (error.strerror or str(error)).lower()
    advice = "name another path with `-o`, or make the folder first"
    return fail("E0704", f"cannot write `{name}`: {reason}", help=advice)


def make_folder(name: str) -> None:
    """Make the folder `name` and its parents. Raises TileError (E0704)."""
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(name, error) from error


def _stage(name: str, content: bytes) -> tuple[Path, Path] | None:
    """(a temporary file with `content`, the place it goes to); None for what is no regular file. A link is followed."""
    if not name or "\0" in name:
        raise fail("E0704", "the path of an output is empty or holds a NUL byte")
    temporary = ""
    try:
        target = Path(os.path.realpath(name))
        mode = 0o666 & ~_umask()
        if target.exists():
            status = target.stat()
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(21, "is a folder")
            if not stat.S_ISREG(status.st_mode):
                return None
            if not os.access(target, os.W_OK):
                raise PermissionError(13, "permission denied")
            mode = stat.S_IMODE(status.st_mode)
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".tilec-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise unwritable(name, error) from error
    return Path(temporary), target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
