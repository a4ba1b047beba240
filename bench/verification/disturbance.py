"""What keeps a GPU busy beside the kernel under test, so that its warps and CTAs meet in another order each time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilec.runtime.device import Gpu
from verification.kernels import build_texts

TEXT = """\
extern "C" __global__ void __launch_bounds__(128) occupy(long long clocks)
{
    extern __shared__ int held[];
    const long long begin = clock64();
    while (clock64() - begin < clocks)
        if (clocks < 0) held[threadIdx.x] = 1;
}
"""
"""CTAs that do nothing for a while: with much shared memory each has an SM to itself, with none they share the issue slots of others."""

WHOLE_SM = 200 << 10
"""Bytes of shared memory beside which no other CTA of more than 27 KB fits on an SM of 227 KB."""

MOVED = 96 << 20
"""Bytes of a copy that takes the place of everything in the L2 cache."""

KINDS = ("alone", "cold", "copies", "SMs taken", "slots shared", "cold and copies", "twice")
"""In turn; `twice`: two launches, one right behind the other."""


class Disturbance:
    """Streams and memory for it. Made by `disturbing`."""

    def __init__(self, gpu: Gpu, function: Any, seed: int) -> None:
        self.gpu, self.function = gpu, function
        self.random = random.Random(seed)
        non_blocking = 1  # a stream of which the default one, where the kernel runs, does not wait
        self.streams = [gpu.driver.Stream(non_blocking) for _ in range(2)]
        self.source, self.target = gpu.driver.mem_alloc(MOVED), gpu.driver.mem_alloc(MOVED)

    def begin(self, kind: str) -> None:
        """Enqueue what a launch right behind it meets."""
        if kind.startswith("cold"):
            self.gpu.driver.memcpy_dtod(self.target, self.source, MOVED)
        if kind.endswith("copies"):
            part = MOVED // self.random.choice((1, 2, 4, 8))
            self.gpu.driver.memcpy_dtod_async(self.target, self.source, part, self.streams[0])
        if kind in ("SMs taken", "slots shared"):
            every = self.gpu.multiprocessors
            clocks = int(10 ** self.random.uniform(3.3, 5.0))
            alone = kind == "SMs taken"
            ctas = self.random.randint(1, every - 1) if alone else every * self.random.randint(1, 4)
            self.function.prepared_async_call(
                (ctas, 1),
                (128, 1, 1),
                self.streams[1],
                clocks,
                shared_size=WHOLE_SM if alone else 0,
            )


@contextmanager
def disturbing(gpu: Gpu, arch: str, seed: int) -> Iterator[Disturbance]:
    """A Disturbance for a while."""
    (built,) = build_texts([TEXT], arch, "cubin", 1)
    function = gpu.load(built.blob).module.get_function("occupy")
    attribute = gpu.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
    function.set_attribute(attribute, WHOLE_SM)
    function.prepare("q")
    made = Disturbance(gpu, function, seed)
    try:
        yield made
    finally:
        gpu.driver.Context.synchronize()
        made.source.free()
        made.target.free()
