"""Programs over all dtypes: every operator and function that is legal for each, every conversion, reductions over any axes."""

from __future__ import annotations

INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
DTYPES = ("bool", *INTEGERS, *FLOATS)

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FUNCTIONS = "abs exp exp2 log log2 sqrt rsqrt sin cos tanh erf sigmoid floor ceil round".split()


def _operations(dtype: str) -> dict[str, tuple[str, str]]:
    """Results by name: (dtype, expression of the tiles `a`, `b` and the scalar `s`)."""
    found = {f"r_{name}": ("bool", f"a {sign} b") for name, sign in _COMPARISONS.items()}
    found["r_where"] = (dtype, "where(a != b, a, b)")
    found["r_scalar"] = ("bool", "a == s")
    if dtype == "bool":
        signs = {"and": "a & b", "or": "a | b", "xor": "a ^ b", "not": "~a"}
        return found | {f"r_{name}": ("bool", text) for name, text in signs.items()}
    signs = {"add": "a + b", "sub": "a - b", "mul": "a * b", "neg": "-a", "plus": "a + s"}
    signs |= {"most": "maximum(a, b)", "least": "minimum(a, b)", "choice": "max(a, b, s)"}
    signs |= {"weak": "a * 2 + 1"}
    if dtype in INTEGERS:
        signs |= {"and": "a & b", "or": "a | b", "xor": "a ^ b", "not": "~a", "abs": "abs(a)"}
        signs |= {"quotient": "a // maximum(b, 1)", "rest": "a % maximum(b, 1)"}
        signs |= {"shl": "a << (b & 3)", "shr": "a >> (b & 3)", "pow": "a ** (b & 1)"}
    else:
        signs |= {"quotient": "a / b", "floor_quotient": "floor(a / (abs(b) + 1.0))"}
        signs |= {"fma": "fma(a, b, a)", "pow": "abs(a) ** b"}
        signs |= {f"f_{name}": f"{name}({_argument(name)})" for name in _FUNCTIONS}
    return found | {f"r_{name}": (dtype, text) for name, text in signs.items()}


def _exact(dtype: str, name: str) -> bool:
    """Whether the check, which computes with numbers that do not wrap, says the same."""
    if dtype in FLOATS:
        return name in ("r_neg", "r_f_abs", "r_most", "r_where")
    return not (dtype.startswith("u") and name in ("r_sub", "r_neg", "r_not"))


def _argument(function: str) -> str:
    return "abs(a) + 0.5" if function in ("log", "log2", "sqrt", "rsqrt") else "a"


def elementwise() -> str:
    """A kernel for each dtype."""
    kernels = []
    for dtype in DTYPES:
        results = _operations(dtype)
        outputs = ",\n    ".join(f"{name}: {kind}[N]" for name, (kind, _) in results.items())
        body = "\n".join(f"        {name}[i] = {text}" for name, (_, text) in results.items())
        check = "\n".join(
            f"        {name} == ({text})"
            for name, (kind, text) in results.items()
            if _exact(dtype, name)
        )
        value = {"bool": "true"}.get(dtype, "3" if dtype in INTEGERS else "0.5")
        kernels.append(
            f"kernel elementwise_{dtype}(x: {dtype}[N], z: {dtype}[N], s: {dtype}) -> (\n    {outputs}\n):\n"
            f"    for i in parallel(N by 32):\n        a = x[i]\n        b = z[i]\n{body}\n"
            f"    check:\n        a = x\n        b = z\n{check}\n"
            f"    example cpu N = 131, s = {value}\n"
        )
    return "\n".join(kernels)


def conversions() -> str:
    """A kernel for each source, with an output of every dtype; and one for `.bitcast`."""
    kernels = []
    for source in DTYPES:
        outputs = ", ".join(f"to_{target}: {target}[N]" for target in DTYPES)
        body = "\n".join(f"        to_{target}[i] = x[i].to({target})" for target in DTYPES)
        check = "\n".join(
            f"        to_{target} == x.to({target})"
            for target in DTYPES
            if target not in FLOATS and not (target == "u64" and source[0] == "i")
        )
        kernels.append(
            f"kernel convert_{source}(x: {source}[N]) -> ({outputs}):\n"
            f"    for i in parallel(N by 100):\n{body}\n    check:\n{check}\n    example cpu N = 131\n"
        )
    pairs = {
        "u8": "f8e4m3",
        "i8": "f8e5m2",
        "u16": "bf16",
        "i16": "f16",
        "u32": "f32",
        "i64": "f64",
    }
    for left, right in pairs.items():
        kernels.append(
            f"kernel bits_{right}(x: {left}[N], v: {right}[N]) -> (y: {right}[N], w: {left}[N]):\n"
            f"    for i in parallel(N by 64):\n        y[i] = x[i].bitcast({right})\n"
            f"        w[i] = v[i].bitcast({left})\n    example cpu N = 67\n"
        )
    return "\n".join(kernels)


_SHAPES = {1: ("A",), 2: ("A", "B"), 3: ("A", "B", "C"), 4: ("A", "B", "C", "D")}
_EXTENTS = (5, 12, 3, 33)


def reductions() -> str:
    """Reductions of tiles of one to four axes over the first, a middle, the last, several and all axes."""
    kernels = []
    for rank in range(1, 5):
        extents = _EXTENTS[:rank]
        chosen: list[tuple[int, ...]] = [(axis,) for axis in range(rank)]
        chosen += (
            [(0, rank - 1), tuple(range(rank))] if rank > 2 else [tuple(range(rank))] * (rank > 1)
        )
        for dtype in ("i32", "f32", "i64", "bf16") if rank < 4 else ("i32",):
            kernels += [_reduction(rank, extents, axes, dtype) for axes in chosen]
    return "\n".join(kernels)


def _reduction(rank: int, extents: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> str:
    dims = _SHAPES[rank]
    kept = [d for n, d in enumerate(dims) if n not in axes]
    shape = ", ".join(kept) or "1"
    place = ", ".join(f"s{d.lower()}" for d in kept) or "0"
    spans = "\n".join(
        f"        s{d.lower()} = span(0, {e}, until={d})"
        for d, e in zip(dims, extents, strict=True)
    )
    inside = ", ".join(f"s{d.lower()}" for d in dims)
    axis = str(axes[0]) if len(axes) == 1 else "(" + ", ".join(map(str, axes)) + ")"
    ops = ["sum", "max", "min"] + (["prod"] if rank == 1 else [])
    results = [(op, dtype, f"{op}(t, axis={axis})") for op in ops]
    results += [
        ("any", "bool", f"any(t > 2, axis={axis})"),
        ("all", "bool", f"all(t < 7, axis={axis})"),
    ]
    if len(axes) == 1:
        results += [(op, "i32", f"{op}(t, axis={axis})") for op in ("argmax", "argmin")]
    name = f"reduce_{rank}_{''.join(map(str, axes))}_{dtype}"
    outputs = ", ".join(f"o_{op}: {kind}[{shape}]" for op, kind, _ in results)
    stores = "\n".join(f"        o_{op}[{place}] = {text}" for op, _, text in results)
    check = "\n".join(
        f"        o_{op} == ({text})" for op, _, text in results if dtype in ("i32", "i64") and kept
    ) or "        o_any == any(t > 2)" * (dtype in ("i32", "i64"))
    sizes = ", ".join(
        f"{d} = {e - (n % 2)}" for n, (d, e) in enumerate(zip(dims, extents, strict=True))
    )
    require = " and ".join(f"{d} <= {e} and {d} >= 1" for d, e in zip(dims, extents, strict=True))
    clause = f"    check:\n        t = x\n{check}\n" if check else ""
    return (
        f"kernel {name}(x: {dtype}[{', '.join(dims)}]) -> ({outputs}):\n    require {require}\n"
        f"    for p in parallel(1):\n{spans}\n        t = x[{inside}]\n{stores}\n{clause}"
        f"    example cpu {sizes}\n"
    )


GENERATED = {"elementwise": elementwise, "conversions": conversions, "reductions": reductions}
"""Texts by name."""
