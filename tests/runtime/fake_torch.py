"""PyTorch as far as tilec uses it, on NumPy arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

_KINDS: dict[str, Any] = {
    "bool": np.bool_,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    **{n: np.dtype(n) for n in ("float16", "float32", "float64")},
    **{f"{u}int{b}": np.dtype(f"{u}int{b}") for u in ("", "u") for b in (8, 16, 32, 64)},
}


class Kind:
    """A dtype."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numpy = np.dtype(_KINDS[name])
        self.is_floating_point = "float" in name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


KINDS = {name: Kind(name) for name in _KINDS}


def kind_of(array: np.ndarray) -> Kind:
    return next(k for k in KINDS.values() if k.numpy == array.dtype)


class Tensor:
    """An array with the methods of a tensor; numbers are weak."""

    __array_priority__ = 100

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    dtype = property(lambda self: kind_of(self.data))
    ndim = property(lambda self: self.data.ndim)
    shape = property(lambda self: self.data.shape)

    def to(self, what: Any) -> Tensor:
        return Tensor(self.data.astype(what.numpy)) if isinstance(what, Kind) else self

    def view(self, what: Any) -> Tensor:
        return Tensor(
            self.data.view(what.numpy) if isinstance(what, Kind) else self.data.reshape(what)
        )

    def long(self) -> Tensor:
        return self.to(KINDS["int64"])

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(self.data.reshape(shape))

    def broadcast_to(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(np.broadcast_to(self.data, shape))

    def transpose(self, a: int, b: int) -> Tensor:
        return Tensor(np.swapaxes(self.data, a, b))

    def unsqueeze(self, axis: int) -> Tensor:
        return Tensor(np.expand_dims(self.data, axis))

    def index_select(self, axis: int, index: Tensor) -> Tensor:
        return Tensor(np.take(self.data, index.data, axis=axis))

    def select(self, axis: int, index: int) -> Tensor:
        return Tensor(np.take(self.data, index, axis=axis))

    def narrow(self, axis: int, start: int, length: int) -> Tensor:
        return Tensor(np.take(self.data, range(start, start + length), axis=axis))

    def as_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        steps = tuple(s * self.data.itemsize for s in strides)
        return Tensor(np.lib.stride_tricks.as_strided(self.data, shape, steps))

    def __getitem__(self, place: Any) -> Tensor:
        return Tensor(self.data[place])

    def __setitem__(self, place: Any, value: Tensor) -> None:
        self.data[place] = value.data

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.data

    def __neg__(self) -> Tensor:
        return Tensor(-self.data)

    def __invert__(self) -> Tensor:
        return Tensor(~self.data)


def _binary(name: str, function: Callable[[Any, Any], Any]) -> None:
    def forward(self: Tensor, other: Any) -> Tensor:
        return Tensor(_apply(function, self, other))

    def backward(self: Tensor, other: Any) -> Tensor:
        return Tensor(_apply(function, other, self))

    setattr(Tensor, f"__{name}__", forward)
    setattr(Tensor, f"__r{name}__", backward)


def _apply(function: Callable[..., Any], *arguments: Any) -> Any:
    """A Python number takes the type of the tensors, unless it is a float and they are integers."""
    arrays = [a.data for a in arguments if isinstance(a, Tensor)]
    floating = any(kind_of(a).is_floating_point for a in arrays)
    plain = []
    for a in arguments:
        if isinstance(a, Tensor):
            plain.append(a.data)
        elif floating:
            first = next(x for x in arrays if kind_of(x).is_floating_point)
            plain.append(np.asarray(a, first.dtype))
        else:
            plain.append(np.asarray(a, np.float32) if isinstance(a, float) else np.asarray(a))
    with np.errstate(all="ignore"):
        return function(*plain)


for (
    _name
) in "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift eq ne lt le gt ge".split():
    _binary(_name.rstrip("_"), getattr(operator, _name))


def _wide(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function calculated in float64 and rounded to the argument's type."""

    def run(x: Tensor, *rest: Any, dim: Any = None) -> Tensor:
        floating = x.dtype.is_floating_point
        data = x.data.astype(np.float64) if floating else x.data
        with np.errstate(all="ignore"):
            found = function(data, *rest) if dim is None else function(data, axis=dim)
        return Tensor(found.astype(x.data.dtype) if floating else found)

    return run


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    found = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
    return Tensor(found.astype(a.data.dtype))


def _sort(x: Tensor, dim: int, descending: bool, stable: bool) -> Any:
    assert descending and stable
    places = np.argsort(-x.data.astype(np.float64), axis=dim, kind="stable")
    return SimpleNamespace(
        values=Tensor(np.take_along_axis(x.data, places, dim)), indices=Tensor(places)
    )


def _topk(x: Tensor, k: int, dim: int) -> Any:
    """Of equal elements the last one first, as PyTorch may."""
    places = np.flip(np.argsort(x.data.astype(np.float64), axis=dim, kind="stable"), dim)
    places = np.take(places, range(k), axis=dim)
    return SimpleNamespace(
        values=Tensor(np.take_along_axis(x.data, places, dim)), indices=Tensor(places)
    )


def fake_torch(memory: Callable[[int, int], np.ndarray] | None = None) -> SimpleNamespace:
    """The module. `memory` gives the bytes at an address of the fake driver."""
    cuda = SimpleNamespace(
        is_available=lambda: True,
        memory_allocated=lambda: 1000,
        max_memory_allocated=lambda: 1000 + 4096,
        reset_peak_memory_stats=lambda: None,
        synchronize=lambda: None,
        empty_cache=lambda: None,
        current_stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
        Stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
    )

    @contextmanager
    def plain(what: Any) -> Any:
        yield

    class Graph:
        replays = 0

        def replay(self) -> None:
            Graph.replays += 1

    cuda.stream, cuda.graph, cuda.CUDAGraph = plain, plain, Graph

    def as_tensor(view: Any, device: str) -> Tensor:
        interface = view.__cuda_array_interface__
        assert memory is not None
        return Tensor(memory(interface["data"][0], interface["shape"][0]))

    def of_kind(function: Callable[..., Any]) -> Callable[..., Tensor]:
        def run(*arguments: Any, dtype: Kind | None = None, device: Any = None) -> Tensor:
            found = function(*arguments)
            return Tensor(found if dtype is None else found.astype(dtype.numpy))

        return run

    def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
        found = x.data
        if min is not None:
            found = np.maximum(found, np.asarray(min, found.dtype))
        return Tensor(found if max is None else np.minimum(found, np.asarray(max, found.dtype)))

    def where(condition: Tensor, a: Any, b: Any) -> Tensor:
        if not (isinstance(a, Tensor) or isinstance(b, Tensor)):
            a, b = Tensor(np.float32(a)), b
        return Tensor(_apply(lambda x, y: np.where(condition.data, x, y), a, b))

    mapped = {
        n: _wide(getattr(np, n))
        for n in "abs exp exp2 log log2 sqrt sin cos tanh floor ceil".split()
    }
    reduced = {"sum": np.sum, "amax": np.max, "amin": np.min, "any": np.any, "all": np.all}
    return SimpleNamespace(
        __version__="fake",
        Tensor=Tensor,
        **KINDS,
        **mapped,
        **{n: _wide(f) for n, f in reduced.items()},
        round=_wide(np.rint),
        rsqrt=_wide(lambda x: 1 / np.sqrt(x)),
        sigmoid=_wide(lambda x: 1 / (1 + np.exp(-x))),
        argmax=lambda x, dim: Tensor(np.argmax(x.data, axis=dim)),
        cumsum=lambda x, dim: _wide(np.cumsum)(x, dim=dim),
        sort=_sort,
        topk=_topk,
        logical_not=lambda x: Tensor(~x.data),
        matmul=_matmul,
        promote_types=lambda a, b: a if a.numpy.itemsize >= b.numpy.itemsize else b,
        maximum=lambda a, b: Tensor(np.maximum(a.data, b.data)),
        minimum=lambda a, b: Tensor(np.minimum(a.data, b.data)),
        clamp=clamp,
        where=where,
        repeat_interleave=lambda x, n, dim: Tensor(np.repeat(x.data, n, axis=dim)),
        arange=of_kind(lambda n: np.arange(n)),
        full=of_kind(lambda shape, v: np.full(shape, v)),
        zeros=of_kind(lambda shape: np.zeros(shape)),
        empty=of_kind(lambda shape: np.zeros(shape)),
        tensor=of_kind(np.asarray),
        finfo=lambda kind: ml_dtypes.finfo(kind.numpy),
        from_numpy=Tensor,
        as_tensor=as_tensor,
        device=lambda name: name,
        cuda=cuda,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))),
    )
