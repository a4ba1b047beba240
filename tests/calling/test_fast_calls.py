"""Calls through the extension: which go that way, that they launch the same, and that nothing is lost or kept."""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

import tilec
from tests.calling.exchange import Exchange
from tests.calling.fakes import FakePycuda, FakeTorch, RecordedC, Tensor
from tests.calling.test_gpu_calls import CALLS, SAMPLES
from tilec.calling import fast_call
from tilec.calling.fast_call import FAST_WAY, new_forms

pytestmark = pytest.mark.usefixtures("fast_calls")


@pytest.fixture(params=["attributes", "table"])
def reading(
    request: pytest.FixtureRequest, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> Exchange | None:
    """Tensors are read by their attributes, or by the exchange table."""
    if request.param == "attributes":
        return None
    exchange = Exchange(torch)
    monkeypatch.setattr(Tensor, "__dlpack_c_exchange_api__", exchange.capsule, raising=False)
    return exchange


@pytest.mark.parametrize(("file", "name", "defines", "make", "scalars"), CALLS)
def test_the_fast_way_launches_the_same(
    file: str,
    name: str,
    defines: Any,
    make: Any,
    scalars: Any,
    torch: FakeTorch,
    pycuda: FakePycuda,
    c_launchers: RecordedC,
    reading: Exchange | None,
) -> None:
    kernel = tilec.compile(SAMPLES / f"{file}.tile", name, **defines)
    arrays = make()
    kept: list[Tensor] = []
    make_memory = torch.empty
    torch.empty = lambda shape, dtype, device: (
        kept[-1] if kept else make_memory(shape, dtype=dtype, device=device)
    )
    first = kernel(*arrays, **scalars)
    assert kernel.last_path == "c launcher", "one build is enough, pycuda or not"
    expected = c_launchers.take()
    outputs = first if isinstance(first, tuple) else (first,)
    kept += torch.made
    addresses = dict(zip((p.name for p in kernel.syntax.outputs), outputs, strict=True))
    for way in ("c launcher", FAST_WAY, FAST_WAY):
        torch.stream += 0x10
        result = kernel(*arrays, **scalars, **addresses)
        assert kernel.last_path == way
        assert result == first, "the arrays that were given"
        wanted = [(*launch[:5], torch.stream) for launch in expected]
        assert c_launchers.take() == wanted
    assert pycuda.launched == []
    assert reading is None or reading.asked


def test_outputs_are_made_anew(
    torch: FakeTorch, c_launchers: RecordedC, reading: Exchange | None
) -> None:
    kernel = tilec.compile(SAMPLES / "norms.tile", "layer_norm")
    x, w = Tensor((37, 1003), "bfloat16"), Tensor((1003,), "bfloat16")
    first = kernel(x, w, w, eps=0.25)
    again = kernel(x, w, w, eps=0.25)
    assert kernel.last_path == FAST_WAY
    assert isinstance(again, tuple)
    assert [(t.shape, t.dtype) for t in first] == [(t.shape, t.dtype) for t in again]
    assert {t.data_ptr() for t in first}.isdisjoint(t.data_ptr() for t in again)
    assert kernel.get_lowered_ir("tile-ir").startswith("kernel layer_norm")
    assert isinstance(kernel, tilec.Kernel)
    assert repr(kernel).startswith("<tilec kernel layer_norm")
    assert "stream" in inspect.signature(kernel).parameters


def test_what_makes_another_form(torch: FakeTorch, c_launchers: RecordedC) -> None:
    kernel = tilec.compile(SAMPLES / "decode.tile", "flash_decode")
    _, _, _, make, _ = CALLS[-1]
    q, k, v, length = make()

    def way(*arguments: Any, **named: Any) -> str | None:
        kernel(*arguments, **named)
        c_launchers.take()
        return kernel.last_path

    known: list[tuple[Any, Any]] = [
        ((q, k, v, length), {"scale": 0.5}),
        ((q, k, v, length), {"scale": 0.25}),
        ((q, k, v, length, 0.25), {}),
        ((q, k, v), {"length": length, "scale": 0.25}),
        ((q, k, v), {"scale": 0.25, "length": length}),
        ((q, *(Tensor(t.shape, "bfloat16", (99999999, 1 << 20, 128, 1)) for t in (k, v)), length), {"scale": 0.5}),
        ((q, *(Tensor((2, 2, 77, 128), "bfloat16") for _ in "kv"), length), {"scale": 0.5}),
    ]  # fmt: skip
    refused = []
    for positional, named in known:
        try:
            assert way(*positional, **named) == "c launcher"
        except tilec.TileError:
            refused.append((positional, named))
    assert len(refused) <= 1, "strides"
    for positional, named in known:
        if (positional, named) not in refused:
            assert way(*positional, **named) == FAST_WAY
    # names that are equal, and other objects
    assert way(q, k, v, length, **{"".join(["sca", "le"]): 0.5}) == FAST_WAY
    assert way(q, k, v, length, scale=0.5, stream=0x70) == "c launcher"
    assert way(q, k, v, length, scale=0.5) == FAST_WAY


def test_numbers_by_their_bits(torch: FakeTorch, c_launchers: RecordedC, tmp_path: Path) -> None:
    program = tmp_path / "scaled.tile"
    program.write_text(
        "kernel scaled(a: f32[N], s: f32, n: i32) -> c: f32[N]:\n"
        "    for i in parallel(N by 256):\n        if n > 0:\n            c[i] = a[i] * s\n"
    )
    kernel = tilec.compile(program)
    a, c = Tensor((64,)), Tensor((64,))
    seen = []
    for s, n in ((0.0, 1), (-0.0, 1), (1.0, 1), (1, 1), (1.0, True), (float("nan"), 1), (1.0, -7)):
        kernel(a, s, n, c=c)
        assert kernel.last_path == "c launcher", (s, n)
        first = c_launchers.take()
        kernel(a, s, n, c=c)
        assert kernel.last_path == FAST_WAY
        assert c_launchers.take() == first
        seen.append(first[0][4])
    assert len(set(seen)) == 5, "1.0, 1 and True are the same to the kernel"
    with pytest.raises(tilec.TileError):
        kernel(a, 1.0, 1 << 80, c=c)


def test_scalars_of_each_width(torch: FakeTorch, c_launchers: RecordedC, tmp_path: Path) -> None:
    program = tmp_path / "mixed.tile"
    program.write_text(
        "kernel mixed(a: f32[N], x: f64, y: i64, z: bool, h: f16, s: i8) -> c: f32[N]:\n"
        "    for i in parallel(N by 256):\n"
        "        if z:\n            if y > 0:\n                if s > 0:\n"
        "                    c[i] = (a[i].to(f64) * x).to(f32) * h.to(f32)\n"
    )
    kernel = tilec.compile(program)
    a, c = Tensor((64,)), Tensor((64,))
    seen = []
    for numbers in ((0.1, -(1 << 40), True, 0.5, -3), (1e300, 1 << 40, False, 2, 100)):
        kernel(a, *numbers, c=c)
        first = c_launchers.take()
        kernel(a, *numbers, c=c)
        assert kernel.last_path == FAST_WAY
        assert c_launchers.take() == first
        seen.append(first[0][4])
    assert seen[0] != seen[1]


def test_what_is_not_plain_goes_the_long_way(
    torch: FakeTorch, c_launchers: RecordedC, reading: Exchange | None
) -> None:
    kernel = tilec.compile(SAMPLES / "vector_add.tile")
    a = Tensor((64,))
    kernel(a, a)
    kernel(a, a)
    assert kernel.last_path == FAST_WAY
    subclass = type("Subclass", (Tensor,), {})
    for other in (subclass((64,)), torch.nn.Parameter((64,))):
        kernel(other, a)
        kernel(other, a)
        assert kernel.last_path == ("c launcher" if type(other) is subclass else FAST_WAY)
    with pytest.raises(TypeError, match="needs `b`"):
        kernel(a)
    with pytest.raises(TypeError, match="no parameter `d`"):
        kernel(a, a, d=a)
    with pytest.raises(TypeError, match="is an array, and a str was given"):
        kernel(a, "text")
    elsewhere = Tensor((64,))
    elsewhere.device.index = 1
    with pytest.raises(tilec.TileError, match="different places"):
        kernel(a, elsewhere)
    assert kernel(a, a) is torch.made[-1]
    assert kernel.last_path == FAST_WAY


def test_errors_are_found_the_fast_way_too(torch: FakeTorch, c_launchers: RecordedC) -> None:
    kernel = tilec.compile(SAMPLES / "vector_add.tile")
    a, b, c = (Tensor((64,)) for _ in range(3))
    kernel(a, b, c=c)
    kernel(a, b, c=c)
    kernel.last_path = None
    with pytest.raises(tilec.TileError) as error:
        kernel(a, b, c=a)
    assert [d.code for d in error.value.diagnostics] == ["E0715"]
    assert kernel.last_path is None, "it was the extension that called"

    def no_memory(*arguments: Any, **named: Any) -> Any:
        raise MemoryError("full")

    torch.empty = no_memory
    kernel = tilec.compile(SAMPLES / "vector_add.tile")
    kernel(a, b, c=c)
    for _ in range(2):
        with pytest.raises(MemoryError, match="full"):
            kernel(a, b)


def test_another_device_is_made_current(torch: FakeTorch, c_launchers: RecordedC) -> None:
    kernel = tilec.compile(SAMPLES / "vector_add.tile")
    a, entered = Tensor((64,)), []

    class Guard:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            entered.append(self.index)

        def __exit__(self, *error: object) -> None:
            entered.append(-1)

    device = 0
    torch.cuda.device = Guard
    torch.cuda.current_device = lambda: device
    kernel(a, a)
    kernel(a, a)
    assert kernel.last_path == FAST_WAY
    del entered[:]
    device = 1
    kernel(a, a)
    assert kernel.last_path == "c launcher"
    assert entered == [0, -1]


def test_a_launcher_that_is_chosen_stays_chosen(
    torch: FakeTorch, pycuda: FakePycuda, c_launchers: RecordedC
) -> None:
    a = Tensor((64,))
    for launcher, path in (("pycuda", "pycuda"), ("c", FAST_WAY)):
        kernel = tilec.compile(SAMPLES / "vector_add.tile", launcher=launcher)
        kernel(a, a)
        kernel(a, a)
        assert kernel.last_path == path


def test_kernels_of_a_class_of_the_callers_keep_their_calls(
    torch: FakeTorch, c_launchers: RecordedC
) -> None:
    class Counted(tilec.Kernel):
        calls = 0

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            self.calls += 1
            return super().__call__(*arguments, **named)

    plain = tilec.compile(SAMPLES / "vector_add.tile")
    kernel = Counted(plain.file, plain.name, plain.syntax, {})
    a = Tensor((64,))
    for _ in range(3):
        kernel(a, a)
    assert kernel.calls == 3
    assert kernel.last_path == "c launcher"


def test_forms_are_forgotten_when_there_are_too_many(
    torch: FakeTorch, c_launchers: RecordedC, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilec.calling.repeated.FORMS_KEPT", 2)
    kernel = tilec.compile(SAMPLES / "vector_add.tile")
    ways = []
    for n in (8, 16, 8, 24, 24, 8):
        kernel(Tensor((n,)), Tensor((n,)))
        ways.append(kernel.last_path == FAST_WAY)
    assert ways == [False, False, True, False, True, False]
    assert len(kernel._fast_forms) == 2


# ---- the extension alone


Entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))


class Called:
    """A launcher: what it was given."""

    def __init__(self, slots: int) -> None:
        self.words: list[int] = []
        self.status = 0

        def entry(words: Any) -> int:
            self.words = list(words[:slots])
            return self.status

        self.entry = Entry(entry)
        self.address = ctypes.cast(self.entry, ctypes.c_void_p).value


class Standing:
    """What `call` needs of a kernel."""

    def __init__(self) -> None:
        self._fast_forms = new_forms(lambda self, *a, **n: ("fallback", a, n))
        self._last = self.last_path = None


def test_nothing_is_lost_or_kept(
    torch: FakeTorch, fast_calls: Any, reading: Exchange | None
) -> None:
    made = type("Made", (Standing,), {"__slots__": ()})
    fast_calls.install(made)
    a, out = Tensor((3, 5)), Tensor((3, 5))
    torch.empty = lambda shape, dtype, device: out
    kernel, called = made(), Called(2 + 2 + 1 + 2)
    built, refused = object(), []

    def refuse(addresses: Any, workspace: int, status: int) -> None:
        refused.append((addresses, workspace, status))
        raise ValueError("refused")

    assert kernel._fast_forms.keep(
        (a, 4), {"b": a}, called.address, (7).to_bytes(8, "little"), (0, 1, 2, 3),
        ((out.shape, out.dtype), (out.shape, out.dtype)), (2, 0), 100, 0, built, refuse,
    )  # fmt: skip
    torch.stream = 0x60
    watched = (a, out, out.shape, out.dtype, built, refuse, kernel, kernel._fast_forms, FAST_WAY)

    def once(status: int) -> None:
        called.status = status
        if status:
            with pytest.raises(ValueError, match="refused"):
                kernel(a, 4, b=a)
        else:
            assert kernel(a, 4, b=a) == (out, a)
            assert kernel(a, 5, b=a) == ("fallback", (a, 5), {"b": a})

    for status in (0, 3):
        once(status)
    place = a.data_ptr()
    assert called.words == [place, place, *[out.data_ptr()] * 2, 7, out.data_ptr(), 0x60]
    assert refused == [((place, place, out.data_ptr(), out.data_ptr()), out.data_ptr(), 3)]
    del refused[:]
    if reading:
        reading.asked.clear()
        reading.kept.clear()
    gc.collect()
    before = [sys.getrefcount(one) for one in watched]
    blocks = sys.getallocatedblocks()
    for _ in range(200):
        once(0)
        once(3)
        refused.clear()
        if reading:
            reading.asked.clear()
            reading.kept.clear()
    gc.collect()
    assert [sys.getrefcount(one) for one in watched] == before
    assert sys.getallocatedblocks() - blocks < 100
    assert kernel.last_path == FAST_WAY
    assert kernel._last is built


def test_memory_stays_as_it_is(torch: FakeTorch, fast_calls: Any) -> None:
    """100,000 calls, with outputs made and refused ones among them, of forms that come and go."""
    import tracemalloc

    made = type("Made", (Standing,), {"__slots__": ()})
    fast_calls.install(made)
    tensors = [Tensor((n,)) for n in range(1, 5)]
    torch.empty = lambda shape, dtype, device: tensors[0]
    kernel, called = made(), Called(1)

    def keep(tensor: Tensor) -> None:
        shape = ((tensor.shape, tensor.dtype),)
        kernel._fast_forms.keep(
            (tensor,), {}, called.address, b"", (0, 1), shape, (1,), 64, 0, object(), print
        )

    def calls(count: int) -> None:
        for n in range(count):
            if n % 50 == 0:
                keep(tensors[n // 50 % 4])
            kernel(tensors[n % 4])

    calls(60_000)  # the limit is passed: all are forgotten
    assert len(kernel._fast_forms) <= 512
    gc.collect()
    tracemalloc.start()
    calls(2000)
    before = tracemalloc.get_traced_memory()[0]
    peak = resident()
    calls(40_000)
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] - before < 512 * 3000, (
        "no more than forms that are kept"
    )
    tracemalloc.stop()
    assert resident() - peak < 4 << 20


def resident() -> int:
    """Bytes of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_cycles_through_forms_are_collected(torch: FakeTorch, fast_calls: Any) -> None:
    made = type("Made", (Standing,), {"__slots__": ()})
    fast_calls.install(made)
    kernel, a = made(), Tensor((3,))
    kernel._fast_forms.keep((a,), {}, Called(1).address, b"", (0,), (), (0,), 0, 0, kernel, print)
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None


def test_a_form_may_be_forgotten_while_it_is_called(torch: FakeTorch, fast_calls: Any) -> None:
    made = type("Made", (Standing,), {"__slots__": ()})
    fast_calls.install(made)
    kernel, called, a = made(), Called(4), Tensor((3,))
    shape = ((a.shape, a.dtype),)

    def keep(n: int) -> None:
        kernel._fast_forms.keep(
            (a, n), {}, called.address, b"", (0, 1), shape, (1,), 0, 0, "built", print
        )

    def forgetting(shape: Any, dtype: Any, device: Any) -> Tensor:
        for n in range(600):
            keep(n)
        return a

    keep(-1)
    torch.empty = forgetting
    kernel._fast_forms = new_forms(lambda *arguments: None)
    keep(-1)
    assert kernel(a, -1) is a
    assert called.words[:2] == [a.data_ptr()] * 2
    assert kernel(a, -1) is None, "forgotten"


def test_refused_forms(torch: FakeTorch, fast_calls: Any) -> None:
    forms = new_forms(print)
    a = Tensor((3,))
    none = ((), 0, 0, None, print)
    assert not forms.keep(("text",), {}, 1, b"", (), (), *none)
    assert not forms.keep((1 << 70,), {}, 1, b"", (), (), *none)
    assert not forms.keep((a,) * 33, {}, 1, b"", (), (), *none)
    with pytest.raises(ValueError, match="places out of range"):
        forms.keep((a,), {}, 1, b"", (1,), (), *none)
    with pytest.raises(ValueError, match="too many arguments"):
        forms.keep((a,), {}, 1, bytes(8 * 96), (0,), (), *none)
    with pytest.raises(TypeError):
        forms.keep([a], {}, 1, b"", (0,), (), *none)
    assert len(forms) == 0


def test_tables_of_other_versions_are_left_alone(
    torch: FakeTorch, fast_calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, taken in (((1, 3), True), ((1, 4), True), ((1, 2), False), ((2, 0), False)):
        exchange = Exchange(torch, version)
        monkeypatch.setattr(Tensor, "__dlpack_c_exchange_api__", exchange.capsule, raising=False)
        assert new_forms(print).by_table == taken
    monkeypatch.setattr(Tensor, "__dlpack_c_exchange_api__", 1234)
    assert not new_forms(print).by_table


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load = fast_call.extension.__wrapped__
    with monkeypatch.context() as patch:
        patch.setenv("TILEC_FAST_CALL", "0")
        assert load() is None
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setenv("TILEC_CXX", str(tmp_path / "no-compiler"))
        assert load() is None
    with monkeypatch.context() as patch:
        patch.setattr("sysconfig.get_path", lambda kind: str(tmp_path))
        assert load() is None, "no Python.h"
    with monkeypatch.context() as patch:
        patch.setattr(fast_call, "resource_text", lambda *name: "no C++")
        assert load() is None
    assert not list((tmp_path / "extensions").glob("*"))
    assert load() is not None
    (kept,) = (tmp_path / "extensions").glob("*")
    stamp = kept.stat().st_mtime_ns
    assert load() is not None
    assert kept.stat().st_mtime_ns == stamp, "built once"
    (tmp_path / "full").write_text("a file")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "full"))
    assert load() is not None, "in a folder of its own"
