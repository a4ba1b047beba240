"""Evidence that the generated kernels are right, from a machine with a GPU, as a JSON file.

usage: python bench/verify.py PART… [--out FILE] [--seconds N] [--jobs N] [--kernel NAME]… [--arch ARCH] [--dry]

Parts: ragged, forms, repeat, random, extremes, examples, faults, limits, sanitizer, archs, bits, wmma. Each builds with --jobs processes before it uses the GPU, then has
--seconds; what is not done by then counts as failed. --dry does everything but the launches: the interpreter stands in.
Exit status: 0 all agree, 3 the machine lacks something, 4 something failed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from records import of_commit, write_compact

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")]
).rstrip(os.pathsep)

PARTS = {
    "ragged": ("ragged", "ragged_part"),
    "forms": ("ragged", "forms"),
    "repeat": ("repeated", "repeat"),
    "random": ("randomly", "random_programs"),
    "extremes": ("extremes", "extremes"),
    "examples": ("examples", "examples"),
    "faults": ("faults", "faults"),
    "limits": ("limits", "limits"),
    "sanitizer": ("sanitizer", "sanitizer"),
    "archs": ("archs", "archs"),
    "bits": ("bits", "bits"),
    "wmma": ("wmma", "wmma"),
}
"""Module and function of each part."""

DRY_ARCH = "sm_90a"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=list(PARTS), metavar="PART")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--kernel", action="append", default=[])
    parser.add_argument(
        "--arch", default="", help="instead of what `tilec run` compiles for on this device"
    )
    parser.add_argument("--dry", action="store_true")
    return parser.parse_args()


def facts(options: argparse.Namespace, arch: str) -> dict[str, Any]:
    """What the results depend on."""
    from verification.cases import SEED

    from tilec.toolchain.driver import query_driver

    driver = query_driver()
    return {
        **of_commit(driver.devices[0].name if driver.devices else ""),
        "arch": arch,
        "driver": ".".join(map(str, driver.version)) if driver.version else "",
        "dry": options.dry,
        "seed": SEED,
    }


def main() -> int:
    """Run the parts in order; what each found is written before the next one begins."""
    from verification.evidence import MADE, Evidence, Refused

    from tilec.runtime.launching import architecture_for
    from tilec.toolchain.driver import query_driver

    options = arguments()
    devices = query_driver().devices
    if not devices and not options.dry:
        print(f"no GPU: {query_driver().problem}", file=sys.stderr)
        return 3
    arch = options.arch or (
        architecture_for(devices[0].compute_capability) if devices else DRY_ARCH
    )
    data = {**facts(options, arch), "parts": []}
    status = 0

    def stopped(*_: object) -> None:
        """What was found so far is written; nobody is waited for."""
        part = MADE[-1].as_json() if MADE else {"part": "none"}
        _write(options.out, {**data, "parts": [*data["parts"], {**part, "stopped": True}]})
        print(f"stopped: {part}", flush=True)
        os._exit(4)

    signal.signal(signal.SIGTERM, stopped)
    for part in options.parts:
        module, function = PARTS[part]
        run = getattr(importlib.import_module(f"verification.{module}"), function)
        try:
            evidence: Evidence = run(
                arch, options.jobs, options.seconds, options.dry, options.kernel
            )
        except Refused as error:
            print(f"{part}: {error}", flush=True)
            data["parts"].append({"part": part, "refused": str(error)})
            status = status or 3
            continue
        finally:
            _write(options.out, data)
        data["parts"].append(evidence.as_json())
        _write(options.out, data)
        for note in evidence.notes:
            print(f"{part}: {note}", flush=True)
        for name, counts in sorted(evidence.counts.items()):
            print(f"{part}: {name}: {', '.join(f'{n} {r}' for r, n in counts.items())}", flush=True)
        ok, failed = evidence.total("ok"), evidence.total("failed")
        print(f"{part}: {ok} ok, {failed} failed", flush=True)
        status = 4 if failed else status
    return status


def _write(path: Path | None, data: dict[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = {p["part"]: p for p in data["parts"]}
        write_compact(path, {**data, "parts": parts})


if __name__ == "__main__":
    result = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(result)  # builds and verifications that were given up are not waited for
