"""What a search shows while it runs: a bar on a terminal that `rich` can draw on, else a line a candidate."""

from __future__ import annotations

from typing import Any, TextIO

from tilec.tuning.records import Found, Subject, Trial, choice_name
from tilec.tuning.search import Listener


def progress(stream: TextIO) -> Listener:
    """The listener for a stream."""
    if stream.isatty():
        try:
            return _Bar(stream)
        except ModuleNotFoundError:
            pass
    return _Lines(stream)


def _head(subject: Subject, total: int, known: int) -> str:
    sizes = " ".join(f"{n}={v}" for n, v in subject.sizes.items())
    rest = f", {known} known" if known else ""
    return f"{subject.kernel} {sizes}: {total} candidates{rest}"


def _result(trial: Trial) -> str:
    time = "" if trial.microseconds is None else f"  {trial.microseconds:.1f} µs"
    detail = f"  {trial.detail}" if trial.detail else ""
    return f"{choice_name(trial.choice)}  {trial.status}{time}{detail}"


def _rejected(found: Found) -> int:
    return sum(t.status == "rejected" for t in found.trials.values())


def _end(found: Found, nvcc_calls: int) -> str:
    calls = "no nvcc call" if not nvcc_calls else f"{nvcc_calls} nvcc calls"
    return f"{calls}, {_rejected(found)} candidates over a limit dropped before nvcc"


class _Lines:
    """Plain lines."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def _say(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def begin(self, subject: Subject, total: int, known: int) -> None:
        """The first line."""
        self._say(_head(subject, total, known))

    def tried(self, trial: Trial, done: int, total: int) -> None:
        """A line a candidate."""
        self._say(f"[{done}/{total}] {_result(trial)}")

    def built(self, done: int, total: int) -> None:
        """Nothing: the lines of results say it."""

    def end(self, found: Found, nvcc_calls: int) -> None:
        """The last line."""
        self._say(_end(found, nvcc_calls))


class _Bar:
    """Two bars, built and measured, and the best so far."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.console = Console(file=stream)
        self.columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.make: Any = Progress
        self.bars: Any = None
        self.best: float | None = None
        self.failed = 0

    def begin(self, subject: Subject, total: int, known: int) -> None:
        """Draw the bars."""
        self.console.print(_head(subject, total, known), highlight=False)
        self.best, self.failed = None, 0
        self.bars = self.make(*self.columns, console=self.console, transient=True)
        self.build = self.bars.add_task("built", total=None, note="")
        self.measure = self.bars.add_task("tried", total=total, completed=known, note="")
        self.bars.start()

    def tried(self, trial: Trial, done: int, total: int) -> None:
        """Move the bar; what failed stays as a line."""
        if trial.status == "ok" and trial.microseconds is not None:
            self.best = min(trial.microseconds, self.best or trial.microseconds)
        elif trial.status != "rejected":
            self.console.print(_result(trial), highlight=False, markup=False)
        note = "" if self.best is None else f"best {self.best:.1f} µs"
        self.bars.update(self.measure, completed=done, note=note)

    def built(self, done: int, total: int) -> None:
        """Move the bar."""
        self.bars.update(self.build, completed=done, total=total)

    def end(self, found: Found, nvcc_calls: int) -> None:
        """Take the bars away."""
        self.bars.stop()
        self.console.print(_end(found, nvcc_calls), highlight=False)
