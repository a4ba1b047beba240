"""Tuned kernels found from nothing on the GPU that is here, beside what is generated without tuning; writes JSON.

usage: python bench/tune_from_scratch.py [--out FILE] [--jobs N] [--search guided|tpe|exhaustive] [--case NAME]…

Each case is a program with a `tune` clause in an empty folder with an empty cache: `tilec tune` from its start, compilations included, then
the tuned and the untuned kernel timed in turn by a measurement of its own. The case `misled` has a tile size written into its program that
is worse than what `auto` chooses, and must be found out. Every candidate is verified before it is timed.
Exit status: 0 as it must be, 3 no GPU, 4 a tuned kernel below 0.99 of the untuned one, `misled` below 1.03, or above ten minutes in all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records import of_commit

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(
    os.pathsep
)
from tune_gemm import tuned_and_untuned, write  # noqa: E402

LEAST, LEAST_MISLED, SECONDS = 0.99, 1.03, 600.0


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel of a sample, its `tune` clause (the sample's own without one), bracket parameters written otherwise, and sizes."""

    name: str
    sample: str
    kernel: str
    numbers: dict[str, int | float]
    space: str = ""
    written: tuple[tuple[str, str], ...] = ()
    least: float = LEAST


def attention(length: int, causal: bool) -> Case:
    """Attention with 16384 tokens in all."""
    return Case(
        f"attention {length}" + (" causal" if causal else ""),
        "attention",
        "attention",
        {"B": 16384 // length, "H": 16, "S": length, "T": length, "scale": 128**-0.5},
        "tune BM in (64, 128, 192, 256), BN in (64, 96, 128, 160) key (S, T)",
        (("CAUSAL = false", "CAUSAL = true"),) if causal else (),
    )


CASES = (
    *(Case(f"product {n}", "gemm", "gemm_nn", dict.fromkeys("MNK", n)) for n in (4096, 8192)),
    attention(4096, False),
    attention(4096, True),
    Case(
        "misled", "gemm", "gemm_nn", dict.fromkeys("MNK", 4096),
        written=(("BM = auto, BN = auto", "BM = 64, BN = 64"),), least=LEAST_MISLED,
    ),
)  # fmt: skip


def program(case: Case) -> str:
    """The sample's text with what the case changes."""
    text = (ROOT / "samples" / f"{case.sample}.tile").read_text(encoding="utf-8")
    for old, new in case.written:
        assert old in text, (case.name, old)
        text = text.replace(old, new)
    if case.space:
        header = re.compile(rf"(kernel {case.kernel}\[.*?:\n)(?=    )", re.DOTALL)
        text, count = header.subn(rf"\g<1>    {case.space}\n", text, count=1)
        assert count == 1, case.name
    return text


def tune(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """One case in the current folder."""
    from tilec.jobs.tuning import TuneRequest, run_tune
    from tilec.tuning.records import choice_name, read_file, summary

    path = Path(case.name.replace(" ", "_") + ".tile")
    path.write_text(program(case), encoding="utf-8")
    request = TuneRequest(
        str(path),
        kernel=case.kernel,
        settings=tuple(f"{n}={v}" for n, v in case.numbers.items()),
        device=options.device,
        jobs=options.jobs,
        search=options.search,
    )
    start = time.monotonic()
    status = run_tune(request)
    seconds = time.monotonic() - start
    (found,) = read_file(path.with_suffix(".tile.tuning")).values()
    if status or found.best is None:
        return {"case": case.name, "status": status, "seconds": round(seconds, 1), "ratio": 0.0}
    row: dict[str, Any] = {
        "case": case.name,
        "best": choice_name(found.best.choice),
        "candidates": summary(list(found.trials.values())),
        "seconds": round(seconds, 1),
        "least": case.least,
    }
    if options.device == "gpu":
        times = tuned_and_untuned(str(path), case.kernel, case.numbers, found.best.choice)
        row |= {n: round(v, 2) for n, v in times.items()}
        row["ratio"] = round(times["untuned_us"] / times["tuned_us"], 4)
    return row


def main() -> int:
    """All cases; what is there is written after each."""
    from tilec.toolchain.driver import query_driver

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/tune_from_scratch.json")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--search", default="guided", choices=("guided", "tpe", "exhaustive"))
    parser.add_argument("--device", default="gpu", choices=("gpu", "cpu"))
    parser.add_argument("--case", action="append", default=[], choices=[c.name for c in CASES])
    options = parser.parse_args()
    options.out = options.out.resolve()
    driver = query_driver()
    if options.device == "gpu" and not driver.devices:
        print(f"no GPU: {driver.problem}", file=sys.stderr)
        return 3
    data: dict[str, Any] = {
        **of_commit(driver.devices[0].name if driver.devices else "emulator"),
        "search": options.search,
        "cases": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["TILEC_CACHE_DIR"] = str(Path(folder) / "cache")
        for case in CASES:
            if options.case and case.name not in options.case:
                continue
            data["cases"].append(tune(case, options))
            data["seconds"] = round(sum(row["seconds"] for row in data["cases"]), 1)
            write(options.out, data)
            print(json.dumps(data["cases"][-1]), flush=True)
        os.chdir(ROOT)
    good = data["seconds"] <= SECONDS and all(
        row.get("ratio", 0.0) >= row.get("least", LEAST) for row in data["cases"]
    )
    print(f"{data['seconds']} s in all: {'as' if good else 'not as'} it must be")
    return 0 if good else 4


if __name__ == "__main__":
    sys.exit(main())
