"""Forms of programs as people write them with products: rows of heads against walked keys, loops one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.kernels import PRODUCT_TILES, Axis, Writer
from tests.fuzz.products import filtered
from tests.fuzz.values import Value

OPERANDS = (
    ("bf16", ""),
    ("f16", ""),
    ("f8e4m3", ""),
    ("f32", ".to(f16)"),
    ("f32", ".to(bf16)"),
    ("f8e5m2", ""),
)
"""What operands are stored as, and how they are converted."""


def _tiles(w: Writer, *names: str) -> None:
    c = w.choices
    w.tiles.update({n: (c.pick(PRODUCT_TILES), c.pick(PRODUCT_TILES)) for n in names})
    w.automatic = c.chance(25)


def _switch(w: Writer) -> str:
    """A question about an argument."""
    return f"{w.scalar()} {w.choices.pick(('> 4', '== 0', '!= 0', '< 17'))}"


# ---- rows of heads against walked keys


@dataclass
class _Place:
    """How a program's tensors lie: dims and terms of queries and of keys but for the last axis."""

    query: tuple[tuple[str, ...], tuple[str, ...]]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    rows: str
    """the dimension of the queries' span"""
    columns: str
    """that of the keys'"""
    bounds: str = ""
    """of the keys, where the form has some of its own"""


@dataclass
class _Operands:
    """Queries, keys and values of a program with heads."""

    stored: str
    used: str
    """the suffix that makes an operand of it"""
    depth: str
    width: str
    latent: bool

    @property
    def dtype(self) -> str:
        """What is multiplied."""
        return self.used[4:-1] or self.stored


def _placed(w: Writer, group: str) -> _Place:
    """The nest, in one of the orders in which heads and tokens lie."""
    c = w.choices
    grouped = f"R0 // {group}" if group else "R0"
    head = f"r // {group}" if group else "r"
    w.rows.append(("r", "R0"))
    kind = c.below(4)
    if kind == 3:
        longest = w.scalar(pool=(64, 200, 40, 1, 0))
        starts = w.tensor(("R1",), "i32")
        w.line(f"for n, r, t in parallel(R1 - 1, R0, {longest} by BM):")
        w.depth = 1
        for text in (
            f"lo = {starts}[n]",
            f"hi = {starts}[n + 1]",
            "i = span(lo + t.start, BM, until=hi)",
        ):
            w.line(text)
        bounds = c.pick(("lo : min(hi, i.stop)", "lo : hi", "max(lo, i.start - 20) : hi"))
        return _Place((("S", "R0"), ("i", "r")), (("S", grouped), ("j", head)), "S", "S", bounds)
    w.line("for r, i in parallel(R0, S by BM):")
    w.depth = 1
    if kind == 2:
        return _Place((("S", "R0"), ("i", "r")), (("N", grouped), ("j", head)), "S", "N")
    columns = "N" if kind == 0 else "S"
    return _Place((("R0", "S"), ("r", "i")), ((grouped, columns), (head, "j")), "S", columns)


def _query(w: Writer, place: _Place, of: _Operands) -> str:
    """Rows of queries, as they lie or computed from them."""
    c = w.choices
    dims, terms = place.query
    name = w.tensor((*dims, of.depth), of.stored)
    text = f"{name}[{', '.join(terms)}, :]"
    match c.below(9):
        case 1:
            w.line(f"q = ({text}.to(f32) * {c.pick(('0.5', '0.125', '3.0'))}).to({of.dtype})")
        case 2:
            w.line(f"rows = {text}.to(f32)")
            w.line("unit = rsqrt(sum(rows * rows, axis=1) + 0.01)")
            w.line(f"q = (rows * unit[:, None]).to({of.dtype})")
        case 3:
            beside = w.tensor((place.rows, of.depth), "bf16")
            w.line(f"q = ({text}.to(f32) * {beside}[i, :].to(f32)).to({of.dtype})")
        case 4:
            return text + of.used
        case _:
            w.line(f"q = {text}{of.used}")
    return "q"


def _keys(w: Writer, name: str, place: _Place, of: _Operands) -> str:
    """Rows of keys, as they lie or computed from them."""
    c = w.choices
    text = f"{name}[{', '.join(place.keys[1])}, :]"
    match c.below(14):
        case 1:
            w.line(f"y = {text}.to(f32)")
            w.line("whole = rsqrt(sum(y * y, axis=1) + 0.01)")
            return f"(y * whole[:, None]).to({of.dtype})"
        case 2:
            beside = w.tensor((place.columns, of.depth), "bf16")
            return f"({text}.to(f32) * {beside}[j, :].to(f32)).to({of.dtype})"
        case _:
            return text + of.used


def _bounds(w: Writer, place: _Place) -> str:
    """Which keys a loop walks."""
    c = w.choices
    if place.bounds:
        return place.bounds
    n = place.columns
    match c.below(8):
        case 1:
            return f"0 : min({n}, i.stop)"
        case 2:
            return f"max(0, i.start - {c.pick(('20', '64', '1'))}) : min({n}, i.stop)"
        case 3:
            return f"0 : min({n}, {w.tensor(('R0',), 'i32')}[r])"
        case 4:
            return f"max(0, i.start - 40) : min({n}, i.stop + 40)"
        case 5:
            end = w.name("end")
            w.line(f"{end} = {n}")
            w.line(f"if {_switch(w)}:")
            w.line(f"    {end} = min({n}, i.stop)")
            return f"0 : {end}"
        case 6:
            return f"{w.scalar()} : {n}" if c.chance(20) else f"max(0, {w.scalar()}) : {n}"
        case _:
            return n


def _test(w: Writer, place: _Place) -> str:
    """Which scores are kept."""
    c = w.choices
    n = place.columns
    match c.below(10):
        case 1:
            return f"(i[:, None] - j[None, :] < {c.pick(('20', '64', '1'))})"
        case 2:
            return f"{w.tensor((place.rows, n), 'bool')}[i, j]"
        case 3:
            return f"{w.tensor(('R0', n), 'bool')}[r, j][None, :]"
        case 4:
            doc = w.tensor((place.rows,), "i32")
            other = doc if n == place.rows else w.tensor((n,), "i32")
            return f"({doc}[i][:, None] == {other}[j][None, :])"
        case 5:
            return f"({w.tensor((place.rows, n), 'u8')}[i, j] > 7)"
        case 6:
            return f"((i[:, None] >= j[None, :]) | ({_switch(w)}))"
        case 7:
            return f"((i[:, None] - j[None, :]) % {c.pick(('3', '4'))} == 0)"
        case 8:
            return f"(j[None, :] < {w.tensor(('R0',), 'i32')}[r])"
        case _:
            return "(i[:, None] >= j[None, :])"


def _scores(w: Writer, score: str, place: _Place) -> None:
    """The tile `s`: scaled, with a bias, capped, masked."""
    c = w.choices
    n = place.columns
    w.line(f"s = ({score}) * {c.pick(('0.125', '0.25', '0.5', '0.125', '-0.125', '1.0'))}")
    match c.below(12):
        case 1:
            w.line("s = tanh(s * 0.25) * 4.0")
        case 2:
            w.line(f"s = s + {w.tensor(('R0',), 'f32')}[r] * (j[None, :] - i[:, None]).to(f32)")
        case 3:
            dtype = c.pick(("f32", "bf16"))
            w.line(f"s = s + {w.tensor((place.rows, n), dtype)}[i, j].to(f32)")
        case 4:
            w.line(f"s = s + {w.tensor((n,), 'f32')}[j][None, :]")
        case 5:
            w.line(f"s = s * {w.tensor((place.rows,), 'f32')}[i][:, None]")
        case 6:
            table = w.tensor(("33",), "f32")
            w.line("far = maximum(-16, minimum(16, i[:, None] - j[None, :])) + 16")
            w.line(f"s = s + {table}.at[far]")
        case 7:
            # rises with the trips, or falls
            w.line(f"s = s {c.pick(('-', '+'))} 0.25 * (i[:, None] - j[None, :]).to(f32)")
        case _:
            pass
    if c.chance(60):
        test = _test(w, place)
        if c.chance(25):
            test = f"{test} {c.pick(('&', '|'))} {_test(w, place)}"
        w.line(f"s = where({test}, s, {c.pick(('-inf', '-inf', '-inf', '-30.0', '0.0'))})")


def heads(w: Writer) -> None:
    """Rows of queries of several heads against walked keys, weighed and multiplied by values: in the orders in which people keep
    them, computed or converted, in groups, packed, in one or two loops, with one or two results."""
    c = w.choices
    stored, used = c.pick(OPERANDS)
    depth = w.static(64, 16, 32, 128, 24, 96)
    latent = c.chance(15)
    width = depth if c.chance(60) else w.static(64, 16, 32, 40)
    if latent and width != depth and w.statics[width] > w.statics[depth]:
        width = depth
    of = _Operands(stored, used, depth, width, latent)
    group = w.static(2, 4) if c.chance(35) else ""
    w.limits["R0"] = 2
    if group:
        w.clauses.append(f"require R0 % {group} == 0")
        w.multiples["R0"] = w.statics[group]
    _tiles(w, "BM", "BN")
    place = _placed(w, group)
    w.axes["i"] = Axis("i", place.rows, tile="BM")
    left = _query(w, place, of)
    rising = c.chance(75)
    begins = ["l = zeros(f32, i)", f"o = zeros(f32, i, {width})"]
    if rising:
        begins.append(f"m = full(f32, {c.pick(('-inf', '-inf', '0.0'))}, i)")
    twice = c.chance(12)
    if twice:
        begins.append(f"also = zeros(f32, i, {width})")
    for text in begins:
        w.line(text)
    key = w.tensor((*place.keys[0], depth), stored)
    value = key if latent else w.tensor((*place.keys[0], width), stored)
    for turn in range(2 if c.chance(35) else 1):
        if turn and c.chance(50):
            place.columns = "N2" if not place.bounds else place.columns
            where = place.keys[0]
            dims = tuple(place.columns if d in ("N", "S") else d for d in where)
            place.keys = (dims, place.keys[1])
            key = w.tensor((*dims, depth), stored)
            value = key if latent else w.tensor((*dims, width), stored)
        _turn(w, place, of, (left, key, value), rising=rising, twice=twice)
    _ends(w, place, of, rising=rising, twice=twice)


def _turn(
    w: Writer,
    place: _Place,
    of: _Operands,
    operands: tuple[str, str, str],
    *,
    rising: bool,
    twice: bool,
) -> None:
    """One loop over keys."""
    c = w.choices
    left, key, value = operands
    w.line(f"for j in range({_bounds(w, place)} by BN):")
    w.depth = 2
    w.axes["j"] = Axis("j", place.columns)
    if c.chance(6):
        w.line(f"if any({w.tensor((place.rows, place.columns), 'bool')}[i, j]):")
        w.depth += 1
    elif not place.bounds:
        filtered(w, "j", place.columns)
    _scores(w, f"{left} @ {_keys(w, key, place, of)}.T", place)
    columns = f"0:{of.width}" if of.latent else ":"
    right = f"{value}[{', '.join(place.keys[1])}, {columns}]{of.used}"
    if rising:
        for text in (
            "m_new = maximum(m, max(s, axis=1))",
            "ref = where(m_new == -inf, 0.0, m_new)",
            "p = exp(s - ref[:, None])",
            "alpha = exp(m - ref)",
            "l = l * alpha + sum(p, axis=1)",
            f"o = o * alpha[:, None] + p.to({of.dtype}) @ {right}",
        ):
            w.line(text)
        if twice:
            w.line(f"also = also * alpha[:, None] + (p * p).to({of.dtype}) @ {right}")
        w.line("m = m_new")
    else:
        form = c.pick(("sigmoid(s)", "maximum(s, 0.0) * maximum(s, 0.0)", "where(s > 0.0, s, 0.0)"))
        w.line(f"p = {form}")
        w.line("l += sum(p, axis=1)")
        w.line(f"o += p.to({of.dtype}) @ {right}")
        if twice:
            w.line(f"also += (p * 0.5).to({of.dtype}) @ {right}")
    w.depth = 1
    del w.axes["j"]


def _ends(w: Writer, place: _Place, of: _Operands, *, rising: bool, twice: bool) -> None:
    """What is stored."""
    c = w.choices
    dims, terms = place.query
    at = ", ".join(terms)

    def store(text: str, dtype: str, last: str = "") -> None:
        name = w.tensor((*dims, *([last] if last else [])), dtype, "output")
        w.line(f"{name}[{at}{', :' if last else ''}] = {text}")

    floor = "where(l == 0.0, 1.0, l)" if rising else "(l + 0.5)"
    value = c.pick((f"o / {floor}[:, None]", "o", f"o * (1.0 / {floor})[:, None]"))
    if c.chance(15):
        w.line(f"if {_switch(w)}:")
        w.line("    o = o * 0.5")
    store(value, c.pick(("bf16", "f32", "f16")), of.width)
    if c.chance(50):
        store(c.pick(("m + log(l)", "m", "l")) if rising else "l", "f32")
    if twice:
        store("also", "f32", of.width)


# ---- loops one after the other


def turns(w: Writer) -> None:
    """Sums of products in one or two loops one after the other, under branches on arguments, of operands of all types that products
    take and of rows that are computed before, with what epilogues do."""
    c = w.choices
    kinds = ("bf16", "i8", "f8e4m3", "tf32", "f16", "f8e5m2", "u8")
    dtype = c.pick(kinds)
    total = "i32" if dtype in ("i8", "u8") else "f32"
    _tiles(w, "BM", "BN", "BK")
    if c.chance(20):
        w.rows.append(("r", "R0"))
        w.line("for r, i, j in parallel(R0, M by BM, N by BN):")
    else:
        w.line("for i, j in parallel(M by BM, N by BN):")
    w.depth = 1
    w.axes.update(i=Axis("i", "M", tile="BM"), j=Axis("j", "N", tile="BN"))
    count = 2 if c.chance(20) else 1
    sums = [f"acc{n}" for n in range(count)]
    for name in sums:
        w.line(f"{name} = zeros({total}, i, j)")
    left = _Left(w, dtype, "K")
    parts = c.below(3)
    if parts == 1:
        # a multiple of what bulk copies begin at
        middle = f"{w.scalar(pool=(2, 1, 0, 5, -1))} * 16"
        ranges = [
            ("K", f"0 : max(0, min(K, {middle}))"),
            ("K", f"max(0, min(K, {middle})) : K"),
        ]
    elif parts == 2:
        ranges = [("K", "K"), (c.pick(("K", "K2")), "")]
    else:
        ranges = [("K", w.range_over("K"))]
    for dim, bounds in ranges:
        opened = c.chance(12)
        if opened:
            w.line(f"if {_switch(w)}:")
            w.depth += 1
        depth = w.depth
        w.line(f"for k in range({bounds or dim} by BK):")
        w.depth += 1
        if parts != 1:
            filtered(w, "k", dim)
        first = left.text(dim)
        for name in sums if c.chance(70) else sums[:1]:
            w.line(f"{name} += {_times(first, _right(w, dtype, dim), dtype)}")
        w.depth = depth
        if opened:
            w.depth -= 1
    _epilogue(w, sums, total)


def _times(left: str, right: str, dtype: str) -> str:
    return f"dot({left}, {right}, as = tf32)" if dtype == "tf32" else f"{left} @ {right}"


class _Left:
    """The left operand: as it lies, converted, or computed from rows that are reduced before the loop."""

    def __init__(self, w: Writer, dtype: str, dim: str) -> None:
        self.w = w
        self.dtype = dtype
        c = w.choices
        self.stored = "f32" if dtype == "tf32" else dtype
        self.kind = c.below(6)
        if self.kind >= 4 and dtype not in ("bf16", "f16", "f8e4m3"):
            self.kind = 0
        self.batch = bool(w.rows) and c.chance(60)
        if self.kind == 5:
            # whole rows are reduced first
            w.clauses.append(f"require {dim} <= 160")
            w.limits[dim] = 160
            name = self.tensor(dim, "f32")
            w.line(f"row = {name}[{self.at('i')}, :]")
            w.line("norm = rsqrt(sum(row * row, axis=1) + 0.1)")

    def at(self, term: str) -> str:
        """Terms of the rows."""
        return f"r, {term}" if self.batch else term

    def tensor(self, dim: str, dtype: str, *, across: bool = False) -> str:
        """The tensor that it lies in."""
        dims = (dim, "M") if across else ("M", dim)
        return self.w.tensor(("R0", *dims) if self.batch else dims, dtype)

    def text(self, dim: str) -> str:
        """The tile of a trip."""
        match self.kind:
            case 1:
                return f"{self.tensor(dim, self.stored, across=True)}[{self.at('k, i')}].T"
            case 4:
                name, scale = self.tensor(dim, "f32"), self.w.tensor(("M",), "f32")
                text = f"{name}[{self.at('i, k')}] * {scale}[i][:, None]"
                return f"({text}).to({self.dtype})"
            case 5 if dim == "K":
                name, weight = self.tensor(dim, "f32"), self.w.tensor((dim,), "f32")
                text = f"{name}[{self.at('i, k')}] * norm[:, None] * {weight}[k][None, :]"
                return f"({text}).to({self.dtype})"
            case _:
                return f"{self.tensor(dim, self.stored)}[{self.at('i, k')}]"


def _right(w: Writer, dtype: str, dim: str) -> str:
    """The right operand, its consumed axis along rows or across, a group's or everybody's."""
    c = w.choices
    stored = "f32" if dtype == "tf32" else dtype
    dims, terms = [dim, "N"], ["k", "j"]
    across = c.chance(50)
    if across:
        dims, terms = dims[::-1], terms[::-1]
    if w.rows and c.chance(60):
        dims, terms = ["R0", *dims], ["r", *terms]
    text = f"{w.tensor(tuple(dims), stored)}[{', '.join(terms)}]"
    return f"{text}.T" if across else text


def _epilogue(w: Writer, sums: list[str], total: str) -> None:
    """What is done with the sums."""
    c = w.choices
    axes = ("i", "j")
    if c.chance(15):
        w.line(f"if {_switch(w)}:")
        w.line(f"    {sums[0]} = {sums[0]} * {'2' if total == 'i32' else '0.5'}")
    for name in sums:
        text = name
        for _ in range(c.below(3)):
            match c.below(6):
                case 1:
                    text = f"({text} + {w.tensor(('M', 'N'), total)}[i, j])"
                case 2:
                    mask = w.tensor(("M", "N"), "bool")
                    text = f"where({mask}[i, j], {text}, {'0' if total == 'i32' else '0.0'})"
                case 3:
                    text = f"maximum({text}, {'0' if total == 'i32' else '0.0'})"
                case 4:
                    text = f"({text} * {w.tensor(('M',), total)}[i][:, None])"
                case 5 if len(sums) > 1:
                    text = f"({text} - {sums[-1]})"
                case _:
                    text = f"({text} + {w.tensor(('N',), total)}[j][None, :])"
        target = "i32" if total == "i32" else c.pick(("bf16", "f32", "f16"))
        w.store(axes, Value(text, axes, total), target)
    if c.chance(15):
        w.store(("i",), Value(f"max({sums[0]}, axis=1)", ("i",), total), total)
