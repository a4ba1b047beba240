"""Finding and running nvcc and the host compiler, reading what ptxas says, and the cache of what was built."""
