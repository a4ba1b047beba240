"""Calls of a form that was seen before: what they launch, and what makes a form another one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tilec
from tests.calling.fakes import FakePycuda, FakeTorch, RecordedC, Tensor
from tests.calling.test_gpu_calls import CALLS, SAMPLES
from tilec.calling import kernel as calling
from tilec.calling.repeated import Forms


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each call that goes the long way."""
    found: list[int] = []
    bind = calling.bind

    def counted(*arguments: Any) -> Any:
        found.append(1)
        return bind(*arguments)

    monkeypatch.setattr(calling, "bind", counted)
    return found


@pytest.mark.parametrize("launcher", ["pycuda", "c"])
@pytest.mark.parametrize(("file", "name", "defines", "make", "scalars"), CALLS)
def test_the_short_way_launches_the_same(
    file: str,
    name: str,
    defines: Any,
    make: Any,
    scalars: Any,
    launcher: str,
    torch: FakeTorch,
    pycuda: FakePycuda,
    c_launchers: RecordedC,
    slow_calls: list[int],
) -> None:
    kernel = tilec.compile(
        SAMPLES / f"{file}.tile", name, launcher="auto" if launcher == "pycuda" else "c", **defines
    )
    arrays = make()

    def launched() -> list[Any]:
        if launcher == "c":
            return [launch[:5] for launch in c_launchers.take()]
        found, pycuda.launched = pycuda.launched, []
        return found

    kept: list[Tensor] = []
    make_memory = torch.empty
    # outputs and workspace of the next calls lie where those of the first did
    torch.empty = lambda shape, dtype, device: (
        kept[-1] if kept else make_memory(shape, dtype=dtype, device=device)
    )
    first = kernel(*arrays, **scalars)
    expected = launched()
    outputs = first if isinstance(first, tuple) else (first,)
    kept += torch.made
    addresses = dict(zip((p.name for p in kernel.syntax.outputs), outputs, strict=True))
    kernel(*arrays, **scalars, **addresses)
    again = launched()
    kernel(*arrays, **scalars, **addresses)
    assert launched() == again == expected
    assert len(slow_calls) == 2, "the first call, and the first with outputs given"
    assert kernel.last_path == ("pycuda" if launcher == "pycuda" else "c launcher")
    assert pycuda.pushed == 0


def test_outputs_are_made_anew(
    torch: FakeTorch, c_launchers: RecordedC, slow_calls: list[int]
) -> None:
    kernel = tilec.compile(SAMPLES / "norms.tile", "layer_norm", launcher="c")
    x, w = Tensor((37, 1003), "bfloat16"), Tensor((1003,), "bfloat16")
    first = kernel(x, w, w, eps=0.25)
    again = kernel(x, w, w, eps=0.25)
    assert len(slow_calls) == 1
    assert [(t.shape, t.dtype) for t in first] == [(t.shape, t.dtype) for t in again]
    assert {t.data_ptr() for t in first}.isdisjoint(t.data_ptr() for t in again)
    assert kernel.get_lowered_ir("tile-ir").startswith("kernel layer_norm")


def test_what_makes_another_form(
    torch: FakeTorch, c_launchers: RecordedC, slow_calls: list[int]
) -> None:
    kernel = tilec.compile(SAMPLES / "decode.tile", "flash_decode", launcher="c")
    _, _, _, make, _ = CALLS[-1]
    q, keys, values, length = make()
    calls = [
        ((q, keys, values, length), {"scale": 0.5}),
        ((q, keys, values, length), {"scale": 0.25}),
        ((q, keys, values, length, 0.25), {}),
        (
            (
                Tensor((2, 16, 128), "float16"),
                *(Tensor(k.shape, "float16") for k in (keys, values)),
                length,
            ),
            {"scale": 0.5},
        ),
        (
            (q, Tensor((2, 2, 77, 128), "bfloat16"), Tensor((2, 2, 77, 128), "bfloat16"), length),
            {"scale": 0.5},
        ),
    ]
    for n, (positional, named) in enumerate(calls, 1):
        with suppress(tilec.TileError):  # refused the long way, each time
            kernel(*positional, **named)
        assert len(slow_calls) == n
    before = len(slow_calls)
    kernel(*calls[0][0], **calls[0][1])
    assert len(slow_calls) == before
    kernel(*calls[0][0], stream=0x70, **calls[0][1])
    assert len(slow_calls) == before + 1


def test_numbers_that_are_equal_are_not_alike() -> None:
    forms = Forms(FakeTorch())
    keys = {forms.key((value,), {}, []) for value in (1, 1.0, True)}
    assert len(keys) == 3
    assert forms.key(("text",), {}, []) is None
    assert forms.key((1,), {}, []) != forms.key((), {"n": 1}, [])


def test_streams_decide_each_time(
    torch: FakeTorch, pycuda: FakePycuda, c_launchers: RecordedC, slow_calls: list[int]
) -> None:
    kernel = tilec.compile(SAMPLES / "vector_add.tile")
    a, b = Tensor((4096,)), Tensor((4096,))
    for stream, path in ((0, "pycuda"), (0x70, "c launcher"), (0, "pycuda"), (0x80, "c launcher")):
        torch.stream = stream
        kernel(a, b)
        assert kernel.last_path == path
    assert len(slow_calls) == 1
    assert [launch[5] for launch in c_launchers.take()] == [0x70, 0x80]
    assert len(pycuda.launched) == 2


def test_errors_are_found_the_short_way_too(
    torch: FakeTorch, pycuda: FakePycuda, c_launchers: RecordedC, slow_calls: list[int]
) -> None:
    a, b, c = (Tensor((64,)) for _ in range(3))
    for launcher in ("auto", "c"):
        kernel = tilec.compile(SAMPLES / "vector_add.tile", launcher=launcher)
        kernel(a, b, c=c)
        before = len(slow_calls)
        with pytest.raises(tilec.TileError) as error:
            kernel(a, b, c=a)
        assert [d.code for d in error.value.diagnostics] == ["E0715"]
        assert len(slow_calls) == before


def test_pycuda_alone_still_refuses_a_foreign_stream(torch: FakeTorch, pycuda: FakePycuda) -> None:
    kernel = tilec.compile(SAMPLES / "vector_add.tile", launcher="pycuda")
    a = Tensor((64,))
    for _ in range(2):
        torch.stream = 0
        kernel(a, a)
        torch.stream = 0x70
        with pytest.raises(tilec.TileError, match="stream of another library"):
            kernel(a, a)


def test_another_device_is_made_current(
    torch: FakeTorch, c_launchers: RecordedC, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tilec.compile(SAMPLES / "vector_add.tile", launcher="c")
    a, b = Tensor((64,)), Tensor((64,))
    entered: list[int] = []

    class Guard:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            entered.append(self.index)

        def __exit__(self, *error: object) -> None:
            entered.append(-1)

    torch.cuda.device = Guard
    torch.cuda.current_device = lambda: 1
    kernel(a, b)
    kernel(a, b)
    assert entered == [0, -1, 0, -1]


def test_forms_are_forgotten_when_there_are_too_many(
    torch: FakeTorch,
    c_launchers: RecordedC,
    slow_calls: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tilec.calling.repeated.FORMS_KEPT", 2)
    kernel = tilec.compile(SAMPLES / "vector_add.tile", launcher="c")
    for n in (8, 16, 24, 24, 8):
        kernel(Tensor((n,)), Tensor((n,)))
    assert len(slow_calls) == 4
