"""What the tuner found, as JSON lines in `FILE.tuning` beside the source.

A *subject* is what a result holds for: kernel, sizes, GPU, versions. Its line comes first; each candidate is a line that names the
subject by a hash, and so is the end of a search:

    {"subject": "1f…", "kernel": "gemm", "program": "9c…", "key": {"M": 4096}, "gpu": "NVIDIA H200", …}
    {"of": "1f…", "choice": {"BM": 128, "warps": 8}, "status": "ok", "us": 251.3}
    {"of": "1f…", "best": {"BM": 128, "warps": 8}, "us": 250.9, "untuned_us": 262.0}

Lines are only ever appended, each by one write, so that a tuner that is killed loses the candidate it was at, and two tuners that
write one file at once lose nothing. A line that cannot be read is passed over; of two for one candidate the later counts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal

from tilec.ir.dtypes import DTYPES, DType
from tilec.ir.selection import Number, distance
from tilec.lazy_dataclass import dataclass
from tilec.plan.candidate import Choice
from tilec.source.diagnostics import fail

Status = Literal["ok", "wrong", "fault", "hang", "rejected", "refused"]
"""`rejected`: over a limit of the target, before nvcc. `refused`: tilec or nvcc did not take it. `wrong`: it did not verify.
`fault`: the device or the process stopped. `hang`: it ran past the time limit."""

EMULATOR = "emulator"
"""The `gpu` of results whose times are those of the emulator."""

SUFFIX = ".tuning"
"""What is added to the source's name."""


@dataclass(frozen=True)
class Subject:
    """What a result holds for. `program` is a hash of the kernel's meaning and of its check, `key` the sizes that the `key` of
    `tune` names (all of them without one), `sizes` all of them and the scalars, `seed` and `within` those of the verification."""

    kernel: str
    program: str
    key: Mapping[str, Number]
    sizes: Mapping[str, Number]
    dtypes: Mapping[str, str]
    gpu: str
    arch: str
    nvcc: str
    tilec: str
    seed: int = 0
    within: str = ""

    @property
    def id(self) -> str:
        """A hash of all of it."""
        return hashlib.sha256(_line(asdict(self))).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        """Its line."""
        return {"subject": self.id, **asdict(self)}


@dataclass(frozen=True)
class Trial:
    """One candidate: `microseconds` where it was timed, `detail` why not. `twin`: the candidate with the same generated text that was
    measured in its place, "" where it was itself."""

    choice: Choice
    status: Status
    microseconds: float | None = None
    detail: str = ""
    twin: str = ""


@dataclass(frozen=True)
class Best:
    """The end of a search: the fastest choice, empty where that is the untuned candidate, against the time of the latter; `search` is
    the strategy."""

    choice: Choice
    microseconds: float
    untuned_microseconds: float | None
    search: str = "exhaustive"


@dataclass
class Found:
    """All that a file says about one subject: trials by choice."""

    subject: Subject
    trials: dict[str, Trial] = field(default_factory=dict)
    best: Best | None = None


def choice_name(choice: Choice) -> str:
    """`BM=128 warps=8`; "untuned" for the empty one."""
    return " ".join(f"{n}={_plain(v)}" for n, v in choice.items()) or "untuned"


def tuning_path(file: str) -> Path:
    """`gemm.tile.tuning` for `gemm.tile`."""
    return Path(file + SUFFIX)


def read_records(text: str) -> dict[str, Found]:
    """What a tuning file says, by the subjects' ids, in the order of their first lines."""
    found: dict[str, Found] = {}
    waiting: list[dict[str, Any]] = []
    for line in text.splitlines():
        data = _parsed(line)
        try:
            if "subject" in data:
                names = Subject.__dataclass_fields__
                subject = Subject(**{n: data[n] for n in names if n in data})
                if subject.id == data["subject"]:
                    found.setdefault(subject.id, Found(subject))
            elif "of" in data:
                waiting.append(data)
        except (TypeError, ValueError, KeyError):
            continue
    for data in waiting:
        owner = found.get(str(data["of"]))
        if owner is not None:
            _take(owner, data)
    return found


def _take(owner: Found, data: Mapping[str, Any]) -> None:
    """One line of a subject; nothing where it has another form."""
    try:
        if "best" in data:
            untuned = data.get("untuned_us")
            owner.best = Best(
                _choice(data["best"]),
                float(data["us"]),
                None if untuned is None else float(untuned),
                str(data.get("search", "exhaustive")),
            )
        else:
            choice, micros = _choice(data["choice"]), data.get("us")
            status: Status = data["status"]
            time = None if micros is None else float(micros)
            owner.trials[choice_name(choice)] = Trial(
                choice, status, time, data.get("detail", ""), data.get("as", "")
            )
    except (TypeError, ValueError, KeyError, AttributeError):
        return


def _choice(data: Mapping[str, Any]) -> Choice:
    return {n: DTYPES[v] if isinstance(v, str) else v for n, v in data.items()}


def _plain(value: object) -> Any:
    return str(value) if isinstance(value, DType) else value


def _parsed(line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def trial_json(subject: Subject, trial: Trial) -> dict[str, Any]:
    """A candidate's line."""
    data: dict[str, Any] = {
        "of": subject.id,
        "choice": {n: _plain(v) for n, v in trial.choice.items()},
        "status": trial.status,
    }
    if trial.microseconds is not None:
        data["us"] = round(trial.microseconds, 3)
    if trial.detail:
        data["detail"] = trial.detail
    if trial.twin:
        data["as"] = trial.twin
    return data


def best_json(subject: Subject, best: Best) -> dict[str, Any]:
    """The line of the end of a search."""
    untuned = best.untuned_microseconds
    return {
        "of": subject.id,
        "best": {n: _plain(v) for n, v in best.choice.items()},
        "us": round(best.microseconds, 3),
        "untuned_us": None if untuned is None else round(untuned, 3),
        **({} if best.search == "exhaustive" else {"search": best.search}),
    }


def found_json(found: Found) -> list[dict[str, Any]]:
    """All lines about a subject."""
    lines = [found.subject.as_json()]
    lines += [trial_json(found.subject, trial) for trial in found.trials.values()]
    if found.best is not None:
        lines.append(best_json(found.subject, found.best))
    return lines


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


def append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Add lines to a file by one write; after a line without an end a new one begins. Raises TileError (E0704)."""
    block = b"".join(_line(data) for data in lines)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                block = b"\n" + block
            os.write(descriptor, block)
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise fail("E0704", f"cannot write `{path}`: {reason}") from error


def read_file(path: Path) -> dict[str, Found]:
    """The records of a file, none where there is no such file or it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return {}
    return read_records(text)


def cache_folder(program: str) -> Path:
    """Where the cache keeps what was found about one program, a file for each subject."""
    from tilec.resources import cache_directory

    return cache_directory() / "tuning" / program


def publish_found(found: Found) -> bool:
    """Put all that is known about a subject into the cache in one step; False where it cannot be written."""
    from tilec.resources import publish

    path = cache_folder(found.subject.program) / f"{found.subject.id}.jsonl"
    return publish(path, b"".join(map(_line, found_json(found))))


def cached(program: str) -> Iterator[Found]:
    """What the cache knows about a program."""
    try:
        paths = sorted(cache_folder(program).glob("*.jsonl"))
    except OSError:
        return
    for path in paths:
        yield from read_file(path).values()


def nearest(found: Iterable[Found], key: Mapping[str, Number]) -> Found | None:
    """The finished search whose key is nearest (`tilec.ir.selection.distance`); the last of equal ones."""
    best: tuple[float, Found] | None = None
    for one in found:
        if one.best is None or set(one.subject.key) - set(key):
            continue
        far = distance(list(one.subject.key.values()), [key[n] for n in one.subject.key])
        if best is None or far <= best[0]:
            best = far, one
    return best[1] if best else None


def summary(trials: Sequence[Trial]) -> str:
    """`80 ok, 12 rejected, 1 hang`."""
    order: tuple[Status, ...] = ("ok", "rejected", "refused", "wrong", "fault", "hang")
    counts = [(sum(t.status == s for t in trials), s) for s in order]
    return ", ".join(f"{n} {s}" for n, s in counts if n) or "nothing tried"
