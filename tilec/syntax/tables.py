"""The parse tables: built from the grammar by Lark, kept pickled.

An installed package carries `tile.tables` beside its grammar (`python -m tilec.syntax.tables` writes it as a
step of the build). A bare checkout builds them once into the cache directory, `TILEC_CACHE_DIR` or the user's.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.resources import cache_directory, publish, resource_path, resource_text

if TYPE_CHECKING:
    from lark import Lark

GRAMMAR = "tile.lark"
TABLES = "tile.tables"
_FORMAT = b"tilec parse tables 1 "


def fingerprint(grammar: str) -> str:
    """What tables depend on: the grammar, Lark and Python, hashed."""
    import lark

    version = f"{lark.__version__} {sys.version_info[0]}.{sys.version_info[1]}"
    return hashlib.sha256(f"{version}\n{grammar}".encode()).hexdigest()


def build(grammar: str) -> bytes:
    """The tables of `grammar` as a file's content."""
    from lark import Lark

    parser = Lark(grammar, parser="lalr", lexer="basic", start="module")
    buffer = BytesIO()
    parser.save(buffer)
    body = buffer.getvalue()
    return b"\n".join((_head(grammar), _digest(body), body))


def _head(grammar: str) -> bytes:
    return _FORMAT + fingerprint(grammar).encode()


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def load_parser(transformer: object) -> Lark:
    """A parser with `transformer` as its callbacks, from the package, the cache, or built anew."""
    grammar = resource_text("grammar", GRAMMAR)
    expected = _head(grammar)
    cached = cache_directory() / "grammar" / f"{fingerprint(grammar)[:16]}.tables"
    for path in (resource_path("grammar", TABLES), cached):
        parser = _unpack(_read(path), expected, transformer)
        if parser is not None:
            return parser
    content = build(grammar)
    publish(cached, content)
    parser = _unpack(content, expected, transformer)
    assert parser is not None
    return parser


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _unpack(content: bytes, expected: bytes, transformer: object) -> Lark | None:
    """The parser in `content`, or None where it is of another version or damaged."""
    head, _, rest = content.partition(b"\n")
    digest, _, body = rest.partition(b"\n")
    if head != expected or digest != _digest(body):
        return None
    import lark

    # Lark.load takes no transformer; what it calls, and Lark's stand-alone parsers too, does
    load: Any = lark.Lark._load_from_dict
    data = pickle.loads(body)
    parser: Lark = load(data["data"], data["memo"], transformer=transformer)
    return parser


def main() -> int:
    """Write the tables beside the grammar; 1 where that directory cannot be written."""
    path = resource_path("grammar", GRAMMAR).with_name(TABLES)
    return 0 if publish(path, build(resource_text("grammar", GRAMMAR))) else 1


if __name__ == "__main__":
    sys.exit(main())
