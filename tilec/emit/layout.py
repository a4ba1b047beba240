"""Layout of generated text: indentation by braces, lines of at most 100 columns."""

from __future__ import annotations

import re

COLUMNS = 100
_BREAKS = re.compile(
    r"(?P<statement>; )|(?P<item>, )|(?P<choice> && | \|\| | \? | : | = )"
    r"|(?P<comparison> == | != | <= | >= | < | > )|(?P<term> \+ | - )|(?P<factor> \* )|(?P<bracket>\()"
)
_ORDER = ("statement", "item", "choice", "comparison", "term", "factor", "bracket")
"""What a line is broken at, first what holds its parts together the least."""
_BEHIND = ("statement", "item", "bracket")


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
    """A line that is too long as several; a comment behind code goes above it."""
    stripped = line.lstrip()
    margin = line[: len(line) - len(stripped)]
    if stripped.startswith("//"):
        return _wrap_comment(margin, stripped)
    code, comment = line, ""
    if "  // " in line and '"' not in line:
        code, _, comment = line.partition("  // ")
    above = _wrap_comment(margin, f"// {comment}") if comment else []
    return [*above, *_wrap_code(code, margin)]


def _depths(line: str) -> list[int | None]:
    """How many brackets are open at each character, None inside strings. Those of templates have no blank in front, as comparisons have."""
    depths: list[int | None] = []
    depth, quoted, escaped, before = 0, False, False, " "
    for character in line:
        depths.append(None if quoted else depth)
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "([{" or (character == "<" and before not in " <"):
            depth += 1
        elif character in ")]}" or (character == ">" and before not in " -"):
            depth -= 1
        before = character
    return depths


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
    """Breaks where the fewest brackets are open and the least holds together, as far right as that is, in the right half of the line
    if there is such a place; behind a bracket that opens where there is no other."""
    lines: list[str] = []
    rest, first = line, True
    while len(rest) > COLUMNS:
        depths = _depths(rest)
        least = len(margin) + (0 if first else 4) + 8
        places: list[tuple[bool, int, int, int]] = []
        for match in _BREAKS.finditer(rest):
            kind = str(match.lastgroup)
            cut = match.start() + (kind in _BEHIND)
            depth = depths[match.start()]
            if depth is None or not least < cut <= COLUMNS:
                continue
            late = cut <= COLUMNS // 2 or kind == "bracket"
            places.append((late, depth, _ORDER.index(kind), -cut))
        if not places:
            break
        best = -min(places)[3]
        lines.append(rest[:best].rstrip())
        rest = margin + "    " + rest[best:].strip()
        first = False
    lines.append(rest)
    return lines
