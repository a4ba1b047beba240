"""Where the files that are not Python code lie: the grammar, the templates, the library written in Tile.

In an installed wheel the grammar and the templates are `tilec/grammar` and `tilec/templates`; in a checkout (also an
editable install) they lie beside the package, as `grammar/` and `templates/`. The library is always `tilec/std`.
What tilec builds and keeps goes to the cache folder.
"""

from __future__ import annotations

import os
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
    """The path of one file, `relative` with forward slashes; the file itself may be absent.

    Raises FileNotFoundError if the collection is not there or `relative` leads out of it.
    """
    root = resource_root(kind)
    path = root / relative
    if not path.resolve().is_relative_to(root.resolve()):
        raise FileNotFoundError(f"`{relative}` leads out of tilec's {kind} folder")
    return path


def resource_text(kind: ResourceKind, relative: str) -> str:
    """The text of one file, UTF-8. Raises FileNotFoundError if it is not there."""
    return resource_path(kind, relative).read_text(encoding="utf-8")


def cache_directory() -> Path:
    """`TILEC_CACHE_DIR`, else the user's cache folder for tilec; it may not exist, or not be writable."""
    if named := os.environ.get("TILEC_CACHE_DIR"):
        return Path(named)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("tilec", appauthor=False))


def publish(path: Path, content: bytes) -> bool:
    """Write `path` in one step, whoever else does so; False where the directory cannot be written."""
    import tempfile

    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        return False
    return True
