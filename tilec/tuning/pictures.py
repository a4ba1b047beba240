"""What a search found as a picture: a heat map over two parameters, and where its candidates lie under the roofline.

Roofline: Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009; the roofs are the data sheet's of the architecture's
representative device.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilec.runtime.comparing import import_matplotlib
from tilec.targets.devices import REPRESENTATIVES, Representative
from tilec.tuning.records import Found, Trial, choice_name

CELLS_LABELLED = 120
"""A heat map of more cells has no numbers in them."""


@dataclass(frozen=True)
class Pictured:
    """A search, with the operations of one call, None where nothing counts them, and the bytes that DRAM moves at least."""

    found: Found
    operations: float | None
    moved: float


@dataclass(frozen=True)
class HeatMap:
    """Times in µs by two parameters, the best over all others; NaN where no candidate verified. `across` and `down` are names, "" for
    a parameter that is not there."""

    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    times: tuple[tuple[float, ...], ...]


def heat_map(found: Found) -> HeatMap:
    """Over the two parameters with the most values among the candidates that were tried, in the order of their names' appearance."""
    trials = [t for t in found.trials.values() if t.choice]
    values: dict[str, dict[str, Any]] = {}
    for trial in trials:
        for name, value in trial.choice.items():
            values.setdefault(name, {})[str(value)] = value
    names = sorted(values, key=lambda n: -len(values[n]))[:2]
    names = [n for n in values if n in names] + ["", ""]
    down, across = names[0], names[1]
    if not across:
        down, across = "", down
    columns, rows = _ordered(values.get(across, {})), _ordered(values.get(down, {}))
    times = [[_best(trials, down, r, across, c) for c in columns] for r in rows]
    return HeatMap(across, down, tuple(columns), tuple(rows), tuple(map(tuple, times)))


def _ordered(values: dict[str, Any]) -> list[str]:
    """Numbers by size, other values as they came; one entry where there are none."""
    if all(isinstance(v, int | float) for v in values.values()):
        return sorted(values, key=lambda n: values[n]) or [""]
    return list(values) or [""]


def _best(trials: Sequence[Trial], down: str, row: str, across: str, column: str) -> float:
    times = [
        t.microseconds
        for t in trials
        if t.status == "ok"
        and t.microseconds is not None
        and (not down or str(t.choice.get(down)) == row)
        and (not across or str(t.choice.get(across)) == column)
    ]
    return min(times, default=math.nan)


def draw(searches: Sequence[Pictured], form: str) -> bytes:
    """All searches, a row of two pictures each, as an image of a form that matplotlib knows. The same results give the same bytes with
    one version of matplotlib. Raises TileError (E0818)."""
    import_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "tilec"}):
        figure = Figure(figsize=(12, 4.6 * max(1, len(searches))), layout="constrained")
        grid = figure.subplots(max(1, len(searches)), 2, squeeze=False)
        for one, (left, right) in zip(searches, grid, strict=False):
            _draw_heat_map(figure, left, one.found)
            _draw_roofline(right, one)
        image = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(image, format=form, metadata=metadata)
    return image.getvalue()


def _title(found: Found) -> str:
    sizes = " ".join(f"{n}={v}" for n, v in found.subject.sizes.items())
    return f"{found.subject.kernel} {sizes}\n{found.subject.gpu}, {found.subject.arch}"


def _draw_heat_map(figure: Any, axes: Any, found: Found) -> None:
    shown = heat_map(found)
    image = axes.imshow(shown.times, cmap="viridis_r", aspect="auto")
    axes.set_xticks(range(len(shown.columns)), shown.columns)
    axes.set_yticks(range(len(shown.rows)), shown.rows)
    axes.set_xlabel(shown.across)
    axes.set_ylabel(shown.down)
    axes.set_title(_title(found))
    known = [t for row in shown.times for t in row if not math.isnan(t)]
    if not known:
        return
    figure.colorbar(image, ax=axes, label="µs, the best over all other parameters")
    middle = (min(known) + max(known)) / 2
    if len(shown.rows) * len(shown.columns) <= CELLS_LABELLED:
        for y, row in enumerate(shown.times):
            for x, time in enumerate(row):
                text = "–" if math.isnan(time) else f"{time:.1f}"
                colour = "white" if time > middle else "black"
                axes.text(x, y, text, ha="center", va="center", color=colour, fontsize=8)


def _draw_roofline(axes: Any, one: Pictured) -> None:
    found, device = one.found, REPRESENTATIVES.get(one.found.subject.arch)
    times = [t for t in found.trials.values() if t.status == "ok" and t.microseconds]
    best = found.best
    axes.grid(alpha=0.3, which="both")
    if one.operations is None or not one.moved:
        _draw_bandwidth(axes, one, times, device)
        return
    intensity = one.operations / one.moved
    rates = [one.operations / (t.microseconds or 1.0) / 1e6 for t in times]
    axes.plot([intensity] * len(rates), rates, "o", alpha=0.4, label="candidates")
    if best is not None and best.microseconds:
        rate = one.operations / best.microseconds / 1e6
        axes.plot(
            [intensity],
            [rate],
            "*",
            markersize=14,
            label=f"{choice_name(best.choice)}: {rate:.1f} TFLOP/s",
        )
    if device is not None:
        ridge = device.tensor_teraflops * 1e3 / device.dram_gigabytes
        ends = [min(intensity, ridge) / 8, ridge, max(intensity, ridge) * 8]
        roof = [min(device.tensor_teraflops, x * device.dram_gigabytes / 1e3) for x in ends]
        axes.plot(ends, roof, "-", color="gray", label=f"{device.name}, data sheet")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    axes.set_xlabel("operations for each byte that DRAM moves at least")
    axes.set_ylabel("TFLOP/s")
    axes.legend()


def _draw_bandwidth(
    axes: Any, one: Pictured, times: Sequence[Trial], device: Representative | None
) -> None:
    """Where nothing counts operations: bandwidth, the fastest candidate first."""
    rates = sorted((one.moved / (t.microseconds or 1.0) / 1e3 for t in times), reverse=True)
    axes.plot(range(1, len(rates) + 1), rates, "o")
    if device is not None:
        axes.axhline(device.dram_gigabytes, color="gray", label=f"{device.name}, data sheet")
        axes.legend()
    axes.set_xlabel("candidates, the fastest first")
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
