"""Mutants of the compiler's output: each barrier, wait, guard, bound and slot weakened, one at a time."""
