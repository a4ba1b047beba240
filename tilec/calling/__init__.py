"""Kernels as Python functions on the arrays of other libraries."""
