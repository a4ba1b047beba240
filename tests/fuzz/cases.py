"""Programs that once were wrong: saved as `.tile` files with their sizes, run again by the tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fuzz.differential import Problem
from tests.fuzz.kernels import Program, Written

CASES = Path(__file__).resolve().parent / "cases"


def save(problem: Problem) -> Path:
    """The case's file. The program is written with the candidate that was wrong; the first lines say what was."""
    program = problem.program
    numbers = ", ".join(f"{n} = {v}" for n, v in problem.sizes.items())
    what = re.sub(r"\s+", " ", problem.what)[:160]
    lines = [f"# seed {program.seed}: {what}"]
    text = program.text("case", problem.candidate)
    if numbers:
        text += f"    example cpu {numbers}\n"
    path = CASES / f"seed_{program.seed}.tile"
    path.write_text("\n".join(lines) + "\n" + text, encoding="utf-8")
    return path


def replayed(path: Path) -> Program:
    """A case as a program: its text as it stands, at the sizes of its examples."""
    text = path.read_text(encoding="utf-8")
    seed = int(found[1]) if (found := re.search(r"# seed (\d+)", text)) else 0
    sizes = [
        {name: int(value) for name, value in re.findall(r"(\w+) = (-?\d+)", line)}
        for line in text.splitlines()
        if line.strip().startswith("example")
    ]
    return Written("", (), (), ({},), {}, tuple(sizes), seed, whole=text)
