"""Dtypes, the symbolic index algebra, layouts and the two intermediate representations."""
