"""What a kernel is, as lines of text: bounds, registers, the map of shared memory, bank conflicts, layouts."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.explain.banks import Conflicts, conflicts
from tilec.explain.bound import ENGINES, Bound, bounds
from tilec.explain.layouts import held_tiles, layout_text
from tilec.explain.memory_map import Place, memory_map
from tilec.explain.registers import Registers, registers
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.source.text import Span
from tilec.targets.table import TARGETS

LARGEST = 4
"""Tiles in registers that are named at the place where most of them live."""


def kernel_lines(kernel: k.Kernel, arch: str) -> Iterator[str]:
    """The lines for one kernel, without a margin."""
    yield from bound_lines(bounds(kernel, arch), kernel.batch)
    yield register_line(registers(kernel, TARGETS[arch]))
    places = memory_map(kernel)
    if places:
        yield "shared memory:"
        yield from (f"  {place_text(place)}" for place in places)
    found = conflicts(kernel)
    if found:
        yield "bank conflicts:"
        yield from (f"  {text}" for text in conflict_lines(found))
    tiles = held_tiles(kernel)
    if tiles:
        yield "tiles in registers:"
        yield from (f"  {layout_text(held)}" for held in tiles)


def bound_lines(found: list[Bound], batch: int) -> Iterator[str]:
    """One line a loop, and one for what a CTA, which has `batch` instances, does once."""
    if found:
        yield "bound:"
    loops = any(bound.loop for bound in found)
    for bound in found:
        once = "an instance" if batch == 1 else f"{batch} instances of a CTA"
        trip = f"{bound.loop}, a trip" if bound.loop else f"outside of loops, {once}"
        if bound.loop and bound.span.source.text:
            trip += f" ({_at(bound.span)})"
        if not bound.loop and not loops:
            trip = once
        others = ", ".join(
            f"{name} {_clocks(bound.clocks[name])}" for name in ENGINES if name != bound.limit
        )
        rate = f"; at most {bound.at_most}" if bound.at_most and bool(bound.loop) == loops else ""
        yield f"  {trip}: {_clocks(bound.least)} clocks of an SM by {bound.limit} ({others}){rate}"


def register_line(found: Registers) -> str:
    """The estimate against what the launch leaves."""
    shown = ", ".join(f"{name.split(' ')[0]} {size}" for name, size in found.held[:LARGEST])
    more = ", …" if len(found.held) > LARGEST else ""
    where = f" at {_at(found.span)}" if found.span.source.text else ""
    tiles = f"{found.tiles} in tiles{where} ({shown}{more})" if found.tiles else "no tiles"
    line = f"registers: about {found.total} of {found.available} a thread: {tiles}, {found.besides} besides"
    if found.fits:
        return line
    return f"{line}; ptxas finds room or spills, `tilec profile` says which"


def place_text(place: Place) -> str:
    """Offset, bytes and what lies there."""
    buffer = place.buffer
    match buffer:
        case a.Barrier():
            what = f"{buffer.name}, {buffer.slots} barrier{'s' * (buffer.slots > 1)}"
        case k.SharedBuffer():
            what = f"{buffer.name} {buffer.rep}[{buffer.count}]"
        case _:
            slots = f", {buffer.slots} slots" if buffer.slots > 1 else ""
            what = f"{buffer.name} {buffer.rep}[{buffer.rows}, {buffer.cols}]{slots}"
    return f"{place.offset:>6} {place.bytes:>6} B  {what}: {place.placement}{_life(place)}"


def _life(place: Place) -> str:
    if place.first is None or place.last is None:
        return ""
    lines = f"line {place.first.line}"
    if place.last.line != place.first.line:
        lines = f"lines {place.first.line} to {place.last.line}"
    inside = f", in each trip of {' and '.join(place.loops)}" if place.loops else ""
    return f"; used in {lines}{inside}"


def conflict_lines(found: list[Conflicts]) -> Iterator[str]:
    """One line a buffer and instruction; the worst where several lines have it."""
    worst: dict[tuple[str, str], Conflicts] = {}
    for one in found:
        key = (one.buffer, one.how)
        if key not in worst or one.passes - one.least > worst[key].passes - worst[key].least:
            worst[key] = one
    for (buffer, how), one in worst.items():
        passes = f"{one.passes} pass{'es' * (one.passes > 1)}"
        verdict = "no conflicts" if one.passes == one.least else f"{one.least} would do"
        note = f" ({one.note})" if one.note else ""
        at = f", {_at(one.span)}" if one.passes > one.least and one.span.source.text else ""
        yield f"{buffer}: {how}, {passes} a request, {verdict}{at}{note}"


def _clocks(number: float) -> str:
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def _at(span: Span) -> str:
    name = span.source.name.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{span.line}"
