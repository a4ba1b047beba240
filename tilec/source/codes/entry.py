"""What the table of codes says about one of them."""

from __future__ import annotations

from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CodeEntry:
    """`title` is one line; `explanation` a paragraph in Markdown: what is wrong, an example, what to write instead."""

    title: str
    explanation: str
