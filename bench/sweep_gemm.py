"""Times products under given tiles, warps and stages beside cuBLAS: what the rules of the plan are drawn from.

usage: python bench/sweep_gemm.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).parent))
from launchers import load

CONFIGURATIONS = [  # (BM, BN, BK, warps, stages)
    (128, 128, 64, 4, 2), (128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 32, 4, 4), (128, 128, 32, 4, 6),
    (128, 128, 32, 8, 4), (128, 256, 32, 8, 3), (128, 256, 32, 8, 4), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4),
    (256, 128, 64, 8, 3), (256, 128, 64, 8, 4), (256, 64, 64, 4, 3), (64, 256, 64, 4, 3), (128, 64, 64, 4, 4),
]  # fmt: skip

SOURCE = """kernel {name}(a: bf16[M, K], b: bf16[{b}]) -> c: bf16[M, N]:
    schedule warps = {warps}, stages = {stages}
    for i, j in parallel(M by {bm}, N by {bn}):
        acc = zeros(f32, i, j)
        for k in range(K by {bk}):
            acc += a[i, k] @ {right}
        c[i, j] = acc
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--few", action="store_true", help="only the tiles that were best")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    m = n = k = 4096
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    bt = b.T.contiguous()
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    reference = (a @ b).float()
    wanted = []
    for kind in ("nn", "nt"):
        for configuration in (
            CONFIGURATIONS[1:4] + CONFIGURATIONS[8:10] if options.few else CONFIGURATIONS
        ):
            bm, bn, bk, warps, stages = configuration
            name = f"g_{kind}_{bm}_{bn}_{bk}_{warps}_{stages}"
            text = SOURCE.format(
                name=name, b="K, N" if kind == "nn" else "N, K", right="b[k, j]" if kind == "nn" else "b[j, k].T",
                bm=bm, bn=bn, bk=bk, warps=warps, stages=stages,
            )  # fmt: skip
            path = folder / f"{name}.tile"
            path.write_text(text)
            wanted.append((kind, configuration, str(path), name))

    def build(item: tuple[str, tuple[int, ...], str, str]) -> object:
        try:
            return load(item[2], item[3], "sm_90")
        except Exception as error:  # a configuration that does not fit is part of the table
            return str(error)[:100]

    with ThreadPoolExecutor(16) as pool:
        built = list(pool.map(build, wanted))
    base = {
        "nn": do_bench(lambda: torch.mm(a, b), warmup=10, rep=40, return_mode="median"),
        "nt": do_bench(lambda: torch.mm(a, bt.T), warmup=10, rep=40, return_mode="median"),
    }
    table = []
    for (kind, configuration, _, _), launch in zip(wanted, built, strict=True):
        if isinstance(launch, str):
            print(kind, configuration, launch)
            continue
        right = b if kind == "nn" else bt
        c.fill_(float("nan"))
        launch(a, right, c, m, k, n)
        error = float((c.float() - reference).norm() / reference.norm())
        assert error < 3e-3, (kind, configuration, error)
        ms = do_bench(
            partial(launch, a, right, c, m, k, n), warmup=10, rep=40, return_mode="median"
        )
        row = {
            "kind": kind,
            "tile": configuration,
            "ratio": round(base[kind] / ms, 4),
            "tflops": round(2.0 * m * n * k / ms * 1e-9, 1),
        }
        table.append(row)
        print(json.dumps(row), flush=True)
    if options.out:
        head = {
            "command": "python bench/sweep_gemm.py",
            "gpu": torch.cuda.get_device_name(),
            "shape": "4096^3 bf16",
        }
        Path(options.out).write_text(json.dumps({**head, "rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
