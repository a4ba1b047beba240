"""The table that the README and docs/performance.md begin with: kernels beside what a user would call instead, from the files of bench/results.

usage: python bench/summary.py [--check]

Writes the table between the two marks of each document; `--check` writes nothing and exits with 1 where one is out of date.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "performance.md")
BEGIN, END = "<!-- bench/summary.py writes from here -->", "<!-- to here -->"


@dataclass(frozen=True)
class Line:
    """One row of the table: of the cases of a file of results that `cases` matches, the ratios under `keys`, each with dots
    between the names of nested tables."""

    what: str
    beside: str
    file: str
    cases: str
    keys: tuple[str, ...]


LINES = (
    Line("product, bf16", "cuBLAS", "warpgroups", "gemm_n", ("of_torch",)),
    Line(
        "product + bias + ReLU or GELU, bf16",
        "cuBLASLt, with the epilogue",
        "warpgroups",
        "gemm_bias",
        ("of_lt",),
    ),
    Line(
        "product, fp8, f16, tf32, int8",
        "cuBLASLt",
        "operand_types",
        "",
        ("nn_of_torch", "nt_of_torch"),
    ),
    Line("product of 1 to 128 rows, bf16", "cuBLAS", "skinny", "", ("read.of_torch",)),
    Line(
        "product of rows that begin anywhere, bf16",
        "cuBLAS",
        "anywhere",
        "(?!.* 4096$)",
        ("of_torch",),
    ),
    Line("attention, 64 and 128 columns", "cuDNN", "warpgroups_attention", "", ("of_cudnn",)),
    Line("attention, 96 and 256 columns", "cuDNN", "variants_heads", "D", ("of_cudnn",)),
    Line(
        "attention, 64 and 128 columns",
        "PyTorch's FlashAttention-2",
        "warpgroups_attention",
        "",
        ("of_flash",),
    ),
    Line("masks, biases, soft caps", "flex_attention", "variants_flex", "", ("of_flex",)),
    Line("other forms of attention", "flex_attention", "variants_unseen", "", ("of_flex",)),
    Line("decoding", "reading the cache alone", "variants_heads", "decode", ("of_limit",)),
    Line("softmax, norms, casts of rows", "a copy of the same bytes", "row_cells", "", ("ratio",)),
)


def ratios(line: Line) -> Iterator[float]:
    """The ratios of a line, in the order of the file."""
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{line.file}.json").read_text())["rows"]
    for row in rows:
        for key in line.keys if re.match(line.cases, row["case"]) else ():
            value: Any = row
            for name in key.split("."):
                value = value.get(name, {})
            if value:
                yield float(value)


def table() -> str:
    """The table as Markdown."""
    lines = [
        "| kernel | beside | times as fast: median | least to most | cases | file |",
        "|---|---|---|---|---|---|",
    ]
    for line in LINES:
        found = list(ratios(line))
        span = f"{min(found):.2f} to {max(found):.2f}"
        middle = f"{statistics.median(found):.2f}"
        lines.append(
            f"| {line.what} | {line.beside} | {middle} | {span} | {len(found)} | `{line.file}.json` |"
        )
    return "\n".join(lines)


def with_table(text: str) -> str:
    """A document with the table of today between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, "the document has no marks"
    return f"{before}{begin}\n{table()}\n{end}{after}"


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    status = 0
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        wanted = with_table(text)
        if options.check and wanted != text:
            print(f"{document.name} is out of date: run `python bench/summary.py`", file=sys.stderr)
            status = 1
        if not options.check:
            document.write_text(wanted, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
