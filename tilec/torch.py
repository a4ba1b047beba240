"""Kernels as operators of PyTorch.

softmax = tilec.compile("softmax.tile")
op = tilec.torch.op(softmax, "mine::softmax", backward=tilec.compile("backward.tile", "softmax_backward"))
y = torch.compile(lambda x: op(x) * 2)(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilec.calling.kernel import Kernel


def op(
    kernel: Kernel, name: str | None = None, *, backward: Kernel | Callable[..., Any] | None = None
) -> Any:
    """Register a kernel with `torch.library` as the operator `namespace::name`, `tilec::KERNEL` where none is given; returns what is
    called with the kernel's inputs in order.

    It has a fake implementation, so that `torch.compile` keeps it whole, with static and dynamic shapes; it launches on PyTorch's current
    stream and does not wait, so a CUDA graph can hold it after one call outside of the capture.

    `backward` gives gradients: a kernel whose parameters are named as the kernel's inputs and outputs, `dy` for the gradient of the
    output `y`, and whose outputs are named `dx` for an input `x`; or a function that takes any of these by name and returns a dict by
    input, a tuple with a gradient or None for each tensor input, or the gradient of the only one. Without it the operator has none.

    Raises TileError (E0714, E0725), and ModuleNotFoundError without PyTorch.
    """
    from tilec.calling.torch_op import make_operator

    return make_operator(kernel, kernel.syntax, name or f"tilec::{kernel.name}", backward)


__all__ = ["op"]
