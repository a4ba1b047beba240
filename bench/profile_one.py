"""Launches one product a few times, for a profiler around it: python bench/profile_one.py KERNEL [NAME=VALUE…]"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from launchers import load

kernel = sys.argv[1]
defines = dict(word.split("=") for word in sys.argv[2:])
m = n = k = 4096
a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
launch = load("samples/gemm.tile", kernel, "sm_90", **defines)
for _ in range(3):
    launch(a, b, c, m, k, n)
torch.cuda.synchronize()
