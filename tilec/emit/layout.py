"""Layout of generated text: indentation by braces, lines of at most 100 columns."""

from __future__ import annotations

import re

COLUMNS = 100
_BREAKS = re.compile(r", | && | \|\| | \+ | \? | : | \* | = |\(")


def indent(text: str) -> str:
    """C++ text with two blanks for each open brace; `#pragma` and labels at the level of their code, other `#` lines at the margin.
    Continues what is too long on a line that is indented by four more. Blank lines are kept, at most one in a row."""
    result: list[str] = []
    depth = 0
    open_namespaces = 0
    for raw in text.split("\n"):
        line = raw.strip()
        if not line:
            if result and result[-1] and (not result[-1].endswith("{") or depth == 0):
                result.append("")
            continue
        closing = len(line) - len(line.lstrip("}"))
        if closing:
            while result and not result[-1]:
                result.pop()
        level = max(0, depth - closing)
        if line.startswith("#") and not line.startswith("#pragma"):
            level = 0
        if line in ("public:", "private:"):
            level -= 1
        placed = "  " * level + line
        result += [placed] if len(placed) <= COLUMNS else _wrap(placed)
        if "{" not in line and "}" not in line and not line.startswith("namespace"):
            continue
        code = _code(line)
        if code.startswith("namespace"):
            open_namespaces += 1
        elif code.startswith("}") and open_namespaces and depth == 0:
            open_namespaces -= 1
        else:
            depth += code.count("{") - code.count("}")
    return "\n".join(result).strip("\n") + "\n"


def _code(line: str) -> str:
    """The line without strings and comments."""
    if '"' in line:
        line = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
    return line.split("//")[0]


def _wrap(line: str) -> list[str]:
    if len(line) <= COLUMNS:
        return [line]
    stripped = line.lstrip()
    margin = line[: len(line) - len(stripped)]
    if stripped.startswith("//"):
        return _wrap_comment(margin, stripped)
    if stripped.startswith("#") or (
        '"' in stripped and stripped.startswith(("return fail", "static_assert"))
    ):
        return _wrap_code(line, margin)
    return _wrap_code(line, margin)


def _wrap_comment(margin: str, text: str) -> list[str]:
    prefix = re.match(r"/+\s*", text)
    lead = prefix.group(0) if prefix else "// "
    words = text[len(lead) :].split(" ")
    lines, current = [], margin + lead.rstrip() + " "
    start = current
    for word in words:
        if len(current) + len(word) > COLUMNS and current != start:
            lines.append(current.rstrip())
            current = start
        current += word + " "
    lines.append(current.rstrip())
    return lines


def _wrap_code(line: str, margin: str) -> list[str]:
    lines: list[str] = []
    rest, first = line, True
    while len(rest) > COLUMNS:
        spans = [(m.start(), m.end()) for m in re.finditer(r'"(?:\\.|[^"\\])*"', rest)]
        best = -1
        least = len(margin) + (0 if first else 4) + 8
        for match in _BREAKS.finditer(rest):
            cut = match.start() + (1 if match.group(0) in (", ", "(") else 0)
            if match.group(0) not in (", ", "("):
                cut = match.start()
            if cut > COLUMNS or any(a < cut < b for a, b in spans) or cut <= least:
                continue
            if match.group(0) == "(" and best > COLUMNS // 2:
                continue
            best = cut
        if best < 0:
            break
        lines.append(rest[:best].rstrip())
        rest = margin + "    " + rest[best:].strip()
        first = False
    lines.append(rest)
    return lines
