"""The text that decodes a grid's instances, compiled for the host: what each CTA walks, in order."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tilec.emit.expressions import Renderer
from tilec.emit.grid import decode, in_sections, instance_loop, next_place, shares
from tilec.emit.primitives import closure
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.symbolic import Sym, Var

NAMES = ("outer", "i", "j")
_HOST = """#include <cstdint>
#include <cstdio>
#include <cstdlib>
#define __device__
#define __forceinline__ inline
struct Dimension { int x; };
Dimension blockIdx, gridDim;
inline float reciprocal_approx(float x) { return 1.0f / x; }
inline void renew(int&) {}
struct { int j_shares[4]; } shared;
"""


def _kernel(counts: Sequence[int], how: dict[str, dict[str, object]]) -> k.Kernel:
    names = NAMES[len(NAMES) - len(counts) :]
    sizes = {name: Sym.of(Var(f"n_{name}", "dim")) for name in names}
    digits = tuple(k.GridDigit(name, sizes[name], **how.get(name, {})) for name in names)  # type: ignore[arg-type]
    total = Sym.of(1)
    for digit in digits:
        total = total * digit.trips
    return k.Kernel("n", "b", 32, 1, 1, (), (), (), digits, total, (), (), (), ())


@cache
def _program(form: str, digits: int) -> Path:
    """A program that prints the digits of every instance: `form` is "plain", "swept", "walked", "uneven", "fresh", "ahead", "drawn" or
    "section" and a size."""
    swept = "swept" in form
    how: dict[str, dict[str, object]] = {"i": {"swept": 8}} if swept else {}
    if "uneven" in form:
        how = {"j": {"uneven": True}}
    if "drawn" in form:
        how = {"outer": {"backwards": True}}
    size = form.removeprefix("section ") if "section" in form else ""
    if size:
        how = {"j": {"backwards": True, "section": size}}
    kernel = _kernel([1] * digits, how)
    names = NAMES[len(NAMES) - digits :]
    render = Renderer({}, lambda sym: True, {})
    if "walked" in form:
        lines = shares(kernel, render)
        walk = a.Instances((), keep="fresh" not in form, ahead="ahead" in form)
        around, numbers = instance_loop(kernel, render, set(names), walk)
        lines += [*around, *numbers]
    elif "drawn" in form:
        kernel, lines, words, tail = in_sections(kernel, render, set(names))
        lines += ["for (int number = 0; number < total; ++number) {"]
        lines += [*decode(kernel, render, words, "number"), *tail]
    else:
        lines = ["for (int number = 0; number < total; ++number) {"]
        lines += decode(kernel, render, set(names), "number")
    shown = 'std::printf("' + " ".join("%d" for _ in names) + '\\n", ' + ", ".join(names) + ");"
    behind = next_place(kernel, render) if "ahead" in form else []
    text = "\n".join([*lines, shown, *behind, "}"])
    sizes = [f"int n_{name} = std::atoi(argv[{n + 3}]);" for n, name in enumerate(names)]
    total = " * ".join(f"n_{name}" for name in names)
    main = "\n".join(
        [
            "int main(int, char** argv) {",
            "(void)argv; blockIdx.x = std::atoi(argv[1]); gridDim.x = std::atoi(argv[2]);",
            *sizes,
            f"int total = {total}; (void)total;",
            text,
            "}",
        ]
    )
    return host_program(main)


@cache
def host_program(main: str) -> Path:
    """A program from C++ text that uses device primitives of plain arithmetic."""
    blocks = [b.text for b in closure(main) if b.name not in ("reciprocal_approx", "renew")]
    folder = Path(tempfile.mkdtemp(prefix="decoding"))
    source = folder / "decode.cc"
    source.write_text(_HOST + "\n".join(blocks) + "\n" + main, encoding="utf-8")
    built = subprocess.run(
        ["g++", "-std=c++17", "-O1", "-o", str(folder / "decode"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder / "decode"


def walked(form: str, counts: Sequence[int], cta: int = 0, ctas: int = 1) -> list[tuple[int, ...]]:
    """The digits of the instances that one CTA of `ctas` walks, in order; `counts` trips of each loop, outermost first."""
    program = _program(form, len(counts))
    words = [str(program), str(cta), str(ctas), *map(str, counts)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    return [tuple(map(int, re.findall(r"-?\d+", line))) for line in ran.stdout.splitlines()]
