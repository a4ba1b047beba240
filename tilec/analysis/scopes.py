"""Names in scope, innermost first, and what may be bound again."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import field
from typing import Literal

from tilec.analysis.entities import Entity
from tilec.lazy_dataclass import dataclass
from tilec.source.text import Span
from tilec.syntax import ast

BindingKind = Literal["local", "parameter", "span", "dimension"]


@dataclass
class Binding:
    """A name's meaning; `kind` says why it may not be bound again. `span` is where it was declared."""

    entity: Entity
    kind: BindingKind = "local"
    span: Span | None = None


@dataclass
class Scope:
    """A stack of frames of names, above the names of a file. `ended` remembers names whose loop or branch has
    ended, for messages; `bound_somewhere` are all names that the declaration binds at any place."""

    home: ast.Module
    frames: list[dict[str, Binding]] = field(default_factory=lambda: [{}])
    ended: dict[str, tuple[str, Span | None]] = field(default_factory=dict)
    bound_somewhere: frozenset[str] = frozenset()

    def find(self, name: str) -> Binding | None:
        """The innermost local binding."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        return None

    def frame_of(self, name: str) -> dict[str, Binding] | None:
        """The frame that holds the name."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame
        return None

    def bind(
        self, name: str, entity: Entity, kind: BindingKind = "local", span: Span | None = None
    ) -> None:
        """Bind in the frame where the name is, else in the innermost."""
        frame = self.frame_of(name)
        if frame is None:
            frame = self.frames[-1]
            self.ended.pop(name, None)
        frame[name] = Binding(entity, kind, span)

    def declare(
        self, name: str, entity: Entity, kind: BindingKind, span: Span | None = None
    ) -> None:
        """Bind in the innermost frame."""
        self.ended.pop(name, None)
        self.frames[-1][name] = Binding(entity, kind, span)

    def enter(self) -> None:
        """Open a frame."""
        self.frames.append({})

    def leave(self, reason: str) -> dict[str, Binding]:
        """Close the innermost frame; its names end for that reason ("loop", "branch")."""
        frame = self.frames.pop()
        for name, binding in frame.items():
            self.ended.setdefault(name, (reason, binding.span))
        return frame

    def visible(self) -> list[str]:
        """All local names in scope, in order."""
        return list(dict.fromkeys(n for frame in self.frames for n in frame))


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The most similar name, if one is similar enough."""
    found = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None
