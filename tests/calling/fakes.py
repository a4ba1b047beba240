"""PyTorch, a GPU and its driver as far as calling a kernel concerns them: shapes and addresses, no memory behind them."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.cpp.recorded_launcher import RecordedLaunchers, recorded_map
from tests.runtime.fake_driver import Memory, fake_device, fake_driver
from tilec.calling import devices, fast_call, launchers
from tilec.compiled import CompiledFile
from tilec.runtime.cuda_driver import CudaDriver, DriverLaunch
from tilec.runtime.launching import ConcreteLaunch, ConcreteMap
from tilec.toolchain.driver import Device

_ADDRESSES = itertools.count(1 << 33, 1 << 28)
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "uint8": 1, "int32": 4}


class Tensor:
    """A tensor on `cuda:0`; `offset` shifts its address by so many bytes."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str = "float32",
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.shape = shape
        self.dtype = sys.intern(f"torch.{dtype}")  # one object, as PyTorch has it
        self.device = SimpleNamespace(type="cuda", index=0)
        dense = [1]
        for extent in reversed(shape[1:]):
            dense.append(dense[-1] * extent)
        self._strides = strides or tuple(reversed(dense))[-len(shape) :]
        self._address = next(_ADDRESSES) + offset
        self._size = _SIZES[dtype]

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return self._address

    def element_size(self) -> int:
        return self._size

    def get_device(self) -> int:
        return self.device.index


class FakeTorch(ModuleType):
    """The module; `stream` is the handle of its current stream."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.Tensor = Tensor
        self.stream = 0
        self.made: list[Tensor] = []
        for name in _SIZES:
            setattr(self, name, name)
        self.cuda = SimpleNamespace(
            current_stream=lambda device: SimpleNamespace(cuda_stream=self.stream),
            device=lambda index: nullcontext(),
            current_device=lambda: 0,
            is_available=lambda: False,
        )
        self.nn = SimpleNamespace(Parameter=type("Parameter", (Tensor,), {}))
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: self.stream)

    def empty(self, shape: Any, *, dtype: str, device: Any) -> Tensor:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        made = Tensor(sizes, dtype.removeprefix("torch."))
        self.made.append(made)
        return made


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """PyTorch on a GPU of compute capability 9.0."""
    module = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(devices, "devices", lambda: (Device(0, "Fake", (9, 0), 132, 1 << 37),))
    return module


class FakePycuda:
    """pycuda's driver module: what it launched, as (kernel, grid, block, shared bytes, parameter buffer, stream)."""

    def __init__(self) -> None:
        import struct

        self.launched: list[tuple[str, int, int, int, bytes, Any]] = []
        self.pushed = 0
        owner = self

        class Function:
            def __init__(self, name: str) -> None:
                self.name = name

            def set_attribute(self, attribute: str, value: int) -> None:
                pass

            def prepare(self, format_: str) -> None:
                self.format = format_

            def prepared_async_call(self, grid, block, stream, *values, shared_size=0) -> None:
                packed = struct.pack(self.format, *values)
                owner.launched.append((self.name, grid[0], block[0], shared_size, packed, stream))

        context = SimpleNamespace(push=self._push)
        device = SimpleNamespace(**vars(fake_device()), retain_primary_context=lambda: context)
        driver = fake_driver({}, Memory())
        driver.init = lambda: None
        driver.Device = lambda index: device
        driver.Context = SimpleNamespace(pop=self._pop, get_device=lambda: device)
        driver.module_from_buffer = lambda blob: SimpleNamespace(get_function=Function)
        self.driver = driver

    def _push(self) -> None:
        self.pushed += 1

    def _pop(self) -> None:
        self.pushed -= 1


class FakeDriverLibrary(CudaDriver):
    """The driver's library, for launches with tensor maps: adds them to those of pycuda."""

    def __init__(self, owner: FakePycuda) -> None:
        self.owner = owner

    def load(self, cubin: bytes) -> int:
        return 1

    def encode(self, wanted: ConcreteMap) -> bytes:
        return recorded_map(wanted)

    def prepare(self, module: int, launch: ConcreteLaunch) -> DriverLaunch:
        return DriverLaunch(self, launch.kernel, launch)

    def launch(self, function: Any, launch: ConcreteLaunch, addresses: Any, stream: int) -> None:
        packed = launch.packed_with(recorded_map)
        for address, offset in zip(addresses, launch.offsets, strict=True):
            assert ctypes.string_at(address, 4) == packed[offset : offset + 4]
        numbers = launch.grid, launch.block, launch.shared_bytes
        self.owner.launched.append((launch.kernel, *numbers, packed, stream or None))


@pytest.fixture
def pycuda(monkeypatch: pytest.MonkeyPatch) -> FakePycuda:
    """pycuda in place of the real one; machine code is not looked at."""
    from tilec.jobs import profiling

    fake = FakePycuda()
    monkeypatch.setattr(launchers, "import_pycuda", lambda: fake.driver)
    monkeypatch.setattr("tilec.runtime.device.cuda_driver", lambda: FakeDriverLibrary(fake))
    monkeypatch.setattr("tilec.calling.kernel.pycuda_is_there", lambda: True)
    monkeypatch.setattr(
        profiling, "build_cubin", lambda compiled, arch, nvcc: SimpleNamespace(blob=b"")
    )
    return fake


class RecordedC:
    """Launchers built for the host, whose launches are written down; made when a kernel first needs one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorded: list[RecordedLaunchers] = []

    def build(self, compiled: CompiledFile, archs: Any, toolchain: Any) -> launchers.CLauncher:
        folder = self.folder / str(len(self.recorded))
        folder.mkdir()
        text = launchers.library_text(compiled)
        self.recorded.append(RecordedLaunchers(replace(compiled, cu=text), folder))
        self.recorded[-1].library.set_device(90)
        self.recorded[-1].library.stream_of.restype = __import__("ctypes").c_void_p
        return launchers.CLauncher(folder / "launchers.so")

    def take(self) -> list[tuple[str, int, int, int, bytes, int]]:
        """The launches since the last call of this."""
        library = self.recorded[-1].library
        found = [
            (r.kernel, r.grid, r.block, r.shared_bytes, r.arguments, library.stream_of(n) or 0)
            for n, r in enumerate(self.recorded[-1]._launches())
        ]
        library.forget()
        return found


@pytest.fixture
def c_launchers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RecordedC:
    """The C launchers, built by the host compiler against a runtime that writes down what it is given."""
    recorded = RecordedC(tmp_path)
    monkeypatch.setattr("tilec.calling.kernel.build_c_launcher", recorded.build)
    monkeypatch.setattr("tilec.toolchain.build.find_toolchain", lambda nvcc, cache: None)
    return recorded


@pytest.fixture(autouse=True)
def plain_calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls as they are without the extension, unless a test asks for `fast_calls`."""
    if "fast_calls" not in request.fixturenames:
        monkeypatch.setattr("tilec.calling.kernel.extension", lambda: None)


@pytest.fixture
def fast_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The extension, which every machine has that the tests run on."""
    monkeypatch.delenv("TILEC_FAST_CALL", raising=False)
    fast_call.extension.cache_clear()
    found = fast_call.extension()
    assert found is not None, "no compiler, or no Python.h"
    yield found
    fast_call.extension.cache_clear()
