"""What two products with an exponential of each score between them take at least on a Hopper GPU, and how much more with further operations.

usage: python bench/chained_limit.py [--out FILE] [--library FILE]

Two warpgroups of 64 rows, tiles of 128 x 128 and 128 channels: the loop of attention without loads, rings and masks. For each number of further
multiply-adds and selects a score: clocks of a trip, and TFLOP/s of launches back to back, of the best of four orders: the operations beside
the second product or behind it, products in turn or not.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from engine_rates import build
from records import command, write_record

SOURCE = Path(__file__).parent / "limits" / "chained_limit.cu"
TRIPS, LAUNCHES = 4000, 6
FLOPS = 4 * 128 * 128 * 128
"""Operations of both products in a trip of a CTA."""


def measure(library: ctypes.CDLL, form: int) -> dict[str, object]:
    """Clocks and speed of one form."""
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    clocks = torch.zeros(sms, dtype=torch.int64, device="cuda")
    out = torch.zeros(1, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (clocks, out)]
    begin.record()
    status = library.run_form(form, sms, TRIPS, *pointers, LAUNCHES)
    end.record()
    torch.cuda.synchronize()
    if status:
        raise RuntimeError(f"launch returned {status}")
    milliseconds = begin.elapsed_time(end)
    taken = statistics.median(clocks.tolist())
    numbers = [library.form_number(form, n) for n in range(4)]
    return {
        "besides": library.form_name(form).decode(),
        "early": bool(numbers[2]),
        "turns": bool(numbers[3]),
        "clocks": round(taken / TRIPS, 1),
        "tflops": round(FLOPS * TRIPS * LAUNCHES * sms / milliseconds * 1e-9, 1),
        "gigahertz": round(taken * LAUNCHES / milliseconds * 1e-6, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--library", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(options.library or build(SOURCE, Path(folder))))
        library.form_name.restype = ctypes.c_char_p
        rows = []
        for form in range(library.forms()):
            rows.append(measure(library, form))
            print(json.dumps(rows[-1]), flush=True)
    best: dict[object, dict[str, object]] = {}
    for row in rows:
        known = best.get(row["besides"])
        if known is None or float(str(row["clocks"])) < float(str(known["clocks"])):
            best[row["besides"]] = row
    found = {
        "command": command(),
        "device": torch.cuda.get_device_name(),
        "best": list(best.values()),
        "rows": rows,
    }
    if options.out:
        write_record(options.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
