"""What ptxas says about each kernel: resources (`-Xptxas -v`) and remarks about lost performance."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

RemarkKind = Literal[
    "wgmma serialised", "setmaxnreg ignored", "spill", "performance", "wgmma fenced", "warning"
]
"""What a remark is about; `performance` is any other `Potential Performance Loss`, `wgmma fenced` a wait or an arrival that ptxas
added, `warning` the rest."""


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel on one architecture; sizes in bytes, `stack_frame` and spills for one thread."""

    kernel: str
    arch: str
    registers: int
    stack_frame: int
    spill_stores: int
    spill_loads: int
    static_shared: int
    barriers: int
    constant: int

    @property
    def spills(self) -> bool:
        """Whether registers went to local memory."""
        return self.spill_stores > 0 or self.spill_loads > 0

    @property
    def clean(self) -> bool:
        """Neither spills nor a stack frame."""
        return not self.spills and self.stack_frame == 0


@dataclass(frozen=True)
class Remark:
    """A line of ptxas other than a table of resources. `code` is its `C7510` or empty; `kernel` empty if not named."""

    kind: RemarkKind
    code: str
    text: str
    kernel: str

    @property
    def costs(self) -> bool:
        """Whether the kernel is slower for it."""
        return self.kind not in ("wgmma fenced", "warning")


@dataclass(frozen=True)
class PtxasReport:
    """All that one run of ptxas said, in its order."""

    kernels: tuple[KernelResources, ...]
    remarks: tuple[Remark, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data; `report_from_json` reads it back."""
        return {
            "kernels": [asdict(k) for k in self.kernels],
            "remarks": [asdict(r) for r in self.remarks],
        }


def report_from_json(data: dict[str, Any]) -> PtxasReport:
    """The inverse of `PtxasReport.as_json`. Raises TypeError or KeyError on data of another form."""
    return PtxasReport(
        tuple(KernelResources(**k) for k in data["kernels"]),
        tuple(Remark(**r) for r in data["remarks"]),
    )


_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([^'\s]+)'?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_CONSTANT = re.compile(r"(\d+)(?:\+(\d+))? bytes cmem\[\d+\]")
_CODE = re.compile(r"\(?\b(C7\d{3})\b\)?")
_NAMED = re.compile(r"in (?:the )?function '?([\w$.]+)'?")
_SILENT = ("bytes gmem", "Compile time =", "Function properties", "Compiling entry")

SERIALISED = frozenset({"C7509", "C7510", "C7511", "C7512", "C7514", "C7515", "C7518", "C7520"})
"""Remarks by which ptxas says that wgmma instructions are serialised, with different reasons."""

FENCED = frozenset({"C7517", "C7519"})
"""Remarks by which ptxas says that it added a wait for wgmma instructions, or an arrival before them."""

SETMAXNREG = frozenset({"C7508"})
"""The remark by which ptxas says that `setmaxnreg` is ignored."""


def parse_ptxas(log: str) -> PtxasReport:
    """Read the lines of ptxas out of what nvcc printed with `-Xptxas -v`; other lines are passed over."""
    kernels: list[KernelResources] = []
    remarks: list[Remark] = []
    kernel = arch = properties = ""
    frame = (0, 0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            kernel, arch = entry.groups()
            frame = (0, 0, 0)
        elif named := _PROPERTIES.search(line):
            properties = named[1]
        elif (found := _FRAME.search(line)) and not line.startswith("ptxas"):
            if properties == kernel:  # a device function that was not inlined has properties too
                frame = (int(found[1]), int(found[2]), int(found[3]))
        elif (used := _USED.search(line)) and kernel:
            kernels.append(_resources(kernel, arch, frame, int(used[1]), used[2]))
        elif line.startswith("ptxas") and not any(s in line for s in _SILENT):
            remarks.append(_remark(line, kernel))
    return PtxasReport(tuple(kernels), tuple(remarks))


def _resources(
    kernel: str, arch: str, frame: tuple[int, int, int], registers: int, rest: str
) -> KernelResources:
    barriers = _BARRIERS.search(rest)
    shared = sum(int(a) + int(b or 0) for a, b in _SHARED.findall(rest))
    constant = sum(int(a) + int(b or 0) for a, b in _CONSTANT.findall(rest))
    return KernelResources(
        kernel, arch, registers, *frame, shared, int(barriers[1]) if barriers else 0, constant
    )


def _remark(line: str, kernel: str) -> Remark:
    text = line.partition(":")[2].strip() or line
    found = _CODE.search(text)
    code = found[1] if found else ""
    named = _NAMED.search(text)
    kind: RemarkKind
    if code in SETMAXNREG or "setmaxnreg" in text:
        kind = "setmaxnreg ignored"
    elif code in SERIALISED or ("wgmma" in text and "serializ" in text):
        kind = "wgmma serialised"
    elif code in FENCED:
        kind = "wgmma fenced"
    elif "spilled to local memory" in text:
        kind = "spill"
    elif "Potential Performance Loss" in text:
        kind = "performance"
    else:
        kind = "warning"
    return Remark(kind, code, text, named[1] if named else kernel)
