"""Templates as compiled Python code in the cache folder: compiling them takes longer than compiling a small kernel."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from tilec.resources import publish


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
