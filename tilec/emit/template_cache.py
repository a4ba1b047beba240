"""Templates that are quick: their Python code is kept in the cache folder, as compiling them takes longer than compiling a small
kernel, and what they call is called without more ado."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket, BytecodeCache
from jinja2.runtime import Context

from tilec.resources import publish


class PlainContext(Context):
    """What a template names. No function that a template calls asks for the context, which Jinja would look for at each call."""

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function; variables of loops and blocks that Jinja passes for the context are dropped."""
        kwargs.pop("_block_vars", None)
        kwargs.pop("_loop_vars", None)
        return function(*args, **kwargs)


class TemplateCache(BytecodeCache):
    """One file a template, named after everything its code depends on: the text, Jinja and its `options`, Python.

    Each begins with the hash of what follows; a damaged file counts as absent, a folder that cannot be written as none.
    """

    def __init__(self, folder: Path, options: str) -> None:
        self._folder = folder
        self._versions = f"{jinja2.__version__}\0{sys.version}\0{options}\0"

    def _path(self, bucket: Bucket) -> Path:
        content = f"{self._versions}{bucket.key}\0{bucket.checksum}"
        return self._folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.code"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills the bucket if its code is there."""
        try:
            content = self._path(bucket).read_bytes()
        except OSError:
            return
        digest, code = content[:32], content[32:]
        if hashlib.sha256(code).digest() == digest:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps the bucket's code."""
        code = bucket.bytecode_to_string()
        publish(self._path(bucket), hashlib.sha256(code).digest() + code)
