"""Compiled files whose first kernel is written by hand, with tensor maps, clusters and CTAs that walk several tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.emit import bodies, unit
from tilec.ir.dtypes import F16, F32, F64, I32, U8
from tilec.ir.launch import (
    AllOf,
    IntegerArgument,
    Launch,
    LaunchPlan,
    PointerArgument,
    Step,
    TensorMapArgument,
)
from tilec.ir.symbolic import Sym, Var, ceildiv

M, N, LDA = (Sym.of(Var(name, "dim")) for name in ("M", "N", "lda"))

DOUBLED = """
kernel doubled(x: f16[M, N] strides (lda, 1)) -> y: f16[M, N]:
    for i, j in parallel(M, N by 256):
        y[i, j] = x[i, j] * 2
    check y == x * 2
"""

DOUBLED_TEXT = """
extern "C" __global__ void __cluster_dims__(2, 1, 1)
__launch_bounds__(128, resident_ctas(128, 1))
doubled_mapped(const __grid_constant__ CUtensorMap x_map, f16_t* __restrict__ y, int M, int N) {
  struct Shared {
    PanelTile<f16_t, 8, 64> tile;
    SharedBarrier landed;
  };
  Shared& shared = cta_shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    barrier_init(shared.landed, 1);
    barrier_init_fence();
  }
  __syncthreads();
  const int across = (N + 63) / 64;
  const int tiles = (M + 7) / 8 * across;
  int parity = 0;
  for (int at = static_cast<int>(blockIdx.x); at < tiles; at += static_cast<int>(gridDim.x)) {
    const int row = at / across * 8;
    const int col = at % across * 64;
    if (thread == 0) {
      barrier_arrive_expect(shared.landed, 8 * 64 * 2);
      tensor_load(&shared.tile, x_map, shared.landed, col, row);
    }
    barrier_wait(shared.landed, parity);
    parity ^= 1;
    for (int i = thread; i < 8 * 64; i += 128) {
      const f16_t element = *shared.tile.at(i / 64, i % 64);
      if (row + i / 64 < M && col + i % 64 < N) {
        f16_t* const place = y + int64_t{row + i / 64} * N + col + i % 64;
        store_element(place, convert<f16_t>(2 * convert<float>(element)));
      }
    }
    fence_async();
    __syncthreads();
  }
}
"""

X_MAP = TensorMapArgument("x_map", "x", F16, (N, M), (LDA * 2,), (64, 8), 128)

MANY = """
kernel many(c: f32[A, B, C, D], u: u8[A, B * C], inout d: f64[D], k: i32[A]) -> y: f32[A, B]:
    for i, j in parallel(A, B by 256):
        y[i, j] = 1.0
"""

MANY_TEXT = """
extern "C" __global__ void __launch_bounds__(64, resident_ctas(64, 2))
many_five(const __grid_constant__ CUtensorMap c, int A, const __grid_constant__ CUtensorMap u,
          const __grid_constant__ CUtensorMap d, int64_t wide) {}
extern "C" __global__ void __cluster_dims__(4, 1, 1)
__launch_bounds__(96, resident_ctas(96, 1))
many_one(int A, const __grid_constant__ CUtensorMap status, float* __restrict__ y) {}
extern "C" __global__ void __launch_bounds__(32, resident_ctas(32, 1))
many_plain(float* __restrict__ y) {}
"""


def hand_made(
    source: str, text: str, archs: tuple[str, ...], steps: Callable[[LaunchPlan], tuple[Step, ...]]
) -> CompiledFile:
    """The kernel of `source` with `text` before its own entry points, launched by what `steps` makes of its plan."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mapped.tile"
        path.write_text(source)
        compiled = compile_file(str(path), archs=archs)
    (kernel,) = compiled.kernels
    targets = tuple(replace(t, steps=steps(kernel.plan)) for t in kernel.plan.targets)
    plan = replace(kernel.plan, targets=targets)
    kernels = tuple(bodies.GuardedKernel(k, "", kernel.program) for k in kernel.lowered[archs[0]])
    made = unit.UnitKernel(kernel.name, kernel.program, plan, kernels)
    own = bodies.render_kernels(made.kernels)
    both = bodies.KernelTexts(own.bodies, (text.strip(), *own.wrappers))
    with patch.object(unit, "render_kernels", lambda *_: both):
        cu = unit.render_unit("mapped.tile", "", [made])
    return replace(compiled, cu=cu, kernels=(replace(kernel, plan=plan),))


def doubled(arch: str = "sm_90a") -> CompiledFile:
    """`y = 2 x` through a map where `x` can have one."""

    def steps(plan: LaunchPlan) -> tuple[Step, ...]:
        arguments = (X_MAP, PointerArgument("y"), IntegerArgument("M", M), IntegerArgument("N", N))
        grid = ceildiv(M, 8) * ceildiv(N, 64)
        mapped = Launch(
            "doubled_mapped", X_MAP.addressable, grid, 128, arguments, cluster=2, resident=1
        )
        (step,) = plan.targets[0].steps
        return (replace(step, launches=(mapped, *step.launches)),)

    return hand_made(DOUBLED, DOUBLED_TEXT, (arch,), steps)


def many(arch: str = "sm_90a") -> CompiledFile:
    """Maps of one to five axes, three launches, nothing that could run."""
    a, b, c, d = (Sym.of(Var(name, "dim")) for name in "ABCD")
    five = (d, c, b, a, Sym.of(1))
    strides = (d * 4, d * c * 4, d * c * b * 4, Sym.of(1 << 20))
    c_map = TensorMapArgument("c", "c", F32, five, strides, (8, 4, 2, 1, 1), 32)
    u_map = TensorMapArgument("u", "u", U8, (b * c, a), (b * c,), (64, 256), 64)
    d_map = TensorMapArgument("d", "d", F64, (d,), (), (2,), 0)
    k_map = TensorMapArgument("status", "k", I32, (a // 2 + 1,), (), (32,), 128)

    def steps(plan: LaunchPlan) -> tuple[Step, ...]:
        legal = AllOf((c_map.addressable, u_map.addressable, d_map.addressable))
        ctas = plan.targets[0].steps[0].instances
        numbers = IntegerArgument("A", a), IntegerArgument("wide", a * b, wide=True)
        first = Launch(
            "many_five", legal, ctas, 64, (c_map, numbers[0], u_map, d_map, numbers[1]), 1 << 16
        )
        second = Launch(
            "many_one",
            k_map.addressable,
            ctas,
            96,
            (numbers[0], k_map, PointerArgument("y")),
            cluster=4,
        )
        (step,) = plan.targets[0].steps
        plain = Launch("many_plain", AllOf(()), ctas, 32, (PointerArgument("y"),), resident=3)
        return (
            replace(step, launches=(first, second, plain)),
            replace(step, launches=(replace(second, resident=1), plain)),
        )

    return hand_made(MANY, MANY_TEXT, (arch,), steps)
