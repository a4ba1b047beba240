"""The emulator: generated kernels on the CPU, with every access checked."""
