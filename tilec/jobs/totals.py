"""What whole launches take at least, at sizes of the command line or of an `example` clause: for `tilec explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilec.jobs.requests import parse_pairs
from tilec.source.diagnostics import TileError, fail

if TYPE_CHECKING:
    from tilec.compiled import CompiledFile, CompiledKernel
    from tilec.runtime.arguments import CallSizes


def bound_launches(file: str, compiled: CompiledFile, settings: Sequence[str]) -> dict[str, str]:
    """A sentence for each variant that a call at these sizes launches, where its time can be bounded. `settings` go before the first
    `example`. Raises TileError: E0705, E0712 for a size that no kernel has or that a kernel refuses, E0711 where `settings` leave one out."""
    from tilec.jobs.example_sizes import bound_sizes

    given = parse_pairs(settings, "-s")
    _check_names(compiled, given)
    found: dict[str, str] = {}
    for kernel in compiled.kernels:
        try:
            sizes = bound_sizes(file, kernel, given)
        except TileError:
            if settings:
                raise
            continue  # no example has sizes for it
        for arch in compiled.archs:
            found |= _bounded(kernel, arch, sizes)
    return found


def _check_names(compiled: CompiledFile, given: dict[str, str]) -> None:
    known: dict[str, None] = {}
    for kernel in compiled.kernels:
        plan = kernel.plan
        known |= dict.fromkeys(v.name for v in (*plan.dims, *plan.strides))
        known |= dict.fromkeys(s.name for s in plan.scalars)
    for name in given:
        if name not in known:
            listed = ", ".join(f"`{n}`" for n in known) or "none"
            raise fail("E0712", f"no kernel here has `{name}`", note=f"sizes and scalars: {listed}")


def _bounded(kernel: CompiledKernel, arch: str, sizes: CallSizes) -> dict[str, str]:
    from tilec.explain.total import total
    from tilec.runtime.gpu_run import moved_bytes
    from tilec.runtime.launching import concrete_launches
    from tilec.targets.devices import REPRESENTATIVES

    device = REPRESENTATIVES.get(arch)
    if device is None:
        return {}
    target = next(t for t in kernel.plan.targets if t.arch == arch)
    # as aligned as memory of an allocator is
    addresses = {t.name: (n + 1) << 40 for n, t in enumerate(kernel.plan.parameters)}
    launches = concrete_launches(
        kernel.plan, target, sizes, addresses, 1 << 50, multiprocessors=device.multiprocessors
    )
    by_name = {one.name: one for one in kernel.lowered[arch]}
    # what one launch of several moves is not known
    moved = moved_bytes(kernel.plan, sizes) if len(launches) == 1 else 0
    numbers = {
        **sizes.numbers,
        **{n: v for n, v in sizes.scalars.items() if not isinstance(v, bool)},
    }
    at = ", ".join(
        f"{n} = {v if isinstance(v, int) else format(v, 'g')}" for n, v in numbers.items()
    )
    found: dict[str, str] = {}
    for launch in launches:
        bound = total(by_name[launch.kernel], arch, numbers, moved)
        if bound is None:
            continue
        others = ", ".join(
            f"{name} {us:.3g}" for name, us in bound.microseconds.items() if name != bound.limit
        )
        rate = f", {bound.flops / bound.least / 1e6:.0f} TFLOP/s" if bound.flops else ""
        if bound.limit == "memory" and moved:
            rate = f", {moved / bound.least / 1e3:.0f} GB/s of its arguments"
        found[launch.kernel] = (
            f"at {at}: at least {bound.least:.4g} us on {bound.device} by {bound.limit} ({others}){rate}"
        )
    return found
