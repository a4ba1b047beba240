"""Names that NumPy, PyTorch, CUDA and Triton have and the language has not, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilec.analysis.scopes import closest
from tilec.ir.dtypes import DTYPES

MODULES = frozenset({"np", "numpy", "jnp", "math", "torch", "F", "tl", "cp", "cupy", "scipy"})
"""Names that stand for modules of Python."""

_THREADS = (
    "there are no threads and no barriers; `for i in parallel(N by BN)` gives blocks of indices"
)

_ORDER = (
    "there is no sort; `topk(x, k, axis = n)` gives the k greatest in order, and where they stood"
)
_COMPARED = "compare spans: `where(i[:, None] >= j[None, :], x, 0.0)`"
_EACH = "loops count: `for n in range(N)`, with elements `x[n]` of a tensor"
_COUNT = "count with `atomic_add(h.at[n], 1)`, `n` an index tile"

INSTEAD = {
    "argsort": _ORDER,
    "sort": _ORDER,
    "median": _ORDER,
    "unique": _ORDER,
    "bincount": _COUNT,
    "histogram": _COUNT,
    "enumerate": _EACH,
    "zip": _EACH,
    "tril": _COMPARED,
    "triu": _COMPARED,
    "average": "write `sum(x) / C`, with the axis' extent",
    "norm": "write `sqrt(sum(x * x))`",
    "outer": "write `a[:, None] * b[None, :]`",
    "sign": "write `where(x > 0.0, 1.0, where(x < 0.0, -1.0, 0.0))`",
    "silu": "write `x * sigmoid(x)`",
    "logsumexp": "write `m + log(sum(exp(x - m)))`, with the maximum `m`",
    "cdiv": "write `ceildiv(a, b)`",
    "copy": "tiles are values: `t = x` stays what it is whatever `x` is bound to",
    "clone": "tiles are values: `t = x` stays what it is whatever `x` is bound to",
    "arange": "a span is an index tile: `span(0, 64)`, or the variable of a loop",
    "array": "tiles are made by `zeros(f32, i)`, `full(f32, v, i)`, `span(0, 64)` and loads",
    "astype": "convert with `.to(f32)`",
    "clip": "write `min(max(x, low), high)`",
    "clamp": "write `min(max(x, low), high)`",
    "concatenate": "store each part: a store to spans of the output takes its place",
    "stack": "store each part: a store to spans of the output takes its place",
    "cat": "store each part: a store to spans of the output takes its place",
    "einsum": "write `a @ b`, or `sum(a[:, None] * b[None, :], axis = 1)`",
    "empty": "write `zeros(f32, i, j)`",
    "float": "convert with `.to(f32)`; the infinity is `inf`",
    "int": "convert with `.to(i32)`; `//` divides integers",
    "isnan": "write `x != x`",
    "isinf": "write `abs(x) == inf`",
    "item": "a reduction without `axis` is a scalar already",
    "len": "sizes have names: the `N` of `x: f32[N]`",
    "size": "sizes have names: the `N` of `x: f32[N]`; a tile's are `x.shape[0]`",
    "load": "index the tensor: `x[i]`",
    "store": "assign to the output: `y[i] = …`",
    "matmul": "write `a @ b`",
    "mean": "write `sum(x) / C`, with the axis' extent",
    "var": "write `sum((x - m) * (x - m)) / C`, with the mean `m`",
    "std": "the deviation is `sqrt(sum((x - m) * (x - m)) / C)`, with the mean `m`; the library is imported: `import std.softmax` at the top "
    "of the file",
    "softmax": "write `e = exp(x - max(x))` and `e / sum(e)`; `import std.softmax` has the form for loops",
    "newaxis": "a new axis is `None`: `x[:, None]`",
    "expand_dims": "a new axis is `None`: `x[:, None]`",
    "unsqueeze": "a new axis is `None`: `x[:, None]`",
    "ones": "write `full(f32, 1.0, i, j)`",
    "ones_like": "write `full(f32, 1.0, i, j)`",
    "zeros_like": "write `zeros(f32, i, j)`",
    "full_like": "write `full(f32, v, i, j)`",
    "permute": "`.T` swaps the last two axes; a store may write `y[j, i] = x.T`",
    "swapaxes": "`.T` swaps the last two axes; a store may write `y[j, i] = x.T`",
    "transpose": "`.T` swaps the last two axes; a store may write `y[j, i] = x.T`",
    "pi": "`const PI = 3.141592653589793` outside the kernel",
    "power": "write `a ** b`, or `pow(a, b)`",
    "square": "write `x * x`",
    "relu": "write `max(x, 0.0)`",
    "gelu": "write `0.5 * x * (1.0 + erf(x * 0.70710678118))`",
    "ravel": "write the extents: `.reshape(BM * BN)`",
    "flatten": "write the extents: `.reshape(BM * BN)`",
    "view": "a tensor has `.view`, a tile `.reshape`",
    "rand": "random numbers are computed from an index, as in `samples/dropout.tile`",
    "randn": "random numbers are computed from an index, as in `samples/dropout.tile`",
    "random": "random numbers are computed from an index, as in `samples/dropout.tile`",
    "squeeze": "a number as an index drops the axis: `x[0, i]` of a tensor; `sum(x, axis = 0)` of a tile",
    "program_id": _THREADS,
    "syncthreads": _THREADS,
    "__syncthreads": _THREADS,
    "threadIdx": _THREADS,
    "blockIdx": _THREADS,
    "blockDim": _THREADS,
}
"""Functions, attributes and constants of elsewhere."""


_DTYPES = {
    "int": "i32",
    "long": "i64",
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "byte": "u8",
}
_WITH_BITS = re.compile(r"(b?)(f)loat(\d+)|(u?)(i)nt(\d+)")


def dtype_meant(name: str) -> str:
    """The dtype that other languages call `name`, or nothing."""
    if spelled := _WITH_BITS.fullmatch(name):
        kind = "".join(filter(None, spelled.groups()))
        kind = kind.replace("ui", "u")
        return kind if kind in DTYPES else ""
    return _DTYPES.get(name, "")


def unknown_name(name: str, known: Iterable[str]) -> str:
    """The help for a name that nothing binds, where `known` are those that something does."""
    if name in MODULES:
        return "functions of the language stand alone, without a module: `exp(x)`"
    if name in INSTEAD:
        return INSTEAD[name]
    near = closest(name, known)
    return f"did you mean `{near}`?" if near else "bind it before it is used"


def of_module(name: str, functions: Iterable[str], constants: Iterable[str]) -> str:
    """The help for `np.name` and the like."""
    if name in functions:
        return f"write `{name}(…)`, without a module"
    if name in constants:
        return f"write `{name}`, without a module"
    return INSTEAD.get(name) or unknown_name("np", ())


def of_tile(name: str, functions: Iterable[str]) -> str:
    """The help for `x.name` of a tile, or nothing."""
    if name in functions:
        return f"it is a function: write `{name}(x)`"
    return INSTEAD.get(name, "")
