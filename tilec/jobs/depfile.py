"""Dependency files for make and ninja."""

from __future__ import annotations

from collections.abc import Sequence


def depfile_text(target: str, dependencies: Sequence[str]) -> str:
    """The rule `target: dependencies`, then a target without a rule for each but the first, so that make does not
    stop when an imported file is gone (what compilers call `-MP`). `target` is text for make, such as several names."""
    names = [escape(d) for d in dependencies]
    rule = " \\\n  ".join([f"{target}:", *names])
    phony = [f"\n{name}:\n" for name in names[1:]]
    return rule + "\n" + "".join(phony)


def escape(path: str) -> str:
    """A path as make reads it: `$` doubled, blanks and `#` behind a backslash."""
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")
