"""The fakes as fixtures of this folder."""

from __future__ import annotations

from tests.calling.fakes import c_launchers, fast_calls, plain_calls, pycuda, torch

__all__ = ["c_launchers", "fast_calls", "plain_calls", "pycuda", "torch"]
