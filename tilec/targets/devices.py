"""Representative devices: what estimates assume where no GPU is there to be measured.

Sources: NVIDIA's data sheets and architecture white papers of the devices named.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Representative:
    """A device by its architecture: multiprocessors, dense 16-bit tensor TFLOP/s with f32 accumulation, DRAM GB/s; `boost_gigahertz`: the
    highest clock of its multiprocessors, where it is above the one at which they have that rate."""

    name: str
    multiprocessors: int
    tensor_teraflops: float
    dram_gigabytes: float
    boost_gigahertz: float | None = None


REPRESENTATIVES: dict[str, Representative] = {
    "sm_75": Representative("T4", 40, 65.0, 320.0),
    "sm_80": Representative("A100 40 GB", 108, 312.0, 1555.0),
    "sm_86": Representative("A10", 72, 125.0, 600.0),
    "sm_89": Representative("L40S", 142, 362.0, 864.0),
    "sm_90": Representative("H200", 132, 989.0, 4800.0, 1.98),
    "sm_90a": Representative("H200", 132, 989.0, 4800.0, 1.98),
    "sm_100": Representative("B200", 148, 2250.0, 8000.0),
    "sm_120": Representative("RTX 5090", 170, 209.5, 1792.0),
}
