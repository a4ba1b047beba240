"""Calls of a form that was seen before, by the shortest way: nothing is looked at but what can differ.

A *form* is everything of a call but addresses and the stream: which parameters are given, how, and for each PyTorch tensor its
shape, strides, dtype and device, for each number its value. For a form the compiled kernel, the sizes, the shapes of outputs and the
numbers that the launcher is given are known. What is not a plain PyTorch tensor on a GPU or a Python number goes the long way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import copysign
from typing import Any

from tilec.ir.launch import LaunchPlan

FORMS_KEPT = 512
"""Forms that are remembered; then all are forgotten."""

Launch = Callable[[Sequence[int], int, int], None]
"""Enqueues with the addresses of the parameters in the plan's order, the workspace's address and a stream's handle."""

_NUMBERS = frozenset({int, float, bool})


@dataclass(frozen=True)
class Form:
    """What a call of one form does. `places`: for each parameter of the plan the place of its array among those given, or among
    the outputs made, counted on behind them; `outputs`: shape and dtype of each that is made; `results`: places of what is returned;
    `workspace`: bytes. `built` is what the kernel's properties are about; `launches` by whether the stream is another than the
    default one: how, and the name of the way."""

    built: Any
    device: int
    places: tuple[int, ...]
    outputs: tuple[tuple[tuple[int, ...], Any], ...]
    results: tuple[int, ...]
    workspace: int
    launches: Mapping[bool, tuple[Launch, str]]


class Forms:
    """The forms that a kernel was called with, and PyTorch as far as a call needs it."""

    def __init__(self, torch: Any) -> None:
        self._forms: dict[tuple[Any, ...], Form] = {}
        self._tensors = frozenset({torch.Tensor, torch.nn.Parameter})
        self._empty, self._uint8 = torch.empty, torch.uint8
        self._current_device = current_device(torch)
        self._device = torch.cuda.device
        self._stream = stream_reader(torch)

    def key(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any], tensors: list[Any]
    ) -> tuple[Any, ...] | None:
        """The form of a call, its tensors put into `tensors`; None for one that goes the long way."""
        key: list[Any] = []
        for value in (*arguments, *named.values()) if named else arguments:
            kind = type(value)
            if kind in self._tensors:
                tensors.append(value)
                key += (value.shape, value.stride(), value.dtype, value.get_device())
            elif kind in _NUMBERS:
                key += (kind, value)  # 1 == 1.0 == True
                if kind is float and not value:
                    key.append(copysign(1.0, value))  # 0.0 == -0.0
            else:
                return None
        key.append(tuple(named))
        return tuple(key)

    def find(self, key: tuple[Any, ...]) -> Form | None:
        """The form, if it was seen."""
        return self._forms.get(key)

    def keep(self, key: tuple[Any, ...], form: Form) -> None:
        """Remember a form."""
        if len(self._forms) >= FORMS_KEPT:
            self._forms.clear()
        self._forms[key] = form

    def call(self, form: Form, tensors: list[Any]) -> tuple[Any, str]:
        """Make the outputs and launch on the current stream: what the call returns, and the way that it went."""
        device = form.device
        if self._current_device() != device:
            with self._device(device):
                return self._launch(form, tensors)
        return self._launch(form, tensors)

    def _launch(self, form: Form, tensors: list[Any]) -> tuple[Any, str]:
        for shape, dtype in form.outputs:
            tensors.append(self._empty(shape, dtype=dtype, device=form.device))
        handle = self._stream(form.device)
        launch, way = form.launches[bool(handle)]
        workspace = None
        if form.workspace:
            workspace = self._empty(form.workspace, dtype=self._uint8, device=form.device)
        addresses = [tensors[place].data_ptr() for place in form.places]
        launch(addresses, workspace.data_ptr() if workspace is not None else 0, handle)
        results = form.results
        if len(results) == 1:
            return tensors[results[0]], way
        return tuple(tensors[place] for place in results) or None, way


def current_device(torch: Any) -> Callable[[], int]:
    """What gives the index of PyTorch's current device. `torch.cuda.current_device` first looks whether CUDA was started, which it was
    where there is a tensor on a GPU; where PyTorch has the function below it, that is taken."""
    found: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    return found


def stream_reader(torch: Any) -> Callable[[int], int]:
    """The handle of PyTorch's current stream on a device. `current_stream` makes an object each time; where PyTorch has the function that
    its own compiler uses, that is taken."""
    found: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if found is not None:
        return found
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


def forms_of_torch() -> Forms | None:
    """An empty collection; None where PyTorch is not imported, or is not the one that a call needs."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn") or not hasattr(torch, "_C"):
        return None
    return Forms(torch)


def form_of(
    built: Any,
    plan: LaunchPlan,
    device: int,
    given: Sequence[str],
    made: Mapping[str, Any],
    workspace: int,
    launches: Mapping[bool, tuple[Launch, str]],
) -> Form:
    """The form of a call that has been made: `given` are the names of its arrays in order, `made` the outputs that were not given."""
    names = [*given, *made]
    outputs = tuple((tuple(array.shape), array.dtype) for array in made.values())
    places = tuple(names.index(t.name) for t in plan.parameters)
    results = tuple(names.index(t.name) for t in plan.parameters if t.role == "output")
    return Form(built, device, places, outputs, results, workspace, launches)
