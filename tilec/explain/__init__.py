"""What a compiled kernel is, read off its Kernel IR: memory map, bank conflicts, registers, layouts, bounds."""
