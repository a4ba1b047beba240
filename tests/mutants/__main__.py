"""`python -m tests.mutants`: every mutant of the samples' kernels; prints the table, `--json` writes it."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections import Counter
from pathlib import Path

from tests.mutants.jobs import all_verdicts
from tests.mutants.runs import Verdict
from tests.mutants.subjects import SUBJECTS
from tests.mutants.survivors import explanation
from tilec.jobs.running import commit


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("kernels", nargs="*", help="names of kernels; all without")
    parser.add_argument("--json", help="where to write the table")
    parser.add_argument("--arch", help="of this architecture alone")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    options = parser.parse_args()
    found: list[Verdict] = []
    start = time.time()
    chosen = [
        subject
        for subject in SUBJECTS
        if (not options.kernels or subject.kernel in options.kernels)
        and options.arch in (None, subject.arch)
    ]
    for subject, verdicts in all_verdicts(chosen, max(1, options.jobs)):
        found += verdicts
        lost = [v for v in verdicts if not v.noticed]
        print(
            f"{subject.kernel} {subject.arch}: {len(verdicts)} mutants, {len(lost)} survive",
            flush=True,
        )
        for v in lost:
            print(f"  {v.variant} {v.kind}: {v.what}  [{explanation(v) or 'unexplained'}]")
    kinds = Counter(v.kind for v in found)
    noticed = Counter(v.kind for v in found if v.noticed)
    for kind, count in sorted(kinds.items()):
        print(f"{kind:20} {noticed[kind]:5} of {count:5} noticed")
    if options.json:
        document = {
            "command": shlex.join(["python", "-m", "tests.mutants", *sys.argv[1:]]),
            "mutants": len(found),
            "noticed": sum(noticed.values()),
            "seconds": round(time.time() - start),
            "commit": commit(),
            "kinds": {kind: [noticed[kind], count] for kind, count in sorted(kinds.items())},
            "by": dict(sorted(Counter(v.noticed for v in found if v.noticed).items())),
            "survivors": [
                {
                    "kernel": v.variant,
                    "kind": v.kind,
                    "what": v.what,
                    "why": explanation(v) or "unexplained",
                }
                for v in found
                if not v.noticed
            ],
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any(not v.noticed and not explanation(v) for v in found) else 0


if __name__ == "__main__":
    sys.exit(main())
