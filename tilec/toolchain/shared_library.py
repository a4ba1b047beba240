"""A generated `.cu` as a shared library: its `extern "C"` launcher can then be called through ctypes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilec.source.diagnostics import fail
from tilec.toolchain.build import Built, Toolchain, build
from tilec.toolchain.cache import Cache


def build_shared_library(
    cu_text: str,
    archs: Sequence[str],
    output: Path,
    *,
    toolchain: Toolchain,
    options: Sequence[str] = (),
    cache: Cache | None = None,
) -> Built:
    """Build `cu_text` for each of `archs` with the static CUDA runtime and publish it as `output` by a rename.

    Raises TileError as `tilec.toolchain.build.build`, and E0805 where `output` cannot be written.
    """
    built = build("shared", cu_text, archs, toolchain=toolchain, options=options, cache=cache)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(built.blob)
        os.chmod(temporary, 0o755)
        os.replace(temporary, output)
    except OSError as error:
        raise fail("E0805", f"cannot write `{output}`: {error.strerror}") from error
    return built
