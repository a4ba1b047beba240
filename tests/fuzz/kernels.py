"""Random valid kernels as text: declarations that grow as bodies ask for tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.fuzz.choices import Choices
from tests.fuzz.values import FLOATS, Expressions, Scope, Value, cast, spread

TILES = (16, 8, 4, 1, 2, 3, 5, 7, 12, 20, 24, 32, 33, 40, 48, 64, 100, 128)
PRODUCT_TILES = (16, 32, 8, 1, 10, 24, 40, 48, 64, 80, 128)
MOST_TILE_ELEMENTS = 8192


@dataclass(frozen=True)
class Program:
    """A kernel without its head's name and tile sizes. `tiles`: candidates; `sizes`: what its dims are tried at."""

    parameters: str
    clauses: tuple[str, ...]
    body: tuple[str, ...]
    tiles: tuple[Mapping[str, int], ...]
    statics: Mapping[str, int]
    sizes: tuple[Mapping[str, int], ...]
    seed: int = 0
    automatic: bool = False
    """the last candidate's tiles are the compiler's choice"""

    @property
    def has_products(self) -> bool:
        """Whether a matrix product is in it."""
        return any(" @ " in line or "dot(" in line for line in self.body)

    def suited(self) -> Program:
        """The same with tiles of whole warpgroups' rows and, but for the last, with sizes of which rows begin at multiples of 16
        bytes, of a part of the programs only the first."""
        tiles = []
        for given in self.tiles:
            found = dict(given)
            for name, value in given.items():
                if name == "BM":
                    found[name] = 64 * (1 + value % 3 % 2 + (value % 5 == 0))
                elif name in ("BN", "BK"):
                    # what a product consumes is a whole number of its steps
                    unit = 32 if name == "BK" else 8 if "BK" in given else 16
                    found[name] = min(128, -(-value // unit) * unit)
            tiles.append(found)
        sizes = [
            {n: v if n[0] in "nR" or not v else max(16, v // 16 * 16) for n, v in given.items()}
            for given in self.sizes[:-1]
        ]
        whole = len(sizes) if self.seed % 3 else 1
        return replace(self, tiles=tuple(tiles), sizes=(*sizes[:whole], *self.sizes[whole:]))

    def text(self, name: str, candidate: int) -> str:
        """The kernel under one candidate."""
        tiles: Mapping[str, int | str] = self.tiles[candidate]
        if self.automatic and candidate == len(self.tiles) - 1:
            tiles = dict.fromkeys(tiles, "auto")
        values = {**self.statics, **tiles}
        bracket = ", ".join(f"{n} = {v}" for n, v in values.items())
        lines = [f"kernel {name}{f'[{bracket}]' if bracket else ''}{self.parameters}:"]
        lines += [f"    {line}" for line in (*self.clauses, *self.body)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Written(Program):
    """A program that is there as text; the kernel's name is what the text says."""

    whole: str = ""

    @property
    def has_products(self) -> bool:
        """Whether a matrix product is in it."""
        return " @ " in self.whole

    def suited(self) -> Program:
        """As it stands."""
        return self

    def text(self, name: str, candidate: int) -> str:
        """The text under the name asked for."""
        return re.sub(r"^kernel \w+", f"kernel {name}", self.whole, count=1, flags=re.M)


@dataclass
class Axis:
    """A span over a dimension, or all of one (`whole`)."""

    name: str
    dim: str
    whole: bool = False
    static: bool = False
    tile: str = ""
    """of a grid's span, the name of its tile size"""

    @property
    def term(self) -> str:
        """How it indexes."""
        return ":" if self.whole else self.name


@dataclass
class Writer:
    """A kernel in the making."""

    choices: Choices
    bulk: bool = False
    """operands of products are such that bulk copies bring them"""
    axes: dict[str, Axis] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)
    """scalar loop variables with their dimensions"""
    tensors: dict[str, tuple[str, tuple[str, ...], str]] = field(default_factory=dict)
    """role, dims, dtype by name"""
    scalars: dict[str, str] = field(default_factory=dict)
    clauses: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    names: int = 0
    tiles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    statics: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    """greatest values of dims used whole"""
    multiples: dict[str, int] = field(default_factory=dict)
    """what sizes are multiples of"""
    pools: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """what scalars are tried at"""
    automatic: bool = False
    temps: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    """spans of loops in scope: gathers by them stay out"""

    def __post_init__(self) -> None:
        self.make = Expressions(self.choices)

    # ---- text

    def line(self, text: str) -> None:
        """One statement."""
        self.lines.append("    " * self.depth + text)

    def name(self, stem: str) -> str:
        """A new name."""
        self.names += 1
        return f"{stem}{self.names}"

    def tile(self, pool: tuple[int, ...] = TILES) -> str:
        """A new tile size, two candidates."""
        name = f"B{len(self.tiles)}"
        self.tiles[name] = (self.choices.pick(pool), self.choices.pick(pool))
        return name

    def static(self, *options: int) -> str:
        """A new program parameter."""
        name = f"D{len(self.statics)}"
        self.statics[name] = self.choices.pick(options)
        return name

    def whole(self, dim: str, most: int) -> Axis:
        """All of a run-time dimension."""
        if dim not in self.limits:
            self.clauses.append(f"require {dim} <= {most}")
            self.limits[dim] = most
        return self.axes.setdefault(dim, Axis(dim, dim, whole=True))

    def static_axis(self, name: str) -> Axis:
        """All of a compile-time dimension."""
        return self.axes.setdefault(name, Axis(name, name, whole=True, static=True))

    # ---- tensors

    def tensor(self, dims: tuple[str, ...], dtype: str, role: str = "input") -> str:
        """A parameter of that shape, an old one in half of the cases."""
        if role == "input":
            same = [n for n, t in self.tensors.items() if t == (role, dims, dtype)]
            full = sum(t[0] == "input" for t in self.tensors.values()) >= 7
            if same and (full or self.choices.chance(50)):
                return self.choices.pick(same)
        name = self.name({"input": "x", "output": "y", "inout": "z", "temp": "w"}[role])
        self.tensors[name] = (role, dims, dtype)
        return name

    def index_tile(self, axis: Axis) -> str:
        """A gather's index over an axis."""
        return f"{self.tensor((axis.dim,), 'i32')}[{axis.term}]"

    def load(self, axes: tuple[str, ...], dtype: str, plain: bool = False) -> Value:
        """A load with the axes in order."""
        c = self.choices
        dims: list[str] = []
        terms: list[str] = []
        if self.rows and (not axes or c.chance(30)):
            row, dim = c.pick(self.rows)
            dims.append(dim)
            terms.append(row)
        gathered = False
        for name in axes:
            axis = self.axes[name]
            dim, term = axis.dim, axis.term
            if not plain and not axis.whole:
                kind = c.below(16)
                if kind == 15 and not gathered and not self.loops:
                    term, dim, gathered = self.index_tile(axis), f"T{name.upper()}", True
                elif kind == 14:
                    term = f"{name} + {c.pick(('1', '3', '8'))}"
                elif kind == 13:
                    term = f"{name} - {c.pick(('1', '2', '4'))}"
            dims.append(dim)
            terms.append(term)
        if not terms:
            return self.make.literal(dtype)
        if len(axes) == 2 and len(terms) == 2 and not plain and c.chance(15):
            name = self.tensor((dims[1], dims[0]), dtype)
            value = Value(f"{name}[{terms[1]}, {terms[0]}].T", axes, dtype)
        else:
            value = Value(f"{self.tensor(tuple(dims), dtype)}[{', '.join(terms)}]", axes, dtype)
        if not plain and axes and c.chance(12):
            fill = "1.5" if dtype in FLOATS else "3"
            value = Value(f"{value.text}.fill({fill})", axes, dtype)
        return value

    def scope(self, names: list[Value] = [], load: Callable[..., Value] | None = None) -> Scope:  # noqa: B006
        """What expressions may use here."""
        spans = tuple(a.name for a in self.axes.values() if not a.whole)
        scalars = tuple(row for row, _ in self.rows) + tuple(
            n for n, d in self.scalars.items() if d == "i32"
        )
        return Scope(list(names), spans, scalars, load or self.load)

    def scalar(self, dtype: str = "i32", pool: tuple[int, ...] = ()) -> str:
        """A scalar parameter; with a `pool` of values a new one."""
        same = [n for n, d in self.scalars.items() if d == dtype and n not in self.pools]
        if same and not pool and self.choices.chance(60):
            return same[0]
        name = self.name("n")
        self.scalars[name] = dtype
        if pool:
            self.pools[name] = pool
        return name

    def store(self, axes: tuple[str, ...], value: Value, dtype: str, role: str = "output") -> str:
        """A store to a tensor of its own; the name of the tensor."""
        c = self.choices
        dims = [dim for _, dim in self.rows] + [self.axes[a].dim for a in axes]
        terms = [row for row, _ in self.rows] + [self.axes[a].term for a in axes]
        # an element for each instance: no two may store to one place
        for a in self.axes.values():
            if a.tile and a.name not in axes:
                dims.insert(0, f"ceildiv({a.dim}, {a.tile})")
                terms.insert(0, f"{a.name}.start // {a.tile}")
        value = cast(value, dtype) if _explicit(value.dtype, dtype) else value
        text = self.filling(axes, value)
        if not dims:
            dims, terms = ["1"], ["0"]
        if role == "output" and len(dims) == 2 and len(axes) == 2 and c.chance(15):
            name = self.tensor((dims[1], dims[0]), dtype, role)
            self.line(f"{name}[{terms[1]}, {terms[0]}] = ({text}).T")
            return name
        name = self.tensor(tuple(dims), dtype, role)
        sign = c.pick(("=", "+=")) if role == "inout" else "="
        self.line(f"{name}[{', '.join(terms)}] {sign} {text}")
        return name

    def filling(self, axes: tuple[str, ...], value: Value) -> str:
        """Text of the value over all `axes`."""
        if value.axes == axes:
            return value.text
        extents = ", ".join(self.axes[a].dim if self.axes[a].whole else a for a in axes)
        return f"(zeros({value.dtype}, {extents}) + {spread(value, axes)})"

    def range_over(self, dim: str) -> str:
        """Bounds of a loop over a dimension."""
        c = self.choices
        match c.below(6):
            case 1:
                return f"0 : min({dim}, {self.scalar()})"
            case 2:
                return f"max(0, {self.scalar()}) : {dim}"
            case 3 if self.rows:
                row, rows = self.rows[0]
                return f"0 : min({dim}, {self.tensor((rows,), 'i32')}[{row}])"
            case 4 if not self.limits.get(dim):
                return f"0 : {dim}"
            case _:
                return dim

    # ---- the whole

    def program(self, seed: int) -> Program:
        """The kernel."""
        given, outputs = [], []
        for name, (role, dims, dtype) in self.tensors.items():
            declared = f"{name}: {dtype}[{', '.join(dims)}]"
            if role == "output":
                outputs.append(declared)
            elif role != "temp":
                given.append(f"inout {declared}" if role == "inout" else declared)
            else:
                self.clauses.append(f"temp {declared}")
        given += [f"{name}: {dtype}" for name, dtype in self.scalars.items()]
        parameters = f"({', '.join(given)})"
        if outputs:
            one = len(outputs) == 1
            parameters += f" -> {outputs[0]}" if one else f" -> ({', '.join(outputs)})"
        tiles = tuple({n: v[at] for n, v in self.tiles.items()} for at in range(2))
        if tiles[0] == tiles[1]:
            tiles = tiles[:1]
        tiles = tuple(self._smaller(t) for t in tiles)
        dims = sorted(
            {d for _, ds, _ in self.tensors.values() for d in ds if d.isidentifier()}
            - set(self.statics)
        )
        for dim in ("N", "K"):
            if dim in dims and dim not in self.limits and self.choices.chance(8):
                # no mask is needed then, and no tile is there to be masked where it is 0
                self.multiples[dim] = self.choices.pick((32, 16, 64))
                self.clauses.append(f"require {dim} % {self.multiples[dim]} == 0")
        used = set(dims)
        clauses = [q for q in self.clauses if not q.startswith("require") or q.split()[1] in used]
        sizes = tuple(self._sizes(dims, n) for n in range(3))
        return Program(
            parameters,
            tuple(clauses),
            tuple(self.lines),
            tiles,
            self.statics,
            sizes,
            seed,
            self.automatic and not self._asks_tiles(),
        )

    def _asks_tiles(self) -> bool:
        """Whether a tile's extent is a part of the meaning: a launch may take other tiles than those that the interpreter is told."""
        dims = " ".join(d for _, ds, _ in self.tensors.values() for d in ds)
        return any(".start" in line or ".stop" in line for line in self.lines) or any(
            re.search(rf"\b{tile}\b", dims) for tile in self.tiles
        )

    def _smaller(self, tiles: Mapping[str, int]) -> dict[str, int]:
        """Tile sizes of which no three make too large a tile."""
        found = dict(tiles)
        while True:
            total = 1
            for value in sorted(found.values())[-2:]:
                total *= value
            if total <= MOST_TILE_ELEMENTS:
                return found
            widest = max(found, key=lambda n: found[n])
            found[widest] //= 2

    def _sizes(self, dims: list[str], number: int) -> dict[str, int]:
        c = self.choices
        found = {}
        pool = sorted({v for pair in self.tiles.values() for v in pair})
        for dim in dims:
            most = self.limits.get(dim, 150)
            tile = c.pick(pool) if pool else 8
            near = (tile + 1, tile, tile - 1, 2 * tile + 3, 17, 1, 3 * tile - 1, 33, 7, 64, 5, 0)
            small = dim.startswith("R")
            found[dim] = max(0, min(c.pick((3, 2, 1, 5, 0) if small else near), most, 200))
            multiple = self.multiples.get(dim, 1)
            found[dim] = found[dim] * multiple if small else found[dim] // multiple * multiple
        for name in self.scalars:
            found[name] = c.pick(self.pools.get(name, (5, 17, 0, 1, -3, 40, 64)))
        return found


def _explicit(source: str, target: str) -> bool:
    """Whether a store needs `.to`."""
    return source != target and not (source in FLOATS and target in FLOATS)
