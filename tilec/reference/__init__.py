"""What a program means: a NumPy interpreter of Tile IR, the `check` clause, error bounds and inputs."""
