"""Where the files that are not Python code lie: the grammar, the templates, the library written in Tile.

In an installed wheel the grammar and the templates are `tilec/grammar` and `tilec/templates`; in a checkout (also an
editable install) they lie beside the package, as `grammar/` and `templates/`. The library is always `tilec/std`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

ResourceKind = Literal["grammar", "templates", "std"]
"""The three collections of files that ship with tilec."""

_PACKAGE = Path(__file__).resolve().parent


def resource_root(kind: ResourceKind) -> Path:
    """The folder of one collection. Raises FileNotFoundError, naming the places looked at."""
    places = [_PACKAGE / kind]
    if kind != "std":
        places.append(_PACKAGE.parent / kind)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"tilec's {kind} folder is not at {' or '.join(map(str, places))}")


def resource_path(kind: ResourceKind, relative: str) -> Path:
    """The path of one file, `relative` with forward slashes. Raises FileNotFoundError if it is not there."""
    root = resource_root(kind)
    path = root / relative
    if not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
        raise FileNotFoundError(f"tilec has no file {kind}/{relative}")
    return path


def resource_text(kind: ResourceKind, relative: str) -> str:
    """The text of one file, UTF-8. Raises FileNotFoundError if it is not there."""
    return resource_path(kind, relative).read_text(encoding="utf-8")
