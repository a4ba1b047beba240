"""Calls with arrays on a GPU, by pycuda and by the C launcher: which way, on which stream, with which arguments."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import tilec
from tests.calling.fakes import FakePycuda, FakeTorch, RecordedC, Tensor

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
HEADS = (2, 4, 200, 128)
CALLS = [
    ("vector_add", "vector_add", {}, lambda: [Tensor((5000,)), Tensor((5000,))], {}),
    ("vector_add", "vector_add", {}, lambda: [Tensor((77,), offset=4), Tensor((77,))], {}),
    ("gemm", "gemm_nn", {"BM": 64}, lambda: [Tensor((200, 72), "bfloat16"), Tensor((72, 136), "bfloat16")], {}),
    ("norms", "layer_norm", {}, lambda: [Tensor((37, 1003), "bfloat16"), Tensor((1003,), "bfloat16"), Tensor((1003,), "bfloat16")], {"eps": 0.25}),
    ("attention", "attention", {"CAUSAL": True}, lambda: [Tensor(HEADS, "bfloat16") for _ in range(3)], {"scale": 0.125}),
    ("decode", "flash_decode", {}, lambda: [Tensor((2, 16, 128), "bfloat16"), Tensor((2, 2, 300, 128), "bfloat16"), Tensor((2, 2, 300, 128), "bfloat16"), Tensor((2,), "int32")], {"scale": 0.125}),
]  # fmt: skip


@pytest.mark.parametrize(("file", "name", "defines", "make", "scalars"), CALLS)
def test_both_ways_launch_the_same(
    file, name, defines, make, scalars, torch: FakeTorch, pycuda: FakePycuda, c_launchers: RecordedC
) -> None:
    path = SAMPLES / f"{file}.tile"
    arrays = make()
    one = tilec.compile(path, name, launcher="pycuda", **defines)
    outputs = one(*arrays, **scalars)
    assert one.last_path == "pycuda"
    written = [p.name for p in one._syntax.outputs]
    again = dict(zip(written, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
    torch.empty = lambda shape, dtype, device: torch.made[-1]  # the same workspace
    other = tilec.compile(path, name, launcher="c", **defines)
    other(*arrays, **again, **scalars)
    assert other.last_path == "c launcher"
    by_c = c_launchers.take()
    assert len(pycuda.launched) == len(by_c) >= 1
    for mine, theirs in zip(pycuda.launched, by_c, strict=True):
        size = len(mine[4])
        assert mine[:5] == (*theirs[:4], theirs[4][:size])
    assert pycuda.pushed == 0


def test_outputs_are_pytorchs(torch: FakeTorch, pycuda: FakePycuda) -> None:
    k = tilec.compile(SAMPLES / "gemm.tile", "gemm_nt")
    c = k(Tensor((10, 64), "float16"), Tensor((20, 64), "float16"))
    assert isinstance(c, Tensor)
    assert (c.shape, c.dtype) == ((10, 20), "torch.float16")
    assert c in torch.made
    assert k.get_lowered_ir("tile-ir").count("out c f16[M, N]") == 1


def test_the_current_stream_is_used(
    torch: FakeTorch, pycuda: FakePycuda, c_launchers: RecordedC
) -> None:
    """A kernel that ignores the caller's stream races with it, and leaves a captured graph empty."""
    k = tilec.compile(SAMPLES / "vector_add.tile")
    a, b = Tensor((4096,)), Tensor((4096,))
    torch.stream = 0x7700
    k(a, b)
    assert k.last_path == "c launcher"
    assert [launch[5] for launch in c_launchers.take()] == [0x7700]
    torch.stream = 0
    k(a, b)
    assert k.last_path == "pycuda"
    assert [launch[5] for launch in pycuda.launched] == [None]
    k(a, b, stream=SimpleNamespace(cuda_stream=0x8800))
    assert [launch[5] for launch in c_launchers.take()] == [0x8800]


def test_a_call_neither_waits_nor_allocates_but_its_outputs(
    torch: FakeTorch, c_launchers: RecordedC
) -> None:
    """What a graph captures: launches on the stream; memory comes from PyTorch, whose allocator knows about capture."""
    k = tilec.compile(SAMPLES / "decode.tile", launcher="c")
    _, _, _, make, scalars = CALLS[-1]
    arrays = make()
    k(*arrays, **scalars)
    assert [t.dtype for t in torch.made] == ["torch.bfloat16", "torch.uint8"]
    assert len(c_launchers.take()) == 2


def test_without_pycuda_the_c_launcher_runs(
    torch: FakeTorch, c_launchers: RecordedC, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilec.calling.kernel.pycuda_is_there", lambda: False)
    k = tilec.compile(SAMPLES / "vector_add.tile")
    k(Tensor((5,)), Tensor((5,)))
    assert k.last_path == "c launcher"
    assert len(c_launchers.take()) == 1


def test_pycuda_alone_takes_no_foreign_stream(torch: FakeTorch, pycuda: FakePycuda) -> None:
    k = tilec.compile(SAMPLES / "vector_add.tile", launcher="pycuda")
    torch.stream = 0x10
    with pytest.raises(tilec.TileError, match="stream of another library"):
        k(Tensor((5,)), Tensor((5,)))
    assert pycuda.launched == []


def test_arrays_of_the_cuda_array_interface(
    torch: FakeTorch, pycuda: FakePycuda, c_launchers: RecordedC
) -> None:
    def array(stream: int | None) -> SimpleNamespace:
        face = {"shape": (64,), "typestr": "<f4", "data": (1 << 40, False), "version": 3}
        return SimpleNamespace(__cuda_array_interface__={**face, "stream": stream})

    k = tilec.compile(SAMPLES / "vector_add.tile")
    k(array(1), array(None))
    assert k.last_path == "pycuda", "1 is the default stream"
    assert isinstance(k(array(0x99), array(None)), Tensor), "made by PyTorch, which is there"
    assert k.last_path == "c launcher"
    assert [launch[5] for launch in c_launchers.take()] == [0x99]


def test_errors_of_the_program_are_the_same_by_both(
    torch: FakeTorch, pycuda: FakePycuda, c_launchers: RecordedC
) -> None:
    a = Tensor((64,))
    for launcher in ("pycuda", "c"):
        k = tilec.compile(SAMPLES / "vector_add.tile", launcher=launcher)
        with pytest.raises(tilec.TileError) as error:
            k(a, Tensor((64,)), c=a)
        assert [d.code for d in error.value.diagnostics] == ["E0715"]


def test_arrays_in_different_places(torch: FakeTorch) -> None:
    import numpy

    k = tilec.compile(SAMPLES / "vector_add.tile")
    with pytest.raises(tilec.TileError, match="lie in different places"):
        k(Tensor((5,)), numpy.zeros(5, numpy.float32))
