"""Every compiled sample for every architecture with nvcc, warnings as errors: spills and stack frames are faults. Attention at other
depths and with a mask too: they decide how many registers a thread has for accumulators.

usage: python bench/nvcc_matrix.py [--nvcc PATH]... [--arch ARCH]... [--jobs N] [--out FILE] [FILE.tile KERNEL]...
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from records import command

from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import find_toolchain
from tilec.toolchain.cache import default_cache
from tilec.toolchain.matrix import ARCHITECTURES, Cell, as_json, compile_cell, table

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"


Wanted = tuple[str, str, dict[str, str]]
"""File, kernel and bracket parameters."""

ATTENTION: list[Wanted] = [
    ("attention.tile", "attention", {"D": str(depth), "CAUSAL": causal})
    for depth in (64, 96, 128, 256)
    for causal in ("false", "true")
    if (depth, causal) != (128, "false")  # the sample as it is
]


def compiled_samples() -> list[tuple[str, str]]:
    """(file, kernel) of each line of `samples/compiled.txt`."""
    lines = (SAMPLES / "compiled.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [(found[0], found[1]) for found in words]


def main() -> int:
    """Prints a table and writes the JSON; 1 where there is a fault, 3 without nvcc."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", action="append", default=[])
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "matrix")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "nvcc_matrix.json")
    parser.add_argument("kernels", nargs="*", help="FILE.tile KERNEL, in pairs")
    options = parser.parse_args()
    named = list(zip(options.kernels[::2], options.kernels[1::2], strict=True))
    plain: list[Wanted] = [(file, kernel, {}) for file, kernel in named or compiled_samples()]
    wanted = plain if named else [*plain, *ATTENTION]
    cache = default_cache()
    try:
        toolchains = [find_toolchain(n, cache=cache) for n in options.nvcc or (None,)]
    except TileError as error:
        print("\n".join(d.render() for d in error.diagnostics), file=sys.stderr)
        return error.exit_code
    options.build.mkdir(parents=True, exist_ok=True)
    sources: list[tuple[Path, str]] = []
    refused: list[dict[str, str]] = []
    for arch in options.arch or ARCHITECTURES:
        for file, kernel, defines in wanted:
            words = "".join(f".{n}_{v}" for n, v in defines.items())
            path = options.build / f"{Path(file).stem}.{kernel}{words}.{arch}.cu"
            try:
                result = compile_file(
                    str(SAMPLES / file), kernel=kernel, archs=(arch,), defines=defines
                )
            except TileError as error:
                why = f"{error.diagnostics[0].code}: {error.diagnostics[0].message}"
                refused.append({"file": file, "kernel": kernel + words, "arch": arch, "why": why})
                continue
            path.write_text(result.cu, encoding="utf-8")
            sources.append((path, arch))
    with ThreadPoolExecutor(options.jobs) as pool:
        cells: list[Cell] = []
        for toolchain in toolchains:
            made = pool.map(lambda s, t=toolchain: compile_cell(s[0], s[1], t, cache), sources)
            for cell in made:
                most = max((k.registers for k in cell.kernels), default=0)
                print(f"{cell.file}: {len(cell.kernels)} kernels, {most} registers {cell.fault}")
                cells.append(cell)
    for one in refused:
        print(f"refused: {one['file']} {one['kernel']} for {one['arch']}: {one['why']}")
    print("\n".join(table(cells)))
    print(f"{len(refused)} refused by tilec, with a code")
    if not options.kernels and not options.arch:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(
            json.dumps(
                {
                    "command": command(),
                    **as_json(cells),
                    "refused": refused,
                },
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
    return 1 if any(cell.fault for cell in cells) else 0


if __name__ == "__main__":
    sys.exit(main())
