"""The files that ship with tilec: the grammar and the templates."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def resource_path(kind: Literal["grammar", "templates"], relative: str) -> Path:
    """Where the file is: inside the installed package, else beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / kind / relative
    return installed if installed.exists() else package.parent / kind / relative


def resource_text(kind: Literal["grammar", "templates"], relative: str) -> str:
    """The text of the file. Raises OSError where it is missing."""
    return resource_path(kind, relative).read_text(encoding="utf-8")
