"""Comparisons and ranges of sizes as a table, as CSV and as a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tilec.runtime.outcome import Outcome, Timing, table
from tilec.source.diagnostics import fail

_COLUMNS = (
    "file",
    "kernel",
    "sizes",
    "implementation",
    "status",
    "l2",
    "median_us",
    "mean_us",
    "p20_us",
    "p80_us",
    "gigabytes_per_second",
    "teraflops",
    "peak_megabytes",
    "ratio",
    "max_error",
    "allclose",
)


def comparison_table(outcomes: Sequence[Outcome]) -> str:
    """Two lines an outcome: the kernel, and what it was compared with."""
    rows: list[tuple[str, ...]] = [
        (
            "kernel",
            "sizes",
            "by",
            "median µs",
            "mean",
            "p20",
            "p80",
            "TFLOP/s",
            "GB/s",
            "peak MB",
            "ratio",
            "max error",
            "allclose",
        )
    ]
    for outcome in outcomes:
        found = outcome.comparison
        if found is None:
            continue
        ratio = "–" if found.ratio is None else f"{found.ratio:.2f}"
        agreed = f"{'yes' if found.allclose else 'no'} ({found.within})"
        rows.append(
            (
                outcome.kernel,
                outcome.sizes,
                "tilec",
                *_numbers(found.ours),
                f"{found.our_peak_megabytes:.0f}",
                ratio,
                f"{found.max_error:.3g}",
                agreed,
            )
        )
        name = f"{found.against} ({found.mode})"
        rows.append(("", "", name, *_numbers(found.theirs), f"{found.their_peak_megabytes:.0f}"))
    return table(rows)


def _numbers(timing: Timing) -> tuple[str, ...]:
    rates = (timing.teraflops, timing.gigabytes_per_second)
    return (
        *(f"{v:.1f}" for v in (timing.median, timing.mean, timing.p20, timing.p80)),
        *("–" if r is None else f"{r:.1f}" for r in rates),
    )


def outcomes_csv(outcomes: Sequence[Outcome]) -> str:
    """A line for each timing of each outcome, one for an outcome without; sizes as `N=4 M=5`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for outcome in outcomes:
        head = (outcome.file, outcome.kernel, outcome.sizes)
        found = outcome.comparison
        if found is not None:
            close = str(found.allclose).lower()
            tail = (found.our_peak_megabytes, found.ratio, found.max_error, close)
            writer.writerow((*head, "tilec", outcome.status, *_cells(found.ours), *tail))
            name = f"{found.against} {found.mode}"
            peak = found.their_peak_megabytes
            writer.writerow((*head, name, "", *_cells(found.theirs), peak, "", "", ""))
            continue
        for timing in outcome.timings:
            peak_of = outcome.peak_megabytes
            writer.writerow((*head, "tilec", outcome.status, *_cells(timing), peak_of, "", "", ""))
        if not outcome.timings:
            writer.writerow((*head, "tilec", outcome.status, *[""] * 11))
    return text.getvalue()


def _cells(timing: Timing) -> tuple[object, ...]:
    return (
        timing.flush,
        timing.median,
        timing.mean,
        timing.p20,
        timing.p80,
        "" if timing.gigabytes_per_second is None else timing.gigabytes_per_second,
        "" if timing.teraflops is None else timing.teraflops,
    )


def import_matplotlib() -> None:
    """Raises TileError (E0818) where matplotlib is missing."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise fail(
            "E0818",
            "`--plot` needs matplotlib, which is not installed",
            help="run `pip install 'tilec[bench]'`, or use `--csv`",
        ) from error
    matplotlib.use("Agg")


Curve = tuple[str, list[float], list[float]]


def curves(outcomes: Sequence[Outcome]) -> tuple[str, str, list[Curve]]:
    """The name of the sizes that vary, what is drawn over them, and for each kernel and side a curve."""
    timed = [o for o in outcomes if o.timings or o.comparison]
    names = list(dict.fromkeys(n for o in timed for n in o.values))
    varying = [n for n in names if len({o.values.get(n) for o in timed}) > 1] or names[:1]
    sides: dict[str, list[tuple[float, Timing]]] = {}
    for number, outcome in enumerate(timed):
        at = float(outcome.values.get(varying[0], number)) if varying else float(number)
        if outcome.comparison is not None:
            found = outcome.comparison
            sides.setdefault(f"{outcome.kernel}, tilec", []).append((at, found.ours))
            sides.setdefault(f"{outcome.kernel}, {found.against}", []).append((at, found.theirs))
        else:
            sides.setdefault(f"{outcome.kernel}, tilec", []).append((at, outcome.timings[0]))
    every = [t for points in sides.values() for _, t in points]
    if every and all(t.teraflops for t in every):
        what, drawn = "TFLOP/s", [t.teraflops for t in every]
    elif every and all(t.gigabytes_per_second for t in every):
        what, drawn = "GB/s", [t.gigabytes_per_second for t in every]
    else:
        what, drawn = "µs", [t.median for t in every]
    heights = iter(float(h or 0.0) for h in drawn)
    found_curves = [
        (name, [x for x, _ in points], [next(heights) for _ in points])
        for name, points in sides.items()
    ]
    return ", ".join(varying) or "call", what, found_curves


def plot(outcomes: Sequence[Outcome], form: str) -> bytes:
    """The curves as an image of a form that matplotlib knows (`png`, `svg`, `pdf`). Raises TileError (E0818)."""
    import_matplotlib()
    from matplotlib.figure import Figure

    across, up, drawn = curves(outcomes)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, xs, ys in drawn:
        axes.plot(xs, ys, marker="o", label=name)
    if drawn and all(x > 0 for _, xs, _ in drawn for x in xs):
        axes.set_xscale("log", base=2)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if drawn:
        axes.legend()
    image = io.BytesIO()
    figure.savefig(image, format=form)
    return image.getvalue()
