"""Forms with matrix products: sums over a walked dimension, products of products, running maxima."""

from __future__ import annotations

from tests.fuzz.kernels import PRODUCT_TILES, Axis, Writer
from tests.fuzz.parts import reduction
from tests.fuzz.values import Value, spread


def operand(w: Writer, axes: tuple[str, str], dtype: str, *, gather: bool = False) -> str:
    """An operand of `@` over the axes, in either order of storage."""
    c = w.choices
    dims = tuple(w.axes[a].dim for a in axes)
    terms = tuple(w.axes[a].term for a in axes)
    batch = w.rows[:1] if w.rows and c.chance(60) else []
    before = ([d for _, d in batch], [r for r, _ in batch])
    if gather and not w.bulk and c.chance(15):
        index = w.name("q")
        w.lines.insert(_nest_line(w) + 1, f"    {index} = {w.index_tile(w.axes[axes[0]])}")
        name = w.tensor((*before[0], f"T{axes[0].upper()}", dims[1]), dtype)
        return f"{name}[{', '.join([*before[1], index, terms[1]])}].fill(0)"
    # bytes lie along the consumed axis
    if axes[0] == "k" if w.bulk and dtype == "i8" else c.chance(40):
        name = w.tensor((*before[0], dims[1], dims[0]), dtype)
        text = f"{name}[{', '.join([*before[1], terms[1], terms[0]])}].T"
    else:
        name = w.tensor((*before[0], *dims), dtype)
        text = f"{name}[{', '.join([*before[1], *terms])}]"
    if w.bulk:
        return text
    if c.chance(12):
        other = w.load((axes[0],), dtype, plain=True)
        text = f"({text} * {spread(other, axes)})"
    elif c.chance(10) and dtype != "i8":
        name = w.tensor(dims, "i8")
        text = f"{name}[{', '.join(terms)}].to({dtype})"
    return text


def _nest_line(w: Writer) -> int:
    return max(n for n, line in enumerate(w.lines) if " in parallel(" in line)


def filtered(w: Writer, name: str, dim: str) -> None:
    """In one of four loops: its whole body stands in a branch on what is the same in the whole trip, or in two."""
    c = w.choices
    if not c.chance(25):
        return
    start = f"{name}.start"
    asked = []
    for _ in range(1 + c.chance(30)):
        match c.below(5):
            case 0:
                test = f"({start} // 8) % {c.pick(('2', '3'))} == 0"
            case 1:
                test = f"{start} < {w.scalar()}"
            case 2 if w.rows:
                row, rows = w.rows[0]
                test = f"{w.tensor((rows, dim), 'i32')}[{row}, {start}] % 2 == 0"
            case 3:
                test = f"({start} + i.start) // 16 % 2 == 0"
            case _:
                test = f"{w.tensor((dim,), 'i32')}[{start}] % 2 == 0"
        asked.append(f"not ({test})" if c.chance(30) else test)
    if len(asked) > 1 and c.chance(60):
        asked = [f"({asked[0]}) {c.pick(('and', 'or'))} ({asked[1]})"]
    for test in asked:
        w.line(f"if {test}:")
        w.depth += 1


def product(w: Writer) -> None:
    """One or two products accumulated over a walked dimension, and what is done with the sums."""
    c = w.choices
    batch = 1 if c.chance(20) else 0
    w.tiles.update({n: (c.pick(PRODUCT_TILES), c.pick(PRODUCT_TILES)) for n in ("BM", "BN", "BK")})
    names, ranges = ["i", "j"], ["M by BM", "N by BN"]
    if batch:
        w.rows.append(("r", "R0"))
        names.insert(0, "r")
        ranges.insert(0, "R0")
    w.axes.update(i=Axis("i", "M", tile="BM"), j=Axis("j", "N", tile="BN"))
    w.line(f"for {', '.join(names)} in parallel({', '.join(ranges)}):")
    w.depth = 1
    dtype = c.pick(("bf16", "f16", "i8"))
    total = "i32" if dtype == "i8" else "f32"
    count = 2 if c.chance(15) else 1
    sums = [Value(f"acc{n}", ("i", "j"), total) for n in range(count)]
    for s in sums:
        w.line(f"{s.text} = zeros({total}, i, j)")
    extra = c.chance(15)
    if extra:
        w.line(f"trips = {c.pick(('0', '3'))}")
    w.axes["k"] = Axis("k", "K")
    bounds = w.range_over("K")
    w.line(f"for k in range({bounds} by BK):")
    w.depth = 2
    filtered(w, "k", "K")
    w.loops.append("k")
    shared = operand(w, ("i", "k"), dtype, gather=True)
    if count == 2:
        w.line(f"left = {shared}")
        shared = "left"
    for s in sums:
        text = f"{shared} @ {operand(w, ('k', 'j'), dtype)}"
        match c.below(8):
            case 1:
                w.line(f"{s.text} = {s.text} + {text}")
            case 2:
                scale = w.load((c.pick(("i", "j")),), total, plain=True)
                w.line(f"{s.text} += ({text}) * {spread(scale, ('i', 'j'))}")
            case 3:
                w.line(f"{s.text} = {s.text} * {'0.5' if total == 'f32' else '2'} + {text}")
            case _:
                w.line(f"{s.text} += {text}")
    if extra:
        w.line("trips = trips + 1")
    w.loops.remove("k")
    del w.axes["k"]
    w.depth = 1
    known = list(sums)
    if extra:
        known.append(Value("trips", (), "i32"))
    if c.chance(20):
        value = w.make.tree(w.scope(known), ("i", "j"), total, 1)
        if value.axes == ("i", "j"):
            row = reduction(w, value, c.pick(("j", "i")))
            w.store(row.axes, row, row.dtype)
    for s in sums:
        if c.chance(50):
            w.store(("i", "j"), s, c.pick(("f32", "bf16", "f16")) if total == "f32" else "i32")
        else:
            first = w.make.tree(w.scope(known), ("i", "j"), total, 2)
            value = Value(f"({s.text} + {spread(first, ('i', 'j'))})", ("i", "j"), total)
            w.store(("i", "j"), value, c.pick(("bf16", "f32")) if total == "f32" else "i32")


def chained(w: Writer) -> None:
    """A product of a product: rows against walked columns, then against their values."""
    c = w.choices
    depth = w.static(16, 32, 8, 24, 64)
    width = depth if c.chance(50) else w.static(16, 32, 40)
    w.static_axis(depth)
    w.static_axis(width)
    w.tiles.update({n: (c.pick(PRODUCT_TILES), c.pick(PRODUCT_TILES)) for n in ("BM", "BN")})
    w.axes.update(i=Axis("i", "M", tile="BM"))
    if c.chance(30):
        w.rows.append(("r", "R0"))
        w.line("for r, i in parallel(R0, M by BM):")
    else:
        w.line("for i in parallel(M by BM):")
    w.depth = 1
    dtype = c.pick(("bf16", "f16"))
    early = c.chance(50)
    left = operand(w, ("i", depth), dtype)
    if early:
        w.line(f"q = {left}")
        left = "q"
    w.line(f"o = zeros(f32, i, {width})")
    running = c.chance(60)
    if running:
        w.line("l = zeros(f32, i)")
    w.axes["j"] = Axis("j", "N")
    bounds = w.range_over("N")
    if c.chance(20):
        bounds = "0 : min(N, i.stop)"
    w.line(f"for j in range({bounds} by BN):")
    w.depth = 2
    filtered(w, "j", "N")
    w.loops.append("j")
    w.line(f"s = {left} @ {operand(w, (depth, 'j'), dtype)}")
    known = [Value("s", ("i", "j"), "f32")]
    text = c.pick(("s * 0.25", "tanh(s)", "exp(-abs(s))", "maximum(s, 0.0)", "sigmoid(s * 0.5)"))
    w.line(f"p = {text}")
    known = [Value("p", ("i", "j"), "f32")]
    if c.chance(40):
        test, tested = w.make.condition(
            w.scope(known, lambda a, d: w.load(a, d, True)), ("i", "j"), 1
        )
        mask = spread(Value(test, tested, "bool"), ("i", "j"))
        w.line(f"p = where({mask}, p, 0.0)")
    if running:
        w.line(f"l = l {c.pick(('', '* 0.5 '))}+ sum(p, axis=1)")
    scale = c.pick(("o", "o * 0.5", "o"))
    w.line(f"o = {scale} + p.to({dtype}) @ {operand(w, ('j', width), dtype)}")
    w.loops.remove("j")
    del w.axes["j"]
    w.depth = 1
    value = Value("(o / (1.0 + abs(l))[:, None])" if running else "o", ("i", width), "f32")
    w.store(("i", width), value, c.pick(("bf16", "f32")))
    if running:
        w.store(("i",), Value("l", ("i",), "f32"), "f32")


def weighed(w: Writer) -> None:
    """Rows of exponentials beside a running maximum, summed and multiplied by the columns' values."""
    c = w.choices
    depth = w.static(16, 32, 64, 24)
    width = depth if c.chance(50) else w.static(16, 32, 64)
    w.static_axis(depth)
    w.static_axis(width)
    w.tiles.update({n: (c.pick(PRODUCT_TILES), c.pick(PRODUCT_TILES)) for n in ("BM", "BN")})
    w.axes.update(i=Axis("i", "M", tile="BM"))
    if c.chance(30):
        w.rows.append(("r", "R0"))
        w.line("for r, i in parallel(R0, M by BM):")
    else:
        w.line("for i in parallel(M by BM):")
    w.depth = 1
    dtype = c.pick(("bf16", "f16"))
    left = operand(w, ("i", depth), dtype)
    if c.chance(50):
        w.line(f"q = {left}")
        left = "q"
    begins = [
        f"m = full(f32, {c.pick(('-inf', '-inf', '-3.0', '0.0'))}, i)",
        f"l = {c.pick(('zeros(f32, i)', 'zeros(f32, i)', 'full(f32, 1.0, i)'))}",
        f"o = zeros(f32, i, {width})",
    ]
    extra = c.pick(
        (
            "",
            "",
            "w = w + m_new",
            "w = w + where(m_new > m, 1.0, 0.0)",
            "w = w + sum(p * p, axis=1)",
        )
    )
    if extra:
        begins.append("w = zeros(f32, i)")
    while begins:
        w.line(begins.pop(c.below(len(begins))))
    w.axes["j"] = Axis("j", "N")
    bounds = w.range_over("N")
    if c.chance(25):
        bounds = c.pick(("0 : min(N, i.stop)", "max(0, i.start - 40) : min(N, i.stop)"))
    w.line(f"for j in range({bounds} by BN):")
    w.depth = 2
    filtered(w, "j", "N")
    w.loops.append("j")
    score = f"{left} @ {operand(w, (depth, 'j'), dtype)}"
    w.line(
        f"s = {c.pick(('({}) * 0.125', '0.25 * ({})', '{}', '({}) * -0.125', 'tanh(({}) * 0.125) * 4.0')).format(score)}"
    )
    if c.chance(50):
        test, tested = w.make.condition(w.scope([], lambda a, d: w.load(a, d, True)), ("i", "j"), 1)
        mask = spread(Value(test, tested, "bool"), ("i", "j"))
        w.line(f"s = where({mask}, s, {c.pick(('-inf', '-1e9', '-20.0', '0.0'))})")
    w.line("m_new = maximum(m, max(s, axis=1))")
    w.line(
        c.pick(
            (
                "ref = where(m_new == -inf, 0.0, m_new)",
                "ref = maximum(m_new, -30.0)",
                "ref = where(m_new > -1e30, m_new, 0.0)",
            )
        )
    )
    steps = [f"p = exp(s - ref[:, None]){c.pick(('', '', ' * 0.5'))}", "alpha = exp(m - ref)"]
    while steps:
        w.line(steps.pop(c.below(len(steps))))
    if extra:
        w.line(extra)
    ends = [
        c.pick(
            (
                "l = l * alpha + sum(p, axis=1)",
                "l = sum(p, axis=1) + alpha * l",
                "l = l + sum(p, axis=1)",
            )
        ),
        f"o = o * alpha[:, None] + p.to({dtype}) @ {operand(w, ('j', width), dtype)}",
    ]
    while ends:
        w.line(ends.pop(c.below(len(ends))))
    w.line("m = m_new")
    w.loops.remove("j")
    del w.axes["j"]
    w.depth = 1
    value = c.pick(("o / where(l == 0.0, 1.0, l)[:, None]", "o / (1.0 + abs(l))[:, None]", "o"))
    w.store(("i", width), Value(f"({value})", ("i", width), "f32"), c.pick(("bf16", "f16", "f32")))
    for name in ("m", "l", "w") if extra else ("m", "l"):
        if c.chance(60):
            w.store(("i",), Value(name, ("i",), "f32"), "f32")
