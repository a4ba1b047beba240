"""Codes E01: syntax, and reading the files of a program."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    "E0101": CodeEntry(
        "unexpected text",
        "The parser met something that cannot stand there, for example `for i in parallel(N)` without the `:` at "
        "its end. The message names what was found and what could follow. After such an error the rest of the "
        "declaration is skipped, so each declaration reports at most one.",
    ),
    "E0102": CodeEntry(
        "character that Tile does not use",
        "A character outside the alphabet of the language: `;`, `{`, `'`, a NUL byte, a letter that is not ASCII "
        'in a name. Statements end with their line, blocks are indented, strings are written `"so"`.',
    ),
    "E0103": CodeEntry(
        "indentation",
        "Blocks are lines indented alike, as in Python. The line is indented like no open block, mixes tabs and "
        "spaces differently from the line above it, or is indented where no block begins.",
    ),
    "E0104": CodeEntry(
        "bracket not closed, or closed by another kind",
        "Every `(` and `[` needs its `)` and `]`: `x = max(a, b` goes on over the lines that follow until a "
        "bracket closes it. The message points at the bracket that was opened.",
    ),
    "E0105": CodeEntry(
        "comparison chain",
        "`a < b < c` is not part of Tile, because over tiles it has no single natural meaning. Write "
        "`a < b and b < c` for scalars and `(a < b) & (b < c)` for tiles.",
    ),
    "E0106": CodeEntry(
        "number that cannot be read",
        "Integers are `1024`, `1_000_000` or `0x1F`; floats `0.5`, `.5`, `1e-6`. A name cannot begin with a digit, "
        "and a literal has at most 100 characters and a finite value (`inf` and `nan` are names).",
    ),
    "E0107": CodeEntry(
        "string that cannot be read",
        'A string stands between `"` and `"` on one line. Inside, `\\n`, `\\t`, `\\"` and `\\\\` are the escapes.',
    ),
    "E0108": CodeEntry(
        "statement without effect",
        "A line that only computes a value does nothing. Assign it (`x = a + b`), store it (`c[i] = a[i] + b[i]`) "
        "or, in a `check:` block, compare it with `==`.",
    ),
    "E0109": CodeEntry(
        "not something that can be assigned to",
        "The left of `=` is a name, names separated by commas, or an indexed tensor: `x = …`, `a, b = …`, "
        "`c[i, j] = …`. The left of `+=` is a name or an indexed tensor.",
    ),
    "E0110": CodeEntry(
        "nested too deeply",
        "Blocks, brackets and operators nest at most 200 deep; a chain such as `a + b + …` counts each operator. "
        "Name a part of the expression on a line of its own, or move it into a `fn`.",
    ),
    "E0111": CodeEntry(
        "construct of another language",
        "`while`, `break`, `def`, `class`, `lambda` and the like are not part of Tile. The message says what to "
        "write instead: `for … in range(…)`, `fn`, `kernel`.",
    ),
    "E0112": CodeEntry(
        "clause or statement in the wrong place",
        "`require`, `tune`, `schedule`, `temp`, `check`, `example`, `flops` and `bytes` stand directly in the body of "
        "a kernel. `return` is the last line of a `fn`, and nowhere else. Declarations start in column 0.",
    ),
    "E0113": CodeEntry(
        "too many syntax errors",
        "After 200 syntax errors the rest of the file is not read; it is probably not a Tile program.",
    ),
    "E0114": CodeEntry(
        "boolean of another language",
        "The booleans of Tile are `true` and `false`, in lower case.",
    ),
    "E0115": CodeEntry(
        "loop that is none of Tile's",
        "Loops are `for i, j in parallel(M by BM, N by BN)` (the grid, one range a name), `for k in range(K by BK)` "
        "(in order) and `for s in unroll(4)` (at compile time), the last two with one name and one range.",
    ),
    "E0116": CodeEntry(
        "argument in the wrong place",
        "In a call the arguments without a name come first, a name is given once, and `print` takes none by name: "
        "write `sum(x, axis=1)`, not `sum(axis=1, x)`.",
    ),
    "E0120": CodeEntry(
        "file not found",
        "There is no file at this path. An import is relative to the file that holds it: in `kernels/a.tile`, "
        '`import "b.tile"` means `kernels/b.tile`.',
    ),
    "E0121": CodeEntry("not a file", "A program is a file; this path is a directory or a device."),
    "E0122": CodeEntry(
        "file not readable", "The system refuses to read the file; check its permissions."
    ),
    "E0123": CodeEntry(
        "file is not UTF-8", "Program text is UTF-8. Save the file in that encoding."
    ),
    "E0124": CodeEntry("file too large", "A program file has at most 64 MB."),
    "E0125": CodeEntry(
        "imports in a circle",
        "A file imports itself, directly or through others. Move what both need into a third file.",
    ),
    "E0126": CodeEntry(
        "name bound twice",
        "Two declarations of a file, or a declaration and an import, bind the same name. Rename one of them.",
    ),
    "E0127": CodeEntry(
        "import that names no file",
        'Imports are `import "other.tile"`, a relative path with `/` between its parts, or `import std.NAME`, a '
        "module of the library that ships with tilec.",
    ),
}
