"""tilec: a compiler from the Tile language to CUDA."""

__version__ = "0.1.0"
