"""Running compiled kernels: sizes and arguments, launches, the GPU through pycuda, verification, timing."""
