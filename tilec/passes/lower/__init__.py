"""Tile IR under one variant's layouts -> Kernel IR: scalars, loops over registers, reductions, stores."""

from tilec.passes.lower.nest import lower_nest

__all__ = ["lower_nest"]
