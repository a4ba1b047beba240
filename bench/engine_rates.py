"""What an SM of a Hopper GPU does in a clock: the rates behind the bound that `tilec explain` prints.

usage: python bench/engine_rates.py [--out FILE] [--library FILE]

Products of two warpgroups (m64n128k16, bf16) with the left operand in shared memory, in registers, and four of each in turn; instructions of
warpgroups that have the SM for themselves, and beside a warpgroup that multiplies all the time; tiles of 16 KB from the L2 cache by bulk
copies, of which each CTA reads its own, or several the same. Rates are of all SMs at once, by their own clocks; `sustained` is a second
of products, with the clock that the card then has.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from records import command, write_record

SOURCE = Path(__file__).parent / "limits" / "engine_rates.cu"
MULTIPLY_ADDS = 64 * 128 * 16
KINDS = {1: "shared memory", 2: "registers", 3: "four of each in turn"}
TILE = 16384
MOST_SLOWER = 8
"""How much longer instructions take beside products than alone, at most."""


class Rates:
    """The library and its buffers."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.kind_name.restype = ctypes.c_char_p
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.clocks = torch.zeros(self.sms, dtype=torch.int64, device="cuda")
        self.products = torch.zeros(self.sms, dtype=torch.int32, device="cuda")
        self.out = torch.zeros(1, device="cuda")
        self.tiles = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda")

    def beside(
        self,
        kind: int,
        products: int,
        tensor: int,
        others: int,
        trips: int,
        groups: int = 0,
        launches: int = 1,
    ) -> tuple[float, float]:
        """Clocks of the median SM, and products that it did meanwhile, of the last launch."""
        self.products.zero_()
        status = self.library.run_beside(
            kind,
            products,
            self.sms,
            tensor,
            others,
            trips,
            groups,
            ctypes.c_void_p(self.clocks.data_ptr()),
            ctypes.c_void_p(self.products.data_ptr()),
            ctypes.c_void_p(self.out.data_ptr()),
            launches,
        )
        torch.cuda.synchronize()
        if status:
            raise RuntimeError(f"launch returned {status}")
        done = statistics.median(self.products.tolist()) / launches
        return statistics.median(self.clocks.tolist()), done

    def from_cache(self, peers: int, own: int, together: int, trips: int) -> float:
        """Milliseconds of a launch whose CTAs bring `trips` tiles each."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        ctas = self.sms // peers * peers
        pointers = (ctypes.c_void_p(self.tiles.data_ptr()), own, together, trips)
        for _ in range(2):
            begin.record()
            status = self.library.run_tiles(
                peers, ctas, *pointers, ctypes.c_void_p(self.clocks.data_ptr())
            )
            end.record()
            torch.cuda.synchronize()
            if status:
                raise RuntimeError(f"launch returned {status}")
        return begin.elapsed_time(end)


def build(source: Path, folder: Path) -> Path:
    """A library, by nvcc."""
    library = folder / f"{source.stem}.so"
    flags = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-shared"]
    flags += ["-Xcompiler", "-fPIC", "-cudart", "shared"]
    subprocess.run(["nvcc", *flags, "-o", str(library), str(source)], check=True)
    return library


def products(rates: Rates) -> list[dict[str, object]]:
    """Clocks of a product of two warpgroups, in a burst and in a second of launches."""
    rows: list[dict[str, object]] = []
    for kind, name in KINDS.items():
        for warpgroups in (1, 2):
            clocks, done = rates.beside(0, kind, warpgroups, 0, 0, 400)
            rows.append(
                {
                    "left operand": name,
                    "warpgroups": warpgroups,
                    "clocks": round(clocks / done, 2),
                    "of nominal": round(MULTIPLY_ADDS / 2048 * done / clocks, 4),
                }
            )
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        launches = 30
        begin.record()
        clocks, done = rates.beside(0, kind, 2, 0, 0, 25000, launches)
        end.record()
        torch.cuda.synchronize()
        seconds = begin.elapsed_time(end) / 1e3
        flops = 2 * MULTIPLY_ADDS * done * rates.sms * launches
        rows.append(
            {
                "left operand": name,
                "warpgroups": 2,
                "sustained": round(seconds, 3),
                "clocks": round(clocks / done, 2),
                "tflops": round(flops / seconds * 1e-12, 1),
                "gigahertz": round(clocks * launches / seconds * 1e-9, 3),
            }
        )
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def instructions(rates: Rates) -> list[dict[str, object]]:
    """Instructions of a warp that a quarter of an SM starts in a clock, and what is left of the products beside them."""
    rows: list[dict[str, object]] = []
    for kind in range(rates.library.kinds()):
        name = rates.library.kind_name(kind).decode()
        count = rates.library.kind_count(kind)
        alone = 0.0
        for left, tensor, others in (
            (0, 0, 1),
            (0, 0, 2),
            (0, 0, 3),
            (1, 1, 1),
            (2, 1, 1),
            (3, 1, 1),
            (1, 1, 2),
            (2, 1, 2),
            (3, 2, 1),
        ):
            trips = 512
            groups = int(MOST_SLOWER * alone * others / (8 * 64)) if tensor else 0
            clocks, done = rates.beside(kind, left, tensor, others, trips, groups)
            if not tensor and others == 1:
                alone = clocks
            if done == 8 * groups * tensor and tensor:
                raise RuntimeError("the products ended first")
            row: dict[str, object] = {
                "instruction": name,
                "warpgroups": others,
                "a clock": round(count * trips * others / clocks, 4),
            }
            if tensor:
                row["left operand"] = KINDS[left]
                row["multiplying"] = tensor
                # the products go on for a few clocks behind the last instruction
                row["products, of nominal"] = round(MULTIPLY_ADDS / 2048 * done / clocks, 4)
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def cache(rates: Rates) -> list[dict[str, object]]:
    """Bytes that come into an SM in a microsecond: tiles of a few megabytes, read again and again."""
    rows: list[dict[str, object]] = []
    for peers, own, together in (
        (1, 8, 1),
        (1, 64, 8),
        (1, 64, 16),
        (1, 128, 16),
        (1, 128, 32),
        (2, 64, 16),
        (2, 128, 32),
        (4, 128, 32),
    ):
        trips = 4096
        milliseconds = rates.from_cache(peers, own, together, trips)
        ctas = rates.sms // peers * peers
        moved = ctas * trips * TILE
        rows.append(
            {
                "peers": peers,
                "megabytes": round(-(-ctas // together) * own * TILE / 1e6, 1),
                "readers of a tile": together,
                "tbps into SMs": round(moved / milliseconds * 1e-9, 3),
                "clocks": statistics.median(rates.clocks.tolist()[:ctas]),
                "bytes a clock": round(
                    trips * TILE / statistics.median(rates.clocks.tolist()[:ctas]), 2
                ),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--library", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rates = Rates(options.library or build(SOURCE, Path(folder)))
        found = {
            "command": command(),
            "device": torch.cuda.get_device_name(),
            "products": products(rates),
            "instructions": instructions(rates),
            "cache": cache(rates),
        }
    if options.out:
        write_record(options.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
