"""What two products with an exponential of each score between them take at least where all is done that a machine must do for them.

usage: python bench/loaded_limit.py [--out FILE] [--library FILE] [--chained FILE] [--rounds N] [--seconds X] [--ours] [--forms NAME[,NAME…]]

Beside chained_limit.py, whose loop waits for nothing but its products: keys and values come by bulk copies through rings of two slots, from
tensors of 4 x 16 heads of 4096 tokens and 128 columns; instances load queries and store results; masks and biases of each score come from memory.
Instances of the form `window` have nine trips at most, over the keys that end with their rows, are masked at both ends, and are dealt as ours are: what
lies beside their trips is shared among as few.
Each form is compared with PyTorch, then started again and again for a while, in turns with the others and with our generated kernels (`--ours`):

    launches     what a launch of our kernels does
    walks        a launch that walks through all instances twenty times: nearly no last round of CTAs
    bare         the loop of chained_limit.py with nothing but products and exponentials, for as long
    trips        a launch of as many instances as there are SMs, which take thousands of trips each: the loop and nothing else

`clocks` are those of an SM for 128 x 128 scores and `gigahertz` its clock, by the SMs' own counters; `microjoules` those of the board for 128 x 128
scores, by NVML.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from engine_rates import build

SOURCE = Path(__file__).parent / "limits" / "loaded_limit.cu"
CHAINED = SOURCE.with_name("chained_limit.cu")
BATCH, HEADS, LENGTH, WIDTH = 4, 16, 4096, 128
CAP = 50.0
TOLERANCE = 1e-2
"""Relative Frobenius error of the first heads."""
BLOCK_FLOPS = 4 * 128 * 128 * WIDTH
BLOCKS = BATCH * HEADS * (LENGTH // 128) ** 2
PLAIN, MASK_BYTES, MASK_BITS, BIAS, SOFT_CAP = range(5)
WALKS = 20
OURS = {
    "plain": ["full"],
    "window": ["causal", "1024 keys", "window"],
    "mask": ["mask in memory"],
    "bias": ["bias in memory"],
    "soft cap": ["soft cap"],
}
"""Generated kernels beside a form."""
ENDLESS = 1 << 14
"""Trips of 128 keys of an instance that hardly ends."""


class Operands(ctypes.Structure):
    _fields_ = [
        (n, ctypes.c_void_p) for n in ("q", "k", "v", "beside", "o", "clocks", "nanoseconds")
    ]


class Board:
    """Energy of the GPU by NVML."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(
            0, ctypes.byref(self.handle)
        ):
            raise RuntimeError("NVML has no device")

    def millijoules(self) -> int:
        found = ctypes.c_ulonglong()
        if self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(found)):
            raise RuntimeError("NVML has no energy counter")
        return found.value


@dataclass
class Contender:
    """`call` starts work of `blocks` blocks; `clock`: gigahertz of the last call by the SMs' own counters, where there is one."""

    form: str
    tile: str
    kind: str
    call: Callable[[], None]
    blocks: float
    clock: Callable[[], float] | None = None
    seconds: float = 0.0
    """of a call"""
    tflops: list[float] = field(default_factory=list)
    gigahertz: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)


class Limit:
    """The library with its tensors."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.form_name.restype = ctypes.c_char_p
        self.library.run_form.argtypes = [
            ctypes.c_int, ctypes.c_void_p, *[ctypes.c_int] * 6, *[ctypes.c_float] * 2,
        ]  # fmt: skip
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        shape = (BATCH, HEADS, LENGTH, WIDTH)
        self.q, self.k, self.v = (
            torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)
        )
        self.o = torch.empty_like(self.q)
        self.mask = torch.rand(BATCH, LENGTH, LENGTH, device="cuda") < 0.7
        self.bias = torch.randn(HEADS, LENGTH, LENGTH, device="cuda", dtype=torch.bfloat16)
        self.clocks = torch.zeros(self.sms, dtype=torch.int64, device="cuda")
        self.nanoseconds = torch.zeros(self.sms, dtype=torch.int64, device="cuda")

    def number(self, form: int, which: int) -> int:
        return int(self.library.form_number(form, which))

    def instances(self, form: int) -> int:
        return -(-LENGTH // self.number(form, 0)) * HEADS * BATCH

    def trips(self, form: int) -> int:
        """Of an instance."""
        return self.number(form, 7) or LENGTH // self.number(form, 1)

    def run(self, form: int, trips: int, instances: int) -> None:
        kind = self.number(form, 4)
        beside = self.bias if kind == BIAS else self.mask
        tensors = (self.q, self.k, self.v, beside, self.o, self.clocks, self.nanoseconds)
        operands = Operands(*(t.data_ptr() for t in tensors))
        sizes = (self.sms, BATCH, HEADS, LENGTH, trips, instances)
        cap = CAP if kind == SOFT_CAP else 0.0
        status = self.library.run_form(form, ctypes.byref(operands), *sizes, WIDTH**-0.5, cap)
        if status:
            raise RuntimeError(f"launch returned {status}")

    def gigahertz(self) -> float:
        return statistics.median((self.clocks / self.nanoseconds).tolist())

    def error(self, form: int) -> float:
        """Of the last two heads of the last sequence, relative to float32."""
        kind = self.number(form, 4)
        self.o.fill_(math.nan)
        self.run(form, self.trips(form), self.instances(form))
        q, k, v = (x[-1, -2:].float() for x in (self.q, self.k, self.v))
        s = (q @ k.mT) * WIDTH**-0.5
        if kind in (MASK_BYTES, MASK_BITS):
            s = s.masked_fill(~self.mask[-1], -math.inf)
        elif kind == BIAS:
            s = s + self.bias[-2:].float()
        elif kind == SOFT_CAP:
            s = CAP * torch.tanh(s / CAP)
        if self.number(form, 7):
            at = torch.arange(LENGTH, device="cuda")
            back = at[:, None] - at[None, :]
            s = s.masked_fill((back < 0) | (back >= 128 * (self.trips(form) - 1)), -math.inf)
        want = torch.softmax(s, 2) @ v
        return float((self.o[-1, -2:].float() - want).norm() / want.norm())

    def contenders(self, form: int) -> list[Contender]:
        name = self.library.form_name(form).decode()
        rows, keys, early, turns = (self.number(form, n) for n in range(4))
        tile = f"{rows} x {keys}"
        if early:
            tile += ", early"
        tile += {0: ", no turns", 1: "", 2: ", turns until scores are done"}[turns]
        if self.number(form, 5):
            tile += ", queries in registers"
        if self.number(form, 6):
            tile += ", ahead"
        trips, all_of_them = self.trips(form), self.instances(form)
        blocks = BLOCKS
        if self.number(form, 7):
            blocks = BATCH * HEADS * sum(min(n + 1, trips) for n in range(LENGTH // 128))
        run = partial(self.run, form)
        endless = ENDLESS * 128 // keys
        return [
            Contender(name, tile, kind, partial(run, *sizes), done, self.gigahertz)
            for kind, sizes, done in (
                ("launches", (trips, all_of_them), blocks),
                ("walks", (trips, WALKS * all_of_them), WALKS * blocks),
                ("trips", (endless, self.sms), endless * self.sms * rows * keys / 128**2),
            )
            if kind != "trips" or not self.number(form, 7)
        ]


def bare(library: Path, limit: Limit) -> Contender:
    """The loop without loads, in its best order: the first one."""
    chained = ctypes.CDLL(str(library))
    out = torch.zeros(1, device="cuda")
    pointers = [ctypes.c_void_p(x.data_ptr()) for x in (limit.clocks, out)]

    def run() -> None:
        status = chained.run_form(0, limit.sms, ENDLESS, *pointers, 1)
        if status:
            raise RuntimeError(f"launch returned {status}")

    return Contender("plain", "128 x 128", "bare", run, ENDLESS * limit.sms)


def generated(names: list[str]) -> list[Contender]:
    """Our own kernels of these forms, compared with PyTorch."""
    import variants

    options = argparse.Namespace(failed=False)
    found = []
    for case in variants.cases(names):
        if case.name in names:
            ready = variants.prepare(case, options)
            if ready is None:
                raise RuntimeError(f"{case.name} is wrong")
            found.append(
                Contender(case.name, "generated", "launches", ready.call, variants.blocks(case))
            )
    return found


def measure(which: Contender, board: Board, seconds: float) -> None:
    """One turn: calls for so long, and what the board says meanwhile."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if not which.seconds:
        begin.record()
        which.call()
        end.record()
        end.synchronize()
        which.seconds = begin.elapsed_time(end) / 1e3
    calls = max(1, round(seconds / which.seconds))
    begin.record()
    for _ in range(calls):
        which.call()
    end.record()
    counted: list[tuple[float, int]] = []
    while not end.query():
        now, count = time.monotonic(), board.millijoules()
        if not counted or count != counted[-1][1]:
            counted.append((now, count))
        time.sleep(0.002)
    taken = begin.elapsed_time(end) / 1e3
    which.seconds = taken / calls
    which.tflops.append(which.blocks * BLOCK_FLOPS / which.seconds * 1e-12)
    if which.clock:
        which.gigahertz.append(which.clock())
    # the first look at the counter lies between two steps of it
    if len(counted) > 2:
        (first, least), (last, most) = counted[1], counted[-1]
        which.watts.append((most - least) / 1e3 / (last - first))


def row(which: Contender, sms: int) -> dict[str, object]:
    middle = statistics.median
    tflops = middle(which.tflops)
    blocks = tflops * 1e12 / BLOCK_FLOPS  # a second
    found: dict[str, object] = {
        "form": which.form,
        "tile": which.tile,
        "kind": which.kind,
        "tflops": round(tflops, 1),
    }
    if which.gigahertz:
        found["gigahertz"] = round(middle(which.gigahertz), 3)
        found["clocks"] = round(middle(which.gigahertz) * 1e9 * sms / blocks, 1)
    if which.watts:
        found["watts"] = round(middle(which.watts), 1)
        found["microjoules"] = round(middle(which.watts) / blocks * 1e6, 3)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--chained", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--forms", default=",".join(OURS))
    options = parser.parse_args()
    wanted = options.forms.split(",")
    board = Board()
    with tempfile.TemporaryDirectory() as folder:
        limit = Limit(options.library or build(SOURCE, Path(folder)))
        contenders = [bare(options.chained or build(CHAINED, Path(folder)), limit)]
    wrong = False
    for form in range(limit.library.forms()):
        if limit.library.form_name(form).decode().split(",")[0] not in wanted:
            continue
        ready = limit.contenders(form)
        error = limit.error(form)
        if error < TOLERANCE:
            contenders += ready
        else:
            wrong = True
            print(f"{ready[0].form}, {ready[0].tile}: error {error}", flush=True)
    if options.ours:
        contenders += generated([name for form in wanted for name in OURS[form]])
    for number in range(options.rounds):
        for which in random.Random(number).sample(contenders, len(contenders)):
            measure(which, board, options.seconds)
    rows = [row(c, limit.sms) for c in contenders]
    for found in rows:
        print(json.dumps(found), flush=True)
    if options.out:
        head = {
            "command": "python bench/loaded_limit.py " + " ".join(sys.argv[1:]),
            "device": torch.cuda.get_device_name(),
        }
        options.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
