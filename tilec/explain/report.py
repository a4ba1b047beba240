"""The report of a compilation: every form of a program from Tile IR to CUDA, each line with the source line that it is from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import PurePosixPath

from tilec.explain.layouts import draw, pictures
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_printer import kernel_lines
from tilec.ir.printer import program_lines
from tilec.ir.tile_ir import Program
from tilec.source.text import Span

_QUOTED = re.compile(r"\s*// (\S+\.tile):(\d+)  ")
_FIRST_PASS = "eliminate_dead"
"""With its result, or those of passes in front that had something to do, the passes over another nest begin."""

Line = tuple[str, int]
"""A line's text and the number of the source line that it is from, 0 for none."""


@dataclass(frozen=True)
class Stage:
    """One form: `what` it is in a sentence, and its lines. `changed`: whether the text differs from the form's before."""

    key: str
    title: str
    what: str
    lines: tuple[Line, ...]
    changed: bool = True


@dataclass(frozen=True)
class View:
    """The way of one compiled variant: the keys of its stages in order, pictures of its layouts."""

    title: str
    stages: tuple[str, ...]
    drawings: tuple[str, ...]


@dataclass
class Observed:
    """Collects what `compile_file` shows of the passes of one file; pass `see` as its `observe`."""

    file: str
    """the name of the main source, whose lines are numbered"""
    nests: list[_Nest] = field(default_factory=list)

    def see(self, kernel: str, arch: str, name: str, result: object) -> None:
        """One pass has run."""
        match result:
            case Program():
                if not self.nests or (
                    name in ("topk", "reindex", _FIRST_PASS) and self.nests[-1].is_begun
                ):
                    self.nests.append(_Nest(kernel, arch))
                self.nests[-1].programs.append((name, self._lines(program_lines(result))))
            case k.Kernel():
                lines = self._lines(kernel_lines(result))
                self.nests[-1].kernels.setdefault(result.name, []).append((name, lines))
            case _:
                pass

    def _lines(self, lines: Sequence[tuple[str, Span]]) -> tuple[Line, ...]:
        return tuple((text, self._number(span)) for text, span in lines)

    def _number(self, span: Span) -> int:
        own = span.source.text and _base(span.source.name) == self.file
        return span.line if own else 0


@dataclass
class _Nest:
    """The forms of one nest: programs, then for each variant's kernel its Kernel IR, by pass."""

    kernel: str
    arch: str
    programs: list[tuple[str, tuple[Line, ...]]] = field(default_factory=list)
    kernels: dict[str, list[tuple[str, tuple[Line, ...]]]] = field(default_factory=dict)

    @property
    def is_begun(self) -> bool:
        """Whether the first pass of all nests has run."""
        return any(name == _FIRST_PASS for name, _ in self.programs)


@dataclass(frozen=True)
class Report:
    """Everything that the report shows of a file."""

    file: str
    source: tuple[str, ...]
    stages: tuple[Stage, ...]
    views: tuple[View, ...]


def report(observed: Observed, source: str, cu: str, kernels: Mapping[str, k.Kernel]) -> Report:
    """Put together what was observed, the generated `.cu` and the Kernel IR of each variant by its name."""
    stages: dict[str, Stage] = {}
    views: dict[
        str, View
    ] = {}  # a compilation that was given up and begun anew shows its passes twice
    for number, nest in enumerate(observed.nests):
        common: list[str] = []
        before: tuple[Line, ...] = ()
        for name, lines in nest.programs:
            key = f"{number}.{name}"
            title = f"Tile IR after {name}"
            stages[key] = Stage(key, title, _what(name), lines, _texts(lines) != _texts(before))
            common.append(key)
            before = lines
        cuda = f"{nest.kernel}.cuda"
        if cuda not in stages:
            lines = tuple(_cuda_lines(cu, nest.kernel, observed.file))
            stages[cuda] = Stage(cuda, "CUDA", "the generated code, between its markers", lines)
        for variant, forms in nest.kernels.items():
            own: list[str] = []
            before = ()
            for name, lines in forms:
                key = f"{variant}.{nest.arch}.{name}"
                title = f"Kernel IR after {name}"
                stages[key] = Stage(key, title, _what(name), lines, _texts(lines) != _texts(before))
                own.append(key)
                before = lines
            drawings = tuple(map(draw, pictures(kernels[variant]))) if variant in kernels else ()
            title = f"{variant}, {nest.arch}"
            views[title] = View(title, (*common, *own, cuda), drawings)
    return Report(
        observed.file, tuple(source.splitlines()), tuple(stages.values()), tuple(views.values())
    )


def _texts(lines: tuple[Line, ...]) -> list[str]:
    return [text for text, _ in lines]


def _what(name: str) -> str:
    """The first sentence of a pass' own description."""
    described = import_module(f"tilec.passes.{name}").__doc__ or ""
    first = " ".join(described.split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".:")


def _cuda_lines(cu: str, kernel: str, file: str) -> Iterator[Line]:
    """A kernel's section between the markers; the quoted line above says what a line is from."""
    from tilec.emit.c_names import c_name
    from tilec.emit.unit import KERNEL_BEGIN, KERNEL_END

    lines = cu.splitlines()
    rule = re.compile(rf"// -+ {re.escape(c_name(kernel))}$")
    start = next((n for n, text in enumerate(lines) if rule.match(text)), len(lines))
    inside, number = False, 0
    for text in lines[start:]:
        if text == KERNEL_BEGIN:
            inside = True
        elif text == KERNEL_END:
            return
        elif inside:
            if found := _QUOTED.match(text):
                number = int(found[2]) if found[1] == file else 0
            elif text.startswith("}"):
                yield text, 0
                number = 0
                continue
            yield text, number


def _base(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).name


def render(found: Report, explanation: str, version: str) -> str:
    """The report as one HTML file that needs nothing else."""
    from tilec.emit.kernel_text import environment

    template = environment().get_template("report/report.html.jinja")
    by_key = {stage.key: number for number, stage in enumerate(found.stages)}
    views = [
        {"title": v.title, "stages": [by_key[s] for s in v.stages], "drawings": v.drawings}
        for v in found.views
    ]
    said = _numbered(explanation, found.file)
    text = template.render(report=found, views=views, explanation=said, version=version)
    return text.strip() + "\n"


def _numbered(explanation: str, file: str) -> list[Line]:
    """The explanation's lines; those about a source line stand below it, indented further."""
    about = re.compile(rf"( +){re.escape(file)}:(\d+)  ")
    lines: list[Line] = []
    number, margin = 0, 0
    for text in explanation.splitlines():
        if found := about.match(text):
            number, margin = int(found[2]), len(found[1])
        elif len(text) - len(text.lstrip()) <= margin:
            number = 0
        lines.append((text, number))
    return lines
