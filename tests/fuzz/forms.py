"""The forms of random programs: what nests and loops surround the expressions."""

from __future__ import annotations

from tests.fuzz.choices import Choices
from tests.fuzz.kernels import PRODUCT_TILES, Axis, Program, Writer
from tests.fuzz.parts import part
from tests.fuzz.values import FLOATS, INTEGERS, Value, cast, spread

DTYPES = ("f32", "i32", "bf16", "f16", "i8", "i16", "i64", "u8", "f64", "u32")
ACCUMULATED = ("i32", "f32", "i64", "f64")
FORMS = 8


def _grid(w: Writer, dims: tuple[str, ...], spans: tuple[str, ...], rows: int = 0) -> None:
    """Opens a nest: `rows` scalar loops and a span for each of `spans`."""
    names, ranges = [], []
    for n in range(rows):
        row = ("r", "g")[n]
        w.rows.append((row, f"R{n}"))
        names.append(row)
        ranges.append(f"R{n}")
    for span, dim in zip(spans, dims, strict=True):
        tile = w.tile()
        w.axes[span] = Axis(span, dim, tile=tile)
        names.append(span)
        ranges.append(f"{dim} by {tile}")
    w.line(f"for {', '.join(names)} in parallel({', '.join(ranges)}):")
    w.depth += 1


def _names(w: Writer, axes: tuple[str, ...], most: int, names: list[Value]) -> None:
    """Some tiles by name."""
    c = w.choices
    for _ in range(c.below(most + 1)):
        dtype = c.pick(DTYPES)
        part = axes if c.chance(60) else axes[: 1 + c.below(max(1, len(axes)))]
        value = w.make.tree(w.scope(names), part, dtype, 2)
        if not value.axes:
            continue
        name = w.name("t")
        w.line(f"{name} = {value.text}")
        names.append(Value(name, value.axes, value.dtype))


def _stores(w: Writer, axes: tuple[str, ...], names: list[Value], most: int = 2) -> None:
    c = w.choices
    for _ in range(1 + c.below(most)):
        dtype = c.pick(DTYPES)
        value = w.make.tree(w.scope(names), axes, dtype, 3)
        target = c.pick(FLOATS) if dtype in FLOATS and c.chance(20) else dtype
        w.store(axes, value, target, "inout" if c.chance(15) else "output")


def mapped(w: Writer) -> None:
    """Element-wise over one to three axes."""
    c = w.choices
    count = 1 + c.below(3)
    spans = ("i", "j", "h")[:count]
    _grid(w, ("M", "N", "H")[:count], spans, rows=1 if c.chance(25) else 0)
    axes = spans
    if c.chance(20):
        axes = (*spans, w.whole("C", c.pick((40, 100, 20))).name)
    names: list[Value] = []
    _names(w, axes, 2, names)
    if c.chance(25):
        _branch(w, axes, names)
    if c.chance(15):
        w.line(f"for u in unroll({1 + c.below(3)}):")
        w.depth += 1
        w.rows.append(("u", "R1"))
        w.rows.reverse()
        # its own rows of the output, so that no store meets another
        w.clauses.append("require R1 >= 3")
        w.limits["R1"] = 5
        w.rows.reverse()
        _stores(w, axes, names, 1)
        return
    _stores(w, axes, names)


def _branch(w: Writer, axes: tuple[str, ...], names: list[Value]) -> None:
    """A name bound anew under a scalar condition."""
    c = w.choices
    dtype = c.pick(("i32", "f32", "bf16"))
    first = w.make.tree(w.scope(names), axes, dtype, 1)
    first = Value(w.filling(axes, cast(first, dtype)), axes, dtype)
    name = w.name("t")
    w.line(f"{name} = {first.text}")
    w.line(f"if {w.scalar()} {c.pick(('> 4', '== 0', '< 17'))}:")
    kept = Value(name, axes, dtype)
    then = w.make.tree(w.scope([*names, kept]), axes, dtype, 1)
    w.line(f"    {name} = {name} + {spread(then, axes)}")
    if c.chance(50):
        w.line("else:")
        w.line(f"    {name} = {name} * {w.make.literal(dtype).text}")
    names.append(kept)


def _reduction(w: Writer, value: Value, axis: str) -> Value:
    """A reduction of one axis."""
    c = w.choices
    ops = ("sum", "max", "min", "argmax", "argmin", "any", "all")
    if value.dtype in INTEGERS:
        op = c.pick(ops[1:] if value.dtype[1:] in ("8", "16") else ops)
    else:
        op = c.pick(ops[:3] if value.dtype in ("f32", "f64") else ops[1:3])
    rest = tuple(a for a in value.axes if a != axis)
    place = value.axes.index(axis)
    at = f", axis={place}" if rest or c.chance(50) else ""
    if op in ("any", "all"):
        return Value(f"{op}({value.text} > 0{at}).to(i32)", rest, "i32")
    dtype = "i32" if op.startswith("arg") else value.dtype
    return Value(f"{op}({value.text}{at})", rest, dtype)


def _scan(w: Writer, value: Value, axis: str) -> Value:
    """A running sum or maximum along one axis, named."""
    op = w.choices.pick(("cumsum", "cummax")) if value.dtype in ACCUMULATED else "cummax"
    name = w.name("c")
    w.line(f"{name} = {op}({value.text}, axis={value.axes.index(axis)})")
    return Value(name, value.axes, value.dtype)


def reduced(w: Writer) -> None:
    """Rows as a whole: reduced over any axis, combined with the rows again."""
    c = w.choices
    spanned = c.chance(60)
    _grid(w, ("M",) if spanned else (), ("i",) if spanned else (), rows=0 if spanned else 1)
    w.whole("C", c.pick((60, 130, 300, 20)))
    axes: tuple[str, ...] = ("i", "C") if spanned else ("C",)
    if c.chance(25):
        w.whole("E", c.pick((9, 20)))
        axes = (*axes[:-1], "E", "C")
    names: list[Value] = []
    dtype = c.pick(DTYPES)
    whole = w.make.tree(w.scope(), axes, dtype, 2)
    if whole.axes != axes:
        whole = w.load(axes, dtype)
    name = w.name("t")
    w.line(f"{name} = {whole.text}")
    names.append(Value(name, axes, dtype))
    if c.chance(30):
        names.append(_scan(w, names[0], c.pick(axes[::-1])))
    whole_rows = tuple(names)
    for _ in range(1 + c.below(2)):
        axis = c.pick(axes[::-1])
        value = _reduction(w, c.pick(whole_rows), axis)
        if len(value.axes) > 1 and c.chance(40):
            value = _reduction(w, value, c.pick(value.axes))
        name = w.name("s")
        w.line(f"{name} = {value.text}")
        names.append(Value(name, value.axes, value.dtype))
    kept = names[-1]
    if c.chance(60):
        _stores(w, axes, names, 1)
        if c.chance(50):
            w.store(kept.axes, kept, kept.dtype)
    else:
        w.store(kept.axes, kept, kept.dtype)


def looped(w: Writer) -> None:
    """Carried tiles and scalars over a walked dimension."""
    c = w.choices
    spanned = c.chance(60)
    _grid(w, ("M",) if spanned else (), ("i",) if spanned else (), rows=0 if spanned else 1)
    base: tuple[str, ...] = ("i",) if spanned else ()
    carried: list[tuple[Value, str]] = []
    for _ in range(1 + c.below(2)):
        dtype = c.pick(ACCUMULATED)
        op = c.pick(("sum", "max", "min"))
        start = {"sum": "0", "max": "-5", "min": "9"}[op] + (".0" if dtype in FLOATS else "")
        name = w.name("a")
        extents = f", {', '.join(base)}" if base else ""
        w.line(f"{name} = full({dtype}, {start}{extents})" if base else f"{name} = {start}")
        carried.append((Value(name, base, dtype), op))
    w.axes["k"] = Axis("k", "K")
    tile = w.tile()
    w.line(f"for k in range({w.range_over('K')} by {tile}):")
    w.depth += 1
    w.loops.append("k")
    inner: list[Value] = []
    _names(w, (*base, "k"), 1, inner)
    for value, op in carried:
        part = w.make.tree(w.scope(inner), (*base, "k"), value.dtype, 2)
        if part.axes != (*base, "k"):
            part = w.load((*base, "k"), value.dtype)
        text = f"{op}({part.text}, axis={len(base)})"
        if op == "sum":
            w.line(f"{value.text} {c.pick(('+=', '= ' + value.text + ' +'))} {text}")
        else:
            w.line(f"{value.text} = {op}imum({value.text}, {text})")
    if c.chance(25):
        _stores(w, (*base, "k"), inner, 1)
    w.depth -= 1
    w.loops.remove("k")
    del w.axes["k"]
    names = [v for v, _ in carried]
    for value in names:
        w.store(base, value, value.dtype)
    if c.chance(30):
        w.axes["k"] = Axis("k", "K")
        w.line(f"for k in range(K by {tile}):")
        w.depth += 1
        _stores(w, (*base, "k"), names, 1)


def nested(w: Writer) -> None:
    """Two nests with a workspace between them."""
    c = w.choices
    _grid(w, ("M", "N"), ("i", "j"))
    dtype = c.pick(("f32", "i32", "bf16", "i8"))
    value = w.make.tree(w.scope(), ("i", "j"), dtype, 2)
    temp = w.store(("i", "j"), value, dtype, "temp")
    if c.chance(40):
        _stores(w, ("i", "j"), [], 1)
    w.axes.clear()
    w.depth = 0
    match c.below(3):
        case 0:
            _grid(w, ("M", "N"), ("i", "j"))
            swapped = c.chance(30)
            access = f"{temp}[i, j]" if not swapped else f"{temp}[i + 1, j].fill(2)"
            whole = Value(access, ("i", "j"), dtype)
            _stores(w, ("i", "j"), [whole], 2)
            w.store(("i", "j"), whole, dtype)
        case 1:
            w.whole("N", 90)
            _grid(w, ("M",), ("i",))
            whole = Value(f"{temp}[i, :]", ("i", "N"), dtype)
            value = _reduction(w, whole, "N")
            w.store(("i",), value, value.dtype)
        case _:
            w.whole("M", 90)
            _grid(w, ("N",), ("j",))
            whole = Value(f"{temp}[:, j]", ("M", "j"), dtype)
            value = _reduction(w, whole, "M")
            w.store(("j",), value, value.dtype)


def counted(w: Writer) -> None:
    """Atomic updates of integers."""
    c = w.choices
    _grid(w, ("M", "N"), ("i", "j"))
    for _ in range(1 + c.below(2)):
        op = c.pick(("add", "max", "min"))
        dtype = c.pick(("i32", "u32", "i64") if op == "add" else ("i32", "u32"))
        value = w.make.tree(w.scope(), ("i", "j"), dtype, 2)
        if value.axes != ("i", "j"):
            value = w.load(("i", "j"), dtype)
        reduction = "sum" if op == "add" else op
        match c.below(4):
            case 0:
                name = w.tensor(("2",), dtype, "inout")
                w.line(f"atomic_{op}({name}[1], {reduction}({value.text}))")
            case 1:
                name = w.tensor(("N",), dtype, "inout")
                w.line(f"atomic_{op}({name}[j], {reduction}({value.text}, axis=0))")
            case 2:
                name = w.tensor(("T",), dtype, "inout")
                index = w.index_tile(w.axes["i"])
                w.line(f"atomic_{op}({name}[{index}], {reduction}({value.text}, axis=1))")
            case _:
                name = w.tensor(("M", "N"), dtype, "inout")
                w.line(f"atomic_{op}({name}[i, j], {value.text})")


def mixed(w: Writer) -> None:
    """Rows of a scalar loop carried by a tile, with a filter."""
    c = w.choices
    _grid(w, ("N",), ("j",))
    axes: tuple[str, ...] = ("j",)
    if c.chance(40):
        axes = ("j", w.whole("C", 30).name)
    dtype = c.pick(ACCUMULATED)
    extents = ", ".join(w.axes[a].dim if w.axes[a].whole else a for a in axes)
    w.line(f"acc = zeros({dtype}, {extents})")
    w.line("for r in range(R0):")
    w.depth += 1
    w.rows.append(("r", "R0"))
    flags = w.tensor(("R0",), "i32")
    if c.chance(40):
        w.line(f"if {flags}[r] > 0:")
        w.depth += 1
    else:
        w.line(f"acc = acc + ({flags}[r]{'' if dtype == 'i32' else f'.to({dtype})'})")
    acc = Value("acc", axes, dtype)
    value = w.make.tree(w.scope(), axes, dtype, 2)
    if not value.axes:
        value = w.load(axes, dtype)
    w.line(
        f"acc = {c.pick(('acc + {}', 'maximum(acc, {})', 'acc * 2 - {}')).format(spread(value, axes))}"
    )
    w.rows.clear()
    w.depth = 1
    _stores(w, axes, [acc], 1)


def parted(w: Writer) -> None:
    """Parts of rows, rows in other extents, the greatest of a row."""
    c = w.choices
    spanned = c.chance(60)
    _grid(w, ("M",) if spanned else (), ("i",) if spanned else (), rows=0 if spanned else 1)
    base: tuple[str, ...] = ("i",) if spanned else ()
    w.axes["c"] = Axis("c", str(c.pick((48, 36, 20, 64))), whole=True, static=True)
    axes = (*base, "c")
    dtype = c.pick(DTYPES)
    value = w.make.tree(w.scope(), axes, dtype, 2)
    if value.axes != axes:
        value = w.load(axes, dtype)
    for _ in range(1 + c.below(2)):
        name = w.name("t")
        w.line(f"{name} = {value.text}")
        value = part(w, Value(name, value.axes, value.dtype))
    name = w.name("t")
    w.line(f"{name} = {value.text}")
    _stores(w, value.axes, [Value(name, value.axes, value.dtype)], 1)
    w.store(value.axes, Value(name, value.axes, value.dtype), value.dtype)


# ---- products


def _operand(w: Writer, axes: tuple[str, str], dtype: str, *, gather: bool = False) -> str:
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


def _filtered(w: Writer, name: str, dim: str) -> None:
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
    _filtered(w, "k", "K")
    w.loops.append("k")
    shared = _operand(w, ("i", "k"), dtype, gather=True)
    if count == 2:
        w.line(f"left = {shared}")
        shared = "left"
    for s in sums:
        text = f"{shared} @ {_operand(w, ('k', 'j'), dtype)}"
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
            row = _reduction(w, value, c.pick(("j", "i")))
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
    left = _operand(w, ("i", depth), dtype)
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
    _filtered(w, "j", "N")
    w.loops.append("j")
    w.line(f"s = {left} @ {_operand(w, (depth, 'j'), dtype)}")
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
    w.line(f"o = {scale} + p.to({dtype}) @ {_operand(w, ('j', width), dtype)}")
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
    left = _operand(w, ("i", depth), dtype)
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
    _filtered(w, "j", "N")
    w.loops.append("j")
    score = f"{left} @ {_operand(w, (depth, 'j'), dtype)}"
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
        f"o = o * alpha[:, None] + p.to({dtype}) @ {_operand(w, ('j', width), dtype)}",
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


PRODUCTS = (product, chained, weighed)


def generate(choices: Choices, seed: int = 0, bulk: bool = False) -> Program:
    """A program from choices; `bulk`: with products whose operands bulk copies can bring."""
    w = Writer(choices, bulk=bulk)
    forms = (
        mapped,
        reduced,
        looped,
        product,
        product,
        product,
        chained,
        nested,
        counted,
        mixed,
        parted,
        weighed,
    )
    form = choices.pick(PRODUCTS if bulk else forms)
    form(w)
    if choices.chance(20):
        options = [f"warps = {choices.pick((4, 8, 12) if bulk else (4, 1, 2, 8))}"]
        if form in PRODUCTS and choices.chance(60):
            options.append(f"stages = {choices.pick((2, 1, 3, 4))}")
        w.clauses.append(f"schedule {', '.join(options)}")
    return w.program(seed)
