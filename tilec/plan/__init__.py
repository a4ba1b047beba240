"""Which numbers a kernel is compiled with, decided before Tile IR exists."""
