"""Program text and positions in it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from functools import cached_property

from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Source:
    """One `.tile` file in memory.

    `name` is what messages print (the path as the user wrote it), `path` the resolved path used for
    imports and dependency files, or "" for text that came from elsewhere. `library`: a module of `std`.
    """

    name: str
    text: str
    path: str = ""
    library: bool = False

    @cached_property
    def line_starts(self) -> list[int]:
        """Offsets of the first character of each line."""
        starts = [0]
        position = self.text.find("\n")
        while position != -1:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts

    def location(self, offset: int) -> tuple[int, int]:
        """(line, column) of a character offset, both counted from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Text of line `number` (from 1) without its newline."""
        start = self.line_starts[number - 1]
        end = self.line_starts[number] - 1 if number < len(self.line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


@dataclass(frozen=True)
class Span:
    """Characters [start, end) of a source; in a `fn` that is expanded `called` is the outermost call."""

    source: Source = field(repr=False)
    start: int
    end: int
    called: Span | None = field(default=None, repr=False, compare=False)

    @property
    def line(self) -> int:
        """Line of the first character, counted from 1."""
        return self.source.location(self.start)[0]

    @property
    def text(self) -> str:
        """The characters themselves."""
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The span from here to the end of `other`."""
        return Span(self.source, self.start, max(self.end, other.end))

    def __str__(self) -> str:
        line, column = self.source.location(self.start)
        return f"{self.source.name}:{line}:{column}"


NOWHERE = Span(Source("<none>", ""), 0, 0)
"""Position of what no program text stands for."""
