"""What the device primitives must compute, checked against NumPy in extended precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.emit.device_program import ALIGNMENTS, INTEGERS, LENGTHS, NARROW, PACKED, VALUES, Library

Array = Any
LONG = np.longdouble

DTYPES: dict[str, Any] = {
    "bool": np.bool_,
    **{name: np.dtype(name[:-2]) for name in INTEGERS},
    "f8e4m3_t": ml_dtypes.float8_e4m3fn,
    "f8e5m2_t": ml_dtypes.float8_e5m2,
    "f16_t": np.float16,
    "bf16_t": ml_dtypes.bfloat16,
    "float": np.float32,
    "double": np.float64,
}
LARGEST_CODE = {"f8e4m3_t": 0x7E, "f8e5m2_t": 0x7B, "f16_t": 0x7BFF, "bf16_t": 0x7F7F}


def code_type(name: str) -> Any:
    """The unsigned integer type that holds the codes of a narrow float."""
    return np.uint8 if name.startswith("f8") else np.uint16


def narrow_values(name: str) -> Array:
    """The non-negative finite values of a narrow float in order of their codes, as extended floats."""
    codes = np.arange(LARGEST_CODE[name] + 1, dtype=code_type(name))
    return codes.view(DTYPES[name]).astype(np.float64).astype(LONG)


def round_to_narrow(values: Array, name: str) -> Array:
    """The codes of exact values rounded once, to nearest even; f8 saturates. A NaN gives 0 here."""
    table = narrow_values(name)
    step = table[-1] - table[-2]
    wide = np.append(table, table[-1] + step)
    size = np.abs(np.where(np.isnan(values), 0, values))
    upper = np.searchsorted(wide, np.minimum(size, wide[-1]))
    lower = np.maximum(upper - 1, 0)
    middle = (wide[lower] + wide[upper]) / 2
    code = np.where(
        (size < middle) | ((size == middle) & (lower % 2 == 0) & (size != wide[upper])),
        lower,
        upper,
    )
    if name.startswith("f8"):
        code = np.minimum(code, LARGEST_CODE[name])
    bits = 8 * np.dtype(code_type(name)).itemsize - 1
    return (code | (np.signbit(values).astype(np.int64) << bits)).astype(code_type(name))


def samples(name: str) -> Array:
    """Values of one type: all of them up to 16 bits, else random, special and halfway ones."""
    random = np.random.default_rng(7)
    if name == "bool":
        return np.array([False, True])
    if name in NARROW:
        kind = code_type(name)
        return np.arange(1 << (8 * np.dtype(kind).itemsize), dtype=np.int64).astype(kind)
    kind = np.dtype(DTYPES[name])
    if kind.kind in "iu":
        if kind.itemsize <= 2:
            return np.arange(1 << (8 * kind.itemsize), dtype=np.int64).astype(kind)
        bits = random.integers(0, 1 << 63, 40000, dtype=np.uint64) * np.uint64(2)
        spread = bits >> random.integers(0, 64, 40000, dtype=np.uint64)
        powers = [(1 << k) + d for k in range(64) for d in (-1, 0, 1)]
        near = [
            (m << k) + d for m in range(2049, 4200, 37) for k in range(0, 52, 3) for d in (-1, 0, 1)
        ]
        whole = np.array([p & ((1 << 64) - 1) for p in powers + near], np.uint64)
        both = np.concatenate([spread, whole, -spread.astype(np.int64).view(np.uint64)])
        return both.astype(kind)
    unsigned: Any = np.uint32 if kind.itemsize == 4 else np.uint64
    bits = random.integers(0, 1 << 63, 100000, dtype=np.uint64) >> np.uint64(
        31 if kind.itemsize == 4 else 0
    )
    parts = [bits.astype(unsigned).view(kind)]
    parts.append(
        (random.standard_normal(20000) * 10.0 ** random.integers(-8, 21, 20000)).astype(kind)
    )
    for narrow in NARROW:
        values = narrow_values(narrow).astype(kind)
        middle = (values[1:] / 2 + values[:-1] / 2).astype(kind)
        for base in (values, middle):
            parts += [base, np.nextafter(base, kind.type(np.inf)), np.nextafter(base, kind.type(0))]
    special = [
        0,
        0.5,
        1,
        7.5,
        8,
        15.5,
        16,
        127.5,
        128,
        255.5,
        256,
        464,
        65519.9,
        65520,
        61440,
        1e10,
    ]
    special += [2.0**k for k in (31, 32, 63, 64)] + [np.inf, np.nan, 1e-45, 2.0**-126]
    parts.append(np.array(special, kind))
    whole = np.concatenate(parts)
    return np.concatenate([whole, -whole])


def exact(values: Array, name: str) -> Array:
    """The same numbers as extended floats."""
    if name in NARROW:
        values = values.view(DTYPES[name]).astype(np.float64)
    return values.astype(LONG)


def expected_conversion(values: Array, source: str, target: str) -> Array:
    """What `convert` must give, by one rounding of exact values."""
    number = exact(values, source)
    if target in NARROW:
        return round_to_narrow(number, target)
    if target == "bool":
        return number != 0
    if target in ("float", "double"):
        return number.astype(DTYPES[target])
    bits, signed = {"i4_t": (4, True), "u4_t": (4, False)}.get(
        target, (8 * np.dtype(DTYPES.get(target, np.int8)).itemsize, not target.startswith("u"))
    )
    kind = np.dtype(DTYPES[PACKED.get(target, target)])
    if source in NARROW or source in ("float", "double"):
        least, most = (
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        )
        whole = np.trunc(np.where(np.isnan(number), 0, number))
        return (
            np.clip(whole, LONG(least), LONG(most))
            .astype(np.int64 if signed else np.uint64)
            .astype(kind)
        )
    if target == "i4_t":
        return (((values.astype(np.int64) & 15) ^ 8) - 8).astype(kind)
    if target == "u4_t":
        return (values.astype(np.int64) & 15).astype(kind)
    return values.astype(kind)


def same(got: Array, wanted: Array, name: str, nan: Array) -> Array:
    """Equal bits, or both NaN."""
    if name in NARROW:
        return np.where(nan, np.isnan(got.view(DTYPES[name]).astype(np.float32)), got == wanted)
    if name in ("float", "double"):
        bits: Any = np.uint32 if name == "float" else np.uint64
        return np.where(nan, np.isnan(got), got.view(bits) == wanted.view(bits))
    return got == wanted


def check_conversions(library: Library, source: str) -> None:
    """`convert` from one type to all."""
    values = samples(source)
    with np.errstate(all="ignore"):
        nan = np.isnan(exact(values, source))
    for target in (*VALUES, *PACKED):
        if target == source:
            continue
        with np.errstate(all="ignore"):
            wanted = expected_conversion(values, source, target)
        got = library.run(f"convert_{source}_{target}", len(values), values, np.empty_like(wanted))
        wrong = np.flatnonzero(~same(got, wanted, target, nan))
        assert not len(wrong), (
            f"{source} -> {target}: {len(wrong)} wrong, {values[wrong[:5]]} gave {got[wrong[:5]]}, "
            f"not {wanted[wrong[:5]]}"
        )


def check_vector_conversions(library: Library) -> None:
    """`convert_vector` gives what `convert` gives; nibbles pack low half first."""
    values = samples("float")
    values = values[: len(values) // 8 * 8]
    for target in NARROW:
        one = library.run(
            f"convert_float_{target}", len(values), values, np.empty(len(values), code_type(target))
        )
        got = library.run(f"pairs_{target}", len(values) // 8, values, np.empty_like(one))
        assert np.array_equal(one, got), target
    every = np.arange(256, dtype=np.int64).astype(np.uint8)
    for target, low in (("i4_t", ((every & 15) ^ 8).astype(np.int8) - 8), ("u4_t", every & 15)):
        high = ((every >> 4) ^ 8).astype(np.int8) - 8 if target == "i4_t" else every >> 4
        wanted = np.stack([low, high], 1).astype(np.float32).ravel()
        got = library.run(f"unpack_{target}", 64, every, np.empty(512, np.float32))
        assert np.array_equal(got, wanted), target
        packed = library.run(f"pack_{target}", 64, wanted, np.empty(256, np.uint8))
        assert np.array_equal(packed, every), target


def check_partial_access(library: Library) -> None:
    """Partial loads and stores move exactly what they are asked to move, at any alignment."""
    for kind, dtype in (
        ("uint8_t", np.uint8),
        ("bf16_t", np.uint16),
        ("float", np.float32),
        ("double", np.float64),
        ("u4_t", np.uint8),
    ):
        size = np.dtype(dtype).itemsize
        per_unit = 2 if kind == "u4_t" else 1
        for align in ALIGNMENTS:
            for length in LENGTHS:
                if align < size:
                    continue
                units = max(align // size, 1)
                plan = [
                    (units * k % 24, count) for k in (0, 1, 3) for count in range(-2, length + 3)
                ]
                xs = np.random.default_rng(length).integers(1, 255, (len(plan), 64)).astype(dtype)
                out = np.full_like(xs, 165)
                wanted = out.copy()
                for row, (start, count) in enumerate(plan):
                    present = min(max(count, 0), length)
                    whole = present // per_unit
                    wanted[row, start : start + whole] = xs[row, start : start + whole]
                    if present % per_unit:
                        place = row, start + whole
                        wanted[place] = (int(wanted[place]) & 0xF0) | (int(xs[place]) & 15)
                name = f"partial_{kind}_{align}_{length}"
                library.run(name, len(plan), xs, out, np.array(plan, np.int32))
                if kind == "u4_t" and length == 1:
                    out[:], wanted[:] = out & 15, wanted & 15  # one nibble fills its byte
                assert np.array_equal(out, wanted), name


def check_walks(library: Library) -> None:
    """Whole and partial vectors, aligned and one element at a time; partial results combined in order."""
    counts = np.array([-1, 0, 1, 3, 7, 8, 9], np.int32)
    xs = np.random.default_rng(13).standard_normal((len(counts), 64)).astype(np.float32)
    for access, start in (("aligned", 0), ("single", 1)):
        wanted = np.full_like(xs, 165)
        wanted[:, start : start + 8] = xs[:, start : start + 8]
        for row, count in enumerate(counts):
            part = slice(start + 16, start + 16 + min(max(int(count), 0), 8))
            wanted[row, part] = xs[row, part]
        got = library.run(f"walk_{access}", len(counts), xs, np.full_like(xs, 165), counts)
        assert np.array_equal(got, wanted), access
    packed = np.arange(256, dtype=np.uint8)
    halves = np.stack([packed & 15, packed >> 4], 1).ravel()
    got = library.run("nibble_u4_t", 512, packed, np.empty(512, np.uint8))
    assert np.array_equal(got, halves)
    got = library.run("nibble_i4_t", 512, packed, np.empty(512, np.int8))
    assert np.array_equal(got, np.where(halves < 8, halves, halves - 16.0))
    row = xs.ravel()
    got = library.run("partials", 50, row, np.empty(50, np.float32))
    assert np.array_equal(got, ((row[:50] + row[2:52]) + row[4:54]) + row[6:56])


def check_memory(library: Library) -> None:
    """Shared memory and reloading; these need a GPU."""
    xs = np.random.default_rng(17).standard_normal(256).astype(np.float32)
    got = library.run("through_shared", 256, xs, np.empty(256, np.float32))
    assert np.array_equal(got, xs.reshape(2, 128)[:, ::-1].ravel())
    for kind, length in (("int8_t", 1), ("bf16_t", 1), ("bf16_t", 8), ("float", 4)):
        dtype = np.dtype(DTYPES[kind])
        values = np.random.default_rng(18).integers(0, 256, 128 * length * dtype.itemsize, np.uint8)
        given = values.view(dtype)
        got = library.run(f"reload_{kind}_{length}", 128, given, np.empty_like(given))
        assert got.tobytes() == given.tobytes(), f"{kind} {length}"


def check_words(library: Library) -> None:
    """Elements of 16 bits by whole words: every bf16 widened, maxima and minima with NaN and zeros of both signs."""
    every = np.arange(1 << 16, dtype=np.uint16)
    exact = (every.astype(np.uint32) << 16).view(np.float32)
    for walk in range(4):
        got = library.run(
            f"widen_vector_{walk}", len(every) // 8, every, np.empty(len(every), np.float32)
        )
        assert got.tobytes() == exact.tobytes(), walk
    mixed = np.random.default_rng(19).permutation(every)
    mixed = np.concatenate([mixed, mixed[exact[mixed] == exact[mixed]]])
    mixed = mixed[: len(mixed) // 8 * 8]
    values = (mixed.astype(np.uint32) << 16).view(np.float32).reshape(-1, 8)
    for name, wanted in (("max", np.maximum), ("min", np.minimum)):
        got = library.run(
            f"{name}_of_vector", len(values), mixed, np.empty(len(values), np.float32)
        )
        assert np.array_equal(got, wanted.reduce(values, axis=1), equal_nan=True), name


def check_divisors(library: Library) -> None:
    """`div_by` is as good as `div_fast` over the full range: 2 ulp of the quotient, or of the least normal number."""
    random = np.random.default_rng(20)
    numbers = random.integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edge = [
        0.0,
        -0.0,
        1.0,
        3.0,
        1e-45,
        2.0**-126,
        2.0**-127,
        2.0**126,
        2.0**127,
        3e38,
        np.inf,
        np.nan,
    ]
    each = np.concatenate([numbers[:200], np.array(edge, np.float32)])
    x, y = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(each, each))
    with np.errstate(all="ignore"):
        right = (x.astype(np.float64) / y.astype(np.float64)).astype(np.float32)
        got = library.run("div_by", len(x), x, np.empty_like(x), y)
        factors = library.run("by_factors", len(x), x, np.empty_like(x), y)
        assert np.array_equal(got, factors, equal_nan=True)
        finite = np.isfinite(right)
        step = np.maximum(np.spacing(np.abs(right)), np.float32(2.0**-149)).astype(np.float64)
        error = np.abs(got.astype(np.float64) - right.astype(np.float64))
    same = np.where(np.isnan(right), np.isnan(got), got == right)
    near_top = np.isinf(right) & (np.abs(got) >= np.float32(3.4028e38))
    bad = np.where(finite, error > 3 * step, ~(same | near_top))
    at = np.flatnonzero(bad)[:4]
    assert not bad.any(), f"{x[at]} / {y[at]}: {got[at]}, not {right[at]}"


def _power(base: int, exponent: int, bits: int) -> int:
    """Modulo 2^bits; a negative exponent leaves 0 of all but 1 and -1."""
    if exponent < 0 and base not in (1, -1):
        return 0
    return pow(base, exponent % 2 if exponent < 0 else exponent, 1 << bits)


def _check_rounded_up(library: Library) -> None:
    """`ceil_div` at both ends of 32 bits."""
    top = (1 << 31) - 1
    near = [0, 1, 2, 127, 128, 129, top - 1024, top - 1023, top - 1, top]
    a = np.array([*near, *(-n for n in near), -top - 1], np.int32)
    b = np.array([1, 2, 3, 16, 128, 1000, 1024, top - 1, top], np.int32)
    x, y = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(a, b))
    wanted = [-(-int(p) // int(q)) for p, q in zip(x, y, strict=True)]
    got = library.run("ceil_div", len(x), x, np.empty_like(x), y)
    assert got.tolist() == wanted


def _check_quotients(library: Library) -> None:
    """`quotient` around the multiples of divisors of all sizes, exactly."""
    random = np.random.default_rng(21)
    top = (1 << 31) - 1
    small = np.arange(1, 700)
    large = np.exp(random.uniform(0, np.log(top), 800)).astype(np.int64)
    powers = (1 << np.arange(31))[:, None] + np.array([-1, 0, 1])
    y = np.unique(np.clip(np.concatenate([small, large, powers.ravel(), [top]]), 1, top))
    times = np.unique(np.concatenate([np.arange(8), random.integers(0, top, 40)]))[None, :]
    around = np.minimum(times, top // y[:, None]) * y[:, None]
    x = np.stack([around - 1, around, around + 1, np.broadcast_to([[top]], around.shape)], axis=-1)
    x = np.clip(x, 0, top)
    y = np.broadcast_to(y[:, None, None], x.shape)
    x, y = (np.ascontiguousarray(m.ravel().astype(np.int32)) for m in (x, y))
    got = library.run("quotient", len(x), x, np.empty_like(x), y)
    assert np.array_equal(got, x // y)


def check_integers(library: Library) -> None:
    """Integer arithmetic: exhaustive for 8 bits, random and extreme for the others."""
    _check_rounded_up(library)
    _check_quotients(library)
    functions: dict[str, Callable[[int, int, int, bool], int]] = {
        "add_wrap": lambda a, b, bits, signed: a + b,
        "sub_wrap": lambda a, b, bits, signed: a - b,
        "mul_wrap": lambda a, b, bits, signed: a * b,
        "power_of": lambda a, b, bits, signed: _power(a, b, bits),
        "floor_div": lambda a, b, bits, signed: a // b if b else 0,
        "floor_mod": lambda a, b, bits, signed: a % b if b else 0,
        "shift_left": lambda a, b, bits, signed: a << b if 0 <= b < bits else 0,
        "shift_right": lambda a, b, bits, signed: a >> (b if 0 <= b < bits else bits),
        "max_of": lambda a, b, bits, signed: max(a, b),
        "min_of": lambda a, b, bits, signed: min(a, b),
        "neg_wrap": lambda a, b, bits, signed: -a,
        "abs_wrap": lambda a, b, bits, signed: abs(a),
    }
    for kind in INTEGERS:
        dtype = np.dtype(DTYPES[kind])
        bits, signed = 8 * dtype.itemsize, dtype.kind == "i"
        edge = [0, 1, 2, 3, 5, 7, bits - 1, bits, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1)]
        edge.append((1 << (bits - 1)) - 1)
        random = np.random.default_rng(3).integers(0, 1 << 63, 28, dtype=np.uint64)
        edge += [int(r) * 2 + 1 >> int(r) % 50 for r in random]
        if bits == 8:
            edge = list(range(0, 256, 1))
        each = np.array([e & ((1 << bits) - 1) for e in edge], np.uint64).astype(dtype)
        a, b = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(each, each))
        for name, function in functions.items():
            numbers = [function(int(p), int(q), bits, signed) for p, q in zip(a, b, strict=True)]
            wrapped = np.array([v & ((1 << 64) - 1) for v in numbers], np.uint64).astype(dtype)
            got = library.run(f"{name}_{kind}", len(a), a, np.empty_like(a), b)
            wrong = np.flatnonzero(got != wrapped)
            assert not len(wrong), f"{name}_{kind}: {a[wrong[:4]]} {b[wrong[:4]]} {got[wrong[:4]]}"


def check_float_arithmetic(library: Library) -> None:
    """Maximum, minimum, floor division, remainder and rounding as NumPy has them."""
    for kind in ("float", "double"):
        dtype = np.dtype(DTYPES[kind])
        bits: Any = np.uint32 if kind == "float" else np.uint64
        values = [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 0.1, 7, -7, 1e30, 1e-30, 1e-40]
        values += [np.inf, -np.inf, np.nan, 123456.7, -98765.4]
        values += list(np.random.default_rng(1).standard_normal(60) * 100)
        each = np.array(values, dtype)
        a, b = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(each, each))
        with np.errstate(all="ignore"):
            cases = {
                "max_nan": np.maximum(a, b),
                "min_nan": np.minimum(a, b),
                "floor_div": np.floor_divide(a, b),
                "floor_mod": np.remainder(a, b),
            }
            alone = {
                "abs_of": np.abs(a),
                "floor_of": np.floor(a),
                "ceil_of": np.ceil(a),
                "round_of": np.rint(a),
            }
        for name, wanted in {**cases, **alone}.items():
            got = library.run(f"{name}_{kind}", len(a), a, np.empty_like(a), b)
            good = (got.view(bits) == wanted.view(bits)) | (np.isnan(got) & np.isnan(wanted))
            if name in ("max_nan", "min_nan"):
                good |= (got == 0) & (wanted == 0)
            wrong = np.flatnonzero(~good)
            assert not len(wrong), (
                f"{name}_{kind}: {a[wrong[:4]]} {b[wrong[:4]]} gave {got[wrong[:4]]}, "
                f"not {wanted[wrong[:4]]}"
            )


def _erf(x: Array) -> Array:
    return np.array([math.erf(float(v)) for v in x], LONG)


REFERENCE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def float_samples(dtype: Any, function: str) -> Array:
    """Dense over the whole range, denser where the function lives, with specials."""
    random = np.random.default_rng(5)
    kind = np.dtype(dtype)
    count = 4000 if function == "erf" else 40000
    high = 9.3 if function in ("sigmoid", "tanh", "erf") else 104.0
    parts = [
        np.exp2(random.uniform(-40, 127, count)),
        random.uniform(0, high, 4 * count),
        random.uniform(0.4, 2.2, 2 * count),
        np.exp2(random.uniform(-149, -100, count // 4)),
    ]
    if function == "sigmoid":
        parts.append(random.uniform(0, 110, count))
    if function in ("sin", "cos"):
        near = np.round(np.exp2(random.uniform(0, 60, 4 * count))) * (np.pi / 2)
        parts += [near, np.arange(1, 4 * count) * (np.pi / 2)]
        if kind.itemsize == 8:
            parts.append(np.exp2(random.uniform(100, 1023, count)))
    sizes = np.concatenate(parts).astype(kind)
    special = np.array([0, np.inf, np.nan, 1, 0.5, 2, 65536, 65535.5, 2**20, 2**20 - 0.5], kind)
    whole = np.concatenate([sizes, special])
    return np.concatenate([whole, -whole])


def ulp_errors(got: Array, wanted: Array, dtype: Any, flush: bool) -> Array:
    """Errors in units in the last place of the exact result; NaN, infinity and the sign of zero must agree (else
    infinite). With `flush`, results below the least normal may be anything below it."""
    info = np.finfo(dtype)
    top = LONG(2) ** info.maxexp
    tiny = LONG(info.tiny)
    wide = np.where(np.isinf(got), np.sign(got) * top, got.astype(LONG))
    true = np.clip(wanted, -top, top)
    size = np.maximum(np.abs(true), tiny)
    unit = np.exp2(np.minimum(np.floor(np.log2(size)), info.maxexp - 1) - info.nmant)
    error = np.abs(wide - true) / unit
    if flush:
        error = np.where((np.abs(true) < tiny) & (np.abs(wide) <= tiny), 0, error)
    error = np.where(np.isnan(wanted), np.where(np.isnan(got), 0, np.inf), error)
    error = np.where(~np.isnan(wanted) & np.isnan(got), np.inf, error)
    error = np.where(np.isinf(wanted) & (got != wanted), np.inf, error)
    return np.where((wanted == 0) & (np.signbit(got) != np.signbit(wanted)), np.inf, error)


def measure(library: Library, function: str, mode: str, kind: str) -> tuple[float, Any]:
    """The largest error of a function of one argument as a multiple of what language.md allows, and where it is."""
    dtype = DTYPES[kind]
    x = float_samples(dtype, function)
    with np.errstate(all="ignore"):
        wide = x.astype(LONG)
        wanted = REFERENCE[function](wide)
        got = library.run(f"{function}_{mode}_{kind}", len(x), x, np.empty_like(x))
        fast = mode == "fast" and kind == "float"
        error = ulp_errors(got, wanted, dtype, fast)
        allowed = np.full(len(x), _bound(function, mode, kind), LONG)
        if fast and function == "exp":
            allowed = np.where(np.abs(wide) < 200, 2 + LONG(1.2) * np.abs(wide), allowed)
        share = error / allowed
        if fast and function in ("log", "log2"):
            near = (np.abs(got.astype(LONG) - wanted) <= LONG(2) ** -21) & (np.abs(wide - 1) <= 1)
            share = np.where(near, np.minimum(share, 1), share)
    worst = int(np.argmax(share))
    return float(share[worst]), (x[worst], got[worst], float(wanted[worst]))


def _bound(function: str, mode: str, kind: str) -> float:
    if kind == "double":  # the CUDA library's double functions: its guide gives up to 2 ulp
        return {"sqrt": 0.5001, "sin": 1.0, "cos": 1.0}.get(
            function, 3.0 if function == "sigmoid" else 2.0
        )
    if mode == "strict":
        return 0.5001 if function in ("sqrt", "rsqrt") else 1.0
    return 4.0 if function in ("exp2", "log", "log2", "sqrt", "rsqrt", "exp") else 8.0


def check_math(library: Library, function: str, mode: str, kind: str) -> None:
    """One function within its bound."""
    share, where = measure(library, function, mode, kind)
    assert share <= 1, (
        f"{function}_{mode}_{kind}: {share:.2f} times the bound at x, got, exact = {where}"
    )


def check_two_argument_math(library: Library) -> None:
    """Division and power."""
    random = np.random.default_rng(11)
    for kind in ("float", "double"):
        dtype = np.dtype(DTYPES[kind])
        special = np.array(
            [0, -0.0, 1, -1, 2, -2, 3, 0.5, np.inf, -np.inf, np.nan, 1e30, 1e-30], dtype
        )
        a, b = (m.ravel() for m in np.meshgrid(special, special))
        sign = np.where(random.random(60000) < 0.5, -1, 1)
        for function in ("div", "pow"):
            wide_range = 126 if function == "div" else 20
            x = np.exp2(random.uniform(-wide_range, wide_range, 60000))
            y = np.exp2(random.uniform(-wide_range, wide_range + 1, 60000)) * sign
            if function == "pow":
                y = random.uniform(-6, 6, 60000)
            xs = np.concatenate([x.astype(dtype), a])
            ys = np.concatenate([y.astype(dtype), b])
            with np.errstate(all="ignore"):
                p, q = xs.astype(LONG), ys.astype(LONG)
                wanted = p / q if function == "div" else np.power(p, q)
            for mode in ("fast", "strict"):
                fast = mode == "fast" and kind == "float"
                got = library.run(f"{function}_{mode}_{kind}", len(xs), xs, np.empty_like(xs), ys)
                with np.errstate(all="ignore"):
                    error = ulp_errors(got, wanted, dtype, fast)
                bound = {"div": 4.0, "pow": 8.0}[function] if fast else 1.0
                if function == "div" and not fast:
                    bound = 0.5001
                if function == "pow" and kind == "double":
                    bound = 2.0
                worst = int(np.argmax(error))
                assert error[worst] <= bound, (
                    f"{function}_{mode}_{kind}({xs[worst]}, {ys[worst]}) = {got[worst]}, "
                    f"{float(error[worst])} ulp"
                )


def check_half_precision(library: Library) -> None:
    """The functions for results that only reach 16 bits: absolute error 2^-10.5."""
    x = float_samples(np.float32, "tanh")
    for function in ("tanh", "sigmoid"):
        with np.errstate(all="ignore"):
            wanted = REFERENCE[function](x.astype(LONG))
            got = library.run(f"{function}_half", len(x), x, np.empty_like(x)).astype(LONG)
            error = np.abs(got - wanted)
        assert np.array_equal(np.isnan(got), np.isnan(x))
        assert np.nanmax(error) <= 2**-10.5, function
