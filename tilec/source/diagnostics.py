"""Diagnostics: what is wrong, where, and what to change.

The anatomy is rustc's: `error[E0312]: sentence`, `--> file:line:column`, the line with carets, `note:` for
context, `help:` for the change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from tilec.lazy_dataclass import dataclass
from tilec.source.codes import CODES, exit_code
from tilec.source.text import Span

MESSAGE_LIMIT = 20
"""Messages printed in full; the rest are counted."""


@dataclass(frozen=True)
class Label:
    """A secondary place in the source with a few words about it."""

    span: Span
    text: str


@dataclass(frozen=True)
class Diagnostic:
    """One message. `code` must be in the table of codes; `span` is None where no source is involved. For a place in a `fn` the call is
    shown too, and for one in the library it is the place of the message."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.code in CODES, f"code {self.code} is not in the table of codes"
        span = self.span
        if span is None or span.called is None or self.secondary:
            return
        if span.source.library:
            object.__setattr__(self, "span", span.called)
            object.__setattr__(self, "secondary", (Label(span, "this is expanded"),))
        else:
            object.__setattr__(self, "secondary", (Label(span.called, "expanded here"),))

    @property
    def level(self) -> str:
        """`error` or `warning`, by the letter of the code."""
        return "warning" if self.code.startswith("W") else "error"

    def render(self) -> str:
        """The message as text, without colours, no newline at the end."""
        out = [f"{self.level}[{self.code}]: {self.message}"]
        places = [Label(self.span, self.label)] if self.span else []
        places += self.secondary
        if places:
            numbers = [p.span.source.location(p.span.start)[0] for p in places]
            gutter = " " * len(str(max(numbers)))
            for index, place in enumerate(places):
                arrow = "-->" if index == 0 else ":::"
                line, column = place.span.source.location(place.span.start)
                text = place.span.source.line(line)
                shown, column = _window(text, column)
                width = max(1, min(place.span.end - place.span.start, len(shown) - column + 1))
                mark = ("^" if index == 0 else "-") * width
                out.append(f"{gutter}{arrow} {place.span}")
                out.append(f"{gutter} |")
                out.append(f"{line:>{len(gutter)}} | {shown}")
                out.append(f"{gutter} | {' ' * (column - 1)}{mark} {place.text}".rstrip())
        prefix = "  = " if places else ""
        out += [f"{prefix}note: {n}" for n in self.notes]
        out += [f"{prefix}help: {h}" for h in self.helps]
        return "\n".join(out)

    def as_json(self) -> dict[str, Any]:
        """The message as plain data; lines and columns count from 1."""

        def place(span: Span) -> dict[str, Any]:
            line, column = span.source.location(span.start)
            end_line, end_column = span.source.location(span.end)
            return {
                "file": span.source.name,
                "line": line,
                "column": column,
                "end_line": end_line,
                "end_column": end_column,
            }

        return {
            "code": self.code,
            "level": self.level,
            "message": self.message,
            "span": place(self.span) if self.span else None,
            "label": self.label,
            "secondary": [{"span": place(s.span), "text": s.text} for s in self.secondary],
            "notes": list(self.notes),
            "helps": list(self.helps),
        }


def _window(text: str, column: int, width: int = 160) -> tuple[str, int]:
    """A long line cut to at most `width` characters around `column`; control characters shown as blanks."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    if len(clean) <= width:
        return clean, min(column, len(clean) + 1)
    start = max(0, min(column - 1 - width // 2, len(clean) - width))
    return clean[start : start + width], column - start


class TileError(Exception):
    """Stops the work with one or more diagnostics, at least one of them an error."""

    def __init__(self, diagnostics: Iterable[Diagnostic]):
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.message for d in self.diagnostics))

    @property
    def exit_code(self) -> int:
        """The exit status that the errors ask for; the worst of them."""
        return max((exit_code(d.code) for d in self.diagnostics if d.level == "error"), default=1)


def fail(
    code: str,
    message: str,
    span: Span | None = None,
    *,
    label: str = "",
    note: str = "",
    help: str = "",
) -> TileError:
    """A TileError of one diagnostic, to be raised by the caller."""
    return TileError(
        [
            Diagnostic(
                code, message, span, label, (), (note,) if note else (), (help,) if help else ()
            )
        ]
    )


@dataclass
class Sink:
    """Collects diagnostics so that all errors of a file appear in one go; the same mistake is kept once."""

    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep `diagnostic` unless an equal one is there."""
        if diagnostic not in self.diagnostics:
            self.diagnostics.append(diagnostic)

    def error(
        self,
        code: str,
        message: str,
        span: Span | None = None,
        *,
        label: str = "",
        secondary: tuple[Label, ...] = (),
        note: str = "",
        help: str = "",
    ) -> None:
        """Add one message (a warning where the code starts with W)."""
        self.add(
            Diagnostic(
                code,
                message,
                span,
                label,
                secondary,
                (note,) if note else (),
                (help,) if help else (),
            )
        )

    warning = error

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors among the messages."""
        return [d for d in self.diagnostics if d.level == "error"]

    def raise_if_errors(self) -> None:
        """Raise TileError with everything collected if there is an error among it."""
        if self.errors:
            raise TileError(self.diagnostics)


def render_all(diagnostics: Iterable[Diagnostic]) -> str:
    """All messages as text, at most MESSAGE_LIMIT in full, then a count."""
    shown = list(diagnostics)
    parts = [d.render() for d in shown[:MESSAGE_LIMIT]]
    if len(shown) > MESSAGE_LIMIT:
        parts.append(f"and {len(shown) - MESSAGE_LIMIT} more messages")
    return "\n\n".join(parts)


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """All messages as a JSON array."""
    return json.dumps([d.as_json() for d in diagnostics], indent=2)
