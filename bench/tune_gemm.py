"""What tuning gains on a product, and what it survives, on the GPU that is here; writes JSON.

usage: python bench/tune_gemm.py [--out FILE] [--limit SECONDS] [--shape M,N,K]… [--faults-only] [--jobs N] [--device cpu]

For each shape: `tilec tune`, then the tuned and the untuned kernel timed again in turn by an independent measurement, then the same
`tilec tune` once more as a command, which must call no nvcc. Before that a search with a hanging, a wrong and two crashing
candidates among its own. `--device cpu` does all but the independent measurement on the emulator at a small shape.
Exit status: 0 as it must be, 3 no GPU, 4 something else than it must be.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from records import of_commit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(
    os.pathsep
)

SHAPES = ((1024, 1024, 1024), (4096, 4096, 4096), (512, 8192, 4096))
"""M, N, K."""

SPACE = "tune BM in (64, 128), BN in (64, 128, 256), stages in (3, 4) key (M, N, K)"
FAULT_SPACE = "tune BM in (32, 64, 128), BN in (64, 128) key (M, N, K)"

KERNEL = """\
kernel {name}[BM = auto, BN = auto, BK = auto](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    {space}
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc

    check c == a @ b
    example M = 1024, N = 1024, K = 1024
    example cpu M = 70, N = 66, K = 40
"""

HANG = """
#ifdef __CUDA_ARCH__
  for (;;) __nanosleep(1000);
#else
  volatile int spinning = 1;
  while (spinning) {}
#endif"""
"""nvcc drops a loop without side effects."""

PLANTED: Mapping[tuple[int, int], tuple[str, str]] = {
    (32, 64): ("hang", HANG),
    (32, 128): ("wrong", "if (N >= 0) return;"),
    (64, 64): ("fault", "*reinterpret_cast<volatile int*>(8) = 1;"),
    (64, 128): ("fault", "__trap();"),
}
"""Statements at the start of a kernel's body by BM and BN, and what they must be found to be."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "tune.json")
    parser.add_argument("--limit", type=float, default=8.0)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--faults-only", action="store_true", help="only the planted faults")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    return parser.parse_args()


def plant(choice: Mapping[str, Any], cu: str) -> str:
    """The text with the fault of its candidate."""
    fault = PLANTED.get((choice.get("BM", 0), choice.get("BN", 0)))
    if fault is None:
        return cu

    def changed(found: re.Match[str]) -> str:
        product = "int N" in found[0]  # and not a body that copies an operand
        return f"{found[0]}  {fault[1]}\n" if product else found[0]

    return re.sub(r"_body(?:_\d+)?\([^{;]*\) \{\n", changed, cu)


def survive(options: argparse.Namespace) -> dict[str, Any]:
    """A search with planted faults: what each candidate was found to be."""
    from tilec.jobs.tuning import TuneRequest, run_tune
    from tilec.tuning.records import read_file

    Path("faults.tile").write_text(KERNEL.format(name="faulty", space=FAULT_SPACE))
    sizes = () if options.device == "cpu" else ("M=512", "N=512", "K=512")
    request = TuneRequest(
        "faults.tile",
        settings=sizes,
        device=options.device,
        jobs=options.jobs,
        limit=options.limit,
    )
    start = time.monotonic()
    status = run_tune(request, alter=plant)
    (found,) = read_file(Path("faults.tile.tuning")).values()
    wanted = {f"BM={m} BN={n}": kind for (m, n), (kind, _) in PLANTED.items()}
    statuses = {name: trial.status for name, trial in found.trials.items()}
    # a kernel that ends in a fault may leave its outputs as they were, or be found out by a guard band: all that counts is that
    # it was no success and that the others were
    survived = (
        status == 0
        and all(statuses[n] != "ok" for n in wanted)
        and all(s == "ok" for n, s in statuses.items() if n not in wanted)
    )
    return {
        "planted": wanted,
        "found": statuses,
        "details": {n: t.detail for n, t in found.trials.items() if t.detail},
        "survived": survived,
        "seconds": round(time.monotonic() - start, 1),
    }


def tuned_and_untuned(
    path: str, kernel_name: str, numbers: Mapping[str, Any], choice: Mapping[str, Any]
) -> dict[str, float]:
    """Medians in µs of the tuned and the untuned kernel of `path`, measured in turn in this process, for sizes and scalars by name."""
    from contextlib import ExitStack

    from tilec.compiler import compile_file
    from tilec.reference.inputs import make_inputs
    from tilec.runtime import bench
    from tilec.runtime.arguments import CallSizes
    from tilec.runtime.device import open_gpu
    from tilec.runtime.gpu_run import prepare_call
    from tilec.toolchain.build import compile_cubin, find_toolchain
    from tilec.toolchain.cache import default_cache

    cache = default_cache()
    toolchain = find_toolchain(cache=cache)
    with ExitStack() as stack:
        gpu = stack.enter_context(open_gpu())
        flush = bench.prepare_flush(gpu, toolchain, cache)
        stack.callback(flush.free)
        calls = []
        for values in (choice, {}):
            compiled = compile_file(
                path, kernel=kernel_name, archs=(gpu.arch,), choices={kernel_name: values}
            )
            (kernel,) = compiled.kernels
            scalars = {n: v for n, v in numbers.items() if isinstance(v, float)}
            dims = {n: v for n, v in numbers.items() if n not in scalars}
            sizes = CallSizes(dims, scalars)
            arrays = make_inputs(kernel.program, dims, scalars, 0)
            blob = compile_cubin(compiled.cu, gpu.arch, toolchain=toolchain, cache=cache).blob
            call = prepare_call(gpu, kernel.plan, gpu.load(blob), sizes, arrays)
            calls.append(stack.enter_context(call).launch)
        ours, plain = bench.interleaved(gpu, flush, "read", calls)
    return {"tuned_us": statistics.median(ours), "untuned_us": statistics.median(plain)}


def tune(options: argparse.Namespace, shape: tuple[int, int, int]) -> dict[str, Any]:
    """One shape."""
    from tilec.jobs.tuning import TuneRequest, run_tune
    from tilec.tuning.records import choice_name, read_file, summary

    settings = tuple(f"{n}={v}" for n, v in zip("MNK", shape, strict=True))
    request = TuneRequest(
        "gemm.tile",
        settings=settings,
        device=options.device,
        jobs=options.jobs,
        limit=options.limit,
    )
    start = time.monotonic()
    run_tune(request)
    seconds = time.monotonic() - start
    found = next(
        f
        for f in read_file(Path("gemm.tile.tuning")).values()
        if all(f.subject.sizes[n] == v for n, v in zip("MNK", shape, strict=True))
    )
    assert found.best is not None
    result: dict[str, Any] = {
        "shape": list(shape),
        "best": {n: str(v) for n, v in found.best.choice.items()},
        "name": choice_name(found.best.choice),
        "search_us": found.best.microseconds,
        "search_untuned_us": found.best.untuned_microseconds,
        "candidates": summary(list(found.trials.values())),
        "seconds": round(seconds, 1),
    }
    if options.device == "gpu":
        sizes = dict(zip("MNK", shape, strict=True))
        times = tuned_and_untuned("gemm.tile", "gemm", sizes, found.best.choice)
        operations = 2.0 * shape[0] * shape[1] * shape[2]
        result |= {n: round(v, 2) for n, v in times.items()}
        result["tuned_tflops"] = round(operations / times["tuned_us"] / 1e6, 1)
        result["untuned_tflops"] = round(operations / times["untuned_us"] / 1e6, 1)
        result["ratio"] = round(times["untuned_us"] / times["tuned_us"], 4)
    words = [sys.executable, "-m", "tilec", "tune", "gemm.tile"]
    words += [w for s in settings for w in ("-s", s)]
    words += ["--device", options.device]
    start = time.monotonic()
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    result["again_seconds"] = round(time.monotonic() - start, 2)
    result["again_without_nvcc"] = again.returncode == 0 and "no nvcc call" in again.stderr
    return result


def main() -> int:
    """All of it; what is there is written after each part."""
    from tilec.toolchain.driver import query_driver

    options = arguments()
    options.out = options.out.resolve()
    driver = query_driver()
    if options.device == "gpu" and not driver.devices:
        print(f"no GPU: {driver.problem}", file=sys.stderr)
        return 3
    shapes = [tuple(map(int, s.split(","))) for s in options.shape] or list(SHAPES)
    if options.device == "cpu":
        shapes = [(70, 66, 40)]
    if options.faults_only:
        shapes = []
    data: dict[str, Any] = {
        **of_commit(driver.devices[0].name if driver.devices else "emulator"),
        "space": SPACE,
        "shapes": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.setdefault("TILEC_CACHE_DIR", str(Path(folder) / "cache"))
        space = SPACE if options.device == "gpu" else FAULT_SPACE
        Path("gemm.tile").write_text(KERNEL.format(name="gemm", space=space))
        for shape in shapes:
            data["shapes"].append(tune(options, shape))
            write(options.out, data)
            one = data["shapes"][-1]
            print(
                f"{'x'.join(map(str, shape))}: {one['name']}, ratio {one.get('ratio', '–')}, "
                f"{one.get('untuned_tflops', '–')} -> {one.get('tuned_tflops', '–')} TFLOP/s, "
                f"{one['candidates']} in {one['seconds']} s; again {one['again_seconds']} s",
                flush=True,
            )
        data["faults"] = survive(options)
        write(options.out, data)
        print(f"faults survived: {data['faults']['survived']}: {data['faults']['found']}")
        os.chdir(ROOT)
    good = data["faults"]["survived"] and all(s["again_without_nvcc"] for s in data["shapes"])
    if options.device == "gpu" and shapes:
        ratios = [s["ratio"] for s in data["shapes"]]
        good = good and min(ratios) >= 0.99 and max(ratios) >= 1.05
    return 0 if good else 4


def write(path: Path, data: Mapping[str, Any]) -> None:
    """The results so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
