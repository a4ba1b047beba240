"""Performance that ptxas says it lost: spills, stack frames, serialised products, ignored register limits."""

from __future__ import annotations

from tilec.source.diagnostics import Diagnostic
from tilec.toolchain.ptxas import PtxasReport


def losses(report: PtxasReport) -> tuple[str, ...]:
    """One sentence for each, in ptxas' order; none where the code is as it should be."""
    found = []
    for kernel in report.kernels:
        if kernel.spills:
            size = f"{kernel.spill_stores} bytes stored, {kernel.spill_loads} loaded"
            found.append(f"`{kernel.kernel}` spills: {size}")
        if kernel.stack_frame:
            found.append(f"`{kernel.kernel}` has a stack frame of {kernel.stack_frame} bytes")
    for remark in report.remarks:
        if remark.costs:
            where = f" in `{remark.kernel}`" if remark.kernel else ""
            found.append(f"{remark.kind}{where}: {remark.text}")
    return tuple(dict.fromkeys(found))


def performance_warnings(report: PtxasReport, arch: str) -> tuple[Diagnostic, ...]:
    """W0602 for each loss."""
    return tuple(
        Diagnostic(
            "W0602",
            f"for {arch}, {loss}",
            helps=(
                "smaller tiles need fewer registers; `tilec profile` shows what each kernel takes",
            ),
        )
        for loss in losses(report)
    )
