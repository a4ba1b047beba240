"""The JSON files of benchmarks: what was run, on what, and the rows."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def command() -> str:
    """The command line of this process, from the root of the checkout."""
    return shlex.join(["python", f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def beside_torch(arch: str, method: str = "") -> dict[str, object]:
    """The head of a file of times beside PyTorch: how code for `arch` was measured."""
    import torch

    head: dict[str, object] = {
        "command": command(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "arch": arch,
    }
    return {**head, "method": method} if method else head


def of_commit(gpu: str) -> dict[str, object]:
    """The head of a file of what `tilec` itself did on `gpu`."""
    from tilec.jobs.running import commit

    return {"command": command(), "commit": commit(), "gpu": gpu}


def write_record(path: Path | str, record: Mapping[str, Any]) -> None:
    """Write a file that ends with a newline."""
    text = json.dumps(record, indent=1) + "\n"
    Path(path).write_text(text, encoding="utf-8")


def write_rows(path: Path | str, head: Mapping[str, object], rows: Sequence[Any]) -> None:
    """Write rows under their head."""
    write_record(path, {**head, "rows": list(rows)})


def write_compact(path: Path | str, record: Mapping[str, Any]) -> None:
    """Write a file in which each item of a list is a line."""
    Path(path).write_text(compact(record) + "\n", encoding="utf-8")


def compact(value: Any, depth: int = 0) -> str:
    """JSON with a line for each item of a list and each part of an object that has parts itself."""
    pad, end = " " * (depth + 1), f"\n{' ' * depth}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{pad}{json.dumps(v)}" for v in value) + f"{end}]"
    if isinstance(value, dict) and any(isinstance(v, dict | list) for v in value.values()):
        parts = [f"{pad}{json.dumps(n)}: {compact(v, depth + 1)}" for n, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"{end}}}"
    return json.dumps(value)
