"""From Kernel IR to text."""
