"""The work of `tilec new`: a program to start from, complete and right as it is."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from string import Template

from tilec.jobs.outputs import unwritable
from tilec.source.diagnostics import TileError, fail

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_PROGRAM = Template("""\
# Each row of x, divided by its root mean square and scaled.
#
#   tilec run $name.tile
#   tilec compile $name.tile -o $name.cu --header $name.h

# R and C are sizes of a call; `require` holds for every call, and the launcher checks it.
kernel $name(x: f32[R, C], weight: f32[C], eps: f32) -> y: f32[R, C]:
    require C <= 16384

    # One instance for each row. Outside of a tensor elements are absent, so no size needs a mask.
    for r in parallel(R):
        row = x[r, :]
        scale = rsqrt(sum(row * row) / C + eps)
        y[r, :] = row * scale * weight[:]

    # The result on whole arrays, in float64: what `tilec run` compares with.
    check y == x * rsqrt(sum(x * x, axis = 1)[:, None] / C + eps) * weight

    # Sizes to run at: on a GPU, and on the emulator where there is none.
    example R = 8192, C = 4096, eps = 1e-5
    example cpu R = 5, C = 1000, eps = 1e-5
""")


def write_program(name: str) -> Path:
    """Write `NAME.tile` with a kernel of that name; `name` may have folders and `.tile`. Returns its path.

    Raises TileError: E0722 where no kernel can have the name or the file is there, E0704 where it cannot be written.
    """
    path = Path(name if name.endswith(".tile") else f"{name}.tile")
    kernel = path.stem
    if not _NAME.match(kernel):
        raise fail(
            "E0722",
            f"no kernel can have the name `{kernel}`",
            help="take letters, digits and `_`, such as `row_norm`",
        )
    text = _PROGRAM.substitute(name=kernel)
    _check(kernel, text)
    if path.exists() or path.is_symlink():
        raise _there(path)
    try:
        # exclusive: a file that appears in between is left alone
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
    except FileExistsError as error:
        raise _there(path) from error
    except OSError as error:
        raise unwritable(str(path), error) from error
    return path


def _there(path: Path) -> TileError:
    return fail("E0722", f"`{path}` is there already", help="take another name, or remove it first")


def _check(kernel: str, text: str) -> None:
    """Compile it: some names mean something to the language, or are those of the program's own values."""
    from tilec.compiler import compile_file

    with tempfile.TemporaryDirectory(prefix="tilec-") as folder:
        path = Path(folder) / f"{kernel}.tile"
        path.write_text(text, encoding="utf-8")
        try:
            compile_file(str(path), stop="tile-ir")
        except TileError as error:
            raise fail(
                "E0722",
                f"no kernel can have the name `{kernel}`",
                note=error.diagnostics[0].message,
                help="take another name, such as `row_norm`",
            ) from error
