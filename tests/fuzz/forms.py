"""The forms of random programs: what nests and loops surround the expressions."""

from __future__ import annotations

from tests.fuzz.choices import Choices
from tests.fuzz.kernels import Axis, Program, Writer
from tests.fuzz.parts import part, reduction
from tests.fuzz.products import chained, product, weighed
from tests.fuzz.rows import heads, turns
from tests.fuzz.values import FLOATS, Value, cast, spread

DTYPES = ("f32", "i32", "bf16", "f16", "i8", "i16", "i64", "u8", "f64", "u32")
ACCUMULATED = ("i32", "f32", "i64", "f64")


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
        value = reduction(w, c.pick(whole_rows), axis)
        if len(value.axes) > 1 and c.chance(40):
            value = reduction(w, value, c.pick(value.axes))
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
            value = reduction(w, whole, "N")
            w.store(("i",), value, value.dtype)
        case _:
            w.whole("M", 90)
            _grid(w, ("N",), ("j",))
            whole = Value(f"{temp}[:, j]", ("M", "j"), dtype)
            value = reduction(w, whole, "M")
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
        folded = "sum" if op == "add" else op
        match c.below(4):
            case 0:
                name = w.tensor(("2",), dtype, "inout")
                w.line(f"atomic_{op}({name}[1], {folded}({value.text}))")
            case 1:
                name = w.tensor(("N",), dtype, "inout")
                w.line(f"atomic_{op}({name}[j], {folded}({value.text}, axis=0))")
            case 2:
                name = w.tensor(("T",), dtype, "inout")
                index = w.index_tile(w.axes["i"])
                w.line(f"atomic_{op}({name}[{index}], {folded}({value.text}, axis=1))")
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


PRODUCTS = (product, chained, weighed, heads, heads, heads, turns, turns)


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
        heads,
        turns,
    )
    form = choices.pick(PRODUCTS if bulk else forms)
    form(w)
    if choices.chance(20):
        options = [f"warps = {choices.pick((4, 8, 12) if bulk else (4, 1, 2, 8))}"]
        if form in PRODUCTS and choices.chance(60):
            options.append(f"stages = {choices.pick((2, 1, 3, 4))}")
        w.clauses.append(f"schedule {', '.join(options)}")
    return w.program(seed)
